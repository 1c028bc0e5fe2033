use backup_core::labels::MISSING_DATA_ANNOTATION;
use serde_json::{Value, json};

use super::*;
use crate::print::Style;

const NOW: &str = "2026-11-03T05:00:00Z";

fn backup(name: &str, namespaces: &[&str], began: &str, phase: &str) -> Value {
    json!({ "metadata": { "name": name, "uid": name, "creationTimestamp": began }, "spec": { "includedNamespaces": namespaces, "storageLocation": "default" },
        "status": { "phase": phase, "startTimestamp": began } })
}

fn schedule(name: &str, cron: &str, template: &Value) -> Value {
    json!({ "metadata": { "name": name, "creationTimestamp": "2026-01-01T00:00:00Z" },
        "spec": { "schedule": cron, "template": template }, "status": { "phase": "Enabled" } })
}

fn created(namespace: &str, name: &str, at: &str) -> ClusterObject {
    ClusterObject {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        at: Some(at.parse().unwrap()),
        status_changed: None,
    }
}

fn name(backup: &Value) -> String {
    backup["metadata"]["name"].as_str().unwrap().to_owned()
}

/// The contents of a backup whose item list has these namespaces.
fn held(namespaces: &[&str]) -> FetchResult<HeldItems> {
    let items = namespaces.iter().map(|name| (*name).to_owned()).collect();
    FetchResult::Known(HeldItems::from(crate::view::stored::ResourceList::from([
        ("v1/Namespace".to_owned(), items),
    ])))
}

fn judged(backups: &[Value], schedules: &[Value], rpo: Option<i64>) -> ClusterStatus {
    judged_with(backups, schedules, rpo, |_| ())
}

fn judged_with(
    backups: &[Value],
    schedules: &[Value],
    rpo: Option<i64>,
    change: impl FnOnce(&mut ClusterData),
) -> ClusterStatus {
    let now: Timestamp = NOW.parse().unwrap();
    let facts =
        |backup: &Value| BackupFacts::of(&serde_json::from_value(backup.clone()).unwrap(), now);
    let location = json!({ "metadata": { "name": "default" }, "spec": { "provider": "aws", "objectStorage": { "bucket": "b" } },
        "status": { "phase": "Available" } });
    let down = json!({ "metadata": { "name": "away" }, "spec": { "provider": "aws", "objectStorage": { "bucket": "b" } },
        "status": { "phase": "Unavailable", "message": "no route" } });
    let old = "2026-01-01T00:00:00Z";
    let mut seen = ClusterData {
        namespaces: FetchResult::Known(
            ["shop", "kube-system"]
                .map(|name| created("", name, old))
                .to_vec(),
        ),
        claims: FetchResult::Known(vec![created("shop", "data", old)]),
        types: FetchResult::Known(vec![created("", "widgets.example.io", old)]),
        held: FetchResult::Known(
            backups
                .iter()
                .map(|backup| (name(backup), held(&["shop"])))
                .collect(),
        ),
        backups: backups.iter().map(facts).collect(),
        restores: Vec::new(),
        schedules: schedules
            .iter()
            .map(|one| serde_json::from_value(one.clone()).unwrap())
            .collect(),
        locations: FetchResult::Known(
            [location, down]
                .map(|one| serde_json::from_value(one).unwrap())
                .to_vec(),
        ),
        damaged: Vec::new(),
        restriction: None,
        lock: FetchResult::Known(Vec::new()),
        lock_problem: None,
    };
    change(&mut seen);
    let asked = Requirements {
        rpo: rpo.map(SignedDuration::from_hours),
        except: &["kube-*".to_owned()],
    };
    status("velero", seen, &asked, now)
}

/// Whether namespace `shop` is protected, and the reasons.
fn shop(backups: &[Value], schedules: &[Value], rpo: Option<i64>) -> (bool, String) {
    let status = judged(backups, schedules, rpo);
    assert_eq!(status.except, ["kube-system"]);
    let [shop] = status.namespaces.as_slice() else {
        panic!("{status:?}")
    };
    assert_eq!(status.protected, shop.protected);
    (shop.protected, shop.reasons.join("; "))
}

fn daily() -> Value {
    schedule("daily", "0 3 * * *", &json!({}))
}

