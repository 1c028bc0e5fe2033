//! What a backup protects, and whether a newer one protects the same. Pure.

use crate::{
    api::{Backup, BackupSpec},
    selection::{IncludesExcludes, globs_may_overlap, is_glob},
    stored_scope::{self, SelectingSpec as _},
};

/// The selection of a stored backup, in the form in which two are compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtectedScope {
    /// Label value of the name of its schedule; empty if it has none.
    schedule: String,
    /// Included namespaces; empty is all.
    included: Vec<String>,
    excluded: Vec<String>,
    cluster_scope: ClusterScope,
    /// The other filters, as JSON.
    filters: String,
    /// Whether no other filter leaves anything out.
    is_whole: bool,
}

/// Which cluster-scoped items are selected without naming them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ClusterScope {
    Nothing,
    /// Items that namespaced items need.
    Related,
    Everything,
}

impl ProtectedScope {
    pub(super) fn of(backup: &Backup) -> Self {
        let spec = stored_scope::scope(backup);
        let mut included = spec.included_namespaces.clone();
        if included.iter().any(|pattern| pattern == "*") {
            included.clear();
        }
        let filters = BackupSpec {
            included_namespaces: Vec::new(),
            excluded_namespaces: Vec::new(),
            include_cluster_resources: None,
            ..spec.selection()
        };
        Self {
            schedule: backup.schedule().unwrap_or_default().to_owned(),
            cluster_scope: ClusterScope::of(&spec, included.is_empty()),
            included,
            excluded: spec.excluded_namespaces.clone(),
            is_whole: is_whole(&filters),
            filters: serde_json::to_string(&filters).unwrap_or_default(),
        }
    }

    /// Whether a newer good backup of this scope makes `older` dispensable: it is of all its
    /// namespaces, and of the same schedule, or leaves out nothing that `older` has.
    ///
    /// A schedule's newer backup counts although its filters were changed, but not if a namespace
    /// was taken out of it. Doubtful cases (globs that are not the same) count as different.
    pub(super) fn replaces(&self, older: &Self) -> bool {
        let is_same_schedule = !self.schedule.is_empty() && self.schedule == older.schedule;
        let has_its_items = (self.is_whole || self.filters == older.filters)
            && self.cluster_scope >= older.cluster_scope;
        self.covers_namespaces(older) && (is_same_schedule || has_its_items)
    }

    fn covers_namespaces(&self, older: &Self) -> bool {
        let own = IncludesExcludes::new(&self.included, &[]);
        let includes_all = self.included.is_empty()
            || !older.included.is_empty()
                && older.included.iter().all(|pattern| {
                    self.included.contains(pattern) || !is_glob(pattern) && own.names(pattern)
                });
        includes_all && self.excluded.iter().all(|pattern| older.lacks(pattern))
    }

    /// Whether no namespace that matches this pattern is in the backup.
    fn lacks(&self, pattern: &str) -> bool {
        self.excluded.iter().any(|excluded| excluded == pattern)
            || !self.included.is_empty()
                && !self
                    .included
                    .iter()
                    .any(|included| globs_may_overlap(included, pattern))
    }
}

impl ClusterScope {
    fn of(spec: &BackupSpec, all_namespaces: bool) -> Self {
        match spec.include_cluster_resources {
            Some(true) => Self::Everything,
            Some(false) => Self::Nothing,
            None if all_namespaces && spec.excluded_namespaces.is_empty() => Self::Everything,
            None => Self::Related,
        }
    }
}

