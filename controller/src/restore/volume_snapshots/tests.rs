use std::{sync::Arc, time::Duration};

use backup_actions::restore::RestoreRules;
use backup_core::snapshot::VolumeSnapshotSpec;
use serde_json::json;

use super::*;
use crate::{
    backup::volume_snapshots::tests::fake::Disks,
    job::journal::MemoryJournal,
    restore::tests::fake::{self, FakeApi},
};

/// No snapshots.
pub(in crate::restore) fn none() -> Snapshots {
    Snapshots::new(
        vec![],
        Snapshotters::new(),
        "uid",
        resume(&MemoryJournal::default()),
    )
}

fn resume(journal: &MemoryJournal) -> VolumeJournal {
    VolumeJournal::take_over(Arc::new(journal.clone()), &journal.all()).unwrap()
}

const VOLUMES: &str = "/api/v1/persistentvolumes";

fn snapshot(volume: &str) -> VolumeSnapshot {
    let spec = VolumeSnapshotSpec {
        location: "only".into(),
        persistent_volume_name: volume.into(),
        volume_type: "fast".into(),
        volume_az: "z".into(),
        volume_iops: Some(3000),
        ..VolumeSnapshotSpec::default()
    };
    VolumeSnapshot::new(spec).completed(format!("snap-{volume}"))
}

fn of(disks: &Arc<Disks>) -> Snapshots {
    resumed(disks, &MemoryJournal::default())
}

/// The snapshots after runs that have written this journal.
fn resumed(disks: &Arc<Disks>, journal: &MemoryJournal) -> Snapshots {
    let only = Ok(Arc::clone(disks) as Arc<dyn VolumeSnapshotter>);
    let all = vec![snapshot("pv"), snapshot("failed").failed()];
    Snapshots::new(
        all,
        [("only".to_owned(), only)].into(),
        "uid",
        resume(journal),
    )
}

fn volume(name: &str) -> Object {
    let volume = json!({ "metadata": { "name": name }, "spec": { "hostPath": { "path": "/disks/old" },
        "claimRef": { "namespace": "shop", "name": "data" } } });
    volume.as_object().unwrap().clone()
}

fn rules(moved: bool) -> RestoreRules {
    let namespaces = if moved {
        [("shop".to_owned(), "copy".to_owned())].into()
    } else {
        BTreeMap::new()
    };
    RestoreRules {
        namespaces: Arc::new(namespaces),
        restore_label: "r".into(),
        ..RestoreRules::default()
    }
}

fn policy(rules: &RestoreRules) -> Policy<'_> {
    let created = Some("2026-01-01T00:00:00Z");
    Policy {
        rules,
        update: false,
        own: "velero",
        restore_created: created,
        resumed: false,
    }
}

async fn restored(
    snapshots: &Snapshots,
    fake: &FakeApi,
    rules: &RestoreRules,
) -> Result<Object, String> {
    let restored = snapshots
        .restore(&fake::calls(fake), VOLUMES, volume("pv"), policy(rules))
        .await;
    restored.map_err(|error| match error {
        VolumeError::Failed(reason) => reason,
        error => panic!("{error}"),
    })
}

#[tokio::test]
async fn a_volume_is_made_of_its_snapshot() {
    let (fake, disks) = (fake::server(), Arc::new(Disks::new("/disks/")));
    let snapshots = of(&disks);
    assert_eq!(
        snapshots.volumes().collect::<Vec<_>>(),
        ["pv"],
        "one that failed is as if it were not there"
    );
    let made = restored(&snapshots, &fake, &rules(false)).await.unwrap();
    assert_eq!(made["spec"]["hostPath"]["path"], "/disks/new-of-snap-pv");
    assert_eq!(made["metadata"], json!({ "name": "pv" }));
    assert_eq!(disks.asked(), ["create from snap-pv fast@z 3000"]);
}

#[tokio::test]
async fn an_existing_volume_stays_and_a_moved_one_gets_its_own_name() {
    let (fake, disks) = (fake::server(), Arc::new(Disks::new("/disks/")));
    fake.put(
        &format!("{VOLUMES}/pv"),
        json!({ "metadata": { "name": "pv" } }),
    );
    let same = restored(&of(&disks), &fake, &rules(false)).await.unwrap();
    assert_eq!((same, disks.asked().len()), (volume("pv"), 0));

    let snapshots = of(&disks);
    let copy = restored(&snapshots, &fake, &rules(true)).await.unwrap();
    let name = copy["metadata"]["name"].as_str().unwrap().to_owned();
    assert!(name.starts_with("velero-clone-pv-"), "{name}");
    assert_eq!(
        copy["metadata"]["annotations"],
        json!({ "velero.io/original-pv-name": "pv" })
    );
    assert_eq!(disks.asked().len(), 1);
    let mut claim = json!({ "spec": { "volumeName": "pv" } })
        .as_object()
        .unwrap()
        .clone();
    snapshots.follow(&mut claim);
    assert_eq!(claim["spec"]["volumeName"], name);

    // The volume that an earlier run has created exists under that name.
    fake.put(
        &format!("{VOLUMES}/{name}"),
        json!({ "metadata": { "name": name } }),
    );
    let again = restored(&of(&disks), &fake, &rules(true)).await.unwrap();
    assert_eq!(
        (again["metadata"]["name"].as_str(), disks.asked().len()),
        (Some(name.as_str()), 1)
    );
    // Or under its original name, if that was free.
    let ours = json!({ "metadata": { "name": "pv", "labels": { "velero.io/restore-name": "r" },
        "creationTimestamp": "2026-01-01T00:00:01Z" } });
    fake.put(&format!("{VOLUMES}/pv"), ours);
    let again = restored(&of(&disks), &fake, &rules(true)).await.unwrap();
    assert_eq!((again, disks.asked().len()), (volume("pv"), 1));
    // A volume that another claim has by now stays with it, even without a mapping.
    let held = json!({ "metadata": { "name": "pv" }, "status": { "phase": "Bound" },
        "spec": { "claimRef": { "namespace": "third", "name": "other" } } });
    fake.put(&format!("{VOLUMES}/pv"), held);
    let beside = restored(&of(&disks), &fake, &rules(false)).await.unwrap();
    assert_eq!(beside["metadata"]["name"], name);
}

