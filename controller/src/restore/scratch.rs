//! The scratch namespaces of a drill. Each gets its policy and its quota before any item.
//!
//! A namespace that is there and has not the label of this drill is never used. Once it is created,
//! its own uid is written into it: by that, label and uid show later that it is the one that was
//! created here. After a crash between both, the next attempt writes it.

use std::collections::BTreeMap;

use backup_actions::restore::{
    existing,
    json::{self, Object},
};
use backup_core::{
    api::{DrillSettings, Restore},
    labels::{
        DRILL_INSTALLATION_LABEL, DRILL_LABEL, DRILL_RESTORE_ANNOTATION, EXCLUDE_FROM_BACKUP,
        SCRATCH_UID_ANNOTATION,
    },
    resources::CLAIMS,
};
use backup_store::crash;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::{
    apply::{ItemResult, MAX_ATTEMPTS, Outcome},
    calls::{CallError, Calls},
};
use crate::job::cancellation::StopReason;

const NAMESPACES: &str = "/api/v1/namespaces";
/// Name of the policy and of the quota of a scratch namespace.
const NAME: &str = "drill";
/// Label of a namespace: the standard that the API server enforces for its pods.
const POD_SECURITY: &str = "pod-security.kubernetes.io/enforce";
/// The standards that scratch namespaces may have, the stricter first.
const POD_STANDARDS: [&str; 2] = ["restricted", "baseline"];
/// Namespace of the DNS server.
const DNS_NAMESPACE: &str = "kube-system";
/// Limits of a scratch namespace, unless the drill has others of the same name. The limit of claims
/// is the number of those that are restored, so that nothing makes others: they could be bound to
/// volumes that exist.
const DEFAULT_QUOTA: [(&str, &str); 3] = [
    ("pods", "50"),
    ("services.loadbalancers", "0"),
    ("services.nodeports", "0"),
];

/// Why a scratch namespace was not made.
enum ScratchError {
    Stopped(StopReason),
    /// A clause.
    Refused(String),
}

impl From<CallError> for ScratchError {
    fn from(error: CallError) -> Self {
        match error.unless_stopped() {
            Ok(error) => Self::Refused(error.to_string()),
            Err(reason) => Self::Stopped(reason),
        }
    }
}

/// Makes the scratch namespaces of one drill.
pub(super) struct Scratch<'a> {
    pub(super) restore: &'a Restore,
    pub(super) settings: &'a DrillSettings,
    /// Namespace of the installation.
    pub(super) own: &'a str,
    /// Number of claims that are restored into the namespace.
    pub(super) claims: usize,
}

