use std::collections::BTreeMap;

use super::*;
use backup_core::{api::DrillSpec, drill::restore_spec};

mod properties;

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
        (
            backup(&["a", "b"], &[]),
            restore(&["c", "b"], &[], &[]),
            None,
            true,
        ),
        // Empty and `*` are everything.
        (backup(&[], &[]), restore(&["b"], &[], &[]), None, true),
        (backup(&["*"], &[]), restore(&["b"], &[], &[]), None, true),
        (backup(&["a"], &[]), restore(&[], &[], &[]), None, true),
        // A restore of everything touches the contents of its backup.
        (
            backup(&["a"], &[]),
            restore(&[], &[], &[]),
            Some(backup(&["b"], &[])),
            false,
        ),
        (
            backup(&["a"], &[]),
            restore(&[], &[], &[]),
            Some(backup(&["a"], &[])),
            true,
        ),
        (
            backup(&["a"], &[]),
            restore(&["*"], &[], &[]),
            Some(everything.clone()),
            true,
        ),
        (
            backup(&["a"], &[]),
            restore(&[], &["b"], &[]),
            Some(backup(&["b", "c"], &[])),
            false,
        ),
        // Globs.
        (
            backup(&["team-*"], &[]),
            restore(&["team-1"], &[], &[]),
            None,
            true,
        ),
        (
            backup(&["team-*"], &[]),
            restore(&["app-*"], &[], &[]),
            None,
            false,
        ),
        (
            backup(&["*-prod"], &[]),
            restore(&["app-*"], &[], &[]),
            None,
            true,
        ),
        (
            backup(&["{a,b}"], &[]),
            restore(&["c"], &[], &[]),
            None,
            true,
        ),
        // Mapped targets count, and so do the sources.
        (
            backup(&["new"], &[]),
            restore(&["old"], &[], &[("old", "new")]),
            None,
            true,
        ),
        // A namespace that is mapped to another is only read, and only from the store.
        (
            backup(&["old"], &[]),
            restore(&["old"], &[], &[("old", "new")]),
            None,
            false,
        ),
        (
            backup(&["old"], &[]),
            restore(&["o*"], &[], &[("old", "new")]),
            None,
            true,
        ),
        (
            backup(&["new"], &[]),
            restore(&["o*"], &[], &[("old", "new")]),
            None,
            true,
        ),
        (
            backup(&["new"], &[]),
            restore(&["x"], &[], &[("old", "new")]),
            None,
            false,
        ),
        (
            backup(&["new"], &[]),
            restore(&[], &[], &[("old", "new")]),
            Some(backup(&["old"], &[])),
            true,
        ),
        // Plain exclusions from everything.
        (backup(&[], &["a"]), restore(&["a"], &[], &[]), None, false),
        (
            backup(&[], &["a"]),
            restore(&["a", "b"], &[], &[]),
            None,
            true,
        ),
        (backup(&[], &["a*"]), restore(&["a"], &[], &[]), None, true),
        (backup(&["a"], &[]), restore(&[], &["a"], &[]), None, false),
        (
            backup(&["a"], &[]),
            restore(&[], &["a"], &[("z", "a")]),
            None,
            true,
        ),
        (backup(&[], &["a"]), restore(&[], &["b"], &[]), None, true),
    ] {
        let (x, y) = (
            Footprint::of_backup(&b),
            Footprint::of_restore(&r, source.as_ref()),
        );
        assert_eq!(x.overlaps(&y), expected, "{b:?}\n{r:?}\n{source:?}");
        assert_eq!(
            y.overlaps(&x),
            expected,
            "the other way round: {b:?}\n{r:?}"
        );
    }
}

