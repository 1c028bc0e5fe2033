//! Includes and excludes of names.

use super::glob::{glob_match, is_glob};

/// A filter of names: all included names (every name if there are no includes) that are not
/// excluded.
///
/// Velero: `pkg/util/collections/includes_excludes.go`, v1.18.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IncludesExcludes {
    includes: Patterns,
    excludes: Patterns,
}

/// Names and globs, as given. A plain name is found by binary search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Patterns {
    all: Vec<String>,
    /// Positions of plain names, sorted by name.
    plain: Vec<usize>,
    /// Positions of globs.
    globs: Vec<usize>,
}

impl Patterns {
    fn new(all: &[String]) -> Self {
        let (globs, mut plain): (Vec<_>, Vec<_>) =
            (0..all.len()).partition(|at| is_glob(&all[*at]));
        plain.sort_by_key(|at| &all[*at]);
        Self {
            all: all.to_vec(),
            plain,
            globs,
        }
    }

    fn matches(&self, name: &str) -> bool {
        self.plain
            .binary_search_by_key(&name, |at| &self.all[*at])
            .is_ok()
            || self.globs.iter().any(|at| glob_match(&self.all[*at], name))
    }
}

impl IncludesExcludes {
    /// From the two lists of a spec; both may hold globs.
    pub fn new(includes: &[String], excludes: &[String]) -> Self {
        Self {
            includes: Patterns::new(includes),
            excludes: Patterns::new(excludes),
        }
    }

    /// Whether this name passes. An exclude beats an include.
    pub fn includes(&self, name: &str) -> bool {
        !self.excludes(name) && (self.includes.all.is_empty() || self.names(name))
    }

    pub fn excludes(&self, name: &str) -> bool {
        self.excludes.matches(name)
    }

    /// Whether an include matches this name; `false` without includes.
    pub fn names(&self, name: &str) -> bool {
        self.includes.matches(name)
    }

    /// Whether there is no filter at all: nothing excluded, and nothing or only `*` included.
    pub fn everything(&self) -> bool {
        self.excludes.all.is_empty() && self.includes.all.iter().all(|pattern| pattern == "*")
    }

    pub fn included(&self) -> &[String] {
        &self.includes.all
    }

    pub fn excluded(&self) -> &[String] {
        &self.excludes.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(includes: &[&str], excludes: &[&str]) -> IncludesExcludes {
        let own = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
        IncludesExcludes::new(&own(includes), &own(excludes))
    }

    #[rstest::rstest]
    #[case::nothing_given(&[], &[], "a", true)]
    #[case::star(&["*"], &[], "a", true)]
    #[case::named(&["a"], &[], "a", true)]
    #[case::not_named(&["a"], &[], "b", false)]
    #[case::glob(&["app-*"], &[], "app-1", true)]
    #[case::excluded(&[], &["a"], "a", false)]
    #[case::exclude_beats_include(&["a"], &["a"], "a", false)]
    #[case::excluded_by_glob(&["*"], &["app-?"], "app-1", false)]
    #[case::among_many(&["e", "c", "a-*", "d", "b"], &["x", "z", "y"], "d", true)]
    #[case::excluded_among_many(&["*"], &["x", "z", "y"], "z", false)]
    #[case::all_excluded(&[], &["*"], "a", false)]
    fn a_name_passes_if_included_and_not_excluded(
        #[case] includes: &[&str],
        #[case] excludes: &[&str],
        #[case] name: &str,
        #[case] passes: bool,
    ) {
        assert_eq!(filter(includes, excludes).includes(name), passes);
    }

    #[test]
    fn only_a_filter_that_cuts_nothing_is_everything() {
        assert!(filter(&[], &[]).everything());
        assert!(filter(&["*"], &[]).everything());
        assert!(!filter(&["a"], &[]).everything());
        assert!(!filter(&[], &["a"]).everything());
    }
}