/// Whether a selection without its namespaces leaves nothing out.
fn is_whole(filters: &BackupSpec) -> bool {
    let BackupSpec {
        included_resources,
        included_cluster_scoped_resources,
        included_namespace_scoped_resources,
        ..
    } = filters;
    let mut rest = filters.clone();
    for included in [
        included_resources,
        included_cluster_scoped_resources,
        included_namespace_scoped_resources,
    ] {
        if !IncludesExcludes::new(included, &[]).everything() {
            return false;
        }
    }
    rest.included_resources.clear();
    rest.included_cluster_scoped_resources.clear();
    rest.included_namespace_scoped_resources.clear();
    rest == BackupSpec::default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::labels::SCHEDULE_NAME;

    fn scope(schedule: Option<&str>, spec: &Value) -> ProtectedScope {
        let labels = schedule.map(|name| json!({ SCHEDULE_NAME: name }));
        let object = json!({ "metadata": { "name": "b", "labels": labels }, "spec": spec,
            "status": { "phase": "Completed" } });
        ProtectedScope::of(&serde_json::from_value(object).unwrap())
    }

    fn of(namespaces: &[&str]) -> Value {
        json!({ "includedNamespaces": namespaces })
    }

    #[test]
    fn table_of_backups_that_replace_others() {
        let all = json!({});
        let but_system = json!({ "excludedNamespaces": ["kube-system"] });
        let pods = json!({ "includedNamespaces": ["shop"], "includedResources": ["pods"] });
        let labelled = json!({ "includedNamespaces": ["shop"], "labelSelector": { "matchLabels": { "a": "b" } } });
        let no_secrets =
            json!({ "includedNamespaces": ["shop"], "excludedResources": ["secrets"] });
        let policy = json!({ "includedNamespaces": ["shop"], "resourcePolicy": { "kind": "configmap", "name": "p" } });
        let everything =
            json!({ "includedNamespaces": ["shop"], "includedResources": ["*"], "ttl": "1h" });
        let with_cluster =
            json!({ "includedNamespaces": ["shop"], "includeClusterResources": true });
        let no_cluster = json!({ "includeClusterResources": false });
        let roles = json!({ "includedNamespaces": ["shop"], "includedClusterScopedResources": ["clusterroles"] });
        let (a, b) = (Some("a"), Some("b"));
        for (newer_of, newer, older_of, older, expected) in [
            // The same.
            (None, &of(&["shop"]), None, &of(&["shop"]), true),
            (None, &everything, None, &of(&["shop"]), true),
            (None, &pods, None, &pods, true),
            (None, &labelled, None, &labelled, true),
            (None, &policy, None, &policy, true),
            (a, &of(&["shop"]), b, &of(&["shop"]), true),
            // More namespaces, or fewer.
            (None, &of(&["db", "shop"]), None, &of(&["shop"]), true),
            (None, &of(&["shop"]), None, &of(&["db", "shop"]), false),
            (None, &all, None, &of(&["shop"]), true),
            (None, &of(&["*"]), None, &of(&["shop"]), true),
            (None, &of(&["shop"]), None, &all, false),
            (None, &of(&["sh*"]), None, &of(&["shop"]), true),
            (None, &of(&["sh*"]), None, &of(&["sh*"]), true),
            (None, &of(&["s*"]), None, &of(&["sh*"]), false),
            (None, &of(&["sh*"]), None, &of(&["db"]), false),
            (None, &but_system, None, &of(&["shop"]), true),
            (None, &but_system, None, &of(&["kube-system"]), false),
            (None, &but_system, None, &of(&["kube-*"]), false),
            (None, &but_system, None, &but_system, true),
            (None, &but_system, None, &all, false),
            (None, &all, None, &but_system, true),
            // Fewer items.
            (None, &of(&["shop"]), None, &pods, true),
            (None, &pods, None, &of(&["shop"]), false),
            (None, &pods, None, &labelled, false),
            (None, &labelled, None, &of(&["shop"]), false),
            (None, &no_secrets, None, &of(&["shop"]), false),
            (None, &policy, None, &of(&["shop"]), false),
            (None, &of(&["shop"]), None, &with_cluster, false),
            (None, &with_cluster, None, &of(&["shop"]), true),
            (None, &all, None, &with_cluster, true),
            (None, &no_cluster, None, &of(&["shop"]), false),
            (None, &roles, None, &of(&["shop"]), false),
            // Another template of the same schedule.
            (a, &no_secrets, a, &of(&["shop"]), true),
            (a, &no_secrets, b, &of(&["shop"]), false),
            (a, &of(&["shop", "db"]), a, &pods, true),
            (a, &of(&["shop"]), a, &of(&["shop", "db"]), false),
            (a, &of(&["shop"]), a, &all, false),
        ] {
            let found = scope(newer_of, newer).replaces(&scope(older_of, older));
            assert_eq!(
                found, expected,
                "{newer_of:?} {newer}, {older_of:?} {older}"
            );
        }
    }

    #[test]
    fn the_stored_selection_counts_and_not_that_of_an_edited_object() {
        let mut backup: Backup = serde_json::from_value(json!({ "metadata": { "name": "b" },
            "spec": of(&["shop"]), "status": { "phase": "Completed" } }))
        .unwrap();
        let noted = stored_scope::annotation(&backup.spec).unwrap();
        let stored = ProtectedScope::of(&backup);
        backup.metadata.annotations =
            Some([(crate::labels::STORED_SCOPE_ANNOTATION.to_owned(), noted)].into());
        backup.spec.included_namespaces = vec!["other".to_owned()];
        assert_eq!(ProtectedScope::of(&backup), stored);
    }
}
