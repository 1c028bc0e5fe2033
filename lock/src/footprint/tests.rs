use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

fn backup(includes: &[&str], excludes: &[&str]) -> BackupSpec {
    BackupSpec {
        included_namespaces: names(includes),
        excluded_namespaces: names(excludes),
        ..BackupSpec::default()
    }
}

fn restore(includes: &[&str], excludes: &[&str], mapping: &[(&str, &str)]) -> RestoreSpec {
    RestoreSpec {
        backup_name: Some("b".to_owned()),
        included_namespaces: names(includes),
        excluded_namespaces: names(excludes),
        namespace_mapping: mapping
            .iter()
            .map(|(a, b)| (a.to_string(), b.to_string()))
            .collect::<BTreeMap<_, _>>(),
        ..RestoreSpec::default()
    }
}

#[test]
fn a_backup_and_a_restore_overlap_where_they_touch_the_same() {
    let everything = backup(&[], &[]);
    for (b, r, source, expected) in vec![
        // Plain names.
        (backup(&["a"], &[]), restore(&["a"], &[], &[]), None, true),
        (backup(&["a"], &[]), restore(&["b"], &[], &[]), None, false),
        (backup(&["a", "b"], &[]), restore(&["c", "b"], &[], &[]), None, true),
        // Empty and `*` are everything.
        (backup(&[], &[]), restore(&["b"], &[], &[]), None, true),
        (backup(&["*"], &[]), restore(&["b"], &[], &[]), None, true),
        (backup(&["a"], &[]), restore(&[], &[], &[]), None, true),
        // A restore of everything touches what its backup holds.
        (backup(&["a"], &[]), restore(&[], &[], &[]), Some(backup(&["b"], &[])), false),
        (backup(&["a"], &[]), restore(&[], &[], &[]), Some(backup(&["a"], &[])), true),
        (backup(&["a"], &[]), restore(&["*"], &[], &[]), Some(everything.clone()), true),
        (backup(&["a"], &[]), restore(&[], &["b"], &[]), Some(backup(&["b", "c"], &[])), false),
        // Globs.
        (backup(&["team-*"], &[]), restore(&["team-1"], &[], &[]), None, true),
        (backup(&["team-*"], &[]), restore(&["app-*"], &[], &[]), None, false),
        (backup(&["*-prod"], &[]), restore(&["app-*"], &[], &[]), None, true),
        (backup(&["{a,b}"], &[]), restore(&["c"], &[], &[]), None, true),
        // Mapped targets count, and so do the sources.
        (backup(&["new"], &[]), restore(&["old"], &[], &[("old", "new")]), None, true),
        (backup(&["old"], &[]), restore(&["old"], &[], &[("old", "new")]), None, true),
        (backup(&["new"], &[]), restore(&["o*"], &[], &[("old", "new")]), None, true),
        (backup(&["new"], &[]), restore(&["x"], &[], &[("old", "new")]), None, false),
        (backup(&["new"], &[]), restore(&[], &[], &[("old", "new")]), Some(backup(&["old"], &[])), true),
        // Plain exclusions from everything.
        (backup(&[], &["a"]), restore(&["a"], &[], &[]), None, false),
        (backup(&[], &["a"]), restore(&["a", "b"], &[], &[]), None, true),
        (backup(&[], &["a*"]), restore(&["a"], &[], &[]), None, true),
        (backup(&["a"], &[]), restore(&[], &["a"], &[]), None, false),
        (backup(&["a"], &[]), restore(&[], &["a"], &[("z", "a")]), None, true),
        (backup(&[], &["a"]), restore(&[], &["b"], &[]), None, true),
    ] {
        let (x, y) = (Footprint::of_backup(&b), Footprint::of_restore(&r, source.as_ref()));
        assert_eq!(x.overlaps(&y), expected, "{b:?}\n{r:?}\n{source:?}");
        assert_eq!(y.overlaps(&x), expected, "the other way round: {b:?}\n{r:?}");
    }
}

#[test]
fn cluster_scoped_resources_count_only_where_they_are_selected() {
    let plain = |spec: &BackupSpec| Footprint::of_backup(spec);
    let explicit = BackupSpec { include_cluster_resources: Some(true), ..backup(&["a"], &[]) };
    let listed =
        BackupSpec { included_cluster_scoped_resources: names(&["clusterroles"]), ..backup(&["a"], &[]) };
    let other = Footprint::of_restore(
        &RestoreSpec { include_cluster_resources: Some(true), ..restore(&["b"], &[], &[]) },
        None,
    );
    assert!(plain(&explicit).overlaps(&other));
    assert!(plain(&listed).overlaps(&other));
    assert!(!plain(&backup(&["a"], &[])).overlaps(&other));
}

#[test]
fn a_namespace_is_inside_or_outside() {
    for (footprint, inside, outside) in [
        (Footprint::everything(), vec!["a"], vec![]),
        (Footprint::of_backup(&backup(&[], &["x"])), vec!["a"], vec!["x"]),
        (Footprint::of_backup(&backup(&["a", "team-*"], &[])), vec!["a", "team-1"], vec!["b", "team"]),
        (Footprint::of_restore(&restore(&["a"], &[], &[("a", "z")]), None), vec!["a", "z"], vec!["b"]),
    ] {
        assert!(inside.iter().all(|name| footprint.includes(name)), "{footprint}");
        assert!(!outside.iter().any(|name| footprint.includes(name)), "{footprint}");
    }
}

#[test]
fn very_many_names_become_everything() {
    let many: Vec<String> = (0..1000).map(|n| format!("namespace-{n:050}")).collect();
    let large = Footprint::of_backup(&BackupSpec { included_namespaces: many, ..BackupSpec::default() });
    assert!(large.overlaps(&Footprint::namespaces(["unheard-of"])));
    assert!(serde_json::to_string(&large).unwrap().len() < 100);
    let globs = Footprint::namespaces(["a*".repeat(500)]);
    assert!(globs.overlaps(&Footprint::namespaces(["z"])));
}

#[test]
fn footprints_are_told_in_words() {
    for (footprint, words) in [
        (Footprint::everything(), "all namespaces"),
        (Footprint::namespaces(["a"]), "namespace a"),
        (Footprint::namespaces(["a", "b", "c", "d", "e"]), "namespaces a, b, c and 2 more"),
        (Footprint::of_backup(&backup(&[], &["x"])), "all namespaces but x"),
    ] {
        assert_eq!(footprint.to_string(), words);
    }
}

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

proptest! {
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
    fn overlap_is_symmetric_and_everything_overlaps_all(a in any_footprint(), b in any_footprint()) {
        prop_assert_eq!(a.overlaps(&b), b.overlaps(&a));
        prop_assert!(a.overlaps(&Footprint::everything()));
    }
}
