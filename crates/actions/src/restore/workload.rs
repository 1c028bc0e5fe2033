//! Pods and Jobs: removes values that the scheduler, admission and the Job controller have set, so
//! that they set new ones.

use serde_json::Value;

use super::{
    json::{self, Object},
    owners::JOB_UID,
};

/// Annotation of a mirror pod, which represents a static pod of a kubelet.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Where admission mounts the account token in a pod.
const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const CONTAINERS: [&str; 2] = ["containers", "initContainers"];

/// The node's own files create mirror pods; a pod that has ended would run again.
pub(crate) fn skip_pod(item: &Object) -> Option<&'static str> {
    if json::object(item, &["metadata", "annotations"]).is_some_and(|a| a.contains_key(MIRROR)) {
        return Some("it mirrors a static pod");
    }
    match json::text(item, &["status"], "phase") {
        Some("Succeeded" | "Failed") => Some("the pod had ended"),
        _ => None,
    }
}

/// Clears the node, the resolved priority, debug containers (refused at creation) and injected
/// token volumes.
pub(crate) fn rewrite_pod(item: &mut Object) {
    let account = json::text(item, &["spec"], "serviceAccountName")
        .filter(|a| !a.is_empty())
        .unwrap_or("default")
        .to_owned();
    let Some(spec) = json::object_mut(item, &["spec"]) else {
        return;
    };
    for field in ["nodeName", "priority", "ephemeralContainers"] {
        spec.remove(field);
    }
    let mut gone = Vec::new();
    let elsewhere = mounted_elsewhere(spec);
    if let Some(volumes) = json::list_mut(spec, &[], "volumes") {
        volumes.retain(|volume| {
            let injected = injected_name(volume, &account, &elsewhere);
            gone.extend(injected.map(ToOwned::to_owned));
            injected.is_none()
        });
        if volumes.is_empty() {
            spec.remove("volumes");
        }
    }
    for kind in CONTAINERS {
        for container in json::list_mut(spec, &[], kind).into_iter().flatten() {
            drop_mounts(container, &gone);
        }
    }
}

/// The name of a volume that admission injected: the projected token, or the token secret of old
/// clusters. A Secret that is mounted `elsewhere` was mounted by a user, whatever its name.
fn injected_name<'a>(volume: &'a Value, account: &str, elsewhere: &[String]) -> Option<&'a str> {
    let volume = volume.as_object()?;
    let name = volume.get("name")?.as_str()?;
    let projected = volume.contains_key("projected") && name.starts_with("kube-api-access-");
    let secret = volume.contains_key("secret")
        && name
            .strip_prefix(account)
            .is_some_and(|rest| rest.starts_with("-token-"))
        && !elsewhere.iter().any(|volume| volume == name);
    (projected || secret).then_some(name)
}

/// The volumes that containers mount at other paths than admission does.
fn mounted_elsewhere(spec: &Object) -> Vec<String> {
    let containers = CONTAINERS
        .iter()
        .filter_map(|kind| spec.get(*kind)?.as_array())
        .flatten();
    let mounts = containers
        .filter_map(|container| container.get("volumeMounts")?.as_array())
        .flatten();
    let elsewhere = mounts.filter(|mount| {
        mount
            .get("mountPath")
            .is_some_and(|path| path != TOKEN_PATH)
    });
    elsewhere
        .filter_map(|mount| Some(mount.get("name")?.as_str()?.to_owned()))
        .collect()
}

fn drop_mounts(container: &mut Value, gone: &[String]) {
    let Some(container) = container.as_object_mut() else {
        return;
    };
    let Some(mounts) = json::list_mut(container, &[], "volumeMounts") else {
        return;
    };
    mounts.retain(|m| {
        m.get("name")
            .and_then(Value::as_str)
            .is_none_or(|name| !gone.iter().any(|g| g == name))
    });
    if mounts.is_empty() {
        container.remove("volumeMounts");
    }
}

/// A Job that has ended would run again. `SuccessCriteriaMet` and `FailureTarget` precede the end:
/// only its pods are still being stopped.
pub(crate) fn skip_job(item: &Object) -> Option<&'static str> {
    let status = json::object(item, &["status"])?;
    if status.contains_key("completionTime") {
        return Some("the job had completed");
    }
    let conditions = status.get("conditions").and_then(Value::as_array);
    let conditions = conditions
        .into_iter()
        .flatten()
        .filter_map(Value::as_object);
    let mut met = conditions.filter(|one| json::text(one, &[], "status") == Some("True"));
    met.find_map(|one| match json::text(one, &[], "type") {
        Some("Complete" | "SuccessCriteriaMet") => Some("the job had completed"),
        Some("Failed" | "FailureTarget") => Some("the job had failed"),
        _ => None,
    })
}

/// Removes the generated selector and labels, so that the new Job gets its own, unless a user chose
/// the selector.
pub(crate) fn rewrite_job(item: &mut Object) {
    if json::is_true(item, &["spec"], "manualSelector") {
        return;
    }
    json::remove(item, &["spec", "selector", "matchLabels"], &JOB_UID);
    if json::object(item, &["spec", "selector"]).is_some_and(Object::is_empty) {
        json::remove(item, &["spec"], &["selector"]);
    }
    json::remove(item, &["spec", "template", "metadata", "labels"], &JOB_UID);
    json::remove(item, &["metadata", "labels"], &JOB_UID);
}
