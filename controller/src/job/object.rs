//! The objects that have jobs.

use std::time::Duration;

use backup_core::{
    api::{Backup, BackupPhase, NamespacedKind, Restore, RestorePhase},
    phase::{Phase, Stage},
    validate,
};
use backup_lock::ObjectKey;
use backup_store::StoredJob;
use serde_json::Value;

use super::operations::call::Subject;

pub(crate) trait JobObject: StoredJob + Subject + NamespacedKind {
    type Phase: Phase;

    fn phase(&self) -> Self::Phase;
    fn is_cancelled(&self) -> bool;
    fn ledger_key(namespace: &str, name: &str) -> ObjectKey;
    fn has_spec_of(&self, other: &Self) -> bool;
    /// Validation errors of an object that cannot be decoded.
    fn raw_findings(raw: &Value) -> Vec<String>;
    /// Timeout of each operation, if the object has one.
    fn operation_timeout(&self) -> Option<Duration>;

    fn stage(&self) -> Stage {
        self.phase().stage()
    }

    fn is_deleting(&self) -> bool {
        self.meta().deletion_timestamp.is_some()
    }
}

macro_rules! job_object {
    ($object:ident, $phase:ident, $key:ident, $raw_findings:ident) => {
        impl JobObject for $object {
            type Phase = $phase;

            fn phase(&self) -> $phase {
                $object::phase(self)
            }

            fn is_cancelled(&self) -> bool {
                $object::is_cancelled(self)
            }

            fn ledger_key(namespace: &str, name: &str) -> ObjectKey {
                ObjectKey::$key(namespace, name)
            }

            fn has_spec_of(&self, other: &Self) -> bool {
                self.spec == other.spec
            }

            fn raw_findings(raw: &Value) -> Vec<String> {
                validate::$raw_findings(raw)
                    .iter()
                    .map(ToString::to_string)
                    .collect()
            }

            fn operation_timeout(&self) -> Option<Duration> {
                let timeout = self
                    .spec
                    .item_operation_timeout
                    .filter(|timeout| !timeout.is_zero());
                timeout.map(|timeout| timeout.as_std())
            }
        }
    };
}

job_object!(Backup, BackupPhase, backup, raw_backup);
job_object!(Restore, RestorePhase, restore, raw_restore);
