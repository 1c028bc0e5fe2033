//! The kinds of a profile as API resources, and the names of its scopes.

use backup_core::{
    api::{Backup, DeleteBackupRequest},
    profile::{KindRule, Profile, ScopeRule, Target},
};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::core::{ApiResource, GroupVersionKind};

use crate::claim::{ObjectKey, ObjectKind};

/// The resource of this kind's objects; `None` if it has none.
pub fn resource(profile: &Profile, kind: ObjectKind) -> Option<ApiResource> {
    match kind {
        ObjectKind::Backup => Some(of_rule(profile, &profile.backup)),
        ObjectKind::Restore => Some(of_rule(profile, &profile.restore)),
        ObjectKind::DeleteBackupRequest => Some(ApiResource::erase::<DeleteBackupRequest>(&())),
        ObjectKind::Deletion => Some(ApiResource::erase::<Backup>(&())),
        ObjectKind::Hold => None,
    }
}

/// A reference to the object of a claim, for events; `None` if there is no object.
pub fn reference(profile: &Profile, key: &ObjectKey, uid: &str) -> Option<ObjectReference> {
    let resource = resource(profile, key.kind)?;
    Some(ObjectReference {
        api_version: Some(resource.api_version),
        kind: Some(resource.kind),
        namespace: Some(key.namespace.clone()),
        name: Some(key.name.clone()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    })
}

/// The kinds of a profile that are listed for running objects, with their resources.
pub(crate) fn listed(profile: &Profile) -> Vec<(ObjectKind, ApiResource)> {
    let mut kinds = vec![ObjectKind::Restore, ObjectKind::Backup];
    if matches!(profile.scope, ScopeRule::Cluster) {
        kinds.push(ObjectKind::DeleteBackupRequest);
    }
    kinds
        .into_iter()
        .filter_map(|kind| Some((kind, resource(profile, kind)?)))
        .collect()
}

/// Namespace and name of the database cluster that a scope stands for.
pub(crate) fn cluster_of(scope: &str) -> Option<(&str, &str)> {
    let mut parts = scope.splitn(3, '/').skip(1);
    Some((parts.next()?, parts.next()?))
}

/// The resource of a release rule's target.
pub(crate) fn target(target: &Target) -> ApiResource {
    resource_of(&target.group, &target.version, &target.kind, &target.plural)
}

fn of_rule(profile: &Profile, rule: &KindRule) -> ApiResource {
    resource_of(&profile.group, &profile.version, &rule.kind, &rule.plural)
}

fn resource_of(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}