impl Scratch<'_> {
    /// Makes sure that a scratch namespace exists, is of this drill, and is isolated. `labels` are
    /// those of the namespace in the backup.
    pub(super) async fn ensure(
        &self,
        calls: &Calls,
        name: &str,
        labels: &BTreeMap<String, String>,
    ) -> Result<ItemResult, StopReason> {
        match self.make(calls, name, labels).await {
            Ok(()) => Ok(ItemResult::quiet(Outcome::Created)),
            Err(ScratchError::Stopped(reason)) => Err(reason),
            Err(ScratchError::Refused(why)) => Ok(ItemResult::failed(format!(
                "scratch namespace {name:?} could not be made, so nothing was restored into it: {why}"
            ))),
        }
    }

    async fn make(
        &self,
        calls: &Calls,
        name: &str,
        labels: &BTreeMap<String, String>,
    ) -> Result<(), ScratchError> {
        let body = self.namespace(name, labels);
        if let Err(error) = calls.create(NAMESPACES, &body, None).await.0
            && !error.is_already_exists()
        {
            return Err(error.into());
        }
        if calls.is_dry_run() {
            return Ok(());
        }
        crash::point("after-scratch-namespace");
        self.mark(calls, name).await?;
        let policies = format!("/apis/networking.k8s.io/v1/namespaces/{name}/networkpolicies");
        create_once(calls, &policies, &self.policy()).await?;
        Ok(self.limit(calls, name).await?)
    }

    /// Makes the quota of a namespace. Without a status the API server would refuse everything that
    /// the quota counts; the controller of quotas writes one a little later.
    async fn limit(&self, calls: &Calls, namespace: &str) -> Result<(), CallError> {
        let quotas = format!("{NAMESPACES}/{namespace}/resourcequotas");
        let hard = self.hard();
        create_once(calls, &quotas, &quota(&hard)).await?;
        let found = calls.get(&quotas, NAME).await?;
        let status = found.as_ref().and_then(|quota| quota.get("status"));
        let has_status = status.is_some_and(|status| status["hard"].is_object());
        if !has_status {
            let none = |name: &String| (name.clone(), Value::from("0"));
            let used: Object = hard.keys().map(none).collect();
            let status = json!({ "hard": hard, "used": used });
            calls.replace_status(&quotas, NAME, &status).await?;
        }
        Ok(())
    }

    /// Writes its uid into a namespace of this drill. Errors: there is another one of its name.
    async fn mark(&self, calls: &Calls, name: &str) -> Result<(), ScratchError> {
        for _ in 0..MAX_ATTEMPTS {
            let Some(found) = calls.get(NAMESPACES, name).await? else {
                let why = "it was deleted at once; run another drill";
                return Err(ScratchError::Refused(why.to_owned()));
            };
            let metadata = |key: &str| json::text(&found, &["metadata"], key).unwrap_or_default();
            let label = json::text(&found, &["metadata", "labels"], DRILL_LABEL);
            if label != Some(self.uid().as_str()) || existing::is_going(&found) {
                let why = "there is another namespace of this name, which is not changed; run another drill";
                return Err(ScratchError::Refused(why.to_owned()));
            }
            let uid = metadata("uid");
            let noted = json::text(&found, &["metadata", "annotations"], SCRATCH_UID_ANNOTATION);
            if noted == Some(uid) {
                return Ok(());
            }
            let mut patch = Object::new();
            let version = Value::from(metadata("resourceVersion"));
            json::set(&mut patch, &["metadata"], "resourceVersion", version);
            let annotations = ["metadata", "annotations"];
            let uid = Value::from(uid);
            json::set(&mut patch, &annotations, SCRATCH_UID_ANNOTATION, uid);
            match calls.patch(NAMESPACES, name, &patch, None).await {
                Ok(_) => return Ok(()),
                Err(error) if error.is_conflict() || error.is_not_found() => {}
                Err(error) => return Err(error.into()),
            }
        }
        let why = "it changed each time when it was to be marked; run another drill";
        Err(ScratchError::Refused(why.to_owned()))
    }

    fn uid(&self) -> String {
        self.restore.uid().unwrap_or_default()
    }

    /// Pods may not do more than in the namespace of the backup, and nothing that concerns the node.
    fn namespace(&self, name: &str, labels: &BTreeMap<String, String>) -> Object {
        let stored = labels.get(POD_SECURITY).map(String::as_str);
        let [strict, usual] = POD_STANDARDS;
        let standard = if stored == Some(strict) {
            strict
        } else {
            usual
        };
        object(json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {
                "name": name,
                "labels": {
                    DRILL_LABEL: self.uid(),
                    DRILL_INSTALLATION_LABEL: self.own,
                    EXCLUDE_FROM_BACKUP: "true",
                    POD_SECURITY: standard,
                },
                "annotations": { DRILL_RESTORE_ANNOTATION: self.restore.name_any() },
            },
        }))
    }

    /// Pods of the drill reach one another, and resolve names, and nothing else.
    fn policy(&self) -> Object {
        let same_drill =
            json!({ "namespaceSelector": { "matchLabels": { DRILL_LABEL: self.uid() } } });
        let dns = json!({ "namespaceSelector": { "matchLabels": {
            "kubernetes.io/metadata.name": DNS_NAMESPACE } } });
        let ports = json!([{ "protocol": "UDP", "port": 53 }, { "protocol": "TCP", "port": 53 }]);
        object(json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": { "name": NAME },
            "spec": {
                "podSelector": {},
                "policyTypes": ["Ingress", "Egress"],
                "ingress": [{ "from": [same_drill] }],
                "egress": [{ "to": [same_drill] }, { "to": [dns], "ports": ports }],
            },
        }))
    }

    /// The limits of a namespace.
    fn hard(&self) -> BTreeMap<String, String> {
        let defaults = DEFAULT_QUOTA.map(|(name, limit)| (name.to_owned(), limit.to_owned()));
        let mut hard = BTreeMap::from(defaults);
        hard.insert(CLAIMS.to_owned(), self.claims.to_string());
        hard.extend(self.settings.quota.clone());
        hard
    }
}

