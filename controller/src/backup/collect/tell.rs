//! What a collection has to tell people.

use backup_core::resource_policy::{Volume, VolumeActionKind};
use backup_store::Scope as Area;
use serde::Deserialize;
use serde_json::Value;

use super::{Collector, scope::Scope};
use crate::backup::{action::ItemId, items::Item, page::Listing, report::scope_of};

impl<S> Collector<'_, S> {
    pub(super) fn tell_missing_namespaces(&mut self, scope: &Scope) {
        for namespace in &scope.missing {
            self.report.error(
                Area::Namespace(namespace),
                format!("namespace {namespace} does not exist: nothing of it is in this backup"),
            );
        }
        for pattern in &scope.unmatched {
            self.report.warn(Area::Velero, format!("no namespace matches {pattern}: it selects nothing"));
        }
    }

    pub(super) fn tell_failed(&mut self, listing: &Listing, reason: &str) {
        let message =
            format!("listing {listing} failed, so items of it are missing from this backup: {reason}");
        self.report.error(scope_of(listing.namespace.as_deref()), message);
    }

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
}

/// `namespace/name`, or the name of a cluster-scoped item.
pub(super) fn full_name(item: &Item<'_>) -> String {
    match item.namespace() {
        Some(namespace) => format!("{namespace}/{}", item.name()),
        None => item.name().to_owned(),
    }
}

/// `type namespace/name` of an object that is known by its name only.
pub(super) fn name_of(id: &ItemId) -> String {
    match &id.namespace {
        Some(namespace) => format!("{} {namespace}/{}", id.group_resource, id.name),
        None => format!("{} {}", id.group_resource, id.name),
    }
}
