//! Whether the author of a Restore that removes objects may delete them directly.

use backup_lock::{Footprint, ObjectKey, ObjectKind, ProtectedProfile};
use k8s_openapi::api::authentication::v1::UserInfo;
use kube::core::Status;
use serde_json::Value;
use tokio::time::Instant;

use super::{Webhook, in_time, is_of_installation, name_of};
use crate::{admit::denial, deletion_rights};

impl Webhook {
    /// The refusal of a Restore that may remove what its author may not delete. `written` is the
    /// footprint of this spec.
    pub(super) async fn lacking_deletion(
        &self,
        protected: &ProtectedProfile,
        key: &ObjectKey,
        spec: &Value,
        written: &Footprint,
        user: &UserInfo,
        deadline: Instant,
    ) -> Result<Option<Status>, String> {
        let profile = &protected.profile;
        let is_pruning = profile.is_velero()
            && profile.engine
            && key.kind == ObjectKind::Restore
            && deletion_rights::is_needed(spec);
        if !is_pruning || is_of_installation(name_of(user), &key.namespace) {
            return Ok(None);
        }
        let lacking = deletion_rights::lacking(&self.authorization, user, spec, written);
        let lacking = in_time(deadline, Box::pin(lacking)).await?;
        Ok(lacking
            .map(|rights| denial::lacks_deletion(&profile.group, key, name_of(user), &rights)))
    }
}
