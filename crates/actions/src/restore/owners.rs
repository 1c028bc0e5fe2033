//! The controllers of restored objects. All `ownerReferences` are removed with the uids in them:
//! most controllers find their objects by labels, and adopt them. These are the exceptions. Pure.

use backup_core::resources::{CLAIMS, PODS};
use serde_json::{Value, json};

use super::json::{self, Object};

/// Labels that link pods to the uid of their Job.
pub(super) const JOB_UID: [&str; 2] = ["controller-uid", "batch.kubernetes.io/controller-uid"];

/// The type of device claims.
pub(super) const RESOURCE_CLAIMS: &str = "resourceclaims.resource.k8s.io";

/// The controller of an object in the backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Controller<'a> {
    pub api_version: &'a str,
    pub kind: &'a str,
    pub name: &'a str,
    pub uid: &'a str,
}

impl Controller<'_> {
    /// An owner reference to it with its current uid.
    pub fn reference(&self, uid: &str) -> Value {
        let Self {
            api_version,
            kind,
            name,
            ..
        } = self;
        json!({
            "apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": true, "blockOwnerDeletion": true,
        })
    }
}

pub fn controller(item: &Object) -> Option<Controller<'_>> {
    let references = json::object(item, &["metadata"])?
        .get("ownerReferences")?
        .as_array()?;
    let of = references
        .iter()
        .filter_map(Value::as_object)
        .find(|one| json::is_true(one, &[], "controller"))?;
    Some(Controller {
        api_version: json::text(of, &[], "apiVersion")?,
        kind: json::text(of, &[], "kind")?,
        name: json::text(of, &[], "name")?,
        uid: json::text(of, &[], "uid")?,
    })
}

/// How an object gets a controller again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adoption {
    /// Its controller finds it by its labels, or the way is unknown.
    ByController,
    /// Its controller, of this type, creates a replacement, and never adopts this one.
    MadeAgain { by: &'static str, why: &'static str },
    /// Its controller finds it only by the reference, and creates no replacement.
    ByReference,
}

pub fn adoption(item: &Object, group_resource: &str, controller: &Controller<'_>) -> Adoption {
    let group = controller
        .api_version
        .split_once('/')
        .map_or("", |(group, _)| group);
    match (group_resource, group, controller.kind) {
        // A Job with a selector chosen by a user has no such labels on its pods, and adopts them.
        (PODS, "batch", "Job")
            if JOB_UID.iter().any(|label| {
                json::text(item, &["metadata", "labels"], label) == Some(controller.uid)
            }) =>
        {
            Adoption::MadeAgain {
                by: "jobs.batch",
                why: "its Job makes its pods again, and does not adopt this one",
            }
        }
        (CLAIMS, "", "Pod") => Adoption::MadeAgain {
            by: PODS,
            why: "it belongs to an ephemeral volume, and has no data in the backup: its pod gets another one",
        },
        (RESOURCE_CLAIMS, "", "Pod") => Adoption::MadeAgain {
            by: PODS,
            why: "it was made of a template for its pod, which gets another one",
        },
        ("jobs.batch", ..) => Adoption::ByReference,
        _ => Adoption::ByController,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::needless_pass_by_value)] // tables read better with values

    use rstest::rstest;

    use super::*;

    fn owned(labels: Value, api_version: &str, kind: &str) -> Object {
        let owner = json!({"apiVersion": api_version, "kind": kind, "name": "o", "uid": "u", "controller": true});
        let item = json!({"metadata": {"name": "x", "labels": labels, "ownerReferences": [{"kind": "Other"}, owner]}});
        item.as_object().unwrap().clone()
    }

    #[rstest]
    #[case::of_a_job("pods", json!({"controller-uid": "u"}), "batch/v1", "Job", Some("jobs.batch"))]
    #[case::of_a_job_by_its_new_label("pods", json!({"batch.kubernetes.io/controller-uid": "u"}), "batch/v1", "Job", Some("jobs.batch"))]
    #[case::of_an_ephemeral_volume("persistentvolumeclaims", json!({}), "v1", "Pod", Some("pods"))]
    #[case::of_a_template_of_resource_claims("resourceclaims.resource.k8s.io", json!({}), "v1", "Pod", Some("pods"))]
    fn what_its_owner_makes_again_and_cannot_adopt_is_known(
        #[case] group_resource: &str,
        #[case] labels: Value,
        #[case] api_version: &str,
        #[case] kind: &str,
        #[case] expected: Option<&str>,
    ) {
        let item = owned(labels, api_version, kind);
        let controller = controller(&item).unwrap();
        let adoption = adoption(&item, group_resource, &controller);
        let by = if let Adoption::MadeAgain { by, .. } = adoption {
            Some(by)
        } else {
            None
        };
        assert_eq!(by, expected);
    }

    #[rstest]
    #[case::pod_of_a_job_with_a_chosen_selector("pods", "batch/v1", "Job", Adoption::ByController)]
    #[case::pod_of_a_replica_set("pods", "apps/v1", "ReplicaSet", Adoption::ByController)]
    #[case::pod_of_another_kind("pods", "example.com/v1", "Job", Adoption::ByController)]
    #[case::replica_set("replicasets.apps", "apps/v1", "Deployment", Adoption::ByController)]
    #[case::job_of_a_cron_job("jobs.batch", "batch/v1", "CronJob", Adoption::ByReference)]
    #[case::job_of_another_operator(
        "jobs.batch",
        "example.com/v1",
        "Workflow",
        Adoption::ByReference
    )]
    fn what_its_owner_finds_again_comes_back(
        #[case] group_resource: &str,
        #[case] api_version: &str,
        #[case] kind: &str,
        #[case] expected: Adoption,
    ) {
        let item = owned(json!({"controller-uid": "of another"}), api_version, kind);
        assert_eq!(
            adoption(&item, group_resource, &controller(&item).unwrap()),
            expected
        );
    }

    #[test]
    fn an_object_without_a_controller_has_none() {
        let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "o", "uid": "u"});
        for metadata in [
            json!({}),
            json!({"ownerReferences": [owner]}),
            json!({"ownerReferences": "x"}),
        ] {
            let item = json!({"metadata": metadata});
            assert_eq!(controller(item.as_object().unwrap()), None);
        }
    }
}
