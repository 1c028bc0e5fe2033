//! What the rewriting of every item of one restore depends on.

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
    /// Namespace of the backup to the namespace it is restored into.
    pub namespaces: Arc<BTreeMap<String, String>>,
    /// Whether services keep node ports that the cluster chose.
    pub preserve_node_ports: bool,
    /// Volumes of the backup that are restored as they are; a claim on any other is provisioned again.
    pub kept_volumes: Arc<BTreeSet<String>>,
}

impl RestoreRules {
    /// The namespace that `source` is restored into.
    pub fn target<'a>(&'a self, source: &'a str) -> &'a str {
        self.namespaces.get(source).map_or(source, String::as_str)
    }

    /// The same rules for an object that already is where it should be. Made for each object, so nothing long is copied.
    #[must_use]
    pub fn in_place(&self) -> Self {
        Self { namespaces: Arc::default(), ..self.clone() }
    }
}
