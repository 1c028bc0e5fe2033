//! A ledger is read freshly and written by compare-and-swap.

use super::*;

#[tokio::test(start_paused = true)]
async fn the_lease_shows_people_who_holds_it() {
    let (api, store) = setup();
    admit(&store, &restore("r1"), "1").await.unwrap();
    let lease = api.get(LEDGER_PATH).unwrap();
    assert_eq!(lease["spec"]["holderIdentity"], "restore/velero/r1");
    assert_eq!(lease["spec"]["leaseTransitions"], 1);
    for path in [LEDGER_PATH, MARKER_PATH] {
        let labels = &api.get(path).unwrap()["metadata"]["labels"];
        assert_eq!(labels["velero.io/exclude-from-backup"], "true", "{path}");
        assert_eq!(labels["backup-lock/profile"], "velero", "{path}");
    }
    assert_eq!(
        lease["metadata"]["annotations"]["backup-lock/scope"],
        VELERO_SCOPE
    );
}

#[tokio::test(start_paused = true)]
async fn each_write_counts_and_a_change_that_changes_nothing_is_not_written() {
    let (api, store) = setup();
    admit(&store, &restore("r"), "1").await.unwrap();
    let before = store.read(VELERO_SCOPE).await.unwrap().unwrap();
    assert!(
        !store
            .change(VELERO_SCOPE, deadline(), |ledger| ledger
                .release(&restore("no"), "1"))
            .await
            .unwrap()
    );
    assert_eq!(
        store
            .read(VELERO_SCOPE)
            .await
            .unwrap()
            .unwrap()
            .resource_version(),
        before.resource_version()
    );
    let writes = api.writes();
    admit(&store, &restore("r"), "2").await.unwrap();
    assert_eq!(api.writes(), writes + 1, "one write for one grant");
    assert_eq!(
        store.read(VELERO_SCOPE).await.unwrap().unwrap().serial,
        before.serial + 1
    );
}

#[tokio::test(start_paused = true)]
async fn many_writers_lose_nothing() {
    let (api, store) = setup();
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..20 {
        // Each with its own client, as replicas have.
        let store = LedgerStore::new(api.client(), "velero");
        tasks.spawn(async move { admit(&store, &backup(&format!("b{n}")), "1").await });
    }
    let granted = tasks
        .join_all()
        .await
        .iter()
        .filter(|outcome| outcome.is_ok())
        .count();
    assert_eq!(
        ledger(&store).await.len(),
        granted,
        "each success is in the ledger, and nothing else"
    );
    assert!(
        granted > 0 && api.conflicts() > 0,
        "{granted} granted, {} conflicts",
        api.conflicts()
    );
}

