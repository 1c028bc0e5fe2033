//! Volumes and claims without snapshots: a volume that is kept after its claim is deleted
//! (`Retain`) is restored itself; for a claim on any other volume an empty one is provisioned.

use backup_core::data_movement::{DATA_UPLOAD_NAME, download_of_claim};
use serde_json::Value;

use super::{
    json::{self, Object},
    rules::RestoreRules,
};

const BINDING: [&str; 2] = [
    "pv.kubernetes.io/bind-completed",
    "pv.kubernetes.io/bound-by-controller",
];
const PROVISIONING: [&str; 3] = [
    "volume.kubernetes.io/selected-node",
    "volume.kubernetes.io/storage-provisioner",
    "volume.beta.kubernetes.io/storage-provisioner",
];

/// Whether a volume of the backup is restored itself.
pub fn is_kept(volume: &Object) -> bool {
    json::text(volume, &["spec"], "persistentVolumeReclaimPolicy") == Some("Retain")
}

/// Whether its claim is gone, and the volume still refers to it.
pub fn is_released(volume: &Object) -> bool {
    json::text(volume, &["status"], "phase") == Some("Released")
        && json::text(volume, &["spec", "claimRef"], "uid").is_some()
}

/// The claim that holds a volume, as `namespace/name`: bound to it, or reserved by the volume's
/// `claimRef`. `None` if the volume is free, or its claim is gone.
pub fn holder(volume: &Object) -> Option<String> {
    if matches!(
        json::text(volume, &["status"], "phase"),
        Some("Released" | "Failed")
    ) {
        return None;
    }
    let namespace = claim_field(volume, "namespace")?;
    let name = claim_field(volume, "name")?;
    Some(format!("{namespace}/{name}"))
}

fn claim_field<'a>(volume: &'a Object, key: &str) -> Option<&'a str> {
    json::text(volume, &["spec", "claimRef"], key).filter(|text| !text.is_empty())
}

/// Lets an existing bound claim keep its volume: the server never changes a bound volume, so that
/// does not count as a difference.
pub(super) fn keep_bound(seen: &mut Object, in_cluster: &Object, wanted: &Object) {
    if volume_of_claim(in_cluster).is_none() {
        return;
    }
    match volume_of_claim(wanted) {
        Some(volume) => json::set(seen, &["spec"], "volumeName", Value::from(volume)),
        None => json::remove(seen, &["spec"], &["volumeName"]),
    }
}

pub fn volume_of_claim(claim: &Object) -> Option<&str> {
    json::text(claim, &["spec"], "volumeName").filter(|name| !name.is_empty())
}

/// A volume that is deleted with its claim has no data left; data with a CSI snapshot is restored
/// from that.
pub(crate) fn skip_reason(item: &Object, rules: &RestoreRules) -> Option<&'static str> {
    let name = json::text(item, &["metadata"], "name").unwrap_or_default();
    (!rules.kept_volumes.contains(name)).then_some(
        "its claim is provisioned anew: its reclaim policy is not Retain, or there is a CSI snapshot of it",
    )
}

/// Removes the old claim's uid from the volume, and applies the namespace mapping.
pub(crate) fn rewrite_volume(item: &mut Object, rules: &RestoreRules) {
    json::remove(item, &["metadata", "annotations"], &BINDING);
    let Some(claim) = json::object_mut(item, &["spec", "claimRef"]) else {
        return;
    };
    claim.remove("uid");
    claim.remove("resourceVersion");
    let target = claim
        .get("namespace")
        .and_then(Value::as_str)
        .map(|ns| rules.target(ns).to_owned());
    if let Some(target) = target {
        claim.insert("namespace".to_owned(), Value::from(target));
    }
}

/// Unbinds the claim; keeps its volume only if the volume itself is restored. `from` is the claim in
/// the backup.
pub(crate) fn rewrite_claim(item: &mut Object, from: &Object, rules: &RestoreRules) {
    json::remove(item, &["metadata", "annotations"], &BINDING);
    json::remove(item, &["metadata", "annotations"], &PROVISIONING);
    json::remove(item, &["metadata", "annotations"], &[DATA_UPLOAD_NAME]);
    // It was filled by an earlier restore. A claim with such a reference waits for its DataDownload
    // forever, unless an action of this restore has just made that.
    let stale = download_of(item).filter(|download| download_of(from) == Some(*download));
    if stale.is_some() {
        json::remove(item, &["spec"], &["dataSource", "dataSourceRef"]);
    }
    if volume_of_claim(item).is_none_or(|name| !rules.kept_volumes.contains(name)) {
        json::remove(item, &["spec"], &["volumeName"]);
    }
}

/// The DataDownload that fills a claim.
fn download_of(claim: &Object) -> Option<&str> {
    claim.get("spec").and_then(download_of_claim)
}
