//! What people ask for about the data of volumes, by policy or annotation, and what is not done here: an error of each
//! volume. Snapshots by CSI are the business of their action; it reports what it leaves out.

use backup_actions::{backup::CSI_PREFIX, json::text as text_of};
use backup_core::{
    api::BackupSpec,
    resource_policy::{ResourcePolicy, Volume, VolumeActionKind, VolumePlan, plan},
};
use backup_runtime::errors::plain;
use serde::Deserialize;
use serde_json::Value;

use super::{Collector, Present, Sink, fetch, tell::full_name};
use crate::backup::{items::Item, report::scope_of};

impl<S: Sink> Collector<'_, S> {
    /// Of a pod that was written.
    pub(super) fn tell_wishes(&mut self, pod: &Item<'_>, text: &str) {
        for volume in self.volumes_to_copy(text) {
            let message = format!(
                "the files of volume {volume} of pod {} are not in this backup: the resource policy asks for a copy \
                 (fs-backup), which is not made here",
                full_name(pod)
            );
            self.report.error(scope_of(pod.namespace()), message);
        }
        if let Some(volumes) = pod.volumes_to_copy() {
            let message = format!(
                "the files of the volumes that pod {} names by annotation ({volumes}) are not in this backup: copying files is \
                 not done here",
                full_name(pod)
            );
            self.report.error(scope_of(pod.namespace()), message);
        }
    }

    /// Volumes of a pod, other than claims, of which the resource policy wants the files copied.
    fn volumes_to_copy(&self, pod: &str) -> Vec<String> {
        #[derive(Deserialize)]
        struct Pod {
            spec: Spec,
        }
        #[derive(Deserialize)]
        struct Spec {
            #[serde(default)]
            volumes: Vec<Value>,
        }
        let Some(policy) = self.order.policy.as_ref().filter(|policy| !policy.volumes.is_empty()) else {
            return Vec::new();
        };
        let volumes = serde_json::from_str::<Pod>(pod).map(|pod| pod.spec.volumes).unwrap_or_default();
        let wanted = |volume: &&Value| {
            let claimed =
                ["persistentVolumeClaim", "ephemeral"].iter().any(|kind| volume.get(kind).is_some());
            let action = policy.action_for(&Volume::of_pod(volume));
            !claimed && action.is_some_and(|action| action.kind == VolumeActionKind::FsBackup)
        };
        let name = |volume: &Value| volume["name"].as_str().unwrap_or_default().to_owned();
        volumes.iter().filter(wanted).map(name).collect()
    }

    /// Of a claim that was written.
    pub(super) async fn tell_wishes_for_claim(&mut self, of: &Present, claim: &Item<'_>, text: &str) {
        let order = self.order;
        let Some(policy) = order.policy.as_ref().filter(|policy| asks_for_something(policy)) else { return };
        let csi = of.actions.iter().any(|one| one.action.name().starts_with(CSI_PREFIX));
        let object: Value = serde_json::from_str(text).unwrap_or_default();
        // A plugin was asked for its snapshot.
        if text_of(&object, "/spec/volumeName")
            .is_some_and(|volume| self.natives.as_ref().is_some_and(|natives| natives.has(volume)))
        {
            return;
        }
        let reason = match self.volume_of(&object).await {
            Ok(None) => return, // it has no data
            Ok(Some(volume)) => {
                let volume = Volume::persistent(Some(&volume), Some(&object));
                not_done(&self.backup.spec, policy, &volume, csi).map(str::to_owned)
            }
            Err(error) => {
                Some(format!("its volume, about which the resource policy says something, {error}"))
            }
        };
        if let Some(reason) = reason {
            let message = format!(
                "the data of PersistentVolumeClaim {} is not in this backup: {reason}",
                full_name(claim)
            );
            self.report.error(scope_of(claim.namespace()), message);
        }
    }

    /// The volume that a claim is bound to; none if it waits for one.
    async fn volume_of(&mut self, claim: &Value) -> Result<Option<Value>, String> {
        let (Some(name), Some("Bound")) =
            (text_of(claim, "/spec/volumeName"), text_of(claim, "/status/phase"))
        else {
            return Ok(None);
        };
        let Some(of) = self.kind("persistentvolumes") else { return Ok(None) };
        match fetch::object(self.client, &of.resource, None, name).await {
            Ok(Some(text)) => serde_json::from_str(&text).map_err(|error| format!("is no object: {error}")),
            Ok(None) => Err(format!("{name}, does not exist")),
            Err(error) => Err(format!("could not be read: {}", plain(&error))),
        }
    }
}

