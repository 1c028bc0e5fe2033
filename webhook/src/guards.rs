//! Which guard a request is for.

use backup_core::profile::Role;
use backup_lock::{Guard, ObjectKind};
use kube::core::{DynamicObject, admission::AdmissionRequest};

/// The guard that knows the kind of this request, and what the kind is to it.
pub fn guard_of<'a>(
    guards: &'a [Guard],
    request: &AdmissionRequest<DynamicObject>,
) -> Option<(&'a Guard, ObjectKind)> {
    let (group, kind) = (request.kind.group.as_str(), request.kind.kind.as_str());
    guards.iter().find_map(|guard| {
        let role = guard.profile.role_of(group, kind);
        let deletes = guard.profile.name == "velero" && group == "velero.io" && kind == "DeleteBackupRequest";
        let kind = match role {
            Some(Role::Backup) => ObjectKind::Backup,
            Some(Role::Restore) => ObjectKind::Restore,
            None if deletes => ObjectKind::DeleteBackupRequest,
            None => return None,
        };
        Some((guard, kind))
    })
}
