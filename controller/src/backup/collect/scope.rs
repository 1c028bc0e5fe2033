//! Which namespaces a backup reads, and how their lists are asked for. Pure.

use backup_core::{
    api::BackupSpec,
    selection::{IncludesExcludes, is_glob},
};

/// How namespaced types are listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// One list over all namespaces; items of excluded ones are left out afterwards.
    Everywhere,
    /// One list for each of these namespaces.
    Only(Vec<String>),
}

/// The namespaces of a backup.
#[derive(Clone, Debug)]
pub struct Scope {
    filter: IncludesExcludes,
    /// How namespaced types are listed.
    pub reach: Reach,
    /// Namespaces that are named but do not exist.
    pub missing: Vec<String>,
    /// Patterns that match no namespace.
    pub unmatched: Vec<String>,
}

impl Scope {
    /// Whether the live namespaces have to be known to resolve this spec.
    pub fn needs_live_namespaces(spec: &BackupSpec) -> bool {
        !includes_all(&spec.included_namespaces)
    }

    /// Resolves the names and patterns of a spec against the live namespaces. A name that does not exist, and a pattern
    /// without a match, stand for nothing (Velero `pkg/util/wildcard`, v1.18).
    pub fn resolve(spec: &BackupSpec, live: &[String]) -> Self {
        let filter = IncludesExcludes::new(&spec.included_namespaces, &spec.excluded_namespaces);
        if includes_all(&spec.included_namespaces) {
            return Self { filter, reach: Reach::Everywhere, missing: vec![], unmatched: vec![] };
        }
        let (mut missing, mut unmatched) = (Vec::new(), Vec::new());
        for include in &spec.included_namespaces {
            let alone = IncludesExcludes::new(std::slice::from_ref(include), &[]);
            if !live.iter().any(|namespace| alone.includes(namespace)) {
                if is_glob(include) { &mut unmatched } else { &mut missing }.push(include.clone());
            }
        }
        let selected = live.iter().filter(|namespace| filter.includes(namespace)).cloned().collect();
        Self { filter, reach: Reach::Only(selected), missing, unmatched }
    }

    /// Whether items of this namespace belong to the backup.
    pub fn includes(&self, namespace: &str) -> bool {
        match &self.reach {
            Reach::Everywhere => self.filter.includes(namespace),
            Reach::Only(_) => self.filter.includes(namespace) && self.filter.names(namespace),
        }
    }

    /// Whether the spec names this namespace, by itself or by a pattern other than "all".
    pub fn names(&self, namespace: &str) -> bool {
        matches!(self.reach, Reach::Only(_)) && self.includes(namespace)
    }

    /// The namespaces to ask for one by one; one empty entry asks for all at once.
    pub fn lists(&self) -> Vec<Option<String>> {
        match &self.reach {
            Reach::Everywhere => vec![None],
            Reach::Only(names) => names.iter().cloned().map(Some).collect(),
        }
    }
}

fn includes_all(includes: &[String]) -> bool {
    includes.is_empty() || includes.iter().any(|include| include == "*")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(included: &[&str], excluded: &[&str]) -> Scope {
        let strings = |list: &[&str]| list.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let spec = BackupSpec {
            included_namespaces: strings(included),
            excluded_namespaces: strings(excluded),
            ..BackupSpec::default()
        };
        Scope::resolve(&spec, &strings(&["shop", "shop-test", "web"]))
    }

    #[test]
    fn namespaces_are_resolved_against_those_that_live() {
        let everywhere = Reach::Everywhere;
        let only = |names: &[&str]| Reach::Only(names.iter().map(|&name| name.to_owned()).collect());
        for (included, excluded, reach) in [
            (&[][..], &[][..], everywhere.clone()),
            (&["*"], &[], everywhere.clone()),
            (&["*"], &["web"], everywhere),
            (&["shop"], &[], only(&["shop"])),
            (&["shop*"], &[], only(&["shop", "shop-test"])),
            (&["shop*"], &["*-test"], only(&["shop"])),
            (&["gone", "web"], &[], only(&["web"])),
            (&["none-*"], &[], only(&[])),
        ] {
            assert_eq!(scope(included, excluded).reach, reach, "{included:?} {excluded:?}");
        }
    }

    #[test]
    fn what_matches_nothing_is_told() {
        let scope = scope(&["gone", "none-*", "web"], &[]);
        assert_eq!((scope.missing, scope.unmatched), (vec!["gone".to_owned()], vec!["none-*".to_owned()]));
    }

    #[test]
    fn a_pattern_that_matches_nothing_selects_nothing() {
        let scope = scope(&["none-*"], &[]);
        assert!(scope.lists().is_empty());
        assert!(!scope.includes("web"));
    }

    #[test]
    fn only_a_spec_that_chooses_names_its_namespaces() {
        assert!(!scope(&["*"], &[]).names("web"));
        assert!(scope(&["w*"], &[]).names("web"));
        assert!(!scope(&["w*"], &["web"]).names("web"));
        assert!(scope(&[], &["web"]).includes("shop") && !scope(&[], &["web"]).includes("web"));
    }
}
