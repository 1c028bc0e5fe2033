pub(crate) mod fake;

use std::time::Duration;

use backup_core::{
    api::BackupSpec,
    snapshot::{SnapshotPhase, VolumeSnapshotSpec},
};
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;

use fake::Disks;

use super::*;
use crate::job::journal::MemoryJournal;

fn volume(name: &str, path: &str) -> Value {
    json!({
        "metadata": { "name": name, "labels": { "topology.kubernetes.io/zone": "z" } },
        "spec": { "hostPath": { "path": path }, "claimRef": { "namespace": "shop", "name": format!("of-{name}") } },
    })
}

fn backup() -> Backup {
    let mut backup = Backup::new("b", BackupSpec::default());
    backup.metadata.uid = Some("u".to_owned());
    backup.metadata.labels = Some([("team".to_owned(), "db".to_owned())].into());
    backup
}

/// One attempt at a backup that continues this journal.
fn attempt(journal: &MemoryJournal, locations: &[(&str, &Arc<Disks>)]) -> VolumeSnapshots {
    let taken_over = SnapshotJournal::take_over(Arc::new(journal.clone()), &journal.all()).unwrap();
    let location = |(name, disks): &(&str, &Arc<Disks>)| SnapshotLocation {
        name: (*name).to_owned(),
        snapshotter: Arc::clone(disks) as _,
    };
    VolumeSnapshots::new(
        locations.iter().map(location).collect(),
        taken_over,
        true,
        Arc::default(),
    )
}

/// Takes a snapshot of a volume, and returns messages about errors.
async fn take(snapshots: &mut VolumeSnapshots, volume: &Value) -> Vec<String> {
    snapshots.take(of(volume), &backup()).await.unwrap()
}

fn of(volume: &Value) -> VolumeWithClaim {
    VolumeWithClaim {
        volume: volume.clone(),
        claim: Value::Null,
    }
}

/// Disks that take ten seconds for a snapshot.
fn slow() -> Arc<Disks> {
    Arc::new(Disks {
        takes: Duration::from_secs(10),
        ..Disks::new("/disks/")
    })
}

/// Begins the snapshots of these volumes, each in a separate block.
fn begin(snapshots: &mut VolumeSnapshots, names: &[&str]) {
    for name in names {
        snapshots.begin(
            vec![of(&volume(name, &format!("/disks/{name}")))],
            &backup(),
        );
    }
}

#[tokio::test]
async fn a_volume_is_snapshotted_by_the_plugin_that_knows_it() {
    let (east, west) = (
        Arc::new(Disks::new("/east/")),
        Arc::new(Disks::new("/west/")),
    );
    let journal = MemoryJournal::default();
    let mut snapshots = attempt(&journal, &[("east", &east), ("west", &west)]);
    let problems = take(&mut snapshots, &volume("pv", "/west/disk")).await;
    assert_eq!((problems.len(), east.asked().len()), (0, 0));
    assert_eq!(
        west.asked(),
        ["snapshot disk@z team=db velero.io/backup=b velero.io/pv=pv"]
    );
    assert!(snapshots.has("pv"));
    let info = json!(snapshots.snapshots.volumes.info());
    assert_eq!(
        (&info[0]["pvcName"], &info[0]["result"]),
        (&json!("of-pv"), &json!("succeeded"))
    );
    let (taken, problems) = snapshots.finish();
    assert!(problems.is_empty());
    assert_eq!(
        serde_json::to_value(&taken).unwrap(),
        json!([{
            "spec": { "backupName": "b", "backupUID": "u", "location": "west", "persistentVolumeName": "pv",
                "providerVolumeID": "disk", "volumeType": "fast", "volumeAZ": "z", "volumeIOPS": 3000 },
            "status": { "providerSnapshotID": "snap-disk", "phase": "Completed" },
        }])
    );
    let entries = journal.all();
    assert_eq!(
        entries[0]["snapshotBegun"]["status"],
        json!({ "phase": "New" })
    );
    assert_eq!(
        entries[1]["snapshotEnded"],
        serde_json::to_value(&taken[0]).unwrap()
    );
}

#[tokio::test]
async fn a_volume_of_no_plugin_is_left_and_one_of_csi_is_untouched() {
    let (disks, journal) = (Arc::new(Disks::new("/disks/")), MemoryJournal::default());
    let mut snapshots = attempt(&journal, &[("only", &disks)]);
    let mut csi = volume("csi", "/disks/a");
    csi["spec"]["csi"] = json!({ "driver": "d" });
    for volume in [volume("other", "/elsewhere"), csi] {
        assert!(take(&mut snapshots, &volume).await.is_empty());
    }
    let missing = snapshots.snapshots.volumes.missing();
    assert_eq!(missing.len(), 1);
    assert_says!(missing[0].1, "shop/of-other", "(only)");
    assert!(disks.asked().is_empty() && journal.all().is_empty());
}

