//! The users and programs in tests of the policies, with enough RBAC rights that only the policies
//! refuse their requests.

use anyhow::{Context as _, bail, ensure};
use k8s_openapi::api::{
    authorization::v1::SubjectAccessReview, coordination::v1::Lease, core::v1::ConfigMap,
};
use kube::{
    Api, Client, Discovery,
    api::DynamicObject,
    core::{ApiResource, Status},
};
use serde_json::{Value, json};

use crate::{
    World,
    api::{ApiExt as _, dry_run, resource},
    binaries::root,
    control_plane::ControlPlane,
    install::{self, NAMESPACE},
    wait::{Probe, TIMEOUT, eventually},
};

pub const WEBHOOK: &str = "system:serviceaccount:velero:backup-webhook";
pub const CONTROLLER: &str = "system:serviceaccount:velero:backup-controller";
/// A ServiceAccount of the same name in another namespace, with the built-in role `edit` here.
pub const STRANGER: &str = "system:serviceaccount:elsewhere:backup-webhook";
/// May do everything with Leases, ConfigMaps, Backups and Restores, and has no permissions of the
/// lock.
pub const EDITOR: &str = "edith";
/// An editor who may release and hold.
pub const OPERATOR: &str = "olga";
/// Has the role backup-lock-operator and nothing else.
pub const BARE_OPERATOR: &str = "otto";
/// Has the role backup-lock-view and nothing else.
pub const VIEWER: &str = "vera";
/// Has the role backup-reader and nothing else.
pub const READER: &str = "rita";
/// Has the role backup-operator and nothing else: changes Backups and reads no files.
pub const PLANNER: &str = "paula";
/// Has the role backup-owner and nothing else.
pub const OWNER: &str = "oscar";
/// An editor with the role backup-owner, which limits such a user, too.
pub const OWNING_EDITOR: &str = "odile";
/// An editor with the break-glass permission.
pub const BREAKER: &str = "gwen";

/// The users and programs, with the policies in force.
pub struct People<'w> {
    plane: &'w ControlPlane,
    admin: Client,
}

impl<'w> People<'w> {
    /// Grants all roles, and waits until every policy refuses something.
    pub async fn of(world: &'w World) -> anyhow::Result<Self> {
        let people = Self {
            plane: &world.plane,
            admin: world.client.clone(),
        };
        install::ensure_namespace(&people.admin, "elsewhere").await?;
        people
            .grant(
                NAMESPACE,
                &[EDITOR, OPERATOR, BREAKER, STRANGER, OWNING_EDITOR],
            )
            .await?;
        for (role, person) in [
            ("backup-lock-operator", OPERATOR),
            ("backup-lock-operator", BARE_OPERATOR),
            ("backup-lock-view", VIEWER),
            ("backup-reader", READER),
            ("backup-operator", PLANNER),
            ("backup-owner", OWNER),
            ("backup-owner", OWNING_EDITOR),
            ("backup-break-glass", BREAKER),
        ] {
            people.bind(NAMESPACE, role, person).await?;
        }
        install::install_policies(&people.admin).await?;
        people.in_force().await?;
        Ok(people)
    }

    /// A client that acts as this user or ServiceAccount.
    pub async fn client(&self, who: &str) -> anyhow::Result<Client> {
        self.plane.impersonate(who).await
    }

    pub async fn leases(&self, who: &str) -> anyhow::Result<Api<Lease>> {
        Ok(Api::namespaced(self.client(who).await?, NAMESPACE))
    }

    pub async fn config_maps(&self, who: &str) -> anyhow::Result<Api<ConfigMap>> {
        Ok(Api::namespaced(self.client(who).await?, NAMESPACE))
    }

    /// Objects of a kind of velero.io.
    pub async fn objects(&self, who: &str, kind: &str) -> anyhow::Result<Api<DynamicObject>> {
        Ok(Api::namespaced_with(
            self.client(who).await?,
            NAMESPACE,
            &velero(kind),
        ))
    }

    /// Binds the policies of the installation to one more namespace, where our ServiceAccounts may
    /// edit.
    pub async fn bind_policies_to(&self, namespace: &str) -> anyhow::Result<()> {
        install::ensure_namespace(&self.admin, namespace).await?;
        let ours = format!("system:serviceaccount:{namespace}:backup-webhook");
        self.grant(namespace, &[&ours, WEBHOOK]).await?;
        for mut binding in install::documents(&root().join("deploy/base"))? {
            let selector = "/spec/matchResources/namespaceSelector/matchLabels";
            let Some(labels) = binding.data.pointer_mut(selector) else {
                continue;
            };
            labels["kubernetes.io/metadata.name"] = json!(namespace);
            let name = format!(
                "{}-{namespace}",
                binding.metadata.name.as_deref().unwrap_or_default()
            );
            binding.metadata.name = Some(name);
            self.apply(&serde_json::to_value(&binding)?).await?;
        }
        Ok(())
    }

