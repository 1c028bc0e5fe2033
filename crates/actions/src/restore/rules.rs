//! The settings of one restore on which the rewriting of every item depends.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

#[derive(Clone, Debug, Default)]
pub struct RestoreRules {
    /// Value of the label `velero.io/backup-name`.
    pub backup_label: String,
    /// Value of the label `velero.io/restore-name`.
    pub restore_label: String,
    /// Maps namespaces of the backup to target namespaces.
    pub namespaces: Arc<BTreeMap<String, String>>,
    /// Whether services keep node ports that the cluster assigned.
    pub preserve_node_ports: bool,
    /// Volumes of the backup that are restored themselves; for a claim on any other, a new volume
    /// is provisioned.
    pub kept_volumes: Arc<BTreeSet<String>>,
}

impl RestoreRules {
    /// The target namespace of `source`.
    pub fn target<'a>(&'a self, source: &'a str) -> &'a str {
        self.namespaces.get(source).map_or(source, String::as_str)
    }

    /// The same rules for an object that is already in its target namespace. Called for each
    /// object, so nothing large is copied.
    #[must_use]
    pub fn in_place(&self) -> Self {
        Self {
            namespaces: Arc::default(),
            ..self.clone()
        }
    }
}
