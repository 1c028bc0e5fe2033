use backup_lock::Entry;
use kube::core::DynamicObject;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;

const SINCE: &str = "2026-11-21T09:00:00.5Z";

fn stored(key: &ObjectKey, object: &Value) -> ObservedObject {
    let mut all =
        json!({ "metadata": { "uid": "u", "creationTimestamp": "2026-11-21T09:01:00Z" } });
    json_patch::merge(&mut all, object);
    let object: DynamicObject = serde_json::from_value(all).unwrap();
    ObservedObject::named(
        &Profile::velero(),
        key.kind,
        &key.namespace,
        &key.name,
        &object,
    )
}

fn blocker(kind: ObjectKind, state: State, object: impl Into<Option<Value>>) -> Blocker {
    let key = ObjectKey::new(kind, "velero", "x");
    let object = object.into().map(|object| stored(&key, &object));
    let entry = Entry {
        epoch: 7,
        ..Entry::new("u", Footprint::namespaces(["shop"]), state, SINCE)
    };
    Blocker {
        claim: Claim {
            key,
            entries: vec![entry],
        },
        object,
        free_at: "2026-11-21T09:00:11.2Z".parse().unwrap(),
    }
}

fn phase(phase: &str) -> Value {
    json!({ "status": { "phase": phase } })
}

fn asked(key: &ObjectKey, whole_scope: bool) -> ConflictingRequest<'_> {
    static EVERYTHING: std::sync::LazyLock<Footprint> =
        std::sync::LazyLock::new(Footprint::everything);
    ConflictingRequest {
        group: "velero.io",
        key,
        footprint: &EVERYTHING,
        whole_scope,
        may_queue: false,
    }
}

fn details(status: &Status) -> &StatusDetails {
    status.details.as_ref().unwrap()
}

#[test]
fn a_restore_is_told_that_it_may_wait_whatever_is_in_its_way() {
    let key = ObjectKey::restore("velero", "r");
    let message = |blockers: &[Blocker], may_queue: bool| {
        let asked = ConflictingRequest {
            may_queue,
            ..asked(&key, false)
        };
        conflict(asked, blockers, false)
            .message
            .contains("backup-lock/on-conflict: queue")
    };
    let works = || blocker(Backup, Active, Some(phase("InProgress")));
    let queued = || blocker(Backup, Reserved, Some(phase("Queued")));
    for blockers in [
        vec![queued()],
        vec![blocker(Backup, Waiting, Some(phase("ReadyToStart")))],
        vec![blocker(Backup, Reserved, None)],
        vec![works(), queued(), queued()],
        vec![works()],
        vec![blocker(Restore, Reserved, Some(phase("New")))],
    ] {
        assert!(
            message(&blockers, true) && !message(&blockers, false),
            "{blockers:?}"
        );
    }
}

#[test]
fn people_are_told_times_to_the_second() {
    for time in ["2026-11-21T09:00:00Z", "2026-11-21T09:00:00.123456789Z"] {
        assert_eq!(to_the_second(time), "2026-11-21T09:00:00Z");
    }
}

use ObjectKind::{Backup, DeleteBackupRequest, Deletion, Hold, Restore};
use State::{Active, Collected, Intent, Reserved, Settling, Waiting};