fn quota(hard: &BTreeMap<String, String>) -> Object {
    object(json!({
        "apiVersion": "v1", "kind": "ResourceQuota",
        "metadata": { "name": NAME },
        "spec": { "hard": hard },
    }))
}

/// Creates an object of the drill, unless an earlier attempt has done so.
async fn create_once(calls: &Calls, collection: &str, body: &Object) -> Result<(), CallError> {
    match calls.create(collection, body, None).await.0 {
        Err(error) if !error.is_already_exists() => Err(error),
        _ => Ok(()),
    }
}

fn object(value: Value) -> Object {
    match value {
        Value::Object(object) => object,
        _ => Object::new(),
    }
}

#[cfg(test)]
mod tests {
    use backup_testkit::{Fault, LastWrite};

    use super::*;
    use crate::restore::tests::fake::{self, FakeApi};

    const NAMESPACE: &str = "/api/v1/namespaces/drill-0123abcd-shop";
    const POLICY: &str =
        "/apis/networking.k8s.io/v1/namespaces/drill-0123abcd-shop/networkpolicies/drill";
    const QUOTA: &str = "/api/v1/namespaces/drill-0123abcd-shop/resourcequotas/drill";

    fn drill() -> Restore {
        let spec = json!({ "drill": { "quota": { "pods": "20", "requests.cpu": "4" } } });
        let mut restore = Restore::new("r", serde_json::from_value(spec).unwrap());
        restore.metadata.uid = Some("uid-r".to_owned());
        restore
    }

    async fn ensured(fake: &FakeApi, stored: &[(&str, &str)]) -> ItemResult {
        ensured_with(fake, stored, 0).await
    }

    /// With this number of restored claims.
    async fn ensured_with(fake: &FakeApi, stored: &[(&str, &str)], claims: usize) -> ItemResult {
        let restore = drill();
        let scratch = Scratch {
            restore: &restore,
            settings: &restore.spec.drill.as_ref().unwrap().settings,
            own: "velero",
            claims,
        };
        let labels = stored
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        let calls = fake::calls(fake);
        let ensured = scratch.ensure(&calls, "drill-0123abcd-shop", &labels);
        ensured.await.unwrap()
    }

    #[tokio::test]
    async fn a_scratch_namespace_is_labelled_marked_and_isolated() {
        let fake = fake::server();
        let stored = [("team", "a"), (POD_SECURITY, "privileged")];
        assert_eq!(ensured(&fake, &stored).await.outcome, Outcome::Created);
        let namespace = fake.get(NAMESPACE).unwrap();
        let metadata = &namespace["metadata"];
        assert_eq!(metadata["labels"][DRILL_LABEL], "uid-r");
        assert_eq!(metadata["labels"][DRILL_INSTALLATION_LABEL], "velero");
        assert_eq!(metadata["labels"][EXCLUDE_FROM_BACKUP], "true");
        assert_eq!(metadata["labels"][POD_SECURITY], "baseline");
        assert_eq!(metadata["labels"]["team"], Value::Null);
        assert_eq!(metadata["annotations"][DRILL_RESTORE_ANNOTATION], "r");
        assert_eq!(
            metadata["annotations"][SCRATCH_UID_ANNOTATION],
            metadata["uid"]
        );
        let policy = &fake.get(POLICY).unwrap()["spec"];
        assert_eq!(policy["policyTypes"], json!(["Ingress", "Egress"]));
        assert_eq!(policy["egress"].as_array().unwrap().len(), 2);
        let expected = json!({ "persistentvolumeclaims": "0", "pods": "20", "requests.cpu": "4",
            "services.loadbalancers": "0", "services.nodeports": "0" });
        let quota = fake.get(QUOTA).unwrap();
        assert_eq!(quota["spec"]["hard"], expected);
        assert_eq!(quota["status"]["hard"], expected);
        assert_eq!(quota["status"]["used"]["requests.cpu"], "0");
        let writes = fake.writes();
        assert_eq!(ensured(&fake, &[]).await.outcome, Outcome::Created);
        assert_eq!(fake.writes(), writes, "a second attempt writes nothing");
    }