#[tokio::test]
async fn a_failed_snapshot_may_be_taken_by_the_next_attempt() {
    let (disks, journal) = (Arc::new(Disks::new("/disks/")), MemoryJournal::default());
    *disks.wrong.lock() = vec![false];
    let mut snapshots = attempt(&journal, &[("only", &disks)]);
    let problems = take(&mut snapshots, &volume("pv", "/disks/a")).await;
    assert_says!(problems[0], "PersistentVolume pv", "no space");
    let (taken, _) = snapshots.finish();
    assert_eq!(
        (&taken[0].status.phase, taken[0].usable()),
        (&SnapshotPhase::Failed, None)
    );

    let mut next = attempt(&journal, &[("only", &disks)]);
    assert!(take(&mut next, &volume("pv", "/disks/a")).await.is_empty());
    assert_eq!(disks.asked().len(), 2);
}

#[tokio::test]
async fn a_snapshot_of_unknown_outcome_is_not_taken_again() {
    let disks = Arc::new(Disks {
        wrong: Mutex::new(vec![true]),
        ..Disks::new("/disks/")
    });
    let journal = MemoryJournal::default();
    let mut snapshots = attempt(&journal, &[("only", &disks)]);
    let problems = take(&mut snapshots, &volume("pv", "/disks/a")).await;
    for word in [
        "is not known",
        "VolumeSnapshotLocation only",
        "velero.io/backup=b",
        "one of a ",
    ] {
        assert!(
            problems[0].contains(word),
            "nothing of {word}: {problems:?}"
        );
    }
    // The next attempt does not take it either, whether it meets the volume or not.
    for meets in [true, false] {
        let mut next = attempt(&journal, &[("only", &disks)]);
        let mut problems = Vec::new();
        if meets {
            problems = take(&mut next, &volume("pv", "/disks/a")).await;
        }
        let (taken, more) = next.finish();
        problems.extend(more);
        assert_eq!((taken.len(), problems.len()), (1, 1));
        assert_eq!(taken[0].status.phase, SnapshotPhase::Failed);
        assert_says!(problems[0], "is not known");
    }
    assert_eq!(disks.asked().len(), 1);
}

