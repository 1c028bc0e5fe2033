//! Whether the author of an object may do directly what the controller does for it.

use backup_core::api::BackupSpec;
use backup_lock::{Footprint, ObjectKey, ObjectKind, ProtectedProfile};
use k8s_openapi::api::authentication::v1::UserInfo;
use kube::core::{DynamicObject, Status, admission::AdmissionRequest};
use serde_json::Value;

use super::{Webhook, is_of_installation, name_of};
use crate::{
    admit::denial,
    owner_rights::{self, ReadPart},
    restore_rights::{self, MissingRights},
    schedules,
};

/// The user who creates or changes an object.
#[derive(Clone, Copy)]
pub(super) struct Author<'a> {
    pub(super) user: &'a UserInfo,
    /// Whether this is a namespace owner: each object is checked.
    pub(super) is_owner: bool,
}

impl Webhook {
    /// Whether a Backup or Restore is that of a namespace owner; all others are not asked about.
    pub(super) async fn is_owner(
        &self,
        protected: &ProtectedProfile,
        key: &ObjectKey,
        user: &UserInfo,
    ) -> Result<bool, String> {
        match checked_type(protected, key.kind) {
            Some(resource) => self.owns(user, resource, &key.namespace).await,
            None => Ok(false),
        }
    }

    /// Whether the objects of this type by this user are checked. The controller's are for others:
    /// those of a Schedule were checked with its template.
    pub(super) async fn owns(
        &self,
        user: &UserInfo,
        resource: &str,
        namespace: &str,
    ) -> Result<bool, String> {
        let controller = format!("system:serviceaccount:{namespace}:backup-controller");
        if name_of(user) == controller {
            return Ok(false);
        }
        self.authorization.is_owner(user, resource, namespace).await
    }

    /// The refusal of a Backup or Restore that does what its author may not do directly. `written`
    /// is the footprint of this spec.
    pub(super) async fn lacking(
        &self,
        protected: &ProtectedProfile,
        key: &ObjectKey,
        spec: &Value,
        written: &Footprint,
        author: Author<'_>,
    ) -> Result<Option<Status>, String> {
        let Some(plural) = checked_type(protected, key.kind) else {
            return Ok(None);
        };
        let Author { user, is_owner } = author;
        let is_asked = self.authorization.checks_restores
            && !is_of_installation(name_of(user), &key.namespace);
        let lacking = match key.kind {
            ObjectKind::Restore if is_owner || is_asked => {
                self.lacking_to_restore(protected, key, spec, written, user)
                    .await?
            }
            ObjectKind::Backup if is_owner => {
                self.lacking_for(&key.namespace, &backup_spec(spec), ReadPart::Items, user)
                    .await?
            }
            _ => None,
        };
        Ok(lacking.map(|lacking| {
            let group = &protected.profile.group;
            let act = format!("create {key}");
            denial::lacks_rights(group, plural, &key.name, &act, name_of(user), &lacking)
        }))
    }

    pub(super) async fn lacking_to_restore(
        &self,
        protected: &ProtectedProfile,
        key: &ObjectKey,
        spec: &Value,
        written: &Footprint,
        user: &UserInfo,
    ) -> Result<Option<MissingRights>, String> {
        // For an administrator nothing more is read.
        if self.authorization.may_do_everything(user, "").await? {
            return Ok(None);
        }
        let unmapped = restore_rights::unmapped(spec);
        let read = protected.store.objects().footprint(key, &unmapped).await;
        let read = read.map_err(|error| error.to_string())?;
        let reach = restore_rights::reach(spec, written, &read);
        restore_rights::lacking(&self.authorization, user, reach).await
    }

    /// The rights to this part of a backup with this spec that a user lacks.
    pub(super) async fn lacking_for(
        &self,
        namespace: &str,
        spec: &BackupSpec,
        part: ReadPart,
        user: &UserInfo,
    ) -> Result<Option<MissingRights>, String> {
        Box::pin(owner_rights::lacking(
            &self.authorization,
            user,
            namespace,
            spec,
            part,
        ))
        .await
    }

    /// The refusal of a Schedule whose backups its author may not make: the controller makes them
    /// later, under its own account.
    pub(super) async fn lacking_for_schedule(
        &self,
        protected: &ProtectedProfile,
        request: &AdmissionRequest<DynamicObject>,
    ) -> Result<Option<Status>, String> {
        let Some(object) = &request.object else {
            return Ok(None);
        };
        let user = &request.user_info;
        let namespace = request.namespace.as_deref().unwrap_or_default();
        if !self.owns(user, "schedules", namespace).await? {
            return Ok(None);
        }
        let group = &protected.profile.group;
        let name = &request.name;
        if let Some(field) = schedules::field_of_operators(&object.data["spec"]) {
            let message = format!(
                "{:?} may not create Schedule {namespace}/{name} with {field}: only an operator sets that. Leave it out, or ask \
                 someone who may",
                name_of(user)
            );
            let refusal = denial::not_for_owners(group, "schedules", name, &field, &message);
            return Ok(Some(refusal));
        }
        let template = backup_spec(&object.data["spec"]["template"]);
        let lacking = self
            .lacking_for(namespace, &template, ReadPart::Items, user)
            .await?;
        Ok(lacking.map(|lacking| {
            let in_template = |text: &str| text.replace("spec.", "spec.template.");
            let lacking = MissingRights {
                field: in_template(&lacking.field),
                instead: in_template(&lacking.instead),
                ..lacking
            };
            let act = format!("create Schedule {namespace}/{name}");
            denial::lacks_rights(group, "schedules", name, &act, name_of(user), &lacking)
        }))
    }
}

/// The plural name of a type whose objects are checked.
fn checked_type(protected: &ProtectedProfile, kind: ObjectKind) -> Option<&'static str> {
    if !protected.profile.is_velero() {
        return None;
    }
    match kind {
        ObjectKind::Backup => Some("backups"),
        ObjectKind::Restore => Some("restores"),
        ObjectKind::DeleteBackupRequest | ObjectKind::Deletion | ObjectKind::Hold => None,
    }
}

/// The spec of a Backup; one that cannot be decoded counts as that of a backup of everything.
fn backup_spec(spec: &Value) -> BackupSpec {
    serde_json::from_value(spec.clone()).unwrap_or_default()
}
