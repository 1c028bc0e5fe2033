//! Outcomes of the data of volumes.

use backup_core::volume_data::MissingData;

use super::*;

#[tokio::test]
async fn what_became_of_the_data_of_each_volume_is_told() {
    let volume = |name: &str, policy: &str| {
        let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
            "spec": {"persistentVolumeReclaimPolicy": policy, "claimRef": {"namespace": "a", "name": name}}});
        ("persistentvolumes", None, volume)
    };
    let claim = |name: &str| {
        let mut claim = item("v1", "PersistentVolumeClaim", name);
        claim["spec"] = json!({"volumeName": name});
        ("persistentvolumeclaims", Some("a"), claim)
    };
    let record = |claim: &str, more: Value| {
        let mut record = json!({"pvcNamespace": "a", "pvcName": claim, "pvName": claim});
        json_patch::merge(&mut record, &more);
        VolumeInfo::of(&record).unwrap()
    };
    let names = ["kept", "skipped", "lost", "filed", "there"];
    let mut items: Vec<_> = names.iter().map(|name| claim(name)).collect();
    items.extend(
        names
            .iter()
            .map(|name| volume(name, if *name == "kept" { "Retain" } else { "Delete" })),
    );
    items.push(volume("also-filed", "Retain"));
    items.push(claim("also-filed"));
    let records = vec![
        record(
            "skipped",
            json!({"skipped": true, "skippedReason": "no class"}),
        ),
        record("lost", json!({"backupMethod": "CSISnapshot"})),
        record("there", json!({"backupMethod": "CSISnapshot"})),
        record("filed", json!({"backupMethod": "PodVolumeBackup"})),
        record("also-filed", json!({"backupMethod": "PodVolumeBackup"})),
    ];
    for (volumes, warnings, errors) in [(true, 1, 3), (false, 0, 0)] {
        let fake = fake::server();
        fake.put(
            "/api/v1/namespaces/a/persistentvolumeclaims/there",
            claim("there").2,
        );
        let (claimed, calls) = (Footprint::everything(), fake::calls(&fake));
        let records = if volumes { records.clone() } else { Vec::new() };
        let saved = SavedVolumes {
            records,
            in_repository: Vec::new(),
        };
        let world = World {
            saved,
            ..World::new(&fake, &calls, &claimed)
        };
        let (report, done) = world.run(&items, json!({"restorePVs": volumes})).await;
        done.unwrap();
        let files = report.into_files();
        let missing =
            MissingData::of(&files.volume_info).map(|data| data.volumes.into_keys().collect());
        let expected = ["a/also-filed", "a/filed", "a/lost", "a/skipped"]
            .map(str::to_owned)
            .to_vec();
        assert_eq!(
            missing,
            volumes.then_some(expected),
            "{:?}",
            files.volume_info
        );
        let told = |list: &[String]| {
            list.iter()
                .filter(|text| !text.contains("exists and differs"))
                .count()
        };
        let of = |results: &std::collections::BTreeMap<String, Vec<String>>| {
            told(results.get("a").map_or(&[], Vec::as_slice))
        };
        assert_eq!(
            of(&files.results.warnings.namespaces),
            warnings,
            "{:?}",
            files.results
        );
        assert_eq!(
            of(&files.results.errors.namespaces),
            errors,
            "{:?}",
            files.results
        );
        if volumes {
            let text = serde_json::to_string(&files.results).unwrap();
            for sentence in [
                "claim \\\"skipped\\\" comes back empty: nothing of it was saved (no class)",
                "the data of claim \\\"lost\\\"",
            ] {
                assert_says!(text, sentence);
            }
        }
        assert!(fake.get("/api/v1/persistentvolumes/kept").is_some());
        assert_eq!(
            fake.get("/api/v1/persistentvolumes/also-filed").is_some(),
            !volumes,
            "its files are elsewhere"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_is_provisioned_anew_gets_what_the_old_one_had() {
    let mut claim = item("v1", "PersistentVolumeClaim", "data");
    claim["spec"] = json!({"volumeName": "old"});
    let items = [("persistentvolumeclaims", Some("a"), claim)];
    let record = json!({"pvcNamespace": "a", "pvcName": "data", "pvName": "old", "skipped": true,
        "pvInfo": {"reclaimPolicy": "Retain", "labels": {"team": "shop", "zone": "old"}}});
    for bound in [true, false] {
        let fake = fake::server();
        let (claimed, calls) = (Footprint::everything(), fake::calls(&fake));
        let saved = SavedVolumes {
            records: vec![VolumeInfo::of(&record).unwrap()],
            in_repository: Vec::new(),
        };
        let world = World {
            saved,
            ..World::new(&fake, &calls, &claimed)
        };
        let binds = async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            if bound {
                let volume = json!({"metadata": {"name": "new", "labels": {"zone": "new"}},
                    "spec": {"persistentVolumeReclaimPolicy": "Delete"}});
                fake.put("/api/v1/persistentvolumes/new", volume);
                fake.edit(
                    "/api/v1/namespaces/a/persistentvolumeclaims/data",
                    |claim| {
                        claim["spec"]["volumeName"] = json!("new");
                        claim["status"] = json!({"phase": "Bound"});
                    },
                );
            }
        };
        let ((report, done), ()) = futures::join!(world.run(&items, json!({})), binds);
        done.unwrap();
        // An empty volume is always reported.
        assert_eq!(report.counts(), (if bound { 1 } else { 2 }, 0));
        if bound {
            let volume = fake.get("/api/v1/persistentvolumes/new").unwrap();
            assert_eq!(volume["spec"]["persistentVolumeReclaimPolicy"], "Retain");
            assert_eq!(
                volume["metadata"]["labels"],
                json!({"team": "shop", "zone": "new"})
            );
        }
    }
}

const DOWNLOADS: &str = "/apis/velero.io/v2alpha1/namespaces/velero/datadownloads/";
const CLAIMS: &str = "/api/v1/namespaces/a/persistentvolumeclaims";

/// A claim whose data our data mover has put into the repository.
fn moved_claim() -> Value {
    let mut claim = item("v1", "PersistentVolumeClaim", "data");
    claim["metadata"]["namespace"] = json!("a");
    claim["spec"] = json!({"volumeName": "old"});
    claim
}

fn moved() -> SavedVolumes {
    let record = json!({"pvcNamespace": "a", "pvcName": "data", "pvName": "old", "backupMethod": "CSISnapshot",
        "snapshotDataMoved": true, "result": "succeeded",
        "snapshotDataMovementInfo": {"dataMover": "backup-mover", "snapshotHandle": "k1", "size": 7}});
    SavedVolumes {
        records: vec![VolumeInfo::of(&record).unwrap()],
        in_repository: Vec::new(),
    }
}

/// The reason for which the data of the claim is missing.
fn missing(report: Report) -> Option<String> {
    let data = MissingData::of(&report.into_files().volume_info)?;
    assert_eq!((data.missing, data.of), (1, 1));
    data.volumes.get("a/data").cloned()
}

#[tokio::test]
async fn moved_data_comes_by_a_download_which_is_an_operation() {
    let items = [("persistentvolumeclaims", Some("a"), moved_claim())];
    for (is_there, has_mover, expected, errors, why) in [
        (false, true, 1, 0, None),
        (true, true, 0, 0, Some("was there already")),
        (false, false, 0, 1, Some("--mover-image")),
    ] {
        let fake = fake::server();
        if is_there {
            fake.put(&format!("{CLAIMS}/data"), moved_claim());
        }
        let (claimed, calls) = (Footprint::everything(), fake::calls(&fake));
        let world = World {
            saved: moved(),
            has_mover,
            ..World::new(&fake, &calls, &claimed)
        };
        let (report, done) = world.run(&items, json!({})).await;
        let started = done.unwrap();
        assert_eq!(started.len(), expected, "{why:?}");
        let downloads = fake.under(DOWNLOADS);
        assert_eq!(downloads.len(), expected, "{why:?}");
        let claim = fake.get(&format!("{CLAIMS}/data")).unwrap();
        if let Some(download) = downloads.values().next() {
            let name = &download["metadata"]["name"];
            assert_eq!(&claim["spec"]["dataSourceRef"]["name"], name);
            assert_eq!(started[0].1.executed.operation.as_deref(), name.as_str());
        }
        assert_eq!(report.counts().1, errors, "{why:?}");
        let found = missing(report);
        assert_eq!(found.is_some(), why.is_some(), "{found:?}");
        assert_says!(found.unwrap_or_default(), why.unwrap_or_default());
    }
}

#[tokio::test]
async fn moved_data_is_restored_into_a_claim_that_exists_if_the_spec_says_so() {
    let items = [("persistentvolumeclaims", Some("a"), moved_claim())];
    for (policy, expected) in [("none", 0), ("full", 1)] {
        let fake = fake::server();
        fake.put(&format!("{CLAIMS}/data"), moved_claim());
        let before = fake.get(&format!("{CLAIMS}/data"));
        let (claimed, calls) = (Footprint::everything(), fake::calls(&fake));
        let world = World {
            saved: moved(),
            ..World::new(&fake, &calls, &claimed)
        };
        let spec = json!({"existingVolumeDataPolicy": policy});
        let (report, done) = world.run(&items, spec).await;
        assert_eq!(done.unwrap().len(), expected, "{policy}");
        let downloads = fake.under(DOWNLOADS);
        assert_eq!(downloads.len(), expected, "{policy}");
        for download in downloads.values() {
            assert_eq!(download["spec"]["targetVolume"]["pv"], "old");
            assert_eq!(download["spec"]["cancel"], Value::Null, "it goes on");
        }
        assert_eq!(fake.get(&format!("{CLAIMS}/data")), before, "{policy}");
        assert_eq!(missing(report).is_none(), expected == 1, "{policy}");
    }
}

/// A restore learns so from its DataDownload; a plan has none.
#[tokio::test]
async fn a_plan_names_the_pods_that_use_a_claim_whose_data_would_be_restored_in_place() {
    let items = [("persistentvolumeclaims", Some("a"), moved_claim())];
    for (policy, user, expected) in [
        ("full", None, None),
        ("full", Some(("Running", false)), Some("is used by web: ")),
        ("full", Some(("Running", true)), None),
        ("full", Some(("Succeeded", false)), None),
        ("none", Some(("Running", false)), None),
    ] {
        let fake = fake::server();
        fake.put("/api/v1/namespaces/a", item("v1", "Namespace", "a"));
        fake.put(&format!("{CLAIMS}/data"), moved_claim());
        if let Some((phase, is_deleting)) = user {
            let mut pod = item("v1", "Pod", "web");
            pod["metadata"]["namespace"] = json!("a");
            if is_deleting {
                pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
            pod["spec"] = json!({"containers": [], "volumes": [
                {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]});
            pod["status"] = json!({"phase": phase});
            fake.put("/api/v1/namespaces/a/pods/web", pod);
        }
        let (claimed, calls) = (Footprint::everything(), fake::dry_calls(&fake));
        let world = World {
            saved: moved(),
            ..World::new(&fake, &calls, &claimed)
        };
        let spec = json!({"existingVolumeDataPolicy": policy});
        let (report, done) = world.run(&items, spec).await;
        done.unwrap();
        let results = serde_json::to_string(&report.into_files().results).unwrap();
        assert_eq!(
            results.contains("is used by"),
            expected.is_some(),
            "{policy} {user:?}: {results}"
        );
        assert_says!(results, expected.unwrap_or_default());
    }
}

#[tokio::test]
async fn the_volume_of_moved_data_gets_the_properties_of_the_old_one() {
    let items = [("persistentvolumeclaims", Some("a"), moved_claim())];
    let fake = fake::server();
    let (claimed, calls) = (Footprint::everything(), fake::calls(&fake));
    let mut saved = moved();
    let properties = json!({"reclaimPolicy": "Retain", "labels": {"team": "shop"}});
    saved.records[0].pv_info = serde_json::from_value(properties.clone()).unwrap();
    let world = World {
        saved,
        ..World::new(&fake, &calls, &claimed)
    };
    let (report, done) = world.run(&items, json!({})).await;
    done.unwrap();
    let results = serde_json::to_string(&report.into_files().results).unwrap();
    assert!(
        !results.contains("reclaim policy"),
        "nothing is left to the user: {results}"
    );
    let downloads = fake.under(DOWNLOADS);
    let download = downloads.values().next().unwrap();
    let annotations = &download["metadata"]["annotations"];
    let stored = annotations["backup-controller/volume-properties"]
        .as_str()
        .unwrap();
    let stored: Value = serde_json::from_str(stored).unwrap();
    assert_eq!(stored, properties);
}

#[tokio::test]
async fn the_download_of_a_claim_that_cannot_be_created_is_stopped() {
    let items = [("persistentvolumeclaims", Some("a"), moved_claim())];
    let fake = fake::faulty(|request| {
        request
            .is("POST", CLAIMS)
            .then(|| Fault::refuse(403, "Forbidden", "no"))
    });
    let (claimed, calls) = (Footprint::everything(), fake::calls(&fake));
    let world = World {
        saved: moved(),
        ..World::new(&fake, &calls, &claimed)
    };
    let (report, done) = world.run(&items, json!({})).await;
    assert!(done.unwrap().is_empty(), "no operation is left");
    let downloads = fake.under(DOWNLOADS);
    assert!(downloads.values().all(|one| one["spec"]["cancel"] == true));
    assert_eq!(downloads.len(), 1);
    assert_eq!(report.counts().1, 1);
    assert_eq!(missing(report).unwrap(), "its claim was not restored");
}

#[tokio::test]
async fn a_dry_run_knows_moved_data_and_makes_no_download() {
    let items = [("persistentvolumeclaims", Some("a"), moved_claim())];
    let fake = fake::server();
    let before = fake.under("/");
    let (claimed, calls) = (Footprint::everything(), fake::dry_calls(&fake));
    let world = World {
        saved: moved(),
        ..World::new(&fake, &calls, &claimed)
    };
    let (report, done) = world.run(&items, json!({})).await;
    assert!(done.unwrap().is_empty());
    assert_eq!(fake.under("/"), before);
    let files = report.into_files();
    assert_eq!(files.volume_info.len(), 1);
    assert_eq!(files.volume_info[0].snapshot_data_moved, Some(true));
    assert_eq!(MissingData::of(&files.volume_info), None);
}