fn changed(mut object: Value, over: &Value) -> Value {
    json_patch::merge(&mut object, over);
    object
}

#[test]
fn complete_copies_of_the_last_good_backup_are_counted() {
    let began = "2026-11-03T03:00:10Z";
    let copies = json!([{ "location": "second", "phase": "Completed" }, { "location": "third", "phase": "Failed" }]);
    let status = json!({ "status": { "copies": copies } });
    let with_copies = changed(backup("b", &[], began, "Completed"), &status);
    for (backup, expected) in [
        (with_copies, &["second"][..]),
        (backup("b", &[], began, "Completed"), &[][..]),
    ] {
        let status = judged_with(&[backup], &[daily()], None, |seen| {
            if let FetchResult::Known(all) = &mut seen.locations {
                let second = json!({ "metadata": { "name": "second" },
                    "spec": { "provider": "aws", "objectStorage": { "bucket": "b" } }, "status": { "phase": "Available" } });
                all.push(serde_json::from_value(second).unwrap());
            }
        });
        let good = status.namespaces[0].last_good.as_ref().unwrap();
        assert_eq!(good.copies, expected);
        let shown = text(&status, NOW.parse().unwrap(), Style::new(false), false).unwrap();
        assert_eq!(shown.contains("COPIES"), !expected.is_empty(), "{shown}");
    }
}

#[test]
fn a_failed_drill_of_the_last_good_backup_is_a_remark() {
    let began = "2026-11-03T03:00:10Z";
    let at = "2026-11-03T04:00:00Z".parse().unwrap();
    let failed = DrillResult::of_nothing("r", "check smoke: exit code 1".to_owned(), at);
    let passed = DrillResult::of_nothing("r", String::new(), at);
    let of_schedule = json!({ "velero.io/schedule-name": "daily" });
    for (result, labels, reasons, header) in [
        (
            &failed,
            &of_schedule,
            "the last drill of its last good backup failed: check smoke: exit code 1",
            "0 of 1 last good backup restored on trial, 1 failed (schedule daily), last 60m ago",
        ),
        (
            &failed,
            &json!({}),
            "the last drill of its last good backup failed: check smoke: exit code 1",
            "0 of 1 last good backup restored on trial, 1 failed (backup b), last 60m ago",
        ),
        (
            &passed,
            &of_schedule,
            "",
            "1 of 1 last good backup restored on trial, last 60m ago",
        ),
    ] {
        let annotations = json!({ DRILLED_ANNOTATION: result.annotation() });
        let over = json!({ "metadata": { "labels": labels, "annotations": annotations } });
        let backup = changed(backup("b", &[], began, "Completed"), &over);
        let status = judged(&[backup], &[daily()], None);
        let shop = &status.namespaces[0];
        assert!(shop.protected);
        assert_eq!(shop.reasons.join("; "), reasons);
        let shown = text(&status, NOW.parse().unwrap(), Style::new(false), false).unwrap();
        assert!(shown.contains(header), "{shown}");
    }
}

#[test]
fn a_copy_counts_only_if_it_is_known_to_be_readable() {
    let copies = json!([{ "location": "gone", "phase": "Completed" }, { "location": "away", "phase": "Completed" }]);
    let began = "2026-11-03T03:00:10Z";
    let over = json!({ "status": { "copies": copies } });
    let backup = changed(backup("b", &[], began, "Completed"), &over);
    let status = judged(std::slice::from_ref(&backup), &[daily()], None);
    let shop = &status.namespaces[0];
    assert!(shop.protected);
    assert!(shop.last_good.as_ref().unwrap().copies.is_empty());
    assert_eq!(
        shop.reasons,
        [
            "its copy in gone does not count: its location does not exist",
            "its copy in away does not count: its location is Unavailable",
        ]
    );
    let shown = text(&status, NOW.parse().unwrap(), Style::new(false), false).unwrap();
    assert!(!shown.contains("COPIES"), "{shown}");
    let unread = judged_with(&[backup], &[daily()], None, |seen| {
        seen.locations = FetchResult::missing("forbidden");
    });
    let good = unread.namespaces[0].last_good.as_ref().unwrap();
    assert!(good.copies.is_empty());
}

