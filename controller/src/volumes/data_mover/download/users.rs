//! Pods that use a claim.

use backup_client::paging;
use backup_core::text::listed;
use k8s_openapi::api::core::v1::{Pod, Volume};
use kube::{Api, Client, ResourceExt as _, api::ListParams};

/// Label of a pod of a ReplicaSet, whose name ends with it after that of its Deployment.
const TEMPLATE_HASH: &str = "pod-template-hash";
/// Number of pods in one page of the list for a plan.
const PLAN_PAGE_SIZE: u32 = 500;
/// Maximum number of pods that a message names.
const MAX_NAMED_PODS: usize = 5;

/// A pod that uses a claim and has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClaimUser {
    name: String,
    /// Kind and name of what would make the pod again.
    controller: Option<String>,
    /// Whether it has a node, so that it has the volume, or may be about to get it.
    pub(super) is_scheduled: bool,
    pub(super) is_deleting: bool,
}

impl ClaimUser {
    /// `None` if the pod has ended, or does not use the claim.
    pub(super) fn of(pod: &Pod, claim: &str) -> Option<Self> {
        let name = pod.name_any();
        let status = pod.status.as_ref();
        let phase = status.and_then(|status| status.phase.as_deref());
        let spec = pod.spec.as_ref()?;
        let mut volumes = spec.volumes.iter().flatten();
        let is_using = volumes.any(|volume| claim_of(volume, &name).as_deref() == Some(claim));
        let has_ended = matches!(phase, Some("Succeeded" | "Failed"));
        (is_using && !has_ended).then(|| Self {
            controller: controller(pod),
            is_scheduled: spec.node_name.is_some(),
            is_deleting: pod.metadata.deletion_timestamp.is_some(),
            name,
        })
    }
}

/// The claim of a volume of a pod.
fn claim_of(volume: &Volume, pod: &str) -> Option<String> {
    let by_name = volume.persistent_volume_claim.as_ref();
    by_name.map(|source| source.claim_name.clone()).or_else(|| {
        let ephemeral = volume.ephemeral.as_ref();
        ephemeral.map(|_| format!("{pod}-{}", volume.name))
    })
}

fn controller(pod: &Pod) -> Option<String> {
    let owners = pod.owner_references();
    let owner = owners.iter().find(|owner| owner.controller == Some(true))?;
    let deployment = pod
        .labels()
        .get(TEMPLATE_HASH)
        .and_then(|hash| owner.name.strip_suffix(hash)?.strip_suffix('-'))
        .filter(|_| owner.kind == "ReplicaSet");
    Some(match deployment {
        Some(name) => format!("Deployment {name}"),
        None => format!("{} {}", owner.kind, owner.name),
    })
}

/// The pods that use a claim, page by page.
pub(super) async fn users_of(
    client: &Client,
    page_size: u32,
    namespace: &str,
    claim: &str,
) -> Result<Vec<ClaimUser>, kube::Error> {
    let api: &Api<Pod> = &Api::namespaced(client.clone(), namespace);
    paging::collect(
        ListParams::default().limit(page_size),
        |page| async move { api.list(&page).await },
        |pod: Pod| ClaimUser::of(&pod, claim),
    )
    .await
}

/// Why no data would be restored into the volume of a claim that exists: pods use it. `None` also if
/// all of these pods are being deleted, as a restore waits for them.
pub(crate) async fn claim_in_use(
    client: &Client,
    namespace: &str,
    claim: &str,
) -> Result<Option<String>, kube::Error> {
    let users = users_of(client, PLAN_PAGE_SIZE, namespace, claim).await?;
    let users: Vec<_> = users.iter().collect();
    Ok((!all_are_ending(&users)).then(|| in_use(&claim_name(namespace, claim), &users)))
}

/// Whether all pods that use a claim are being deleted; also if there are none.
pub(super) fn all_are_ending(users: &[&ClaimUser]) -> bool {
    users.iter().all(|user| user.is_deleting)
}

/// A claim, in messages.
pub(super) fn claim_name(namespace: &str, claim: &str) -> String {
    format!("PersistentVolumeClaim {namespace}/{claim}")
}

/// The message about a claim ([`claim_name`]) into which nothing is restored, as pods use it.
pub(super) fn in_use(claim: &str, users: &[&ClaimUser]) -> String {
    let pods = names(users.iter().copied());
    format!(
        "{claim} is used by {pods}: no data is restored into a volume in use, so nothing is changed; \
         scale down what runs these pods, and restore the claim again"
    )
}

