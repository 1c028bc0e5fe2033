//! Ledgers that are lost or damaged are rebuilt, and grant nothing until late creations have
//! arrived or cannot.

use rstest::rstest;

use super::*;

const ANNOTATION: &str = "backup-lock/ledger";

/// Edits an annotation of the Lease.
fn annotate(api: &FakeApi, name: &str, edit: impl FnOnce(&str) -> String) {
    api.edit(LEDGER_PATH, |lease| {
        let text = lease["metadata"]["annotations"][name]
            .as_str()
            .unwrap_or_default();
        lease["metadata"]["annotations"][name] = json!(edit(text));
    });
}

fn edit_json(api: &FakeApi, edit: impl FnOnce(&mut Value)) {
    annotate(api, ANNOTATION, |text| {
        let mut ledger: Value = serde_json::from_str(text).unwrap();
        edit(&mut ledger);
        ledger.to_string()
    });
}

#[rstest]
#[case::deleted(|api: &FakeApi| api.delete(LEDGER_PATH))]
#[case::emptied(|api: &FakeApi| api.edit(LEDGER_PATH, |lease| lease["metadata"]["annotations"] = json!({})))]
#[case::unlabelled_and_emptied(|api: &FakeApi| api.edit(LEDGER_PATH, |lease| {
    lease["metadata"]["annotations"] = Value::Null;
    lease["metadata"]["labels"] = Value::Null;
    lease["spec"] = Value::Null;
}))]
#[case::cut_short(|api: &FakeApi| annotate(api, ANNOTATION, |text| text[..text.len() / 2].to_owned()))]
#[case::of_format_0(|api: &FakeApi| edit_json(api, |ledger| ledger["v"] = json!(0)))]
#[case::claims_taken_out(|api: &FakeApi| edit_json(api, |ledger| ledger["claims"] = json!([])))]
#[case::a_claim_put_in(|api: &FakeApi| edit_json(api, |ledger| {
    let mut claim = ledger["claims"][0].clone();
    claim[2] = json!("forged");
    ledger["claims"].as_array_mut().unwrap().push(claim);
}))]
#[case::a_state_changed(|api: &FakeApi| edit_json(api, |ledger| {
    ledger["claims"][0][3][0][2] = json!("Collected");
}))]
#[case::epoch_lowered(|api: &FakeApi| edit_json(api, |ledger| ledger["epoch"] = json!(0)))]
#[case::epoch_lowered_everywhere(|api: &FakeApi| {
    edit_json(api, |ledger| ledger["epoch"] = json!(0));
    api.edit(LEDGER_PATH, |lease| lease["spec"]["leaseTransitions"] = json!(0));
})]
#[case::transitions_raised(|api: &FakeApi| api.edit(LEDGER_PATH, |lease| lease["spec"]["leaseTransitions"] = json!(90)))]
#[case::opened_by_hand(|api: &FakeApi| edit_json(api, |ledger| ledger["status"] = json!("Opening")))]
#[case::sum_wrong(|api: &FakeApi| annotate(api, "backup-lock/sum", |_| "0123456789abcdef".to_owned()))]
#[case::sum_gone(|api: &FakeApi| annotate(api, "backup-lock/sum", |_| String::new()))]
#[case::serial_changed(|api: &FakeApi| annotate(api, "backup-lock/serial", |_| "1".to_owned()))]
#[case::serial_no_number(|api: &FakeApi| annotate(api, "backup-lock/serial", |_| "soon".to_owned()))]
#[case::copied_under_another_uid(|api: &FakeApi| api.edit(LEDGER_PATH, |lease| lease["metadata"]["uid"] = json!("copy")))]
#[tokio::test(start_paused = true)]
async fn a_ledger_is_rebuilt_and_grants_nothing_before_when_it_was(#[case] damage: fn(&FakeApi)) {
    let (api, store) = setup();
    // Epochs are used up: three restores, the last of which is running.
    for (name, uid) in [("r1", "1"), ("r2", "2"), ("works", "3")] {
        api.put_velero("Restore", name, uid, "", &all());
        let token = activate(&store, &restore(name), uid).await.unwrap();
        assert!(token.epoch >= 1);
        if name != "works" {
            release(&store, &restore(name), uid).await.unwrap();
            api.delete_velero("Restore", name);
        }
    }
    api.put_velero("Restore", "works", "3", "InProgress", &all());
    let old = store.read(VELERO_SCOPE).await.unwrap().unwrap();
    let old_token = activate(&store, &restore("works"), "3").await.unwrap();
    // A reservation whose object is late.
    let change = |ledger: &mut Ledger| {
        let (footprint, ask) = (Footprint::everything(), forced());
        ledger.admit(&restore("late"), "4", &footprint, "now", &ask)
    };
    store
        .update(VELERO_SCOPE, deadline(), change)
        .await
        .unwrap();
    let used = ledger(&store).await.epoch;

    damage(&api);

    // Nothing is granted to any request.
    assert!(matches!(
        trouble(&store).await,
        Some("rebuilding" | "unreadable")
    ));
    let refused = activate(&store, &restore("works"), "3").await.unwrap_err();
    assert!(refused.is_transient(), "{refused}");
    let (mut repair, start) = (LedgerRepair::new(GRACE, GRACE), Instant::now());
    assert_eq!(
        repair.repair(&store, VELERO_SCOPE, start).await.unwrap(),
        RepairOutcome::Lost
    );
    let after = |seconds| start + Duration::from_secs(seconds);
    for seconds in [1, 60, 120] {
        assert_eq!(
            repair
                .repair(&store, VELERO_SCOPE, after(seconds))
                .await
                .unwrap(),
            RepairOutcome::Lost,
            "{seconds} s"
        );
        assert_eq!(trouble(&store).await, Some("rebuilding"));
        let lost = ledger(&store).await;
        assert!(
            lost.epoch > used,
            "the epoch continues: {} <= {used}",
            lost.epoch
        );
    }
    // The late object is stored. A grace after the loss was first seen, stored objects are adopted.
    api.put_velero("Restore", "late", "4", "", &all());
    assert_eq!(
        repair
            .repair(&store, VELERO_SCOPE, after(121))
            .await
            .unwrap(),
        RepairOutcome::Rebuilt
    );
    let rebuilt = ledger(&store).await;
    assert_eq!(rebuilt.status, Status::Open);
    assert_eq!(
        rebuilt.entry(&restore("works"), "3").unwrap().state,
        State::Active
    );
    assert_eq!(
        rebuilt.entry(&restore("late"), "4").unwrap().state,
        State::Reserved
    );
    assert!(admit(&store, &backup("b"), "5").await.is_err());
    // Only one of the two may work, and tokens are valid in one ledger only.
    assert!(matches!(
        activate(&store, &restore("late"), "4").await,
        Err(ActivateError::Conflict(_))
    ));
    let token = activate(&store, &restore("works"), "3").await.unwrap();
    assert!(token.epoch > used, "{} <= {used}", token.epoch);
    assert!(
        !holds(&store, &restore("works"), "3", &old_token)
            .await
            .unwrap()
    );
    let (named, bound) = marker(&api, MARKER_PATH).unwrap();
    assert_eq!(named, lease_uid(&api, LEDGER_PATH));
    assert!(bound >= ledger(&store).await.epoch);
    assert!(
        store.write(&old, Ledger::default()).await.is_err(),
        "an old copy is of no use"
    );
    assert_eq!(
        repair
            .repair(&store, VELERO_SCOPE, after(122))
            .await
            .unwrap(),
        RepairOutcome::Fine
    );
}