#[rstest]
#[case(
    Restore,
    Settling,
    Some(phase("Completed")),
    "has ended, and what it worked on is given time to settle, until 09:00:12Z at the latest",
    "Settling"
)]
#[case(
    Backup,
    Collected,
    None,
    "was requested at 2026-11-21T09:00:00Z and was never stored; restores are kept out until 09:00:12Z at the latest, in case it still comes",
    "BackupReserved"
)]
#[case(
    Hold,
    Reserved,
    None,
    "is in force since 2026-11-21T09:00:00Z (no reason was given)",
    "Held"
)]
#[case(
    Restore,
    Waiting,
    Some(phase("New")),
    "waits for its turn (phase New, created 2026-11-21T09:01:00Z)",
    "RestoreWaiting"
)]
#[case(
    Deletion,
    Active,
    Some(phase("Completed")),
    "is under way (phase Completed)",
    "DeletionInProgress"
)]
#[case(
    DeleteBackupRequest,
    Active,
    Some(phase("InProgress")),
    "is running (phase InProgress, created 2026-11-21T09:01:00Z)",
    "DeletionInProgress"
)]
#[case(
    Backup,
    Reserved,
    Some(phase("New")),
    "is about to start (phase New, created 2026-11-21T09:01:00Z)",
    "BackupInProgress"
)]
#[case(
    Backup,
    Reserved,
    Some(phase("Queued")),
    "has not begun (phase Queued, created 2026-11-21T09:01:00Z)",
    "BackupInProgress"
)]
#[case(
    Backup,
    Waiting,
    Some(phase("ReadyToStart")),
    "waits for its turn (phase ReadyToStart, created 2026-11-21T09:01:00Z)",
    "BackupInProgress"
)]
#[case(
    Restore,
    Active,
    Some(phase("InProgress")),
    "is running (phase InProgress, created 2026-11-21T09:01:00Z)",
    "RestoreInProgress"
)]
#[case(
    Backup,
    Active,
    Some(json!({ "status": { "phase": "InProgress" }, "metadata": { "deletionTimestamp": "2026-11-21T09:02:00Z" } })),
    "is running (phase InProgress, created 2026-11-21T09:01:00Z, being deleted)",
    "BackupInProgress"
)]
#[case(
    Backup,
    Reserved,
    None,
    "was requested at 2026-11-21T09:00:00Z and was not stored so far; unless it still comes, its place is free by 09:00:12Z",
    "BackupReserved"
)]
#[case(
    Restore,
    Reserved,
    None,
    "was requested at 2026-11-21T09:00:00Z and was not stored so far; unless it still comes, its place is free by 09:00:12Z",
    "RestoreReserved"
)]
fn who_is_in_the_way_is_told_in_words_and_in_one(
    #[case] kind: ObjectKind,
    #[case] state: State,
    #[case] object: Option<Value>,
    #[case] words: &str,
    #[case] reason: &str,
) {
    let blocker = blocker(kind, state, object);
    assert_eq!(blocker.describe(), format!("{} {words}", blocker.claim.key));
    let cause = blocker.cause("spec");
    assert_eq!(
        (cause.reason.as_str(), cause.field.as_str()),
        (reason, "spec")
    );
    assert!(
        cause
            .message
            .ends_with(&format!("; uid u, {state} (namespace shop), epoch 7")),
        "{}",
        cause.message
    );
}

#[rstest]
#[case(
    Word::Refused,
    "was refused at 2026-11-21T09:00:00Z: new backups of what it needs are kept out until 09:00:12Z at the latest, and no \
     longer than 30 s after what was in its way has ended"
)]
#[case(
    Word::Insisting,
    "was refused at 2026-11-21T09:00:00Z, and comes again: new backups of what it needs are kept out until 09:00:12Z at the latest"
)]
#[case(
    Word::Expected,
    "was refused at 2026-11-21T09:00:00Z: new backups of what it needs are kept out until 09:00:12Z at the latest"
)]
fn a_word_of_a_refused_restore_is_told_with_its_end(#[case] word: Word, #[case] words: &str) {
    let mut expected = blocker(Restore, Intent, None);
    expected.claim.entries[0].word = word;
    assert_eq!(
        expected.describe(),
        format!("{} {words}", expected.claim.key)
    );
    assert_eq!(expected.reason(), "RestoreExpected");
    let refused = conflict(
        asked(&ObjectKey::backup("velero", "b"), false),
        &[expected],
        false,
    );
    let end = "Try again then, or drop that with `kubectl backup locks release restore/velero/x --reason=TEXT`";
    assert!(refused.message.ends_with(end), "{}", refused.message);
}

#[test]
fn the_reason_of_a_hold_is_told() {
    let mut hold = blocker(Hold, Reserved, None);
    hold.claim.entries.push(Entry {
        note: "ann: maintenance".to_owned(),
        ..hold.claim.entries[0].clone()
    });
    assert!(
        hold.describe()
            .ends_with("is in force since 2026-11-21T09:00:00Z (ann: maintenance)"),
        "{}",
        hold.describe()
    );
}