/// Whether some rule asks for more than leaving volumes alone. Without one, no volume is read.
fn asks_for_something(policy: &ResourcePolicy) -> bool {
    policy.volumes.iter().any(|rule| rule.action.kind != VolumeActionKind::Skip)
}

/// Why the data of a claim's volume is not in the backup although the policy asks for it. `csi`: volumes of CSI drivers
/// are snapshotted.
fn not_done(spec: &BackupSpec, policy: &ResourcePolicy, volume: &Volume, csi: bool) -> Option<&'static str> {
    match plan(spec, Some(policy), volume, false) {
        VolumePlan::FsBackup => {
            Some("the resource policy asks for a copy of its files (fs-backup), which is not made here")
        }
        VolumePlan::Custom { .. } => {
            Some("the resource policy asks for an action of its own (custom), which nobody takes here")
        }
        VolumePlan::Snapshot if policy.action_for(volume).is_none() => None,
        VolumePlan::Snapshot if !csi => Some(
            "the resource policy asks for a snapshot, no plugin takes one, and those of CSI volumes are only taken where \
             --features has EnableCSI",
        ),
        // The Backup asks for it, too: then it is an error already.
        VolumePlan::Snapshot if volume.csi.is_none() && spec.snapshot_volumes != Some(true) => Some(
            "the resource policy asks for a snapshot, its volume is not one of CSI, and no plugin takes one",
        ),
        VolumePlan::Snapshot | VolumePlan::Skip { .. } => None,
    }
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
    #[case("custom", Some(false), false, Some("action of its own"))]
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
        let policy = backup_core::resource_policy::read(&BTreeMap::from([("p".to_owned(), text)])).unwrap();
        let spec = BackupSpec { snapshot_volumes: snapshots, ..BackupSpec::default() };
        let of = |source: Value| Volume::persistent(Some(&json!({ "spec": source })), None);
        let reason = not_done(&spec, &policy, &of(json!({ "csi": { "driver": "disk" } })), csi);
        assert_eq!(reason.is_some(), expected.is_some(), "{reason:?}");
        assert!(reason.unwrap_or_default().contains(expected.unwrap_or_default()), "{reason:?}");
        // No rule holds on another one.
        assert_eq!(not_done(&spec, &policy, &of(json!({ "hostPath": {} })), csi), None);
    }

    #[test]
    fn a_snapshot_that_is_asked_for_of_a_volume_that_is_not_of_csi_is_an_error_once() {
        let text =
            "version: v1\nvolumePolicies:\n- conditions: {}\n  action: { type: snapshot }\n".to_owned();
        let policy = backup_core::resource_policy::read(&BTreeMap::from([("p".to_owned(), text)])).unwrap();
        let volume = Volume::persistent(Some(&json!({ "spec": { "hostPath": {} } })), None);
        let asked = |snapshots| {
            let spec = BackupSpec { snapshot_volumes: snapshots, ..BackupSpec::default() };
            not_done(&spec, &policy, &volume, true)
        };
        assert!(asked(None).is_some_and(|reason| reason.contains("not one of CSI")));
        assert_eq!((asked(Some(true)), asked(Some(false))), (None, None));
    }
}