#[tokio::test(start_paused = true)]
async fn the_grace_is_counted_on_the_clock_of_each_who_looks() {
    let (api, store) = setup();
    admit(&store, &restore("r"), "1").await.unwrap();
    api.delete(LEDGER_PATH);
    let now = Instant::now();
    let (mut early, mut late) = (
        LedgerRepair::new(GRACE, GRACE),
        LedgerRepair::new(GRACE, GRACE),
    );
    early.repair(&store, VELERO_SCOPE, now).await.unwrap();
    early.repair(&store, VELERO_SCOPE, now).await.unwrap();
    // A repair that has just started has no history, whatever its clock says.
    let tomorrow = now + Duration::from_hours(24);
    assert_eq!(
        late.repair(&store, VELERO_SCOPE, tomorrow).await.unwrap(),
        RepairOutcome::Lost
    );
    assert_eq!(
        late.repair(&store, VELERO_SCOPE, tomorrow + GRACE / 2)
            .await
            .unwrap(),
        RepairOutcome::Lost
    );
    assert_eq!(
        early
            .repair(&store, VELERO_SCOPE, now + GRACE)
            .await
            .unwrap(),
        RepairOutcome::Rebuilt
    );
    assert_eq!(
        late.repair(&store, VELERO_SCOPE, tomorrow + GRACE)
            .await
            .unwrap(),
        RepairOutcome::Fine
    );
}