#[tokio::test]
async fn a_volume_of_unknown_outcome_is_not_created_again() {
    let (fake, disks) = (fake::server(), Arc::new(Disks::new("/disks/")));
    *disks.wrong.lock() = vec![true, false];
    let refused = restored(&of(&disks), &fake, &rules(false))
        .await
        .unwrap_err();
    assert!(
        refused.contains("no space") && !refused.contains("not known"),
        "{refused}"
    );
    let journal = MemoryJournal::default();
    for _ in 0..2 {
        let unknown = restored(&resumed(&disks, &journal), &fake, &rules(false))
            .await
            .unwrap_err();
        assert_says!(unknown, "is not known", "snap-pv");
    }
    assert_eq!(
        disks.asked().len(),
        2,
        "a run that is taken up does not ask again"
    );

    let missing = [("only".to_owned(), Err("no plugin".to_owned()))].into();
    let nobody = Snapshots::new(
        vec![snapshot("pv")],
        missing,
        "uid",
        resume(&MemoryJournal::default()),
    );
    assert_eq!(
        restored(&nobody, &fake, &rules(false)).await.unwrap_err(),
        "no plugin"
    );
}

#[tokio::test]
async fn a_takeover_creates_what_was_not_begun_and_uses_the_rest() {
    let (fake, disks, journal) = (
        fake::server(),
        Arc::new(Disks::new("/disks/")),
        MemoryJournal::default(),
    );
    *disks.wrong.lock() = vec![false];
    for (asked, works) in [(1, false), (2, true), (2, true)] {
        let made = restored(&resumed(&disks, &journal), &fake, &rules(false)).await;
        assert_eq!(
            (made.is_ok(), disks.asked().len()),
            (works, asked),
            "{made:?}"
        );
        assert!(
            made.is_err() || made.unwrap()["spec"]["hostPath"]["path"] == "/disks/new-of-snap-pv"
        );
    }
    let nonsense = [json!({ "volumeEnded": "pv" })];
    assert!(VolumeJournal::take_over(Arc::new(MemoryJournal::default()), &nonsense).is_err());
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_is_going_away_is_waited_for() {
    let (fake, disks) = (fake::server(), Arc::new(Disks::new("/disks/")));
    let going =
        json!({ "metadata": { "name": "pv", "deletionTimestamp": "2026-01-01T00:00:00Z" } });
    fake.put(&format!("{VOLUMES}/pv"), going);
    let stays = restored(&of(&disks), &fake, &rules(false))
        .await
        .unwrap_err();
    assert!(
        stays.contains("finalizers") && disks.asked().is_empty(),
        "{stays}"
    );
    let gone = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        fake.delete(&format!("{VOLUMES}/pv"));
    };
    let (snapshots, rules) = (of(&disks), rules(false));
    let (made, ()) = futures::join!(restored(&snapshots, &fake, &rules), gone);
    assert!(made.is_ok() && disks.asked().len() == 1);
}

/// A volume that a user has kept is left unchanged; the data of the backup is restored beside it.
#[tokio::test(start_paused = true)]
async fn a_volume_whose_claim_is_gone_does_not_keep_its_snapshot_from_being_used() {
    for (policy, goes) in [("Retain", false), ("Delete", false), ("Delete", true)] {
        let (fake, disks) = (fake::server(), Arc::new(Disks::new("/disks/")));
        let released = json!({ "metadata": { "name": "pv" }, "status": { "phase": "Released" },
            "spec": { "persistentVolumeReclaimPolicy": policy, "claimRef": { "uid": "old" } } });
        fake.put(&format!("{VOLUMES}/pv"), released);
        let gone = async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            if goes {
                fake.delete(&format!("{VOLUMES}/pv"));
            }
        };
        let (snapshots, rules) = (of(&disks), rules(false));
        let (made, ()) = futures::join!(restored(&snapshots, &fake, &rules), gone);
        let made = made.unwrap();
        assert_eq!(made["metadata"]["name"] == "pv", goes, "{policy}");
        assert_eq!(made["spec"]["hostPath"]["path"], "/disks/new-of-snap-pv");
    }
}
