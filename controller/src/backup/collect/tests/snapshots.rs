//! Snapshots of volumes that plugins take.

use std::{sync::Arc, time::Duration};

use backup_actions::backup::BackupActionOutput;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::harness::{self, Outcome, Setup, bound_claim, cluster, frozen, id, item};
use crate::{
    backup::volume_snapshots::{
        SnapshotJournal, SnapshotLocation, VolumeSnapshots, tests::fake::Disks,
    },
    hooks::tests::fake::FakePods,
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
        .with_list(
            "/api/v1/persistentvolumeclaims",
            vec![claim("known"), claim("other")],
        )
        .with_list(
            "/api/v1/persistentvolumes",
            vec![volume("known", "/disks/a"), volume("other", "/b")],
        );
    let spec = json!({ "includedResources": ["persistentvolumeclaims", "persistentvolumes"] });
    let setup = Setup {
        spec,
        api,
        policy: policy.map(harness::policy),
        ..with_disks(disks)
    };
    setup.collect().await
}

/// Claims bring their volumes, and `disks` snapshot them.
fn with_disks(disks: &Arc<Disks>) -> Setup {
    let locations = vec![SnapshotLocation {
        name: "only".to_owned(),
        snapshotter: Arc::clone(disks) as _,
    }];
    let journal = SnapshotJournal::take_over(Arc::new(MemoryJournal::default()), &[]).unwrap();
    let with_volume = super::actions::action("x/volume", "persistentvolumeclaims", |claim| {
        let volume = id(
            "persistentvolumes",
            "",
            claim["spec"]["volumeName"].as_str().unwrap(),
        );
        Ok(BackupActionOutput {
            additional: vec![volume],
            ..Default::default()
        })
    });
    Setup {
        actions: vec![with_volume],
        volume_snapshots: Some(VolumeSnapshots::new(
            locations,
            journal,
            false,
            Arc::default(),
        )),
        ..Setup::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_snapshotted_once_and_written_in_any_case() {
    for fails in [false, true] {
        let disks = Arc::new(Disks::new("/disks/"));
        disks.wrong.lock().extend(fails.then_some(false));
        let outcome = collected(&disks, None).await;
        assert_eq!(disks.asked().len(), 1, "{:?}", disks.asked());
        assert_eq!(
            outcome.names()[..2],
            ["persistentvolumes/known", "persistentvolumeclaims/a/known"]
        );
        assert_eq!(
            outcome.errors.len(),
            usize::from(fails),
            "{:?}",
            outcome.errors
        );
        assert_eq!(outcome.result.unwrap().bound_claims, 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_policy_for_snapshots_is_followed_where_a_plugin_takes_them() {
    let disks = Arc::new(Disks::new("/disks/"));
    let policy = "- conditions: {}\n  action: { type: snapshot }\n";
    let outcome = collected(&disks, Some(policy)).await;
    assert_eq!(disks.asked().len(), 1);
    // Only the other claim is missing.
    assert!(
        outcome.errors[0].contains("a/other") && outcome.errors.len() == 1,
        "{:?}",
        outcome.errors
    );

    let disks = Arc::new(Disks::new("/disks/"));
    let policy = "- conditions: {}\n  action: { type: skip }\n";
    let volumes = collected(&disks, Some(policy)).await;
    assert!(volumes.errors.is_empty(), "{:?}", volumes.errors);
}

fn with_claims(mut pod: Value, claims: &[&str]) -> Value {
    let volume = |name| json!({ "persistentVolumeClaim": { "claimName": name } });
    pod["spec"]["volumes"] = claims.iter().map(volume).collect();
    pod
}

/// Twelve volumes: two of one pod, one of a pod with commands, eight of claims, one without a claim
/// in the backup; four concurrent blocks.
#[tokio::test(start_paused = true)]
async fn snapshots_by_plugins_are_taken_side_by_side_and_between_the_commands_of_their_pods() {
    let takes = Duration::from_secs(10);
    let disks = Arc::new(Disks {
        takes,
        ..Disks::new("/disks/")
    });
    let names: Vec<_> = (0..12).map(|number| format!("v{number:02}")).collect();
    let pods = vec![
        with_claims(item("a", "a-plain"), &["v00", "v01"]),
        with_claims(frozen("hooked"), &["v02"]),
    ];
    let volumes = names
        .iter()
        .map(|name| volume(name, &format!("/disks/{name}")))
        .collect();
    let setup = Setup {
        spec: json!({ "includedResources": ["pods", "persistentvolumeclaims", "persistentvolumes"] }),
        api: cluster()
            .with_list("/api/v1/pods", pods)
            .with_list(
                "/api/v1/persistentvolumeclaims",
                names[..11].iter().map(|name| claim(name)).collect(),
            )
            .with_list("/api/v1/persistentvolumes", volumes),
        pods: Arc::new(FakePods::running(&["hooked"])),
        blocks: Some(Vec::new()),
        page_size: Some(20),
        ..with_disks(&disks)
    };
    let started = Instant::now();
    let outcome = setup.collect().await;
    assert!(outcome.errors.is_empty(), "{:?}", outcome.errors);
    assert_eq!(outcome.result.as_ref().unwrap().snapshots.len(), 12);
    // Two volumes of the first pod in sequence, then the volume of the other pod; eight claims,
    // four at a time, and the last volume.
    assert_eq!(started.elapsed(), (2 + 1 + 2 + 1) * takes);
    let asked = disks.asked();
    assert_eq!(asked.len(), 12, "{asked:?}");
    let at = |name: &str| {
        asked
            .iter()
            .position(|line| line.starts_with(&format!("snapshot {name}@")))
            .unwrap()
    };
    assert!(
        at("v00") < at("v01") && at("v01") < at("v02") && at("v02") < at("v03"),
        "{asked:?}"
    );
    assert_eq!(outcome.names().len(), 2 + 11 + 12);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_snapshotted_ahead_for_volumes_that_are_left_out() {
    let disks = Arc::new(Disks::new("/disks/"));
    let mut excluded = volume("excluded", "/disks/excluded");
    excluded["metadata"]["labels"] = json!({ "velero.io/exclude-from-backup": "true" });
    let api = cluster()
        .with_list(
            "/api/v1/persistentvolumeclaims",
            vec![claim("excluded"), claim("other")],
        )
        .with_list(
            "/api/v1/persistentvolumes",
            vec![excluded, volume("other", "/disks/other")],
        );
    for (include, asked) in [(json!(null), 1), (json!(false), 0)] {
        let spec = json!({ "includedNamespaces": ["a"], "includeClusterResources": include });
        let outcome = Setup {
            spec,
            api: api.clone(),
            ..with_disks(&disks)
        }
        .collect()
        .await;
        assert_eq!(
            disks.asked().len(),
            asked,
            "{:?} {:?}",
            disks.asked(),
            outcome.errors
        );
        disks.asked.lock().clear();
    }
}
