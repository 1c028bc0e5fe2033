//! Includes and excludes of names.

use super::glob::glob_match;

/// A filter of names: everything that is included (nothing given is all) and not excluded.
///
/// Velero: `pkg/util/collections/includes_excludes.go`, v1.18.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IncludesExcludes {
    includes: Vec<String>,
    excludes: Vec<String>,
}

impl IncludesExcludes {
    /// From the two lists of a spec; both may hold globs.
    pub fn new(includes: &[String], excludes: &[String]) -> Self {
        Self { includes: includes.to_vec(), excludes: excludes.to_vec() }
    }

    /// Whether this name passes. An exclude beats an include.
    pub fn includes(&self, name: &str) -> bool {
        !self.excludes(name) && (self.includes.is_empty() || self.names(name))
    }

    pub fn excludes(&self, name: &str) -> bool {
        self.excludes.iter().any(|pattern| glob_match(pattern, name))
    }

    /// Whether an include matches this name; false if there are none.
    pub fn names(&self, name: &str) -> bool {
        self.includes.iter().any(|pattern| glob_match(pattern, name))
    }

    /// Whether there is no filter at all: nothing excluded, and nothing or just `*` included.
    pub fn everything(&self) -> bool {
        self.excludes.is_empty() && self.includes.iter().all(|pattern| pattern == "*")
    }

    pub fn included(&self) -> &[String] {
        &self.includes
    }

    pub fn excluded(&self) -> &[String] {
        &self.excludes
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
