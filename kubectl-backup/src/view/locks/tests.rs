use backup_lock::{ObjectKind, claim::Claim, conflict::Rules, ledger::Ask};
use serde_json::Value;

use super::*;

fn found(ledger: Ledger) -> FoundLedger {
    FoundLedger {
        namespace: "velero".to_owned(),
        scope: VELERO_SCOPE.to_owned(),
        lease: "backup-lock-velero".to_owned(),
        lease_uid: String::new(),
        finalizers: Vec::new(),
        profile: Profile::velero(),
        is_known: true,
        ledger: Ok(ledger),
    }
}

fn seen(kind: ObjectKind, name: &str, uid: &str, footprint: Footprint) -> UnendedObject {
    let object = ObservedObject {
        key: ObjectKey::new(kind, "velero", name),
        uid: uid.to_owned(),
        version: "1".to_owned(),
        scope: Some(VELERO_SCOPE.to_owned()),
        phase: "InProgress".to_owned(),
        known: true,
        over: false,
        rests: false,
        new: false,
        held: false,
        deleting: false,
        created: "2026-11-03T05:00:00Z".to_owned(),
        spec: Value::Null,
    };
    UnendedObject { object, footprint }
}

fn shop() -> Footprint {
    Footprint::namespaces(["shop"])
}

#[test]
fn only_what_has_no_entry_of_its_own_uid_is_without_a_claim() {
    let mut ledger = Ledger::default();
    for name in ["claimed", "reborn"] {
        let key = ObjectKey::backup("velero", name);
        ledger
            .admit(&key, "one", &shop(), "", &Ask::default())
            .unwrap();
    }
    let backup = |name: &str, uid: &str| seen(ObjectKind::Backup, name, uid, shop());
    let all = [
        backup("claimed", "one"),
        backup("reborn", "two"),
        backup("stray", "one"),
    ];
    let list = locks("velero", &[found(ledger.clone())], &all, Vec::new(), None);
    let names: Vec<&str> = list.scopes[0]
        .unclaimed
        .iter()
        .map(|one| one.name.as_str())
        .collect();
    assert_eq!(names, ["reborn", "stray"]);
    // A ledger that is being rebuilt lacks all of them, and an intent is no claim.
    ledger.status = Status::Rebuilding;
    let list = locks("velero", &[found(ledger)], &all, Vec::new(), None);
    assert!(list.scopes[0].unclaimed.is_empty() && list.scopes[0].problem.is_some());
    let mut ledger = Ledger::default();
    ledger.leave_intent(
        &ObjectKey::restore("velero", "r"),
        "r",
        &shop(),
        "",
        &Ask::default(),
    );
    let all = [seen(ObjectKind::Restore, "r", "r", shop())];
    assert_eq!(
        locks("velero", &[found(ledger)], &all, Vec::new(), None).scopes[0]
            .unclaimed
            .len(),
        1
    );
}

#[test]
fn adopted_entries_that_conflict_stand_beside_one_another() {
    let mut ledger = Ledger::default();
    let (restore, backup) = (
        ObjectKey::restore("velero", "r"),
        ObjectKey::backup("velero", "b"),
    );
    ledger.adopt(&restore, "r", &shop(), State::Active, "");
    ledger.adopt(&backup, "b", &shop(), State::Active, "");
    ledger.adopt(
        &ObjectKey::backup("velero", "c"),
        "c",
        &Footprint::namespaces(["db"]),
        State::Active,
        "",
    );
    let list = locks("velero", &[found(ledger)], &[], Vec::new(), None);
    let beside: Vec<&[String]> = list.scopes[0]
        .entries
        .iter()
        .map(|entry| entry.beside.as_slice())
        .collect();
    assert_eq!(
        beside,
        [
            &["Backup velero/b".to_owned()][..],
            &["Restore velero/r".to_owned()],
            &[]
        ]
    );
}

