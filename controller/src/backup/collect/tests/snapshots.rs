//! Snapshots of volumes that plugins take.

use std::{collections::BTreeMap, sync::Arc};

use backup_runtime::leader::Leadership;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    super::Cancellation,
    harness::{Outcome, Setup, cluster, item},
};
use crate::backup::{
    hooks::fake::Kept,
    natives::{Natives, Place, fake::Disks, noted::Noted},
};

fn volume(name: &str, path: &str) -> Value {
    json!({ "metadata": { "name": name }, "spec": { "hostPath": { "path": path },
        "claimRef": { "namespace": "a", "name": name } } })
}

fn claim(name: &str) -> Value {
    let mut claim = item("a", name);
    claim["spec"] = json!({ "volumeName": name });
    claim["status"] = json!({ "phase": "Bound" });
    claim
}

async fn collected(disks: &Arc<Disks>, policy: Option<&str>) -> Outcome {
    let api = cluster()
        .list("/api/v1/persistentvolumeclaims", vec![claim("known"), claim("other")])
        .list("/api/v1/persistentvolumes", vec![volume("known", "/disks/a"), volume("other", "/b")]);
    let api = ["known", "other"].into_iter().fold(api, |api, name| {
        let path = if name == "known" { "/disks/a" } else { "/b" };
        api.object(&format!("/api/v1/persistentvolumes/{name}"), volume(name, path))
            .object(&format!("/api/v1/namespaces/a/persistentvolumeclaims/{name}"), claim(name))
    });
    let places = vec![Place { name: "only".to_owned(), by: Arc::clone(disks) as _ }];
    let noted = Noted::take_over(Arc::new(Kept::default()), &[]).unwrap();
    let policy = policy.map(|text| {
        backup_core::resource_policy::read(&BTreeMap::from([("p".to_owned(), text.to_owned())])).unwrap()
    });
    let bring = super::actions::action("x/volume", "persistentvolumeclaims", |claim| {
        let name = claim["spec"]["volumeName"].as_str().unwrap().to_owned();
        let volume =
            backup_actions::ItemId { group_resource: "persistentvolumes".into(), namespace: None, name };
        Ok(backup_actions::backup::BackupActionOutput { additional: vec![volume], ..Default::default() })
    });
    let setup = Setup {
        spec: json!({ "includedResources": ["persistentvolumeclaims", "persistentvolumes"] }),
        api,
        actions: vec![bring],
        natives: Some(Natives::new(places, noted, false, Arc::default())),
        policy,
        ..Setup::default()
    };
    setup.collect(&Cancellation::new(Leadership::always(), CancellationToken::new())).await
}

#[tokio::test]
async fn a_volume_is_snapshotted_once_and_written_whatever_comes_of_it() {
    for fails in [false, true] {
        let disks = Arc::new(Disks::new("/disks/"));
        disks.wrong.lock().unwrap().extend(fails.then_some(false));
        let outcome = collected(&disks, None).await;
        assert_eq!(disks.asked().len(), 1, "{:?}", disks.asked());
        assert_eq!(outcome.names()[..2], ["persistentvolumes/known", "persistentvolumeclaims/a/known"]);
        assert_eq!(outcome.errors.len(), usize::from(fails), "{:?}", outcome.errors);
        assert_eq!(outcome.result.unwrap().bound_claims, 2);
    }
}

#[tokio::test]
async fn a_policy_that_asks_for_snapshots_is_followed_where_a_plugin_takes_them() {
    let disks = Arc::new(Disks::new("/disks/"));
    let policy = "version: v1\nvolumePolicies:\n- conditions: {}\n  action: { type: snapshot }\n";
    let outcome = collected(&disks, Some(policy)).await;
    assert_eq!(disks.asked().len(), 1);
    // Only the other one is missed.
    assert!(outcome.errors[0].contains("a/other") && outcome.errors.len() == 1, "{:?}", outcome.errors);

    let disks = Arc::new(Disks::new("/disks/"));
    let policy = "version: v1\nvolumePolicies:\n- conditions: {}\n  action: { type: skip }\n";
    let volumes = collected(&disks, Some(policy)).await;
    assert!(volumes.errors.is_empty(), "{:?}", volumes.errors);
}
