//! Which guard a request is for.

use backup_lock::ObjectKind;
use kube::core::{DynamicObject, admission::AdmissionRequest};

use crate::claims::Claims;

/// The guard that knows the kind of this request, with its claims, and what the kind is to it.
pub fn guard_of<'a>(
    guards: &'a [Claims],
    request: &AdmissionRequest<DynamicObject>,
) -> Option<(&'a Claims, ObjectKind)> {
    let (group, kind) = (request.kind.group.as_str(), request.kind.kind.as_str());
    guards.iter().find_map(|claims| {
        let profile = &claims.guard().profile;
        let deletes = profile.is_velero() && group == profile.group && kind == "DeleteBackupRequest";
        let role = profile.role_of(group, kind).map(ObjectKind::from);
        Some((claims, role.or(deletes.then_some(ObjectKind::DeleteBackupRequest))?))
    })
}
