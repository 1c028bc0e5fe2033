//! What a backup or schedule is of. Pure.

use std::collections::HashMap;

use backup_core::{api::BackupSpec, names::is_object_name, selection::IncludesExcludes};

/// Which namespaces a backup is of, and whether it has all that is in them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scope {
    pub(super) namespaces: IncludesExcludes,
    pub(super) is_whole: bool,
    /// Whether cluster-scoped objects and all namespaces are in it.
    pub(super) is_everything: bool,
}

impl Scope {
    pub(super) fn of(spec: &BackupSpec) -> Self {
        let is_whole = !spec.selects_by_labels()
            && includes_everything(&spec.included_resources)
            && includes_everything(&spec.included_namespace_scoped_resources);
        let namespaces =
            IncludesExcludes::new(&spec.included_namespaces, &spec.excluded_namespaces);
        let is_everything = is_whole
            && includes_everything(&spec.included_namespaces)
            && spec.include_cluster_resources != Some(false);
        Self {
            namespaces,
            is_whole,
            is_everything,
        }
    }

    fn covers(&self, namespace: &str) -> bool {
        self.is_whole && self.namespaces.includes(namespace)
    }

    /// The places of the namespaces that it covers; with thousands of them, only the places that it
    /// names are read.
    pub(super) fn among(&self, names: &[String], places: &HashMap<&str, usize>) -> Vec<usize> {
        let included = self.namespaces.included();
        let is_plain = !included.is_empty() && included.iter().all(|name| is_object_name(name));
        let mut found: Vec<usize> = if is_plain {
            included
                .iter()
                .filter_map(|name| places.get(name.as_str()).copied())
                .collect()
        } else {
            (0..names.len()).collect()
        };
        found.retain(|place| self.covers(&names[*place]));
        found
    }
}

fn includes_everything(included: &[String]) -> bool {
    IncludesExcludes::new(included, &[]).everything()
}