#[test]
fn the_rules_of_the_profile_say_whether_backups_conflict() {
    let rules = Rules {
        backups_exclude_each_other: true,
        ..Rules::default()
    };
    let mut ledger = Ledger {
        rules,
        ..Ledger::default()
    };
    for name in ["a", "b"] {
        ledger.adopt(
            &ObjectKey::backup("velero", name),
            name,
            &shop(),
            State::Active,
            "",
        );
    }
    let list = locks("velero", &[found(ledger.clone())], &[], Vec::new(), None);
    assert!(
        list.scopes[0]
            .entries
            .iter()
            .all(|entry| entry.beside.len() == 1)
    );
    ledger.rules = Rules::default();
    let list = locks("velero", &[found(ledger)], &[], Vec::new(), None);
    assert!(
        list.scopes[0]
            .entries
            .iter()
            .all(|entry| entry.beside.is_empty())
    );
}

#[test]
fn nothing_in_a_ledger_moves_a_cursor() {
    let evil = "a\u{1b}[2J\nb\u{7}";
    let entry = Entry {
        suspect: true,
        forced: true,
        note: evil.to_owned(),
        revives: evil.to_owned(),
        ..Entry::new(evil, Footprint::namespaces([evil]), State::Reserved, evil)
    };
    let claim = Claim {
        key: ObjectKey::new(ObjectKind::Hold, evil, evil),
        entries: vec![entry],
    };
    let mut found = found(Ledger {
        claims: vec![claim],
        ..Ledger::default()
    });
    (found.scope, found.lease, found.profile.name) =
        (evil.to_owned(), evil.to_owned(), evil.to_owned());
    let mut object = seen(
        ObjectKind::Backup,
        evil,
        evil,
        Footprint::namespaces([evil]),
    );
    object.object.scope = Some(evil.to_owned());
    object.object.phase = evil.to_owned();
    let damaged = FoundLedger {
        ledger: Err(Damage {
            status: "Unreadable",
            problem: evil.to_owned(),
            remedy: String::new(),
        }),
        ..found.clone()
    };
    let list = locks("velero", &[found, damaged], &[object], Vec::new(), None);
    let now = jiff::Timestamp::UNIX_EPOCH;
    let how = crate::cli::TableParts {
        wide: true,
        headers: true,
        namespaces: false,
    };
    let text = screen::text(&list, how, now, crate::print::Style::new(false)).unwrap();
    assert!(!text.contains(['\u{1b}', '\u{7}']), "{text:?}");
    assert_eq!(list.scopes[0].unclaimed.len(), 1);
}

#[test]
fn velero_comes_first_and_one_scope_can_be_chosen() {
    let of = |scope: &str| FoundLedger {
        scope: scope.to_owned(),
        ..found(Ledger::default())
    };
    let all = [
        of("percona-ps/db/b"),
        of("percona-ps/db/a"),
        of(VELERO_SCOPE),
    ];
    let names = |only: Option<&str>| -> Vec<String> {
        locks("velero", &all, &[], Vec::new(), only)
            .scopes
            .into_iter()
            .map(|scope| scope.scope)
            .collect()
    };
    assert_eq!(
        names(None),
        [VELERO_SCOPE, "percona-ps/db/a", "percona-ps/db/b"]
    );
    assert_eq!(names(Some("percona-ps/db/b")), ["percona-ps/db/b"]);
}

#[test]
fn an_object_whose_scope_has_no_ledger_is_shown() {
    let all = [seen(ObjectKind::Backup, "b", "b", shop())];
    let list = locks("velero", &[], &all, Vec::new(), None);
    assert_eq!(
        (
            list.scopes[0].status.as_str(),
            list.scopes[0].unclaimed.len()
        ),
        ("None", 1)
    );
}

#[test]
fn an_intent_that_keeps_nobody_out_is_not_shown() {
    let mut ledger = Ledger::default();
    let (backup, restore) = (
        ObjectKey::backup("velero", "b"),
        ObjectKey::restore("velero", "r"),
    );
    ledger
        .admit(&backup, "b", &shop(), "", &Ask::default())
        .unwrap();
    assert!(ledger.leave_intent(&restore, "r", &shop(), "", &Ask::default()));
    assert!(ledger.release(&backup, "b"));
    let shown = |ledger: &Ledger| locks("velero", &[found(ledger.clone())], &[], Vec::new(), None);
    assert_eq!(shown(&ledger).scopes[0].entries.len(), 1);
    assert!(ledger.lapse(&restore, "r"));
    assert!(shown(&ledger).scopes[0].entries.is_empty(), "{ledger:?}");
}
