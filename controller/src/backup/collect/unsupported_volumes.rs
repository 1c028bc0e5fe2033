//! Reports an error for each volume whose data users want saved in a way that is not supported
//! here, by policy or annotation. CSI snapshots belong to their action, which reports the volumes
//! that it leaves out.

use backup_actions::{
    backup::CSI_PREFIX,
    json::{list, text as text_of},
};
use backup_core::{
    api::BackupSpec,
    resource_policy::{ResourcePolicy, Volume, VolumeActionKind, VolumePlan, plan},
    resources::VOLUMES,
};
use serde_json::Value;

use super::{
    collector::{Collector, ResourceKind, Sink},
    raw_item::RawItem,
};
use crate::backup::report::scope_of;

const UNWANTED: &str = "spec.snapshotVolumes is false";
const SNAPSHOTS_OFF: &str =
    "snapshots of CSI volumes are off (--features of the controller has no EnableCSI)";

impl<S: Sink> Collector<'_, S> {
    /// Reports unsupported volumes of a written pod.
    pub(super) fn report_unsupported_volumes(&mut self, pod: &RawItem<'_>) {
        let name = pod.full_name();
        let scope = scope_of(pod.namespace());
        for volume in self.volumes_to_copy(pod.text()) {
            let message = format!(
                "the files of volume {volume} of pod {name} are not in this backup: the resource policy asks for a copy \
                 (fs-backup), which is not made here"
            );
            self.error(scope, message);
        }
        if let Some(volumes) = pod.volumes_to_copy() {
            let message = format!(
                "the files of the volumes that pod {name} names by annotation ({volumes}) are not in this backup: copying files is \
                 not done here"
            );
            self.error(scope, message);
        }
    }

    /// Volumes of a pod, other than claims, whose files should be copied by the resource policy.
    fn volumes_to_copy(&self, pod: &str) -> Vec<String> {
        let Some(policy) = self
            .request
            .plan
            .policy
            .as_ref()
            .filter(|policy| !policy.volumes.is_empty())
        else {
            return Vec::new();
        };
        let pod: Value = serde_json::from_str(pod).unwrap_or_default();
        list(&pod, "/spec/volumes")
            .filter(|volume| asks_for_copy(policy, volume))
            .map(|volume| volume["name"].as_str().unwrap_or_default().to_owned())
            .collect()
    }

    /// Reports unsupported requests for a written claim.
    pub(super) async fn report_unsupported_claim(
        &mut self,
        kind: &ResourceKind,
        claim: &RawItem<'_>,
    ) {
        let plan = self.request.plan;
        let csi = kind
            .actions
            .iter()
            .any(|one| one.action.name().starts_with(CSI_PREFIX));
        let object: Value = serde_json::from_str(claim.text()).unwrap_or_default();
        if csi && let Some(message) = apart_from_its_group(&self.request.backup.spec, &object) {
            let message = format!("PersistentVolumeClaim {} {message}", claim.full_name());
            self.error(scope_of(claim.namespace()), message);
        }
        if !csi
            && text_of(&object, "/status/phase") == Some("Bound")
            && let Some(snapshots) = &self.request.volume_snapshots
        {
            let is_unwanted = self.request.backup.spec.snapshot_volumes == Some(false);
            snapshots.note_unsupported(&object, if is_unwanted { UNWANTED } else { SNAPSHOTS_OFF });
        }
        let Some(policy) = plan
            .policy
            .as_ref()
            .filter(|policy| asks_for_something(policy))
        else {
            return;
        };
        let (Some(name), Some("Bound")) = (
            text_of(&object, "/spec/volumeName"),
            text_of(&object, "/status/phase"),
        ) else {
            return; // it has no data
        };
        // A plugin was asked for its snapshot.
        if self
            .request
            .volume_snapshots
            .as_ref()
            .is_some_and(|snapshots| snapshots.has(name))
        {
            return;
        }
        let found = self.fetch_value(VOLUMES, None, name).await;
        let reason = match found
            .and_then(|volume| volume.ok_or_else(|| format!("{name}, does not exist")))
        {
            Ok(volume) => {
                let volume = Volume::persistent(Some(&volume), Some(&object));
                not_done(&self.request.backup.spec, policy, &volume, csi).map(str::to_owned)
            }
            Err(error) => Some(format!(
                "its volume, about which the resource policy says something, {error}"
            )),
        };
        if let Some(reason) = reason {
            let message = format!(
                "the data of PersistentVolumeClaim {} is not in this backup: {reason}",
                claim.full_name()
            );
            self.error(scope_of(claim.namespace()), message);
        }
    }
}

/// Whether a policy asks for a copy of the files of a volume of a pod that is no claim.
fn asks_for_copy(policy: &ResourcePolicy, volume: &Value) -> bool {
    let claimed = ["persistentVolumeClaim", "ephemeral"]
        .iter()
        .any(|kind| volume.get(kind).is_some());
    let action = policy.action_for(&Volume::of_source(volume));
    !claimed && action.is_some_and(|action| action.kind == VolumeActionKind::FsBackup)
}

/// The error of a claim that asks for one snapshot together with others (Velero
/// `pkg/backup/actions/csi/pvc_action.go`, `handleVGS…`, v1.18).
fn apart_from_its_group(spec: &BackupSpec, claim: &Value) -> Option<String> {
    let key = spec
        .volume_group_snapshot_label_key
        .as_deref()
        .filter(|key| !key.is_empty())?;
    let group = claim["metadata"]["labels"][key]
        .as_str()
        .filter(|group| !group.is_empty())?;
    let bound = text_of(claim, "/status/phase") == Some("Bound");
    (bound && spec.snapshot_volumes != Some(false)).then(|| {
        format!(
            "asks for one snapshot with its group (label {key}={group}), which is not made here: it is snapshotted by itself, \
             so the volumes of the group are of different moments"
        )
    })
}