#[test]
fn a_namespace_is_protected_as_its_schedule_promises() {
    // The last run was at 03:00 on the 3rd: its backup need not have ended.
    for (began, protected) in [
        ("2026-11-03T03:00:10Z", true),
        ("2026-11-02T03:00:10Z", true),
        ("2026-11-02T02:59:59Z", false),
    ] {
        let (found, why) = shop(&[backup("b", &[], began, "Completed")], &[daily()], None);
        assert_eq!(found, protected, "{began}: {why}");
        assert_eq!(
            why.contains("schedule daily promises one every 24h"),
            !protected,
            "{why}"
        );
    }
}

#[test]
fn every_reason_is_told() {
    let good = || backup("good", &["*"], "2026-11-03T03:00:10Z", "Completed");
    let newer = |phase| backup("newer", &["shop"], "2026-11-03T04:00:00Z", phase);
    let labels = json!({ "labelSelector": { "matchLabels": { "app": "x" } } });
    let missing = |volumes: Value| {
        let said = json!({ "missing": 1, "of": 2, "volumes": volumes }).to_string();
        changed(
            good(),
            &json!({ "metadata": { "annotations": { MISSING_DATA_ANNOTATION: said } } }),
        )
    };
    for (backups, schedules, protected, why) in [
        (
            vec![],
            vec![daily()],
            false,
            "there is no backup of all of it",
        ),
        (
            vec![newer("Failed")],
            vec![daily()],
            false,
            "its newest backup, newer, is Failed",
        ),
        (
            vec![good(), newer("PartiallyFailed")],
            vec![daily()],
            true,
            "its newest backup, newer, is PartiallyFailed",
        ),
        (vec![good(), newer("InProgress")], vec![daily()], true, ""),
        (
            vec![good()],
            vec![],
            false,
            "no schedule makes backups of it",
        ),
        (
            vec![good()],
            vec![changed(daily(), &json!({"spec": {"paused": true}}))],
            false,
            "schedule daily is paused",
        ),
        (
            vec![good()],
            vec![changed(
                daily(),
                &json!({"status": {"phase": "FailedValidation"}}),
            )],
            false,
            "schedule daily is not valid",
        ),
        (
            vec![good()],
            vec![schedule(
                "daily",
                "@daily",
                &json!({"storageLocation": "away"}),
            )],
            false,
            "schedule daily stores in location away, which is Unavailable: each backup of it is refused",
        ),
        // Another schedule that covers the namespace suffices.
        (
            vec![good()],
            vec![
                schedule("hourly", "@hourly", &json!({"storageLocation": "away"})),
                daily(),
            ],
            true,
            "",
        ),
        (
            vec![good()],
            vec![schedule(
                "daily",
                "@daily",
                &json!({"excludedNamespaces": ["shop"]}),
            )],
            false,
            "schedule daily excludes it",
        ),
        (
            vec![good()],
            vec![schedule("daily", "@daily", &labels)],
            false,
            "schedule daily makes backups of a part of it only (labels or resources)",
        ),
        (
            vec![changed(good(), &json!({ "spec": labels }))],
            vec![daily()],
            false,
            "there is no backup of all of it",
        ),
        (
            vec![changed(
                good(),
                &json!({"spec": {"storageLocation": "away"}}),
            )],
            vec![daily()],
            false,
            "its newest backup, good, cannot be restored: location away is Unavailable",
        ),
        (
            vec![missing(json!({"shop/data": "no driver"}))],
            vec![daily()],
            false,
            "the data of claim data is not in its last good backup (no driver)",
        ),
        (
            vec![missing(json!({"other/data": "no driver"}))],
            vec![daily()],
            true,
            "",
        ),
        (
            vec![changed(
                good(),
                &json!({"spec": {"storageLocation": "gone"}}),
            )],
            vec![daily()],
            false,
            "its newest backup, good, cannot be restored: location gone does not exist",
        ),
        (
            vec![changed(
                good(),
                &json!({"status": {"startTimestamp": "2026-11-02T04:00:00Z"}}),
            )],
            vec![daily()],
            false,
            "its newest backup, good, may not be restorable: it was created with its phase, and its files were not looked for yet",
        ),
        (
            vec![missing(json!({}))],
            vec![daily()],
            false,
            "the data of 1 more volume, perhaps of this namespace, is not in its last good backup",
        ),
    ] {
        assert_eq!(
            shop(&backups, &schedules, None),
            (protected, why.to_owned())
        );
    }
}