#[tokio::test]
async fn a_snapshot_of_an_earlier_attempt_is_used_or_deleted() {
    let (disks, journal) = (Arc::new(Disks::new("/disks/")), MemoryJournal::default());
    let mut snapshots = attempt(&journal, &[("only", &disks)]);
    for name in ["stays", "goes"] {
        assert!(
            take(&mut snapshots, &volume(name, &format!("/disks/{name}")))
                .await
                .is_empty()
        );
    }
    let mut next = attempt(&journal, &[("only", &disks)]);
    assert!(
        take(&mut next, &volume("stays", "/disks/stays"))
            .await
            .is_empty()
    );
    let (taken, problems) = next.finish();
    let ids: Vec<_> = taken.iter().filter_map(VolumeSnapshot::usable).collect();
    assert_eq!(ids, ["snap-stays", "snap-goes"]);
    assert!(
        problems[0].contains("goes") && problems.len() == 1,
        "{problems:?}"
    );
    assert_eq!(disks.asked().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn snapshots_of_blocks_are_taken_side_by_side_and_those_of_a_block_in_order() {
    let (disks, journal) = (slow(), MemoryJournal::default());
    let mut snapshots = attempt(&journal, &[("only", &disks)]);
    let started = Instant::now();
    let names = ["a", "b", "c"];
    begin(&mut snapshots, &names);
    let block = ["d", "e"].map(|name| of(&volume(name, &format!("/disks/{name}"))));
    snapshots.begin(block.into(), &backup());
    for name in names.iter().rev() {
        assert!(
            take(&mut snapshots, &volume(name, &format!("/disks/{name}")))
                .await
                .is_empty()
        );
    }
    assert_eq!(started.elapsed(), disks.takes);
    for name in ["e", "d"] {
        assert!(
            take(&mut snapshots, &volume(name, &format!("/disks/{name}")))
                .await
                .is_empty()
        );
    }
    assert_eq!(started.elapsed(), 2 * disks.takes);
    assert_eq!(disks.asked().len(), 5);
    assert!(
        disks.asked()[4].starts_with("snapshot e@"),
        "{:?}",
        disks.asked()
    );
    let (taken, problems) = snapshots.finish();
    assert_eq!((taken.len(), problems.len()), (5, 0));
}

#[tokio::test(start_paused = true)]
async fn what_was_begun_for_a_volume_that_is_not_in_the_backup_is_removed() {
    for stays in [false, true] {
        let (disks, journal) = (slow(), MemoryJournal::default());
        let mut snapshots = attempt(&journal, &[("only", &disks)]);
        begin(&mut snapshots, &["in", "out"]);
        assert!(
            take(&mut snapshots, &volume("in", "/disks/in"))
                .await
                .is_empty()
        );
        disks.wrong.lock().extend(stays.then_some(false));
        let problems = snapshots.end_begun().await.unwrap();
        assert_eq!(disks.asked().last().unwrap(), "delete snap-out");
        let (taken, _) = snapshots.finish();
        let ids: Vec<_> = taken.iter().filter_map(VolumeSnapshot::usable).collect();
        let prior = prior_snapshots(&journal.all()).unwrap();
        if stays {
            assert_eq!(ids, ["snap-in", "snap-out"], "it goes with the backup");
            assert_says!(problems[0], "snap-out", "no space");
        } else {
            assert_eq!(
                (ids, prior.len(), problems.len()),
                (vec!["snap-in"], 1, 0),
                "{prior:?}"
            );
        }
    }
}

/// A collection that ends early waits for snapshots that were begun. The next attempt takes none
/// twice, and knows all.
#[tokio::test(start_paused = true)]
async fn what_was_begun_is_noted_before_the_next_attempt() {
    let (disks, journal) = (slow(), MemoryJournal::default());
    let taken_over = SnapshotJournal::take_over(Arc::new(journal.clone()), &[]).unwrap();
    let location = SnapshotLocation {
        name: "only".to_owned(),
        snapshotter: Arc::clone(&disks) as _,
    };
    let mut snapshots =
        VolumeSnapshots::new(vec![location], taken_over.clone(), true, Arc::default());
    begin(&mut snapshots, &["a", "b"]);
    let block = ["c", "never"].map(|name| of(&volume(name, &format!("/disks/{name}"))));
    snapshots.begin(block.into(), &backup());
    tokio::time::sleep(Duration::from_secs(1)).await;
    drop(snapshots);
    taken_over.settle().await;
    let prior = prior_snapshots(&journal.all()).unwrap();
    assert_eq!(
        prior.keys().collect::<Vec<_>>(),
        ["a", "b", "c"],
        "nothing more was begun"
    );
    assert!(
        prior.values().all(|snapshot| snapshot.usable().is_some()),
        "{prior:?}"
    );

    let mut next = attempt(&journal, &[("only", &disks)]);
    begin(&mut next, &["a", "b", "c"]);
    assert!(take(&mut next, &volume("b", "/disks/b")).await.is_empty());
    assert_eq!(disks.asked().len(), 3);
}

/// As when leadership is lost: the new leader reads the journal.
#[tokio::test(start_paused = true)]
async fn what_is_not_waited_for_ends_with_the_journal() {
    let (disks, journal) = (slow(), MemoryJournal::default());
    let mut snapshots = attempt(&journal, &[("only", &disks)]);
    begin(&mut snapshots, &["a"]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    drop(snapshots);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(disks.asked().is_empty());
    let prior = prior_snapshots(&journal.all()).unwrap();
    assert_eq!(
        prior["a"].status.phase,
        SnapshotPhase::New,
        "its outcome is unknown"
    );
}

/// A process of another version may read the journal of a backup that runs.
#[tokio::test]
async fn entries_are_those_that_other_versions_write() {
    let notes = Arc::new(MemoryJournal::default());
    let journal = SnapshotJournal::take_over(notes.clone(), &[]).unwrap();
    let spec = VolumeSnapshotSpec {
        backup_name: "b".into(),
        backup_uid: "u".into(),
        location: "only".into(),
        persistent_volume_name: "pv".into(),
        provider_volume_id: "vol-1".into(),
        volume_type: "fast".into(),
        ..VolumeSnapshotSpec::default()
    };
    let wanted = VolumeSnapshot::new(spec);
    journal.steps.begin(&wanted).await.unwrap();
    for ended in [wanted.clone().completed("snap-1".into()), wanted.failed()] {
        journal.steps.end(&ended, ()).await.unwrap();
    }
    let spec = json!({ "backupName": "b", "backupUID": "u", "location": "only",
        "persistentVolumeName": "pv", "providerVolumeID": "vol-1", "volumeType": "fast" });
    let completed = json!({ "providerSnapshotID": "snap-1", "phase": "Completed" });
    let expected = [
        json!({ "snapshotBegun": { "spec": spec, "status": { "phase": "New" } } }),
        json!({ "snapshotEnded": { "spec": spec, "status": completed } }),
        json!({ "snapshotEnded": { "spec": spec, "status": { "phase": "Failed" } } }),
    ];
    assert_eq!(notes.all(), expected);
    let phases = [
        Some(SnapshotPhase::New),
        Some(SnapshotPhase::Completed),
        None,
    ];
    for (at, phase) in phases.into_iter().enumerate() {
        let prior = prior_snapshots(&expected[..=at]).unwrap();
        assert_eq!(prior.get("pv").map(|one| one.status.phase.clone()), phase);
    }
}

#[test]
fn an_undecodable_entry_is_an_error() {
    let found = [json!({ "snapshotBegun": { "spec": 1 } })];
    assert!(SnapshotJournal::take_over(Arc::new(MemoryJournal::default()), &found).is_err());
    assert!(
        prior_snapshots(&[json!({ "hooksCompleted": "x" })])
            .unwrap()
            .is_empty()
    );
}