    /// Lets users edit a namespace and its objects of velero.io.
    pub async fn grant(&self, namespace: &str, people: &[&str]) -> anyhow::Result<()> {
        self.apply(&json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": { "name": "backups-edit" },
            "rules": [{ "apiGroups": ["velero.io"], "resources": ["backups", "restores", "deletebackuprequests",
                    "downloadrequests", "datauploads", "datadownloads", "backuprepositories"],
                "verbs": ["get", "list", "create", "update", "patch", "delete", "deletecollection"] }] }))
            .await?;
        for person in people {
            self.bind(namespace, "edit", person).await?;
            self.bind(namespace, "backups-edit", person).await?;
        }
        let reviews = Api::<SubjectAccessReview>::all(self.admin.clone());
        for person in people {
            // The authorizer sees bindings by a watch, in the order of their creation: if the last
            // one is seen, all are.
            let review = serde_json::from_value(
                json!({ "spec": { "user": person, "resourceAttributes": {
                "namespace": namespace, "verb": "create", "group": "velero.io", "resource": "backups" } } }),
            )?;
            eventually("the bindings are in force", TIMEOUT, async || {
                let status = reviews.create_object(&review).await?.status;
                ensure!(
                    status.is_some_and(|status| status.allowed),
                    "{person} may not create backups in {namespace}"
                );
                anyhow::Ok(Probe::Ready(()))
            })
            .await?;
        }
        Ok(())
    }

    async fn bind(&self, namespace: &str, role: &str, person: &str) -> anyhow::Result<()> {
        self.apply(&json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": { "name": format!("{role}-{}", person.replace(':', "-")), "namespace": namespace },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
            "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": person }] }))
            .await
    }

    async fn apply(&self, object: &Value) -> anyhow::Result<()> {
        let object: DynamicObject = serde_json::from_value(object.clone())?;
        let discovery = Discovery::new(self.admin.clone()).run_aggregated().await?;
        let api = install::api_of(&self.admin, &discovery, &object)?;
        let name = object.metadata.name.clone().context("no name")?;
        api.apply_object(&name, &object).await?;
        Ok(())
    }

    /// Waits until each policy refuses a dry run that only this policy refuses, and until RBAC
    /// allows the rest.
    async fn in_force(&self) -> anyhow::Result<()> {
        let dry = dry_run();
        let maps = self.config_maps(EDITOR).await?;
        let leases = self.leases(CONTROLLER).await?;
        let backups = self.objects(EDITOR, "Backup").await?;
        let marker =
            serde_json::from_value(json!({ "metadata": { "name": "backup-lock-probe" } }))?;
        let lease = serde_json::from_value(json!({ "metadata": { "name": "backup-lock-probe" } }))?;
        let running = object(
            "Backup",
            "probe",
            &json!({ "status": { "phase": "InProgress" } }),
        )?;
        let broken = json!({ "metadata": { "annotations": { "backup-lock/break-glass": "why" } } });
        let broken = object("Backup", "probe", &broken)?;
        let of_breaker = self.objects(BREAKER, "Backup").await?;
        eventually("the policies are in force", TIMEOUT, async || {
            refused(
                maps.create(&dry, &marker).await,
                "only its programs write it",
            )?;
            refused(leases.create(&dry, &lease).await, "would lose its claims")?;
            refused(
                backups.create(&dry, &running).await,
                "only backup-controller moves",
            )?;
            refused(
                backups.create(&dry, &broken).await,
                "who may break the glass",
            )?;
            of_breaker.create(&dry, &broken).await?;
            anyhow::Ok(Probe::Ready(()))
        })
        .await
    }
}

pub fn velero(kind: &str) -> ApiResource {
    resource(api_version(kind), kind)
}

fn api_version(kind: &str) -> &'static str {
    if matches!(kind, "DataUpload" | "DataDownload") {
        "velero.io/v2alpha1"
    } else {
        "velero.io/v1"
    }
}

/// The refusal, which must be a 403 whose message contains this.
pub fn refused<T>(result: kube::Result<T>, needle: &str) -> anyhow::Result<Status> {
    match result.map(|_| ()) {
        Ok(()) => bail!("passed, and not refused with {needle:?}"),
        Err(kube::Error::Api(status)) => {
            ensure!(
                status.code == 403,
                "{} and not 403: {}",
                status.code,
                status.message
            );
            ensure!(
                status.message.contains(needle),
                "not {needle:?} but: {}",
                status.message
            );
            Ok(*status)
        }
        Err(other) => Err(other.into()),
    }
}

/// An object of velero.io with these fields.
pub fn object(kind: &str, name: &str, rest: &Value) -> anyhow::Result<DynamicObject> {
    let mut value =
        json!({ "apiVersion": api_version(kind), "kind": kind, "metadata": { "name": name } });
    json_patch::merge(&mut value, rest);
    Ok(serde_json::from_value(value)?)
}