#[test]
fn a_person_may_ask_for_other_than_schedules_promise() {
    let good = [backup("good", &[], "2026-11-03T03:00:00Z", "Completed")];
    assert_eq!(shop(&good, &[], Some(2)), (true, String::new()));
    let (protected, why) = shop(&good, &[daily()], Some(1));
    assert!(
        !protected && why == "its last good backup is 120m old, and 60m is asked for",
        "{why}"
    );
}

#[test]
fn the_schedule_that_runs_most_often_counts_and_a_new_one_promises_nothing_of_before() {
    let hourly = schedule("hourly", "@hourly", &json!({}));
    let good = [backup("good", &[], "2026-11-03T02:00:00Z", "Completed")];
    assert!(shop(&good, &[daily()], None).0);
    let (protected, why) = shop(&good, &[daily(), hourly.clone()], None);
    assert!(
        !protected && why.contains("schedule hourly promises one every 60m"),
        "{why}"
    );
    let new = changed(
        hourly,
        &json!({ "metadata": { "creationTimestamp": "2026-11-03T04:30:00Z" } }),
    );
    assert!(shop(&good, &[new], None).0);
}

#[test]
fn of_a_part_of_the_backups_only_what_is_good_counts() {
    let owned = |seen: &mut ClusterData| {
        seen.locations = FetchResult::missing("forbidden");
        seen.restriction = Some("others may protect it, too".to_owned());
    };
    let good = backup("b", &["shop"], "2026-11-03T03:00:10Z", "Completed");
    for (backups, protected, section) in [
        (&[good][..], true, "PROTECTED"),
        (&[][..], false, "NOT CHECKED"),
    ] {
        let status = judged_with(backups, &[daily()], None, owned);
        let shop = &status.namespaces[0];
        assert_eq!((shop.protected, shop.checked), (protected, protected));
        assert_eq!(status.unchecked, ["others may protect it, too"]);
        let shown = text(&status, NOW.parse().unwrap(), Style::new(false), false).unwrap();
        assert_says!(shown, section, "unavailable: forbidden");
        assert!(!shown.contains("NOT PROTECTED"), "{shown}");
    }
}

#[test]
fn without_the_right_to_list_namespaces_those_that_are_named_are_shown() {
    let now = NOW.parse().unwrap();
    let seen = ClusterData {
        namespaces: FetchResult::missing("forbidden"),
        claims: FetchResult::Known(Vec::new()),
        types: FetchResult::Known(Vec::new()),
        held: FetchResult::Known(HeldByBackup::new()),
        backups: vec![BackupFacts::of(
            &serde_json::from_value(backup("b", &["db", "x-*"], NOW, "Completed")).unwrap(),
            now,
        )],
        restores: Vec::new(),
        schedules: vec![
            serde_json::from_value(schedule(
                "s",
                "@daily",
                &json!({"includedNamespaces": ["shop"]}),
            ))
            .unwrap(),
        ],
        locations: FetchResult::Known(Vec::new()),
        damaged: Vec::new(),
        restriction: None,
        lock: FetchResult::Known(Vec::new()),
        lock_problem: None,
    };
    let status = status(
        "velero",
        seen,
        &Requirements {
            rpo: None,
            except: &[],
        },
        now,
    );
    let names: Vec<&str> = status
        .namespaces
        .iter()
        .map(|one| one.name.as_str())
        .collect();
    assert_eq!(names, ["db", "shop"]);
    assert_eq!(status.unchecked.len(), 1);
}