#[test]
fn cluster_scoped_resources_count_only_where_they_are_selected() {
    let plain = |spec: &BackupSpec| Footprint::of_backup(spec);
    let explicit = BackupSpec {
        include_cluster_resources: Some(true),
        ..backup(&["a"], &[])
    };
    let listed = BackupSpec {
        included_cluster_scoped_resources: names(&["clusterroles"]),
        ..backup(&["a"], &[])
    };
    let other = Footprint::of_restore(
        &RestoreSpec {
            include_cluster_resources: Some(true),
            ..restore(&["b"], &[], &[])
        },
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
        (
            Footprint::of_backup(&backup(&[], &["x"])),
            vec!["a"],
            vec!["x"],
        ),
        (
            Footprint::of_backup(&backup(&["a", "team-*"], &[])),
            vec!["a", "team-1"],
            vec!["b", "team"],
        ),
        (
            Footprint::of_restore(&restore(&["a"], &[], &[("a", "z")]), None),
            vec!["z"],
            vec!["a", "b"],
        ),
    ] {
        assert!(
            inside.iter().all(|name| footprint.includes(name)),
            "{footprint}"
        );
        assert!(
            !outside.iter().any(|name| footprint.includes(name)),
            "{footprint}"
        );
    }
}

#[test]
fn very_many_names_become_everything() {
    let many: Vec<String> = (0..1000).map(|n| format!("namespace-{n:050}")).collect();
    let large = Footprint::of_backup(&BackupSpec {
        included_namespaces: many,
        ..BackupSpec::default()
    });
    assert!(large.overlaps(&Footprint::namespaces(["unheard-of"])));
    assert!(serde_json::to_string(&large).unwrap().len() < 100);
    let globs = Footprint::namespaces(["a*".repeat(500)]);
    assert!(globs.overlaps(&Footprint::namespaces(["z"])));
    // The maximum number and length of names, and one more.
    let numbered = |count: usize, long: usize| (0..count).map(move |n| format!("{n:0>long$}"));
    for (most, more) in [
        (
            Footprint::namespaces(numbered(MAX_NAMES, 3)),
            Footprint::namespaces(numbered(MAX_NAMES + 1, 3)),
        ),
        (
            Footprint::namespaces(numbered(64, MAX_BYTES / 64)),
            Footprint::namespaces(numbered(65, MAX_BYTES / 64)),
        ),
        (
            Footprint::namespaces(["*".repeat(MAX_GLOB_BYTES)]),
            Footprint::namespaces(["*".repeat(MAX_GLOB_BYTES + 1)]),
        ),
    ] {
        assert_ne!(most.namespaces, Namespaces::All);
        assert_eq!(more.namespaces, Namespaces::All);
    }
}