#[test]
fn a_conflict_says_who_and_what_to_type_next() {
    let running = || blocker(Backup, Active, phase("InProgress"));
    let (restore, deletion) = (
        ObjectKey::restore("velero", "r"),
        ObjectKey::new(Deletion, "velero", "b"),
    );
    let request = ObjectKey::new(DeleteBackupRequest, "velero", "b-1");
    let who = format!("now: {}", running().describe());
    for (key, whole_scope, field, begins, holds) in [
        (
            &restore,
            false,
            "spec.includedNamespaces",
            format!("{restore} (all namespaces) can't be created {who}"),
            true,
        ),
        (
            &restore,
            true,
            "spec",
            format!("{restore} can't be created {who}"),
            false,
        ),
        (
            &request,
            false,
            "spec.backupName",
            format!("{request} can't be created {who}"),
            false,
        ),
        (
            &deletion,
            false,
            "metadata.name",
            format!("{deletion} can't be done {who}"),
            false,
        ),
    ] {
        let refused = conflict(asked(key, whole_scope), &[running()], false);
        let message = &refused.message;
        assert!(message.starts_with(&begins), "{message}");
        assert_eq!(
            message.contains("; it holds namespace shop. "),
            holds,
            "{message}"
        );
        let nothing = if key.kind == Deletion {
            ". Nothing was deleted. "
        } else {
            ". Nothing was stored. "
        };
        let next =
            "See `kubectl backup describe x --namespace velero`, and try again when that has ended";
        assert!(message.ends_with(&format!("{nothing}{next}")), "{message}");
        assert_eq!(details(&refused).causes[0].field, field);
        assert_eq!(
            (refused.code, details(&refused).retry_after_seconds),
            (403, 30)
        );
    }
    let waits = conflict(asked(&restore, false), &[running()], true);
    assert_eq!(
        (waits.code, waits.reason.as_str()),
        (429, "TooManyRequests")
    );
    assert_eq!(details(&waits).retry_after_seconds, 10);
    assert_eq!(conflict(asked(&restore, false), &[], false).code, 503);
}

/// The recording of the demo shows the text of this file.
#[test]
fn a_refused_restore_reads_as_in_the_recording() {
    let begin = "2026-11-03T05:14:12Z";
    let second = ObjectKey::backup("velero", "second");
    let object =
        json!({ "metadata": { "creationTimestamp": begin }, "status": { "phase": "InProgress" } });
    let holder = Blocker {
        object: Some(stored(&second, &object)),
        claim: Claim {
            key: second,
            entries: vec![Entry::new("u", Footprint::everything(), Active, begin)],
        },
        ..blocker(Backup, Active, None)
    };
    let key = ObjectKey::restore("velero", "too-early");
    let asked = ConflictingRequest {
        may_queue: true,
        ..asked(&key, false)
    };
    let refused = conflict(asked, &[holder], false);
    let shown =
        include_str!("../../../../kubectl-backup/tests/transcripts/refused_restore.txt").trim_end();
    assert_eq!(refused.message, shown);
}

#[test]
fn those_beyond_the_first_are_counted() {
    let restore = ObjectKey::restore("velero", "r");
    for (count, more) in [(1, ""), (2, ", and 1 more"), (12, ", and 11 more")] {
        let blockers: Vec<Blocker> = (0..count)
            .map(|_| blocker(Backup, Active, phase("InProgress")))
            .collect();
        let warned = warning(&restore, &blockers, "goes on beside");
        assert_eq!(
            warned,
            format!("{restore} goes on beside: {}{more}", blockers[0].describe())
        );
        let refused = conflict(asked(&restore, false), &blockers, false);
        let in_its_way = if more.is_empty() {
            "; it holds".to_owned()
        } else {
            format!("{more} in its way;")
        };
        assert_says!(refused.message, &in_its_way);
        assert_eq!(details(&refused).causes.len(), count.min(MAX_CAUSES));
    }
}

