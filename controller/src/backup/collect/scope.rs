//! Which namespaces a backup reads. Pure.

use std::collections::BTreeSet;

use backup_core::{
    api::BackupSpec,
    selection::{IncludesExcludes, is_glob},
};

/// Maximum number of namespaces that are read by name. For more, all namespaces are listed.
const MAX_NAMESPACES_BY_NAME: usize = 16;

#[derive(Clone, Debug)]
pub(crate) struct NamespaceScope {
    filter: IncludesExcludes,
    /// The namespaces chosen at the start; `None` if all are meant.
    chosen: Option<BTreeSet<String>>,
    /// Number of namespaces at the start, if all were listed.
    live: Option<usize>,
    /// Namespaces that are named but do not exist.
    pub(crate) missing: Vec<String>,
    /// Patterns that match no namespace.
    pub(crate) unmatched: Vec<String>,
}

impl NamespaceScope {
    /// Which live namespaces have to be known to resolve a list of a spec.
    pub(crate) fn needed(names: &[String]) -> NeededNamespaces<'_> {
        if includes_all(names) {
            NeededNamespaces::None
        } else if names.len() <= MAX_NAMESPACES_BY_NAME && names.iter().all(|name| is_name(name)) {
            NeededNamespaces::Named(names)
        } else {
            NeededNamespaces::All
        }
    }

    /// Resolves the names and patterns of a spec against the live namespaces. A name that does not
    /// exist, and a pattern without a match, select nothing (Velero `pkg/util/wildcard`, v1.18).
    pub(crate) fn resolve(spec: &BackupSpec, live: &[String]) -> Self {
        let filter = IncludesExcludes::new(&spec.included_namespaces, &spec.excluded_namespaces);
        if includes_all(&spec.included_namespaces) {
            return Self {
                filter,
                chosen: None,
                live: None,
                missing: vec![],
                unmatched: vec![],
            };
        }
        let (unmatched, missing) = without_match(&spec.included_namespaces, live)
            .into_iter()
            .partition(|name| is_glob(name));
        let chosen: BTreeSet<String> = live
            .iter()
            .filter(|namespace| filter.includes(namespace))
            .cloned()
            .collect();
        let live = matches!(
            Self::needed(&spec.included_namespaces),
            NeededNamespaces::All
        )
        .then_some(live.len());
        Self {
            filter,
            chosen: Some(chosen),
            live,
            missing,
            unmatched,
        }
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

    /// The chosen namespaces; `None` if all are meant.
    pub(crate) fn chosen(&self) -> Option<&BTreeSet<String>> {
        self.chosen.as_ref()
    }

    /// The chosen namespaces, if they are few enough to be read by name.
    pub(crate) fn by_name(&self) -> Option<&BTreeSet<String>> {
        self.chosen()
            .filter(|chosen| chosen.len() <= MAX_NAMESPACES_BY_NAME)
    }

    /// Number of namespaces when these were chosen, if known.
    pub(crate) fn live(&self) -> Option<usize> {
        self.live
    }
}

/// The names and patterns that match no live namespace.
pub(crate) fn without_match(names: &[String], live: &[String]) -> Vec<String> {
    names
        .iter()
        .filter(|name| {
            let alone = IncludesExcludes::new(std::slice::from_ref(*name), &[]);
            !live.iter().any(|namespace| alone.includes(namespace))
        })
        .cloned()
        .collect()
}

/// Which live namespaces must be known.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NeededNamespaces<'a> {
    None,
    /// Whether these exist.
    Named(&'a [String]),
    All,
}

/// Whether it is the name of one namespace, and not a pattern.
fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
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
        for (included, excluded, expected) in [
            (&[][..], &[][..], None),
            (&["*"], &[], None),
            (&["*"], &["web"], None),
            (&["shop"], &[], Some(&["shop"][..])),
            (&["shop*"], &[], Some(&["shop", "shop-test"])),
            (&["shop*"], &["*-test"], Some(&["shop"])),
            (&["gone", "web"], &[], Some(&["web"])),
            (&["none-*"], &[], Some(&[])),
        ] {
            let scope = scope(included, excluded);
            let found = scope
                .chosen()
                .map(|names| names.iter().map(String::as_str).collect::<Vec<_>>());
            assert_eq!(found.as_deref(), expected, "{included:?} {excluded:?}");
        }
    }

    #[test]
    fn few_names_are_looked_up_and_all_namespaces_listed_for_patterns() {
        let many: Vec<String> = (0..=MAX_NAMESPACES_BY_NAME)
            .map(|number| format!("n{number}"))
            .collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        for (included, listed) in [
            (&["shop", "gone"][..], false),
            (&["shop", "w*"], true),
            (&many, true),
        ] {
            let included_namespaces: Vec<String> =
                included.iter().map(|&name| name.to_owned()).collect();
            let spec = BackupSpec {
                included_namespaces,
                ..BackupSpec::default()
            };
            let expected = if listed {
                NeededNamespaces::All
            } else {
                NeededNamespaces::Named(&spec.included_namespaces)
            };
            assert_eq!(NamespaceScope::needed(&spec.included_namespaces), expected);
            assert_eq!(
                scope(included, &[]).live(),
                listed.then_some(3),
                "{included:?}"
            );
        }
        assert_eq!(NamespaceScope::needed(&[]), NeededNamespaces::None);
        assert_eq!(scope(&["*"], &[]).by_name(), None);
        assert_eq!(scope(&["w*"], &[]).by_name().map(BTreeSet::len), Some(1));
    }

    #[test]
    fn what_matches_nothing_is_told() {
        let scope = scope(&["gone", "none-*", "web"], &[]);
        assert!(!self::scope(&["none-*"], &[]).includes("web"));
        assert_eq!(
            (scope.missing, scope.unmatched),
            (vec!["gone".to_owned()], vec!["none-*".to_owned()])
        );
    }

    #[test]
    fn an_exclude_that_no_namespace_has_is_found() {
        let names = ["gone", "shop", "w*", "none-*"].map(str::to_owned);
        let live = ["shop", "web"].map(str::to_owned);
        assert_eq!(without_match(&names, &live), ["gone", "none-*"]);
        assert_eq!(without_match(&[], &live), [""; 0]);
    }

    #[test]
    fn only_a_spec_that_chooses_names_its_namespaces() {
        assert!(!scope(&["*"], &[]).names("web"));
        assert!(scope(&["w*"], &[]).names("web"));
        assert!(!scope(&["w*"], &["web"]).names("web"));
        assert!(scope(&[], &["web"]).includes("shop") && !scope(&[], &["web"]).includes("web"));
    }
}