/// "web-1 (of Deployment web) and db-0 (of StatefulSet db)", or less, if there are many.
pub(super) fn names<'a>(users: impl Iterator<Item = &'a ClaimUser>) -> String {
    let all: Vec<String> = users
        .map(|user| match &user.controller {
            Some(controller) => format!("{} (of {controller})", user.name),
            None => user.name.clone(),
        })
        .collect();
    let named = &all[..all.len().min(MAX_NAMED_PODS)];
    listed(named, all.len())
}

/// The pods that wait until a volume is given back, as a sentence; empty if there are none.
pub(super) fn waiting(users: &[ClaimUser]) -> String {
    if users.is_empty() {
        return String::new();
    }
    let pods = names(users.iter());
    format!("these pods wait for the claim until its data is restored: {pods}")
}

#[cfg(test)]
pub(super) fn user(name: &str, is_scheduled: bool) -> ClaimUser {
    ClaimUser {
        name: name.to_owned(),
        controller: None,
        is_scheduled,
        is_deleting: false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(metadata: &Value, spec: &Value, phase: &str) -> Pod {
        let pod = json!({"metadata": metadata, "spec": spec, "status": {"phase": phase}});
        serde_json::from_value(pod).unwrap()
    }

    fn with_volume(volume: &Value) -> Value {
        json!({"containers": [], "volumes": [{"name": "tmp", "emptyDir": {}}, volume]})
    }

    fn owned(kind: &str, name: &str, hash: &str) -> Value {
        json!({"name": "web-1", "labels": {TEMPLATE_HASH: hash}, "ownerReferences": [
            {"apiVersion": "v1", "kind": kind, "name": name, "uid": "u", "controller": true}]})
    }

    #[test]
    fn a_pod_uses_a_claim_by_its_name_or_by_its_own_volume_until_it_ends() {
        let by_name = json!({"name": "v", "persistentVolumeClaim": {"claimName": "data"}});
        let other = json!({"name": "data", "persistentVolumeClaim": {"claimName": "other"}});
        let ephemeral = json!({"name": "v", "ephemeral": {}});
        for (volume, claim, phase, expected) in [
            (&by_name, "data", "Running", true),
            (&by_name, "data", "Pending", true),
            (&by_name, "data", "Unknown", true),
            (&by_name, "data", "Succeeded", false),
            (&by_name, "data", "Failed", false),
            (&other, "data", "Running", false),
            (&ephemeral, "web-1-v", "Running", true),
            (&ephemeral, "v", "Running", false),
        ] {
            let pod = pod(&json!({"name": "web-1"}), &with_volume(volume), phase);
            let found = ClaimUser::of(&pod, claim);
            assert_eq!(found.is_some(), expected, "{volume} {claim} {phase}");
        }
    }

    #[test]
    fn a_pod_is_named_with_what_would_make_it_again() {
        let volume = json!({"name": "v", "persistentVolumeClaim": {"claimName": "data"}});
        for (metadata, expected) in [
            (json!({"name": "web-1"}), "web-1"),
            (
                owned("ReplicaSet", "web-5d9", "5d9"),
                "web-1 (of Deployment web)",
            ),
            (
                owned("ReplicaSet", "web", "5d9"),
                "web-1 (of ReplicaSet web)",
            ),
            (owned("StatefulSet", "db", ""), "web-1 (of StatefulSet db)"),
        ] {
            let pod = pod(&metadata, &with_volume(&volume), "Running");
            let user = ClaimUser::of(&pod, "data").unwrap();
            assert_eq!(names([&user].into_iter()), expected);
        }
        let many = vec![user("web", true); 7];
        assert_eq!(names(many.iter()), "web, web, web, web, web and 2 more");
    }

    #[test]
    fn a_scheduled_pod_may_have_the_volume() {
        let volume = json!({"name": "v", "persistentVolumeClaim": {"claimName": "data"}});
        let mut spec = with_volume(&volume);
        let waiting = pod(&json!({"name": "web-1"}), &spec, "Pending");
        assert!(!ClaimUser::of(&waiting, "data").unwrap().is_scheduled);
        spec["nodeName"] = json!("n1");
        let mut metadata = json!({"name": "web-1"});
        metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let going = ClaimUser::of(&pod(&metadata, &spec, "Running"), "data").unwrap();
        assert!(going.is_scheduled && going.is_deleting);
    }
}