#[rstest]
#[case(
    "velero.io",
    Backup,
    "kubectl backup describe x --namespace velero",
    "backups"
)]
#[case(
    "velero.io",
    Restore,
    "kubectl backup restore describe x --namespace velero",
    "restores"
)]
#[case(
    "velero.io",
    Deletion,
    "kubectl backup locks --namespace velero",
    "backups"
)]
#[case(
    "velero.io",
    DeleteBackupRequest,
    "kubectl backup locks --namespace velero",
    "deletebackuprequests"
)]
#[case("velero.io", Hold, "kubectl backup locks --namespace velero", "locks")]
#[case("ps.percona.com", Backup, "kubectl backup locks", "backups")]
#[case("ps.percona.com", Restore, "kubectl backup locks", "restores")]
fn each_kind_has_a_command_that_shows_more(
    #[case] group: &str,
    #[case] kind: ObjectKind,
    #[case] command: &str,
    #[case] plural: &str,
) {
    let key = ObjectKey::new(kind, "velero", "x");
    assert_eq!(next_command(group, &key), command);
    let full = full(group, &key, "why");
    assert_eq!(
        full.message.contains("can't be done now: why"),
        kind == Deletion,
        "{}",
        full.message
    );
    assert_eq!(
        (details(&full).kind.as_str(), details(&full).group.as_str()),
        (plural, group)
    );
}

#[test]
fn an_object_without_its_scope_is_told_which_field_to_set() {
    let scope = ScopeRule::Field {
        backup: "spec.cluster".to_owned(),
        restore: "spec.target".to_owned(),
    };
    let profile = Profile {
        scope,
        ..Profile::velero()
    };
    for (key, words, field) in [
        (
            ObjectKey::backup("db", "x"),
            "Backup db/x does not name its database cluster in spec.cluster",
            "spec.cluster",
        ),
        (
            ObjectKey::restore("db", "x"),
            "Restore db/x does not name its database cluster in spec.target",
            "spec.target",
        ),
    ] {
        let refused = no_scope(&profile, &key);
        assert!(refused.message.starts_with(words), "{}", refused.message);
        assert_eq!(details(&refused).causes[0].field, field);
    }
}

#[test]
fn a_wish_is_told_what_it_can_be() {
    let key = ObjectKey::restore("velero", "r");
    for (can_queue, known) in [(true, "deny, queue or wait"), (false, "deny or wait")] {
        let refused = unknown_wish("velero.io", &key, "later", can_queue);
        assert!(
            refused
                .message
                .ends_with(&format!("is \"later\"; it can be {known} here")),
            "{}",
            refused.message
        );
    }
}

#[test]
fn who_may_not_delete_is_told_which_right_is_lacking() {
    let rights = "delete *.* in namespace shop";
    let refused = lacks_deletion(
        "velero.io",
        &ObjectKey::restore("velero", "r"),
        "ann",
        rights,
    );
    assert_says!(refused.message, "spec.prune", rights, "or ask someone");
    assert_eq!(
        (refused.code, details(&refused).causes[0].field.as_str()),
        (403, "spec.prune")
    );
}

#[test]
fn who_may_not_restore_is_told_what_is_lacking_and_what_may_be_done_instead() {
    let lacking = MissingRights {
        field: "spec.namespaceMapping".to_owned(),
        rights: "do everything (verb * on resource *.*) in namespace shop".to_owned(),
        instead: "leave shop out".to_owned(),
    };
    let act = "create Restore velero/r";
    let refused = lacks_rights("velero.io", "restores", "r", act, "ann", &lacking);
    let (needs, instead) = (
        "\"ann\" may not create Restore velero/r: its items are read and written with the controller's rights, and \"ann\" may \
         not do everything (verb * on resource *.*) in namespace shop",
        "Either leave shop out, or ask",
    );
    assert_says!(refused.message, needs, instead);
    assert_eq!(
        (refused.code, details(&refused).causes[0].field.as_str()),
        (403, "spec.namespaceMapping")
    );
}
