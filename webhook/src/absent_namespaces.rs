//! Namespaces that a Backup or Schedule includes by name, and that do not exist: a warning, as
//! nothing of them is saved. Such an object is admitted, as Velero does.

use std::time::Duration;

use backup_core::namespace_names::{absence, included_by_name};
use backup_lock::observe::Objects;
use futures::future::join_all;
use kube::core::{
    DynamicObject,
    admission::{AdmissionRequest, Operation},
};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use crate::schedules;

/// Maximum number of namespaces that are read for one request; further ones are not checked.
const MAX_READS: usize = 16;
/// Time limit for the reads. Without an answer there is no warning.
const READ_TIMEOUT: Duration = Duration::from_secs(1);

/// The warning about an object of this request.
pub(crate) async fn warning(
    objects: &Objects,
    request: &AdmissionRequest<DynamicObject>,
    deadline: Instant,
) -> Option<String> {
    let until = deadline.min(Instant::now() + READ_TIMEOUT);
    let reads = newly_included(request)
        .into_iter()
        .map(|name| name_if_absent(objects.clone(), name));
    let read = timeout_at(until, join_all(reads)).await.ok()?;
    let absent: Vec<String> = read.into_iter().flatten().collect();
    let absence = absence(&absent)?;
    let kind = &request.kind.kind;
    let namespace = request.namespace.as_deref().unwrap_or_default();
    Some(format!("{kind} {namespace}/{} {absence}", request.name))
}

async fn name_if_absent(objects: Objects, name: String) -> Option<String> {
    let exists = objects.namespace_exists(&name).await;
    matches!(exists, Ok(false)).then_some(name)
}

/// The namespaces that the object includes by name, and did not include before the request.
fn newly_included(request: &AdmissionRequest<DynamicObject>) -> Vec<String> {
    if matches!(request.operation, Operation::Delete | Operation::Connect) {
        return Vec::new();
    }
    let kind = &request.kind.kind;
    let list = |object: Option<&DynamicObject>| {
        object
            .map(|object| included(kind, object))
            .unwrap_or_default()
    };
    let before = list(request.old_object.as_ref());
    let now = list(request.object.as_ref());
    included_by_name(&now)
        .into_iter()
        .map(str::to_owned)
        .filter(|name| !before.contains(name))
        .take(MAX_READS)
        .collect()
}

/// The list of a Backup, or of the template of a Schedule.
fn included(kind: &str, object: &DynamicObject) -> Vec<String> {
    let path = if kind == schedules::KIND {
        "/spec/template/includedNamespaces"
    } else {
        "/spec/includedNamespaces"
    };
    let names = object.data.pointer(path).and_then(Value::as_array);
    names
        .into_iter()
        .flatten()
        .filter_map(|name| name.as_str().map(str::to_owned))
        .collect()
}
