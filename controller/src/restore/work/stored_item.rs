//! An item of the backup before any action: reads it, and leaves out what is not restored.

use backup_actions::restore::{
    json::{self, Object},
    transform,
};
use backup_client::path;
use backup_core::{
    names::is_object_name,
    resources::{ResourceType, VOLUMES},
    text::shortened,
};
use backup_store::ItemRef;
use tokio::sync::SemaphorePermit;

use super::{
    MAX_KIND_LENGTH, RestoreError, Restoring,
    item::{ItemRestorer, ResourceKind, not_restored},
};
use crate::restore::{
    about::About,
    apply::{ItemResult, Outcome},
    guard,
    item_memory::NoMemory,
    volume_snapshots::VolumeError,
};

/// An item of the backup in memory.
pub(super) struct LoadedItem<'a> {
    pub(super) object: Object,
    /// The memory reserved for it.
    pub(super) room: SemaphorePermit<'a>,
}

impl ItemRestorer<'_> {
    /// Reads an item of the backup once there is room for it. `None` if it cannot be read; the
    /// report says why.
    pub(super) async fn read(
        &self,
        kind: ResourceKind<'_>,
        item: ItemRef,
        namespace: Option<&str>,
        depth: u8,
    ) -> Result<Option<LoadedItem<'_>>, RestoreError> {
        let Restoring {
            contents,
            report,
            calls,
            memory,
            ..
        } = self.restoring;
        let ResourceKind {
            group_resource,
            resource,
        } = kind;
        let versions = &self.versions;
        let in_version = versions.in_version(group_resource, item, contents, report);
        let measured = match in_version.and_then(|item| contents.measure(&item)) {
            Ok(measured) => measured,
            Err(error) => {
                self.report_unread(resource, &item, namespace, &error.to_string());
                return Ok(None);
            }
        };
        let room = match memory
            .reserve(measured.size(), depth > 0, calls.cancellation())
            .await
        {
            Ok(room) => room,
            Err(NoMemory::Stopped(reason)) => return Err(reason.into()),
            Err(why @ NoMemory::Related) => {
                self.report_unread(resource, &item, namespace, &why.to_string());
                return Ok(None);
            }
        };
        match measured.object() {
            Ok(object) => Ok(Some(LoadedItem { object, room })),
            Err(error) => {
                self.report_unread(resource, &item, namespace, &error.to_string());
                Ok(None)
            }
        }
    }

    /// Whether an item is not restored because of its type, place or name; the report says why.
    pub(super) fn is_left_out(
        &self,
        kind: ResourceKind<'_>,
        about: About<'_>,
        from_backup: &Object,
    ) -> bool {
        let Restoring { report, own, .. } = self.restoring;
        let ResourceKind {
            group_resource,
            resource,
        } = kind;
        let About {
            api_version,
            namespace,
            name,
            ..
        } = about;
        if let Some(why) = misplaced(from_backup, resource, namespace, api_version, name) {
            // The list keeps it, so the stored text is replaced.
            let about = About {
                api_version: &resource.api_version(),
                ..about
            };
            report.item(about, not_restored(about, &why));
            return true;
        }
        if let Some(why) = guard::keeps_object(group_resource, namespace, from_backup, own) {
            report.left_out(about, why);
            return true;
        }
        let drill = self.restoring.drill();
        if let Some(why) = drill.and_then(|drill| drill.left_out(group_resource, namespace)) {
            report.left_out(about, why);
            return true;
        }
        if namespace.is_some_and(|namespace| self.namespaces.has_failed(namespace)) {
            // The error is reported for the namespace; its items are only listed.
            report.item(about, ItemResult::quiet(Outcome::Failed));
            return true;
        }
        false
    }

    /// The object before any action. A volume is made from its snapshot first; `None` if that
    /// fails, and the report says why.
    pub(super) async fn prepared(
        &self,
        kind: ResourceKind<'_>,
        about: About<'_>,
        from_backup: &Object,
    ) -> Result<Option<Object>, RestoreError> {
        let Restoring {
            report,
            rules,
            calls,
            snapshots,
            ..
        } = self.restoring;
        if kind.group_resource != VOLUMES {
            return Ok(Some(transform::prepared(from_backup, rules)));
        }
        let plural = &kind.resource.plural;
        let collection = path::collection(about.api_version, plural, about.namespace);
        let volume = from_backup.clone();
        let _wait = calls.cancellation().waits().begin(format!(
            "volume {:?} to be made from its snapshot",
            about.name
        ));
        match snapshots
            .restore(calls, &collection, volume, self.restoring.policy())
            .await
        {
            Ok(volume) => Ok(Some(transform::prepared(&volume, rules))),
            Err(VolumeError::Failed(why)) => {
                report.item(about, not_restored(about, &why));
                Ok(None)
            }
            Err(VolumeError::Stopped(reason)) => Err(reason.into()),
            Err(VolumeError::Journal(error)) => Err(RestoreError::Journal(error)),
        }
    }

    /// Reports an item that could not be read.
    fn report_unread(
        &self,
        resource: &ResourceType,
        item: &ItemRef,
        namespace: Option<&str>,
        why: &str,
    ) {
        let name = self.restoring.contents.name_of(item).unwrap_or_default();
        let about = About {
            api_version: &resource.api_version(),
            kind: &resource.kind,
            namespace,
            name: &name,
        };
        self.restoring.report.item(about, not_restored(about, why));
    }
}

/// Why an item does not fit its path in the backup.
pub(super) fn misplaced(
    object: &Object,
    resource: &ResourceType,
    namespace: Option<&str>,
    api_version: &str,
    name: &str,
) -> Option<String> {
    if !path::is_segment(name) {
        return Some("its name is not one that the API server takes".to_owned());
    }
    if namespace.is_some_and(|namespace| !is_object_name(namespace)) {
        return Some("its namespace is not one that the API server takes".to_owned());
    }
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let kind = json::text(object, &[], "kind").unwrap_or_default();
    if group != resource.group || kind != resource.kind || !is_object_name(version) {
        let [api_version, kind] = [api_version, kind].map(|text| shortened(text, MAX_KIND_LENGTH));
        return Some(format!(
            "the backup holds a {api_version} {kind} where a {} {} belongs",
            resource.api_version(),
            resource.kind
        ));
    }
    match (resource.namespaced, namespace) {
        (true, None) => Some("it has no namespace, but its type needs one".to_owned()),
        (false, Some(_)) => Some("it has a namespace, but its type has none".to_owned()),
        _ => None,
    }
}