#[tokio::test(start_paused = true)]
async fn a_ledger_that_is_lost_again_while_it_is_rebuilt_waits_again() {
    let (api, store) = setup();
    admit(&store, &restore("r"), "1").await.unwrap();
    let (mut repair, now) = (LedgerRepair::new(GRACE, GRACE), Instant::now());
    api.delete(LEDGER_PATH);
    for seconds in [0, 1] {
        repair
            .repair(&store, VELERO_SCOPE, now + Duration::from_secs(seconds))
            .await
            .unwrap();
    }
    let first = ledger(&store).await.epoch;
    api.delete(LEDGER_PATH);
    for seconds in [119, 120, 239] {
        let at = now + Duration::from_secs(seconds);
        assert_eq!(
            repair.repair(&store, VELERO_SCOPE, at).await.unwrap(),
            RepairOutcome::Lost,
            "{seconds} s"
        );
    }
    let at = now + Duration::from_mins(4);
    assert_eq!(
        repair.repair(&store, VELERO_SCOPE, at).await.unwrap(),
        RepairOutcome::Rebuilt
    );
    assert!(ledger(&store).await.epoch >= first);
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_step_of_a_rebuild_leaves_what_the_next_one_can_finish() {
    for last in [LastWrite::Lost, LastWrite::Unanswered] {
        for writes in 0..4 {
            let (api, store) = setup();
            api.put_velero("Restore", "r", "1", "InProgress", &all());
            activate(&store, &restore("r"), "1").await.unwrap();
            let used = ledger(&store).await.epoch;
            api.delete(LEDGER_PATH);
            let (mut repair, now) = (LedgerRepair::new(GRACE, GRACE), Instant::now());
            api.crash_after(writes, last);
            let mut at = now;
            let crashed = loop {
                match repair.repair(&store, VELERO_SCOPE, at).await {
                    Err(_) => break true,
                    Ok(RepairOutcome::Rebuilt) => break false,
                    Ok(_) => at += GRACE,
                }
            };
            api.recover();
            assert!(crashed, "a rebuild has more than {writes} writes");
            let (mut next, store) = (
                LedgerRepair::new(GRACE, GRACE),
                LedgerStore::new(api.client(), "velero"),
            );
            for tries in 0..4 {
                let tended = next
                    .repair(&store, VELERO_SCOPE, now + GRACE * tries)
                    .await
                    .unwrap();
                let granted = trouble(&store).await.is_none();
                assert_eq!(
                    granted,
                    matches!(tended, RepairOutcome::Rebuilt | RepairOutcome::Fine),
                    "{writes} {last:?}: {tended:?}"
                );
            }
            let rebuilt = ledger(&store).await;
            assert_eq!(
                (rebuilt.status, rebuilt.len()),
                (Status::Open, 1),
                "{writes} {last:?}"
            );
            assert!(rebuilt.epoch > used);
            assert_eq!(
                marker(&api, MARKER_PATH).unwrap().0,
                lease_uid(&api, LEDGER_PATH)
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_ledger_of_a_newer_format_is_left_alone() {
    let (api, store) = setup();
    admit(&store, &restore("r"), "1").await.unwrap();
    let text = r#"{"v":9,"all":"new"}"#;
    annotate(&api, ANNOTATION, |_| text.to_owned());
    assert_eq!(
        trouble(&store).await,
        Some("unreadable"),
        "no program wrote it"
    );
    let uid = lease_uid(&api, LEDGER_PATH);
    annotate(&api, "backup-lock/serial", |_| "7".to_owned());
    annotate(&api, "backup-lock/sum", |_| {
        backup_core::digest::short_sha256(format!("{uid}\n7\n{text}").as_bytes(), 8)
    });
    let before = (api.get(LEDGER_PATH), api.get(MARKER_PATH));
    assert_eq!(trouble(&store).await, Some("newer"));
    let (mut repair, now) = (LedgerRepair::new(GRACE, GRACE), Instant::now());
    for times in 0..3 {
        let error = repair
            .repair(&store, VELERO_SCOPE, now + GRACE * times)
            .await
            .unwrap_err();
        assert_eq!(error.category(), "newer");
        assert!(
            !error.is_transient() && error.to_string().contains("update this program"),
            "{error}"
        );
        assert_says!(error, "it stays as it is");
    }
    assert_eq!((api.get(LEDGER_PATH), api.get(MARKER_PATH)), before);
}

#[tokio::test(start_paused = true)]
async fn a_ledger_that_is_being_deleted_grants_nothing_and_comes_back_once_it_is_gone() {
    let (api, store) = setup();
    admit(&store, &restore("r"), "1").await.unwrap();
    api.edit(LEDGER_PATH, |lease| {
        lease["metadata"]["deletionTimestamp"] = json!("2026-11-21T10:00:00Z");
    });
    assert_eq!(trouble(&store).await, Some("being_deleted"));
    let (mut repair, now) = (LedgerRepair::new(GRACE, GRACE), Instant::now());
    let error = repair.repair(&store, VELERO_SCOPE, now).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    api.delete(LEDGER_PATH);
    for (times, tended) in [
        (0, RepairOutcome::Lost),
        (1, RepairOutcome::Lost),
        (2, RepairOutcome::Rebuilt),
    ] {
        assert_eq!(
            repair
                .repair(&store, VELERO_SCOPE, now + GRACE * times)
                .await
                .unwrap(),
            tended
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_ledger_that_is_deleted_names_the_finalizers_that_keep_it() {
    let (api, store) = setup();
    admit(&store, &restore("r"), "1").await.unwrap();
    api.edit(LEDGER_PATH, |lease| {
        lease["metadata"]["finalizers"] = json!(["example.com/keep"]);
    });
    let stored = store.read(VELERO_SCOPE).await.unwrap().unwrap();
    assert_eq!(stored.finalizers(), ["example.com/keep"]);
    api.edit(LEDGER_PATH, |lease| {
        lease["metadata"]["deletionTimestamp"] = json!("2026-11-21T10:00:00Z");
    });
    let error = store.read(VELERO_SCOPE).await.unwrap_err().to_string();
    assert_says!(
        error,
        "is being deleted and kept by the finalizer example.com/keep of"
    );
}

/// The API server refuses changes of an immutable ConfigMap, but allows its deletion.
#[tokio::test(start_paused = true)]
async fn a_marker_that_was_made_immutable_is_made_again_when_it_has_to_be_written() {
    let (api, store) = setup();
    api.fault(|api, request| {
        let is_immutable = api.get(MARKER_PATH)?["immutable"] == json!(true);
        let refused = is_immutable && request.is("PUT", MARKER_PATH);
        refused.then(|| {
            Fault::refuse(
                422,
                "Invalid",
                "data: Forbidden: field is immutable when `immutable` is set",
            )
        })
    });
    admit(&store, &restore("r"), "1").await.unwrap();
    let (named, bound) = marker(&api, MARKER_PATH).unwrap();
    api.edit(MARKER_PATH, |marker| marker["immutable"] = json!(true));
    let write = |ledger: &mut Ledger| ledger.epoch = bound + 1;
    store.change(VELERO_SCOPE, deadline(), write).await.unwrap();
    let (still_named, raised) = marker(&api, MARKER_PATH).unwrap();
    assert!(
        still_named == named && raised > bound,
        "{still_named} {raised}"
    );
    assert!(api.get(MARKER_PATH).unwrap()["immutable"].is_null());
    api.edit(MARKER_PATH, |marker| {
        marker["immutable"] = json!(true);
        marker["data"]["epoch"] = json!("0");
    });
    let (mut repair, now) = (LedgerRepair::new(GRACE, GRACE), Instant::now());
    assert_eq!(
        repair.repair(&store, VELERO_SCOPE, now).await.unwrap(),
        RepairOutcome::Fine
    );
    assert_eq!(marker(&api, MARKER_PATH), Some((named, raised)));
}

#[rstest]
#[case::deleted(|api: &FakeApi| api.delete(MARKER_PATH))]
#[case::emptied(|api: &FakeApi| api.edit(MARKER_PATH, |marker| marker["data"] = Value::Null))]
#[case::of_no_ledger(|api: &FakeApi| api.edit(MARKER_PATH, |marker| marker["data"]["ledger"] = json!("")))]
#[case::of_another_ledger(|api: &FakeApi| api.edit(MARKER_PATH, |marker| marker["data"]["ledger"] = json!("another")))]
#[case::set_back(|api: &FakeApi| api.edit(MARKER_PATH, |marker| marker["data"]["epoch"] = json!("0")))]
#[case::no_number(|api: &FakeApi| api.edit(MARKER_PATH, |marker| marker["data"]["epoch"] = json!("many")))]
#[tokio::test(start_paused = true)]
async fn a_marker_is_made_right_again_when_it_was(#[case] damage: fn(&FakeApi)) {
    let (api, store) = setup();
    admit(&store, &restore("r"), "1").await.unwrap();
    let right = marker(&api, MARKER_PATH).unwrap();
    damage(&api);
    assert_ne!(marker(&api, MARKER_PATH), Some(right.clone()));
    assert_eq!(trouble(&store).await, None, "the ledger is there and good");
    let (mut repair, now) = (LedgerRepair::new(GRACE, GRACE), Instant::now());
    assert_eq!(
        repair.repair(&store, VELERO_SCOPE, now).await.unwrap(),
        RepairOutcome::Fine
    );
    let (named, bound) = marker(&api, MARKER_PATH).unwrap();
    assert!(
        named == right.0 && bound >= right.1,
        "{named} {bound}, {right:?}"
    );
    // So another loss is detected again.
    api.delete(LEDGER_PATH);
    assert_eq!(trouble(&store).await, Some("rebuilding"));
    repair.repair(&store, VELERO_SCOPE, now).await.unwrap();
    assert!(ledger(&store).await.epoch > right.1);
}

#[tokio::test(start_paused = true)]
async fn a_damaged_ledger_without_its_marker_is_rebuilt_all_the_same() {
    let (api, store) = setup();
    api.put_velero("Restore", "r", "1", "InProgress", &all());
    let used = activate(&store, &restore("r"), "1").await.unwrap().epoch;
    api.delete(MARKER_PATH);
    annotate(&api, ANNOTATION, |_| String::new());
    let (mut repair, now) = (LedgerRepair::new(GRACE, GRACE), Instant::now());
    for (times, tended) in [
        (0, RepairOutcome::Lost),
        (1, RepairOutcome::Lost),
        (2, RepairOutcome::Rebuilt),
    ] {
        assert_eq!(
            repair
                .repair(&store, VELERO_SCOPE, now + GRACE * times)
                .await
                .unwrap(),
            tended
        );
    }
    assert!(ledger(&store).await.epoch > used);
    assert_eq!(
        marker(&api, MARKER_PATH).unwrap().0,
        lease_uid(&api, LEDGER_PATH)
    );
}

#[tokio::test(start_paused = true)]
async fn ledger_and_marker_lost_together_are_a_first_ledger_again() {
    let (api, store) = setup();
    api.put_velero("Backup", "b", "1", "InProgress", &all());
    admit(&store, &backup("b"), "1").await.unwrap();
    api.delete(LEDGER_PATH);
    api.delete(MARKER_PATH);
    let (mut repair, now) = (LedgerRepair::new(GRACE, GRACE), Instant::now());
    assert_eq!(
        repair.repair(&store, VELERO_SCOPE, now).await.unwrap(),
        RepairOutcome::Fine,
        "nothing is known of it"
    );
    assert_says!(
        admit(&store, &restore("r"), "2").await.unwrap_err(),
        "Backup velero/b"
    );
    assert_eq!(ledger(&store).await.status, Status::Open);
}

#[tokio::test(start_paused = true)]
async fn no_epoch_is_counted_on_under_a_marker_that_names_another_ledger() {
    let (api, store) = setup();
    store.open(VELERO_SCOPE).await.unwrap();
    api.edit(MARKER_PATH, |marker| {
        marker["data"]["ledger"] = json!("another");
    });
    let bound = marker(&api, MARKER_PATH).unwrap().1;
    let mut counts = 0..100;
    let error = loop {
        let n = counts.next().expect("it counts on for ever");
        let change = |ledger: &mut Ledger| {
            for uid in 0..50 {
                let uid = format!("{n}-{uid}");
                ledger.admit(
                    &restore("r"),
                    &uid,
                    &Footprint::everything(),
                    "now",
                    &Ask::default(),
                )?;
            }
            ledger.claims.clear();
            Ok::<_, Refusal>(())
        };
        if let Err(error) = store.update(VELERO_SCOPE, deadline(), change).await {
            break error;
        }
        assert!(
            ledger(&store).await.epoch <= bound,
            "the marker knows of no such epoch"
        );
    };
    assert!(
        matches!(&error, UpdateError::Ledger(e) if e.category() == "changed"),
        "{error}"
    );
    assert_eq!(
        marker(&api, MARKER_PATH).unwrap().0,
        "another",
        "that is for who looks after ledgers to decide"
    );
    let (mut repair, now) = (LedgerRepair::new(GRACE, GRACE), Instant::now());
    assert_eq!(
        repair.repair(&store, VELERO_SCOPE, now).await.unwrap(),
        RepairOutcome::Fine
    );
    admit(&store, &restore("r"), "1").await.unwrap();
}