#[test]
fn what_is_younger_than_the_last_good_backup_is_not_in_it() {
    let good = [backup("good", &[], "2026-11-03T03:00:10Z", "Completed")];
    let shop = |change: &dyn Fn(&mut ClusterData)| {
        let status = judged_with(&good, &[daily()], None, |seen| change(seen));
        let [shop] = status.namespaces.as_slice() else {
            panic!("{status:?}")
        };
        let last = shop
            .last_good
            .as_ref()
            .map(|good| good.name.clone())
            .unwrap_or_default();
        (
            shop.protected,
            last,
            shop.reasons.join("; "),
            status.new_types,
        )
    };
    let expect =
        |protected, last: &str, why: &str| (protected, last.to_owned(), why.to_owned(), Vec::new());
    assert_eq!(shop(&|_| ()), expect(true, "good", ""));
    let young = |seen: &mut ClusterData| {
        seen.namespaces = FetchResult::Known(vec![created("", "shop", "2026-11-03T04:00:00Z")]);
    };
    let why = "it was created 60m ago, after its last good backup, good, began";
    assert_eq!(shop(&young), expect(false, "", why));

    let list = |namespaces: &[&str]| {
        FetchResult::Known(HeldByBackup::from([("good".to_owned(), held(namespaces))]))
    };
    assert_eq!(
        shop(&|seen| seen.held = list(&["shop"])),
        expect(true, "good", "")
    );
    let why = "its last good backup by its scope, good, holds nothing of it";
    assert_eq!(
        shop(&|seen| seen.held = list(&["other"])),
        expect(false, "", why)
    );

    let claims = |seen: &mut ClusterData| {
        let of = |name: &str, at: &str| created("shop", name, at);
        let young = ["b", "c"].map(|name| of(name, "2026-11-03T04:00:00Z"));
        let others = [
            of("a", "2026-01-01T00:00:00Z"),
            created("other", "d", "2026-11-03T04:00:00Z"),
        ];
        seen.claims = FetchResult::Known([young, others].concat());
    };
    assert_eq!(
        shop(&claims),
        expect(
            true,
            "good",
            "2 claims are younger than its last good backup: b, c"
        )
    );
    let bound = |seen: &mut ClusterData| {
        let status_changed = Some("2026-11-03T04:00:00Z".parse().unwrap());
        let old = created("shop", "a", "2026-01-01T00:00:00Z");
        seen.claims = FetchResult::Known(vec![ClusterObject {
            status_changed,
            ..old
        }]);
    };
    let why = "1 claim was bound or resized after its last good backup: a";
    assert_eq!(shop(&bound), expect(true, "good", why));
    let types = |seen: &mut ClusterData| {
        // The definitions of the installation are not named.
        let new = ["gadgets.example.io", "datauploads.velero.io"];
        let new = new.map(|name| created("", name, "2026-11-03T04:00:00Z"));
        seen.types = FetchResult::Known(new.into());
    };
    assert_eq!(shop(&types).3, ["gadgets.example.io"]);
    // A newer backup of one namespace contains only types that are in its list.
    for (definitions, new) in [
        (&[][..], &["gadgets.example.io"][..]),
        (&["gadgets.example.io"], &[]),
    ] {
        let newer = backup("newer", &["shop"], "2026-11-03T05:00:00Z", "Completed");
        let list = json!({ "v1/Pod": ["shop/x"], "apiextensions.k8s.io/v1/CustomResourceDefinition": definitions });
        let list: HeldItems = serde_json::from_value::<crate::view::stored::ResourceList>(list)
            .unwrap()
            .into();
        let status = judged_with(&[good[0].clone(), newer], &[daily()], None, |seen| {
            types(seen);
            seen.held = FetchResult::Known([("newer".to_owned(), FetchResult::Known(list))].into());
        });
        assert_eq!(status.new_types, new);
    }
    // Checks that could not be made are reported.
    let unread = judged_with(&good, &[daily()], None, |seen| {
        seen.claims = FetchResult::missing("forbidden");
        seen.held = FetchResult::missing("forbidden");
    });
    assert_eq!(
        (unread.unchecked.len(), unread.protected),
        (2, true),
        "{:?}",
        unread.unchecked
    );
    let own = judged_with(&good, &[], None, |seen| {
        seen.namespaces = FetchResult::Known(vec![created("", "velero", "2026-01-01T00:00:00Z")]);
    });
    assert_eq!(
        (own.namespaces.len(), own.except),
        (0, vec!["velero".to_owned()])
    );
}