#[tokio::test(start_paused = true)]
async fn an_old_copy_is_never_written_over_a_newer_ledger_or_in_place_of_a_deleted_one() {
    let (api, store) = setup();
    admit(&store, &restore("r"), "1").await.unwrap();
    let old = store.read(VELERO_SCOPE).await.unwrap().unwrap();
    release(&store, &restore("r"), "1").await.unwrap();
    let error = store
        .write(&old, Ledger::clone(&old.ledger))
        .await
        .unwrap_err();
    assert!(matches!(error, LedgerError::Changed { .. }), "{error}");
    assert!(ledger(&store).await.is_empty());
    api.delete(LEDGER_PATH);
    let error = store
        .write(&old, Ledger::clone(&old.ledger))
        .await
        .unwrap_err();
    assert!(matches!(error, LedgerError::Changed { .. }), "{error}");
    assert!(api.get(LEDGER_PATH).is_none());
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_never_answers_is_given_up_on() {
    let (api, store) = setup();
    api.fault(|_, _| Some(Fault::Hang));
    let start = tokio::time::Instant::now();
    let error = admit(&store, &backup("b"), "1").await.unwrap_err();
    assert!(
        matches!(&error, UpdateError::Ledger(e) if e.category() == "timeout"),
        "{error}"
    );
    assert!(start.elapsed() <= Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn a_grant_rests_on_a_write_that_succeeded() {
    let (api, store) = setup();
    store.open(VELERO_SCOPE).await.unwrap();
    api.fail(Request::is_write);
    let error = admit(&store, &backup("b"), "1").await.unwrap_err();
    assert!(
        matches!(&error, UpdateError::Ledger(e) if e.category() == "unreachable"),
        "{error}"
    );
    api.recover();
    assert!(ledger(&store).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_answer_was_lost_is_found_when_the_same_is_asked_again() {
    let (api, store) = setup();
    store.open(VELERO_SCOPE).await.unwrap();
    api.crash_after(0, LastWrite::Unanswered);
    admit(&store, &backup("b"), "1").await.unwrap_err();
    assert!(api.recover());
    let writes = api.writes();
    assert_eq!(
        admit(&store, &backup("b"), "1").await.unwrap(),
        Grant::Reserved
    );
    assert_eq!(
        (api.writes(), ledger(&store).await.len()),
        (writes + 1, 1),
        "its age begins anew"
    );
}

#[tokio::test(start_paused = true)]
async fn a_full_ledger_fits_into_its_lease_with_everything_around_it() {
    let (api, store) = setup();
    let all_of = |ledger: &mut Ledger| {
        for n in 0.. {
            // Long names and wide footprints, which are most likely to exceed the size estimate.
            let names = (0..64).map(|i| format!("{n:031}-{i:031}"));
            let footprint = Footprint::namespaces(names);
            let key = ObjectKey::backup(&"v".repeat(63), &format!("{n:0253}"));
            if ledger
                .admit(&key, "1", &footprint, "now", &Ask::forced(""))
                .is_err()
            {
                break;
            }
        }
        for n in 0..100 {
            ledger.leave_intent(
                &restore(&format!("r{n}")),
                "1",
                &Footprint::everything(),
                "now",
                &Ask::default(),
            );
        }
        Ok::<_, Refusal>(())
    };
    store
        .update(VELERO_SCOPE, deadline(), all_of)
        .await
        .unwrap();
    let lease = api.get(LEDGER_PATH).unwrap();
    let annotations = lease["metadata"]["annotations"].as_object().unwrap();
    let bytes: usize = annotations
        .iter()
        .map(|(key, value)| key.len() + value.as_str().unwrap().len())
        .sum();
    // `ValidateAnnotationsSize`: names and values of all annotations together.
    assert!(bytes < 262_144, "{bytes} bytes");
    assert!(bytes > 200_000, "{bytes} bytes are not full");
}

#[tokio::test(start_paused = true)]
async fn the_epoch_may_run_ahead_of_the_marker_never() {
    let (api, store) = setup();
    let mut highest = 0;
    for n in 0..40 {
        let change = |ledger: &mut Ledger| {
            // Many at once, so that the bound is reached.
            for uid in 0..60 {
                ledger.admit(
                    &restore("r"),
                    &format!("{n}-{uid}"),
                    &Footprint::everything(),
                    "now",
                    &Ask::default(),
                )?;
            }
            ledger.claims.clear();
            Ok::<_, Refusal>(ledger.epoch)
        };
        highest = store
            .update(VELERO_SCOPE, deadline(), change)
            .await
            .unwrap()
            .0;
        let (uid, bound) = marker(&api, MARKER_PATH).unwrap();
        assert!(bound >= highest, "{bound} < {highest}");
        assert_eq!(uid, lease_uid(&api, LEDGER_PATH));
    }
    assert!(highest > 2000, "{highest}");
}

#[tokio::test(start_paused = true)]
async fn every_ledger_of_a_profile_is_found_also_one_that_is_damaged_or_lost() {
    let (api, store) = setup();
    let protected = percona(&api);
    admit(&store, &restore("r"), "1").await.unwrap();
    let scopes = [
        PERCONA_SCOPE,
        "percona-ps/db/cluster2",
        "percona-ps/other/cluster1",
    ];
    for scope in scopes {
        protected.store.open(scope).await.unwrap();
    }
    let listed = protected.store.list().await.unwrap();
    assert_eq!(listed.len(), 3);
    assert!(listed.iter().all(|(_, ledger)| ledger.is_ok()));
    api.edit(&paths(scopes[0]).0, |lease| {
        lease["metadata"]["annotations"]["backup-lock/ledger"] = json!("{}");
    });
    api.delete(&paths(scopes[1]).0);
    let listed = protected.store.list().await.unwrap();
    assert_eq!(
        (
            listed.len(),
            listed.iter().filter(|(_, ledger)| ledger.is_err()).count()
        ),
        (2, 1)
    );
    let known: Vec<String> = protected
        .store
        .scopes()
        .await
        .unwrap()
        .into_keys()
        .collect();
    assert_eq!(known, scopes, "by the marker, where the ledger is lost");
    assert_eq!(
        store.list().await.unwrap().len(),
        1,
        "each profile has its own"
    );
}