/// Whether a rule asks for more than skipping volumes. Otherwise no volume is read.
fn asks_for_something(policy: &ResourcePolicy) -> bool {
    policy
        .volumes
        .iter()
        .any(|rule| rule.action.kind != VolumeActionKind::Skip)
}

/// Why the data of a claim's volume is not in the backup although the policy asks for it. `csi`:
/// CSI volumes are snapshotted.
fn not_done(
    spec: &BackupSpec,
    policy: &ResourcePolicy,
    volume: &Volume,
    csi: bool,
) -> Option<&'static str> {
    match plan(spec, Some(policy), volume, false) {
        VolumePlan::FsBackup => Some(
            "the resource policy asks for a copy of its files (fs-backup), which is not made here",
        ),
        VolumePlan::Custom { .. } => {
            Some("the resource policy asks for the action custom, which this server does not have")
        }
        VolumePlan::Snapshot { .. } => not_snapshotted(spec, policy, volume, csi),
        VolumePlan::Skip { .. } => None,
    }
}

fn not_snapshotted(
    spec: &BackupSpec,
    policy: &ResourcePolicy,
    volume: &Volume,
    csi: bool,
) -> Option<&'static str> {
    policy.action_for(volume)?;
    if !csi {
        return Some(
            "the resource policy asks for a snapshot, no plugin takes one, and those of CSI volumes are only taken where \
             --features has EnableCSI",
        );
    }
    // If the Backup asks for it, too, it is an error already.
    (volume.csi.is_none() && spec.snapshot_volumes != Some(true)).then_some(
        "the resource policy asks for a snapshot, its volume is not one of CSI, and no plugin takes one",
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    #[rstest::rstest]
    #[case("fs-backup", None, true, Some("copy of its files"))]
    #[case("fs-backup", Some(false), true, Some("copy of its files"))]
    #[case("fs-backup", Some(false), false, Some("copy of its files"))]
    #[case("custom", Some(false), false, Some("action custom"))]
    #[case("snapshot", None, false, Some("EnableCSI"))]
    #[case("snapshot", Some(false), false, None)]
    #[case("snapshot", None, true, None)]
    #[case("skip", None, false, None)]
    fn what_a_policy_asks_for_and_is_not_done_has_a_reason(
        #[case] action: &str,
        #[case] snapshots: Option<bool>,
        #[case] csi: bool,
        #[case] expected: Option<&str>,
    ) {
        let text = format!(
            "version: v1\nvolumePolicies:\n- conditions: {{ csi: {{}} }}\n  action: {{ type: {action} }}\n"
        );
        let policy =
            backup_core::resource_policy::read(&BTreeMap::from([("p".to_owned(), text)])).unwrap();
        let spec = BackupSpec {
            snapshot_volumes: snapshots,
            ..BackupSpec::default()
        };
        let of = |source: Value| Volume::persistent(Some(&json!({ "spec": source })), None);
        let reason = not_done(
            &spec,
            &policy,
            &of(json!({ "csi": { "driver": "disk" } })),
            csi,
        );
        assert_eq!(reason.is_some(), expected.is_some(), "{reason:?}");
        assert_says!(reason.unwrap_or_default(), expected.unwrap_or_default());
        // No rule matches another volume.
        assert_eq!(
            not_done(&spec, &policy, &of(json!({ "hostPath": {} })), csi),
            None
        );
    }

    #[test]
    fn a_claim_of_a_group_says_that_it_is_snapshotted_apart() {
        let claim = |labels: Value, phase: &str| json!({ "metadata": { "labels": labels }, "status": { "phase": phase } });
        let grouped = claim(json!({ "velero.io/volume-group": "db" }), "Bound");
        let told = |key: Option<&str>, snapshots, claim: &Value| {
            let spec = BackupSpec {
                volume_group_snapshot_label_key: key.map(str::to_owned),
                snapshot_volumes: snapshots,
                ..BackupSpec::default()
            };
            apart_from_its_group(&spec, claim)
        };
        let key = Some("velero.io/volume-group");
        assert!(
            told(key, None, &grouped)
                .is_some_and(|text| text.contains("velero.io/volume-group=db"))
        );
        assert!(told(key, Some(true), &grouped).is_some());
        for (key, snapshots, claim) in [
            (key, Some(false), &grouped),
            (Some("other"), None, &grouped),
            (None, None, &grouped),
            (
                key,
                None,
                &claim(json!({ "velero.io/volume-group": "db" }), "Pending"),
            ),
            (key, None, &claim(Value::Null, "Bound")),
        ] {
            assert_eq!(
                told(key, snapshots, claim),
                None,
                "{key:?} {snapshots:?} {claim}"
            );
        }
    }

    #[test]
    fn a_snapshot_of_a_volume_that_is_not_of_csi_is_one_error() {
        let text = "version: v1\nvolumePolicies:\n- conditions: {}\n  action: { type: snapshot }\n"
            .to_owned();
        let policy =
            backup_core::resource_policy::read(&BTreeMap::from([("p".to_owned(), text)])).unwrap();
        let volume = Volume::persistent(Some(&json!({ "spec": { "hostPath": {} } })), None);
        let asked = |snapshots| {
            let spec = BackupSpec {
                snapshot_volumes: snapshots,
                ..BackupSpec::default()
            };
            not_done(&spec, &policy, &volume, true)
        };
        assert!(asked(None).is_some_and(|reason| reason.contains("not one of CSI")));
        assert_eq!((asked(Some(true)), asked(Some(false))), (None, None));
    }
}
