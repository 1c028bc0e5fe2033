//! Claims add their volume as a related item, and lose the fields that would prevent a new binding.

use async_trait::async_trait;
use backup_core::{
    api::Backup,
    resources::{CLAIMS, VOLUMES},
};
use kube::ResourceExt as _;
use serde_json::Value;

use super::action::{BackupActionOutput, BackupItemAction};
use crate::{
    ActionError, ItemId,
    action::BuiltInAction,
    json::{object, text},
};

const VELERO: &str = "velero.io/";

/// `velero.io/pv`, on PersistentVolumeClaims (Velero `pkg/backup/actions/backup_pv_action.go`,
/// v1.18).
pub(crate) struct ClaimAction;

impl BuiltInAction for ClaimAction {
    const NAME: &'static str = "velero.io/pv";
    const RESOURCE: &'static str = CLAIMS;
}

#[async_trait]
impl BackupItemAction for ClaimAction {
    async fn execute(
        &self,
        item: &Value,
        backup: &Backup,
    ) -> Result<BackupActionOutput, ActionError> {
        Ok(execute(item, &backup.name_any()))
    }
}

fn execute(claim: &Value, backup: &str) -> BackupActionOutput {
    let Some(volume) = text(claim, "/spec/volumeName") else {
        return BackupActionOutput::default();
    };
    if text(claim, "/status/phase") != Some("Bound") {
        return BackupActionOutput::default();
    }
    let changed = without_leftovers(claim, backup);
    let volume = ItemId::new(VOLUMES, None, volume);
    BackupActionOutput {
        item: (changed != *claim).then_some(changed),
        additional: vec![volume],
        ..BackupActionOutput::default()
    }
}

/// Removes fields that a bound claim no longer needs, such as its data source, which a restore may
/// not find.
fn without_leftovers(claim: &Value, backup: &str) -> Value {
    let mut claim = claim.clone();
    // "" requests an existing volume; in all other cases a selector prevents provisioning.
    let keeps_selector = claim
        .pointer("/spec/storageClassName")
        .and_then(Value::as_str)
        == Some("");
    if let Some(spec) = object(&mut claim, "/spec") {
        spec.remove("dataSource");
        spec.remove("dataSourceRef");
        if !keeps_selector {
            spec.remove("selector");
        }
    }
    if let Some(labels) = object(&mut claim, "/spec/selector/matchLabels") {
        labels.retain(|key, _| !key.starts_with(VELERO));
    }
    if let Some(labels) = object(&mut claim, "/metadata/labels") {
        labels.retain(|key, value| match key.strip_prefix(VELERO) {
            Some("restore-name" | "volume-snapshot-name") => false,
            Some("backup-name") => value.as_str() == Some(backup),
            _ => true,
        });
    }
    claim
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn bound(mut spec: Value) -> Value {
        spec["volumeName"] = json!("pv-1");
        json!({ "metadata": { "name": "c" }, "spec": spec, "status": { "phase": "Bound" } })
    }

    #[test]
    fn a_bound_claim_brings_its_volume_and_one_that_waits_brings_nothing() {
        let executed = execute(&bound(json!({})), "b");
        assert_eq!(
            (executed.item, executed.additional[0].name.as_str()),
            (None, "pv-1")
        );
        let mut pending = bound(json!({ "dataSource": { "name": "s" } }));
        pending["status"]["phase"] = json!("Pending");
        assert_eq!(execute(&pending, "b"), BackupActionOutput::default());
        assert_eq!(
            execute(&json!({ "status": { "phase": "Bound" } }), "b"),
            BackupActionOutput::default()
        );
    }

    #[rstest::rstest]
    #[case(json!({ "dataSource": { "name": "s" }, "dataSourceRef": { "name": "s" } }), json!({}))]
    #[case(json!({ "selector": { "matchLabels": { "a": "b" } } }), json!({}))]
    #[case(json!({ "storageClassName": "fast", "selector": {} }), json!({ "storageClassName": "fast" }))]
    #[case(
        json!({ "storageClassName": "", "selector": { "matchLabels": { "a": "b", "velero.io/dynamic-pv-restore": "x" } } }),
        json!({ "storageClassName": "", "selector": { "matchLabels": { "a": "b" } } })
    )]
    fn what_would_keep_it_from_being_bound_again_is_dropped(
        #[case] spec: Value,
        #[case] expected: Value,
    ) {
        assert_eq!(execute(&bound(spec), "b").item.unwrap(), bound(expected));
    }

    #[test]
    fn labels_of_earlier_backups_and_restores_are_dropped() {
        let mut claim = bound(json!({}));
        claim["metadata"]["labels"] = json!({
            "app": "web", "velero.io/restore-name": "r", "velero.io/volume-snapshot-name": "s",
            "velero.io/backup-name": "old", "velero.io/exclude-from-backup": "false",
        });
        let kept = execute(&claim, "b").item.unwrap();
        assert_eq!(
            kept["metadata"]["labels"],
            json!({ "app": "web", "velero.io/exclude-from-backup": "false" })
        );
        claim["metadata"]["labels"] = json!({ "velero.io/backup-name": "b" });
        assert_eq!(execute(&claim, "b").item, None);
    }
}
