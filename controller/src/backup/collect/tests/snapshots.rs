//! Snapshots of volumes that plugins take.

use std::sync::Arc;

use backup_actions::backup::BackupActionOutput;
use serde_json::{Value, json};

use super::harness::{self, Outcome, Setup, bound_claim, cluster, id};
use crate::{
    backup::volume_snapshots::{SnapshotJournal, SnapshotLocation, VolumeSnapshots, fake::Disks},
    job::journal::MemoryJournal,
};

fn volume(name: &str, path: &str) -> Value {
    json!({ "metadata": { "name": name }, "spec": { "hostPath": { "path": path },
        "claimRef": { "namespace": "a", "name": name } } })
}

fn claim(name: &str) -> Value {
    bound_claim(name, name)
}

async fn collected(disks: &Arc<Disks>, policy: Option<&str>) -> Outcome {
    let api = cluster()
        .with_list("/api/v1/persistentvolumeclaims", vec![claim("known"), claim("other")])
        .with_list("/api/v1/persistentvolumes", vec![volume("known", "/disks/a"), volume("other", "/b")]);
    let locations = vec![SnapshotLocation { name: "only".to_owned(), snapshotter: Arc::clone(disks) as _ }];
    let journal = SnapshotJournal::take_over(Arc::new(MemoryJournal::default()), &[]).unwrap();
    let with_volume = super::actions::action("x/volume", "persistentvolumeclaims", |claim| {
        let volume = id("persistentvolumes", "", claim["spec"]["volumeName"].as_str().unwrap());
        Ok(BackupActionOutput { additional: vec![volume], ..Default::default() })
    });
    let setup = Setup {
        spec: json!({ "includedResources": ["persistentvolumeclaims", "persistentvolumes"] }),
        api,
        actions: vec![with_volume],
        volume_snapshots: Some(VolumeSnapshots::new(locations, journal, false, Arc::default())),
        policy: policy.map(harness::policy),
        ..Setup::default()
    };
    setup.collect().await
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_snapshotted_once_and_written_in_any_case() {
    for fails in [false, true] {
        let disks = Arc::new(Disks::new("/disks/"));
        disks.wrong.lock().extend(fails.then_some(false));
        let outcome = collected(&disks, None).await;
        assert_eq!(disks.asked().len(), 1, "{:?}", disks.asked());
        assert_eq!(outcome.names()[..2], ["persistentvolumes/known", "persistentvolumeclaims/a/known"]);
        assert_eq!(outcome.errors.len(), usize::from(fails), "{:?}", outcome.errors);
        assert_eq!(outcome.result.unwrap().bound_claims, 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_policy_for_snapshots_is_followed_where_a_plugin_takes_them() {
    let disks = Arc::new(Disks::new("/disks/"));
    let policy = "- conditions: {}\n  action: { type: snapshot }\n";
    let outcome = collected(&disks, Some(policy)).await;
    assert_eq!(disks.asked().len(), 1);
    // Only the other one is missed.
    assert!(outcome.errors[0].contains("a/other") && outcome.errors.len() == 1, "{:?}", outcome.errors);

    let disks = Arc::new(Disks::new("/disks/"));
    let policy = "- conditions: {}\n  action: { type: skip }\n";
    let volumes = collected(&disks, Some(policy)).await;
    assert!(volumes.errors.is_empty(), "{:?}", volumes.errors);
}