    #[tokio::test]
    async fn a_scratch_namespace_has_room_for_the_restored_claims_alone() {
        let fake = fake::server();
        ensured_with(&fake, &[], 3).await;
        let quota = fake.get(QUOTA).unwrap();
        assert_eq!(quota["spec"]["hard"]["persistentvolumeclaims"], "3");
        assert_eq!(quota["status"]["used"]["persistentvolumeclaims"], "0");
    }

    #[tokio::test]
    async fn a_restricted_namespace_stays_restricted() {
        let fake = fake::server();
        ensured(&fake, &[(POD_SECURITY, "restricted")]).await;
        let namespace = fake.get(NAMESPACE).unwrap();
        assert_eq!(namespace["metadata"]["labels"][POD_SECURITY], "restricted");
    }

    #[tokio::test]
    async fn a_namespace_of_another_is_never_used() {
        for labels in [json!({}), json!({ DRILL_LABEL: "uid-other" })] {
            let fake = fake::server();
            let metadata = json!({ "name": "drill-0123abcd-shop", "uid": "u", "labels": labels });
            fake.put(NAMESPACE, json!({ "metadata": metadata }));
            let before = fake.get(NAMESPACE);
            let applied = ensured(&fake, &[]).await;
            assert_eq!(applied.outcome, Outcome::Failed);
            assert_says!(applied.error.unwrap(), "another namespace of this name");
            assert_eq!(fake.get(NAMESPACE), before);
            assert_eq!((fake.get(POLICY), fake.get(QUOTA)), (None, None));
        }
    }

    #[tokio::test]
    async fn the_status_of_a_quota_is_written_again_when_the_server_is_back() {
        let fake = fake::faulty(|request| {
            let is_status = request.is("PATCH", &format!("{QUOTA}/status"));
            (is_status && request.earlier < 2).then(Fault::unavailable)
        });
        assert_eq!(ensured(&fake, &[]).await.outcome, Outcome::Created);
        assert_eq!(fake.get(QUOTA).unwrap()["status"]["used"]["pods"], "0");
        assert_eq!(fake.count(&format!("PATCH {QUOTA}/status")), 3);
    }

    #[tokio::test]
    async fn the_status_that_the_controller_of_quotas_has_written_stays() {
        let fake = fake::server();
        fake.before("GET", QUOTA, |api| {
            let status = json!({ "hard": { "pods": "20" }, "used": { "pods": "3" } });
            api.edit(QUOTA, |quota| quota["status"] = status);
        });
        assert_eq!(ensured(&fake, &[]).await.outcome, Outcome::Created);
        assert_eq!(fake.get(QUOTA).unwrap()["status"]["used"]["pods"], "3");
        assert_eq!(fake.count(&format!("PATCH {QUOTA}/status")), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_crash_at_any_write_is_made_up_by_the_next_attempt() {
        for writes in 0..5 {
            for last in [LastWrite::Lost, LastWrite::Unanswered] {
                let fake = fake::server();
                fake.crash_after(writes, last);
                assert_eq!(ensured(&fake, &[]).await.outcome, Outcome::Failed);
                assert!(fake.recover());
                assert_eq!(ensured(&fake, &[]).await.outcome, Outcome::Created);
                let namespace = fake.get(NAMESPACE).unwrap();
                let metadata = &namespace["metadata"];
                assert_eq!(
                    metadata["annotations"][SCRATCH_UID_ANNOTATION],
                    metadata["uid"]
                );
                let quota = fake.get(QUOTA).unwrap();
                assert_eq!(quota["status"]["used"]["pods"], "0");
                assert!(fake.get(POLICY).is_some());
            }
        }
    }
}