#[test]
fn the_newest_backup_that_holds_a_namespace_counts_and_what_was_not_read_protects_nothing() {
    let new = "2026-11-03T03:00:10Z";
    let shop = |backups: &[Value], lists: &[(&str, FetchResult<HeldItems>)]| {
        let status = judged_with(backups, &[daily()], None, |seen| {
            let lists = lists
                .iter()
                .map(|(name, list)| ((*name).to_owned(), list.clone()));
            seen.held = FetchResult::Known(lists.collect());
        });
        let [shop] = status.namespaces.as_slice() else {
            panic!("{status:?}")
        };
        let last = shop
            .last_good
            .as_ref()
            .map(|good| good.name.clone())
            .unwrap_or_default();
        (shop.protected, shop.checked, last, shop.reasons.join("; "))
    };
    let seen = |protected, checked, last: &str, why: &str| {
        (protected, checked, last.to_owned(), why.to_owned())
    };
    for scope in [&["shop"][..], &["*"]] {
        let both = [
            backup("own", &["shop"], "2026-11-02T03:00:10Z", "Completed"),
            backup("all", scope, new, "Completed"),
        ];
        let nothing = "its last good backup by its scope, all, holds nothing of it";
        assert_eq!(
            shop(
                &both,
                &[("all", held(&["other"])), ("own", held(&["shop"]))]
            ),
            seen(true, true, "own", nothing)
        );
        let no_files =
            "its newest backup, all, cannot be restored: its files are not in location default";
        let without = ("all", FetchResult::Known(HeldItems::default()));
        assert_eq!(
            shop(&both, &[without.clone(), ("own", held(&["shop"]))]),
            seen(true, true, "own", no_files)
        );
        assert_eq!(
            shop(&both, &[without, ("own", held(&[]))]),
            seen(false, true, "", no_files)
        );
        let of = |name: &str, why: &str| {
            format!("whether its last good backup, {name}, holds it was not checked: {why}")
        };
        let late = of("all", "there was no time left to read its list of items");
        assert_eq!(
            shop(&both, &[("own", held(&["shop"]))]),
            seen(false, false, "", &late)
        );
        let unread = ("own", FetchResult::missing("forbidden"));
        assert_eq!(
            shop(&both, &[("all", held(&[])), unread]),
            seen(false, false, "", &of("own", "forbidden"))
        );
    }
    let old = [
        backup("own", &["shop"], "2026-10-02T03:00:10Z", "Completed"),
        backup("all", &[], new, "Completed"),
    ];
    let (protected, _, last, why) =
        shop(&old, &[("all", held(&["other"])), ("own", held(&["shop"]))]);
    let both = "its last good backup by its scope, all, holds nothing of it; its last good backup is 32d old, and schedule daily \
                promises one every 24h";
    assert_eq!(
        (protected, last.as_str(), why.as_str()),
        (false, "own", both)
    );
}

#[test]
fn lists_are_read_from_the_newest_until_each_namespace_has_its_answer() {
    let names: Vec<String> = (10..30).map(|number| format!("n{number}")).collect();
    let own = |name: &String| backup(name, &[name], "2026-11-02T03:00:10Z", "Completed");
    let mut backups: Vec<Value> = names.iter().map(own).collect();
    backups.push(backup("all", &["*"], "2026-11-03T03:00:10Z", "Completed"));
    let wanted = |lists: &[(&str, FetchResult<HeldItems>)]| {
        let mut wanted = Vec::new();
        judged_with(&backups, &[], None, |seen| {
            let at = "2026-01-01T00:00:00Z";
            seen.namespaces =
                FetchResult::Known(names.iter().map(|name| created("", name, at)).collect());
            let lists = lists
                .iter()
                .map(|(name, list)| ((*name).to_owned(), list.clone()));
            seen.held = FetchResult::Known(lists.collect());
            let lists = lists_to_read(
                seen,
                "velero",
                &Requirements {
                    rpo: None,
                    except: &[],
                },
            );
            wanted = lists.into_iter().map(|list| list.name).collect();
        });
        wanted
    };
    assert_eq!(wanted(&[]), ["all"]);
    assert_eq!(wanted(&[("all", held(&[]))]), names);
    assert_eq!(
        wanted(&[("all", held(&["n10"])), ("n11", held(&["n11"]))]),
        names[2..]
    );
    assert!(wanted(&[("all", FetchResult::missing("forbidden"))]).is_empty());
}
