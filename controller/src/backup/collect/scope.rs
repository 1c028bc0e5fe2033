//! Which namespaces a backup reads, and how their lists are asked for. Pure.

use std::collections::BTreeSet;

use backup_core::{
    api::BackupSpec,
    selection::{IncludesExcludes, is_glob},
};

/// Chosen namespaces are asked for one by one up to this number; more of them only if they are a small part of all…
const FEW: usize = 16;
/// … and not too many: each costs a request for each type.
const MANY: usize = 100;
/// What a small part is: one of so many.
const PART: usize = 8;

#[derive(Clone, Debug)]
pub(crate) struct NamespaceScope {
    filter: IncludesExcludes,
    /// The chosen ones, as they were at the start; none if all are meant.
    chosen: Option<BTreeSet<String>>,
    /// Whether one list over all namespaces is asked for; what does not belong is left out afterwards.
    everywhere: bool,
    /// Namespaces that are named but do not exist.
    pub(crate) missing: Vec<String>,
    /// Patterns that match no namespace.
    pub(crate) unmatched: Vec<String>,
}

impl NamespaceScope {
    /// Whether the live namespaces have to be known to resolve this spec.
    pub(crate) fn needs_live_namespaces(spec: &BackupSpec) -> bool {
        !includes_all(&spec.included_namespaces)
    }

    /// Resolves the names and patterns of a spec against the live namespaces. A name that does not exist, and a pattern
    /// without a match, stand for nothing (Velero `pkg/util/wildcard`, v1.18).
    pub(crate) fn resolve(spec: &BackupSpec, live: &[String]) -> Self {
        let filter = IncludesExcludes::new(&spec.included_namespaces, &spec.excluded_namespaces);
        if includes_all(&spec.included_namespaces) {
            return Self { filter, chosen: None, everywhere: true, missing: vec![], unmatched: vec![] };
        }
        let (mut missing, mut unmatched) = (Vec::new(), Vec::new());
        for include in &spec.included_namespaces {
            let alone = IncludesExcludes::new(std::slice::from_ref(include), &[]);
            if !live.iter().any(|namespace| alone.includes(namespace)) {
                if is_glob(include) { &mut unmatched } else { &mut missing }.push(include.clone());
            }
        }
        let chosen: BTreeSet<String> =
            live.iter().filter(|namespace| filter.includes(namespace)).cloned().collect();
        let everywhere = chosen.len() > FEW && chosen.len() > MANY.min(live.len() / PART);
        Self { filter, chosen: Some(chosen), everywhere, missing, unmatched }
    }

    /// Whether items of this namespace belong to the backup.
    pub(crate) fn includes(&self, namespace: &str) -> bool {
        match &self.chosen {
            None => self.filter.includes(namespace),
            Some(chosen) => chosen.contains(namespace),
        }
    }

    /// Whether the spec names this namespace, by itself or by a pattern other than "all".
    pub(crate) fn names(&self, namespace: &str) -> bool {
        self.chosen.is_some() && self.includes(namespace)
    }

    /// The namespaces to ask for one by one; one empty entry asks for all at once.
    pub(crate) fn lists(&self) -> Vec<Option<String>> {
        match &self.chosen {
            Some(names) if !self.everywhere => names.iter().cloned().map(Some).collect(),
            _ => vec![None],
        }
    }
}

fn includes_all(includes: &[String]) -> bool {
    includes.is_empty() || includes.iter().any(|include| include == "*")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(included: &[&str], excluded: &[&str]) -> NamespaceScope {
        let strings = |list: &[&str]| list.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let spec = BackupSpec {
            included_namespaces: strings(included),
            excluded_namespaces: strings(excluded),
            ..BackupSpec::default()
        };
        NamespaceScope::resolve(&spec, &strings(&["shop", "shop-test", "web"]))
    }

    #[test]
    fn namespaces_are_resolved_against_those_that_live() {
        for (included, excluded, lists) in [
            (&[][..], &[][..], &["all"][..]),
            (&["*"], &[], &["all"]),
            (&["*"], &["web"], &["all"]),
            (&["shop"], &[], &["shop"]),
            (&["shop*"], &[], &["shop", "shop-test"]),
            (&["shop*"], &["*-test"], &["shop"]),
            (&["gone", "web"], &[], &["web"]),
            (&["none-*"], &[], &[]),
        ] {
            let found = scope(included, excluded).lists();
            let found: Vec<_> = found.iter().map(|name| name.as_deref().unwrap_or("all")).collect();
            assert_eq!(found, lists, "{included:?} {excluded:?}");
        }
    }

    #[test]
    fn many_namespaces_are_one_list_of_those_that_existed() {
        let live: Vec<String> = (0..200).map(|n| format!("n{}-{n}", n % 10)).collect();
        let scope = |pattern: &str| {
            let included_namespaces = vec![pattern.to_owned()];
            NamespaceScope::resolve(&BackupSpec { included_namespaces, ..BackupSpec::default() }, &live)
        };
        let many = scope("n[0-4]-*");
        assert_eq!(many.lists(), [None]);
        assert!(many.includes("n0-0") && many.names("n0-0"));
        assert!(!many.includes("n9-9") && !many.includes("n0-1000"));
        assert_eq!(scope("n0-*").lists().len(), 20, "a small part of all");
    }

    #[test]
    fn requests_do_not_grow_with_the_number_of_namespaces() {
        let live: Vec<String> = (0..5000).map(|n| format!("n{}-{n}", n % 10)).collect();
        for (chosen, expected) in [(1, 1), (16, 16), (100, 100), (101, 1), (600, 1)] {
            let spec = BackupSpec { included_namespaces: live[..chosen].to_vec(), ..BackupSpec::default() };
            let lists = NamespaceScope::resolve(&spec, &live).lists().len();
            assert_eq!(lists, expected, "lists of each type for {chosen} of {} namespaces", live.len());
        }
    }

    #[test]
    fn what_matches_nothing_is_told() {
        let scope = scope(&["gone", "none-*", "web"], &[]);
        assert!(!self::scope(&["none-*"], &[]).includes("web"));
        assert_eq!((scope.missing, scope.unmatched), (vec!["gone".to_owned()], vec!["none-*".to_owned()]));
    }

    #[test]
    fn only_a_spec_that_chooses_names_its_namespaces() {
        assert!(!scope(&["*"], &[]).names("web"));
        assert!(scope(&["w*"], &[]).names("web"));
        assert!(!scope(&["w*"], &["web"]).names("web"));
        assert!(scope(&[], &["web"]).includes("shop") && !scope(&[], &["web"]).includes("web"));
    }
}
