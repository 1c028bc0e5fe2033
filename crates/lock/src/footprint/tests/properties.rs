//! What holds for all footprints.

use proptest::prelude::*;

use super::*;

fn pattern() -> impl Strategy<Value = String> {
    proptest::string::string_regex("[ab*?]{1,4}").unwrap()
}

fn any_footprint() -> impl Strategy<Value = Footprint> {
    let list = || proptest::collection::vec(pattern(), 0..3);
    (list(), list()).prop_map(|(included_namespaces, excluded_namespaces)| {
        Footprint::of_backup(&BackupSpec {
            included_namespaces,
            excluded_namespaces,
            ..BackupSpec::default()
        })
    })
}

fn touching_a_backup() -> impl Strategy<Value = Footprint> {
    let backup = proptest::sample::select(vec![None, Some(""), Some("b"), Some("c")]);
    (any_footprint(), backup).prop_map(|(footprint, backup)| match backup {
        None => footprint,
        name => footprint.from_backup("velero", name),
    })
}

proptest! {
    #[test]
    fn its_size_is_known_before_it_is_written(
        names in proptest::collection::vec("[a-c*\"\\\\\n\u{1}]{1,9}", 0..9),
        backup in "[a-c\"\\\\\u{1f}]{0,9}",
    ) {
        let text = serde_json::to_string(&backup).unwrap();
        prop_assert!(text.len() - 2 <= json_bytes(&backup));
        prop_assert_eq!(json_bytes(&format!("{backup}ab ")), json_bytes(&backup) + 3);
        let footprint = Footprint { backup, ..Footprint::namespaces(names) };
        prop_assert!(serde_json::to_string(&footprint).unwrap().len() <= footprint.bytes_at_most());
    }

    #[test]
    fn what_both_select_is_an_overlap(
        includes in proptest::collection::vec(pattern(), 0..3),
        excludes in proptest::collection::vec(pattern(), 0..3),
        others in proptest::collection::vec(pattern(), 0..3),
        name in "[ab]{1,4}",
    ) {
        use backup_core::selection::IncludesExcludes;
        let both = IncludesExcludes::new(&includes, &excludes).includes(&name)
            && IncludesExcludes::new(&others, &[]).includes(&name);
        let one = BackupSpec { included_namespaces: includes, excluded_namespaces: excludes, ..BackupSpec::default() };
        let other = RestoreSpec { included_namespaces: others, ..RestoreSpec::default() };
        let overlap = Footprint::of_backup(&one).overlaps(&Footprint::of_restore(&other, None));
        prop_assert!(!both || overlap);
    }

    #[test]
    fn a_union_overlaps_whatever_a_part_overlaps(a in any_footprint(), b in any_footprint(), c in any_footprint()) {
        let union = a.union(&b);
        prop_assert!(!(a.overlaps(&c) || b.overlaps(&c)) || union.overlaps(&c));
    }

    #[test]
    fn what_covers_another_overlaps_whatever_that_overlaps(
        a in touching_a_backup(), b in touching_a_backup(), c in touching_a_backup(),
    ) {
        prop_assert!(!(a.covers(&b) && b.overlaps(&c)) || a.overlaps(&c), "{a:?}\n{b:?}\n{c:?}");
        prop_assert!(!(a.covers(&b) && b.shares_backup(&c)) || a.shares_backup(&c), "{a:?}\n{b:?}\n{c:?}");
    }

    #[test]
    fn to_cover_is_reflexive_and_transitive_and_no_more_than_it_says(
        a in touching_a_backup(), b in touching_a_backup(), c in touching_a_backup(), name in "[ab]{1,4}",
    ) {
        prop_assert!(a.covers(&a), "{a:?}");
        prop_assert!(Footprint::everything().covers(&a), "{a:?}");
        prop_assert!(!(a.covers(&b) && b.covers(&c)) || a.covers(&c), "{a:?}\n{b:?}\n{c:?}");
        prop_assert!(!a.covers(&b) || a.includes(&name) || !b.includes(&name), "{name}: {a:?}\n{b:?}");
        let both = a.union(&b);
        prop_assert!(both.covers(&a) && both.covers(&b), "{both:?}\n{a:?}\n{b:?}");
    }

    #[test]
    fn a_restore_that_learns_its_backup_never_grows(
        includes in proptest::collection::vec(pattern(), 0..3),
        excludes in proptest::collection::vec(pattern(), 0..3),
        from in proptest::collection::vec(pattern(), 0..3),
        mapping in proptest::collection::btree_map("[ab]{1,2}", "[abc]{1,2}", 0..3),
    ) {
        let spec = RestoreSpec {
            included_namespaces: includes,
            excluded_namespaces: excludes,
            namespace_mapping: mapping,
            ..RestoreSpec::default()
        };
        let source = BackupSpec { included_namespaces: from, ..BackupSpec::default() };
        let (before, after) = (Footprint::of_restore(&spec, None), Footprint::of_restore(&spec, Some(&source)));
        prop_assert!(before.covers(&after), "{spec:?}\n{before:?}\n{after:?}");
    }

    #[test]
    fn overlap_is_symmetric_and_everything_overlaps_all(a in any_footprint(), b in any_footprint()) {
        prop_assert_eq!(a.overlaps(&b), b.overlaps(&a));
        prop_assert!(a.overlaps(&Footprint::everything()));
    }
}
