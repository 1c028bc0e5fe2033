//! Restores that are deleted before they have ended.

use super::*;

#[tokio::test]
async fn a_deleted_restore_stops_and_frees_its_claim_before_it_goes() {
    let (fake, folder, ctx) = prepared(None).await;
    let mut worker = worker(&ctx);
    let cancellation = worker.cancellation.clone();
    fake.before("POST", "/api/v1/namespaces", move |api| {
        let deleted = json!("2026-01-01T01:00:00Z");
        api.edit(RESTORE, |restore| {
            restore["metadata"]["deletionTimestamp"] = deleted;
        });
        cancellation.delete();
    });
    assert_eq!(
        step(&mut worker).await,
        Step::Again(format!("{:?}", WorkerError::Stopped(StopReason::Deleted)))
    );
    assert!(fake.get(ITEM).is_none());
    assert_eq!(
        claims(&ctx).await,
        1,
        "the claim stands until the worker has stopped"
    );
    assert!(folder.path().join("restores/r").exists());
    worker.after_deletion().await.unwrap();
    assert_eq!(claims(&ctx).await, 0);
    assert!(
        fake.get(RESTORE).is_none(),
        "the finalizers are off, so it is gone"
    );
    assert!(
        !folder.path().join("restores/r").exists(),
        "and so are its files"
    );
}

#[tokio::test(start_paused = true)]
async fn a_deleted_restore_waits_for_its_store_and_not_for_a_location_that_is_gone() {
    let deleted = |fake: &FakeApi| {
        let mut restore = fake.get(RESTORE).unwrap();
        restore["metadata"]["deletionTimestamp"] = json!("2026-01-01T01:00:00Z");
        fake.put(RESTORE, restore);
    };
    let (fake, folder, ctx) = prepared(None).await;
    run(&ctx).await;
    deleted(&fake);
    // The files are moved away, so they cannot be listed.
    let (restores, aside) = (folder.path().join("restores"), folder.path().join("aside"));
    std::fs::rename(&restores, &aside).unwrap();
    std::fs::write(&restores, "no folder").unwrap();
    let mut waiting = worker(&ctx);
    let done = tokio::time::timeout(Duration::from_mins(1), waiting.after_deletion()).await;
    assert!(done.is_err(), "{done:?}");
    assert_eq!(claims(&ctx).await, 0, "its claim does not wait");
    assert_eq!(
        fake.get(RESTORE).unwrap()["metadata"]["finalizers"],
        json!([Restores::FINALIZERS[1]])
    );
    std::fs::remove_file(&restores).unwrap();
    std::fs::rename(&aside, &restores).unwrap();
    waiting.after_deletion().await.unwrap();
    assert!(fake.get(RESTORE).is_none());
    assert!(!restores.join("r/restore-r-results.gz").exists());

    for gone in [LOCATION, BACKUP] {
        let (fake, _folder, ctx) = prepared(None).await;
        run(&ctx).await;
        deleted(&fake);
        fake.delete(gone);
        worker(&ctx).after_deletion().await.unwrap();
        assert!(fake.get(RESTORE).is_none(), "{gone}");
    }
}