#[test]
fn the_names_are_known_where_each_is_plain() {
    let only = |names: &[&str]| Footprint::namespaces(names.iter().copied());
    for (footprint, names) in [
        (only(&["a", "b-1"]), Some(vec!["a", "b-1"])),
        (only(&["a", "b*"]), None),
        (Footprint::everything(), None),
        (Footprint::of_backup(&backup(&[], &["x"])), None),
    ] {
        let known = footprint
            .names()
            .map(|names| names.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(known, names, "{footprint}");
    }
    assert!(Footprint::everything().includes_cluster() && !only(&["a"]).includes_cluster());
}

#[test]
fn a_union_is_no_more_than_it_has_to_be() {
    let but_x = Footprint::of_backup(&backup(&[], &["x"]));
    let (a, b) = (Footprint::namespaces(["a"]), Footprint::namespaces(["b"]));
    let of = |name: &str| a.clone().from_backup("velero", Some(name));
    for (one, other, together) in [
        (&a, &b, Footprint::namespaces(["a", "b"])),
        (&but_x, &but_x, but_x.clone()),
        (&but_x, &a, Footprint::bounded(Namespaces::All, false)),
        (&of("one"), &a, of("one")),
        (&a, &of("one"), of("one")),
        (&of("one"), &of("one"), of("one")),
        (&of("one"), &of("two"), of("")),
    ] {
        assert_eq!(one.union(other), together, "{one} and {other}");
    }
}

#[test]
fn footprints_are_told_in_words() {
    for (footprint, words) in [
        (Footprint::everything(), "all namespaces"),
        (Footprint::namespaces(["a"]), "namespace a"),
        (Footprint::namespaces(["a", "b", "c"]), "namespaces a, b, c"),
        (
            Footprint::namespaces(["a", "b", "c", "d", "e"]),
            "namespaces a, b, c and 2 more",
        ),
        (Footprint::namespaces([""; 0]), "nothing"),
        (
            Footprint::of_backup(&backup(&[], &["x"])),
            "all namespaces but x",
        ),
        (
            Footprint::of_deletion("velero", "nightly"),
            "backup velero/nightly",
        ),
        (Footprint::of_deletion("velero", ""), "any backup"),
        (
            Footprint::namespaces(["a"]).from_backup("velero", Some("nightly")),
            "namespace a",
        ),
        (
            Footprint::of_restore(
                &RestoreSpec {
                    include_cluster_resources: Some(true),
                    ..restore(&["a"], &[], &[])
                },
                None,
            ),
            "namespace a and cluster-scoped resources",
        ),
    ] {
        assert_eq!(footprint.to_string(), words);
    }
}

#[test]
fn a_restore_into_another_namespace_leaves_the_one_it_was_taken_from_alone() {
    let prod = Footprint::of_backup(&backup(&["prod"], &[]));
    let staging = Footprint::of_backup(&backup(&["staging"], &[]));
    let mapping = [("prod", "staging")];
    for (spec, source) in [
        (restore(&["prod"], &[], &mapping), None),
        (
            restore(&["prod"], &[], &mapping),
            Some(backup(&["prod"], &[])),
        ),
        (restore(&[], &[], &mapping), Some(backup(&["prod"], &[]))),
        (
            restore(&["*"], &["kube-system"], &mapping),
            Some(backup(&["prod", "kube-system"], &[])),
        ),
    ] {
        let footprint = Footprint::of_restore(&spec, source.as_ref());
        assert!(!footprint.overlaps(&prod), "{footprint}: {spec:?}");
        assert!(footprint.overlaps(&staging), "{footprint}: {spec:?}");
    }
    // A glob may restore other namespaces than the mapped one; and the contents of an unknown
    // backup are unknown.
    for spec in [
        restore(&["pro*"], &[], &mapping),
        restore(&[], &[], &mapping),
    ] {
        let footprint = Footprint::of_restore(&spec, None);
        assert!(
            footprint.overlaps(&prod) && footprint.overlaps(&staging),
            "{footprint}: {spec:?}"
        );
    }
}

#[test]
fn a_deletion_meets_whoever_has_to_do_with_its_backup() {
    let of = |name: &str| Footprint::of_deletion("velero", name);
    let from = |name: Option<&str>| Footprint::namespaces(["a"]).from_backup("velero", name);
    for (one, other, meet) in [
        (of("b"), from(Some("b")), true),
        (of("b"), from(Some("c")), false),
        (
            of("b"),
            Footprint::namespaces(["a"]).from_backup("elsewhere", Some("b")),
            false,
        ),
        (of("b"), of("b"), true),
        // Unknown, missing or invalid names mean any backup.
        (of("b"), from(None), true),
        (of("b"), from(Some("")), true),
        (of("b"), from(Some("no name at all!")), true),
        (of(""), from(Some("c")), true),
        (of("b"), Footprint::everything(), true),
        // A backup reads no other backup.
        (of("b"), Footprint::of_backup(&backup(&[], &[])), false),
        (
            Footprint::everything(),
            Footprint::of_backup(&backup(&[], &[])),
            false,
        ),
    ] {
        assert_eq!(one.shares_backup(&other), meet, "{one:?}\n{other:?}");
        assert_eq!(other.shares_backup(&one), meet, "the other way round");
        assert!(
            !of("b").overlaps(&other),
            "a deletion touches no namespace: {other:?}"
        );
    }
}

#[test]
fn a_plain_name_takes_its_length_quotes_and_a_comma() {
    let bytes = |names: &[&str]| Footprint::namespaces(names.iter().copied()).bytes_at_most();
    assert_eq!(bytes(&["shop", "blog"]), bytes(&["shop"]) + 7);
}

#[test]
fn what_velero_makes_of_a_backup_when_it_starts_is_no_growth() {
    let started = |before: &BackupSpec, change: fn(&mut BackupSpec)| {
        let mut after = before.clone();
        change(&mut after);
        let (before, after) = (Footprint::of_backup(before), Footprint::of_backup(&after));
        assert!(before.covers(&after), "{before:?}\n{after:?}");
    };
    for spec in [
        backup(&[], &[]),
        backup(&["*"], &["x"]),
        backup(&["a", "team-*"], &[]),
        backup(&["a"], &["x"]),
    ] {
        started(&spec, |spec| {
            if spec.included_namespaces.is_empty() {
                spec.included_namespaces = names(&["*"]);
            }
        });
        started(&spec, |spec| {
            spec.excluded_namespaces
                .extend(names(&["labelled", "labelled-2"]));
        });
        started(&spec, |spec| {
            spec.excluded_cluster_scoped_resources =
                names(&["volumesnapshotcontents.snapshot.storage.k8s.io"]);
            spec.excluded_namespace_scoped_resources =
                names(&["volumesnapshots.snapshot.storage.k8s.io"]);
        });
        started(&spec, |spec| {
            spec.excluded_resources = names(&["volumesnapshots.snapshot.storage.k8s.io"]);
        });
        started(&spec, |spec| {
            spec.storage_location = Some("default".to_owned());
        });
    }
}

#[test]
fn what_velero_makes_of_a_restore_when_it_starts_is_no_growth() {
    let sources = [
        backup(&[], &[]),
        backup(&["*"], &["x"]),
        backup(&["a"], &[]),
        backup(&["a", "b", "c"], &[]),
        backup(&["team-*", "a"], &[]),
        backup(&["a*"], &["a"]),
    ];
    for spec in [
        restore(&[], &[], &[]),
        restore(&["*"], &[], &[]),
        restore(&["a"], &[], &[]),
        restore(&["a", "t*"], &["b"], &[]),
        restore(&[], &["a"], &[]),
        restore(&["*"], &["a", "b"], &[]),
        restore(&[], &[], &[("a", "z")]),
        restore(&[], &["a"], &[("b", "a")]),
    ] {
        let by_schedule = RestoreSpec {
            backup_name: None,
            schedule_name: Some("nightly".to_owned()),
            ..spec.clone()
        };
        let before = Footprint::of_restore(&by_schedule, None).from_backup("velero", None);
        for source in &sources {
            let mut chosen = RestoreSpec {
                backup_name: Some("nightly-1".to_owned()),
                ..by_schedule.clone()
            };
            chosen.excluded_resources = names(&["nodes", "events"]);
            let after = Footprint::of_restore(&chosen, Some(source))
                .from_backup("velero", Some("nightly-1"));
            assert!(
                before.covers(&after),
                "{spec:?}\n{source:?}\n{before:?}\n{after:?}"
            );
            // The same with the schedule filled in, where the backup was given.
            let mut named = chosen.clone();
            named.schedule_name = Some("nightly".to_owned());
            let again = Footprint::of_restore(&named, Some(source))
                .from_backup("velero", Some("nightly-1"));
            assert!(after.covers(&again), "{after:?}\n{again:?}");
        }
    }
}

#[test]
fn a_real_growth_is_seen() {
    let cluster = |spec: BackupSpec| BackupSpec {
        include_cluster_resources: Some(true),
        ..spec
    };
    for (before, after) in [
        (backup(&["a"], &[]), backup(&["a", "b"], &[])),
        (backup(&["a"], &[]), backup(&[], &[])),
        (backup(&["a"], &[]), backup(&["a*"], &[])),
        (backup(&["a*"], &[]), backup(&["*a"], &[])),
        (backup(&[], &["x"]), backup(&[], &[])),
        (backup(&[], &["x", "y"]), backup(&[], &["x"])),
        (backup(&[], &["x"]), backup(&["x"], &[])),
        (backup(&[], &["x"]), backup(&["?"], &[])),
        (backup(&["a"], &[]), cluster(backup(&["a"], &[]))),
    ] {
        let (before, after) = (Footprint::of_backup(&before), Footprint::of_backup(&after));
        assert!(!before.covers(&after), "{before}: {after}");
        assert!(before.union(&after).covers(&after) && before.union(&after).covers(&before));
    }
    let from = |name: &str| Footprint::namespaces(["a"]).from_backup("velero", Some(name));
    assert!(
        !from("b").covers(&from("c")),
        "another backup is something else to be kept"
    );
}

/// Work in the namespaces of its backup waits for no drill.
#[test]
fn a_drill_touches_its_scratch_namespaces_alone() {
    let namespaces = ["shop".to_owned(), "db".to_owned()].into();
    let spec = restore_spec("b", "0123abcd", &namespaces, DrillSpec::default());
    let scratch = ["drill-0123abcd-db", "drill-0123abcd-shop"];
    for source in [None, Some(backup(&[], &[]))] {
        let drill = Footprint::of_restore(&spec, source.as_ref());
        assert_eq!(drill, Footprint::namespaces(scratch));
        for (names, expected) in [
            (&["shop"][..], false),
            (&["shop", "db"], false),
            (&["drill-0123abcd-shop"], true),
        ] {
            let other = Footprint::of_backup(&backup(names, &[]));
            assert_eq!(drill.overlaps(&other), expected, "{names:?}");
        }
    }
}

#[test]
fn a_restore_of_everything_touches_the_cluster_if_its_backup_may_hold_some_of_it() {
    let (whole, part) = (backup(&[], &[]), backup(&["a"], &[]));
    for (restore, source, expected) in [
        (restore(&[], &[], &[]), Some(&whole), true),
        (restore(&[], &[], &[]), None, true),
        (restore(&[], &[], &[]), Some(&part), false),
        (restore(&["a"], &[], &[]), Some(&whole), false),
        (restore(&[], &["a"], &[]), Some(&whole), false),
        (restore(&["a"], &[], &[]), None, false),
    ] {
        assert_eq!(
            Footprint::of_restore(&restore, source).cluster,
            expected,
            "{restore:?} {source:?}"
        );
    }
}

#[test]
fn a_restore_of_objects_touches_their_namespaces_and_nothing_else() {
    let of = |objects: &[&str], spec: RestoreSpec| {
        let included_objects = objects.iter().map(ToString::to_string).collect();
        Footprint::of_restore(
            &RestoreSpec {
                included_objects,
                ..spec
            },
            None,
        )
    };
    let everything = || restore(&[], &[], &[]);
    for (objects, spec, expected) in [
        (&["a/deployments/web"][..], everything(), "namespace a"),
        (
            &["a/deployments/web", "b/secrets/s"],
            restore(&["a", "b", "c"], &[], &[]),
            "namespaces a, b",
        ),
        (
            &["a/deployments/web"],
            restore(&[], &[], &[("a", "z"), ("b", "y")]),
            "namespace z",
        ),
        (
            &["a/pods/p", "pv/x"],
            everything(),
            "namespace a and cluster-scoped resources",
        ),
        (
            &["a/pods/p", "pv/x"],
            RestoreSpec {
                include_cluster_resources: Some(false),
                ..everything()
            },
            "namespace a",
        ),
        // An unreadable name may mean anything.
        (&["a/pods/p", "nonsense"], everything(), "all namespaces"),
    ] {
        assert_eq!(of(objects, spec).to_string(), expected, "{objects:?}");
    }
}
