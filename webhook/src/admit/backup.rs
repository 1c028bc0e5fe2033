//! What is asked of a Backup when it is created.

use backup_core::validate::{self, Finding};
use serde_json::Value;

/// Everything wrong with it that can be told without the cluster, all at once.
pub fn findings(object: &Value) -> Vec<Finding> {
    validate::raw_backup(object)
}
