//! Links to objects that another application may hold, and controllers that create objects again.

use super::*;

const PV: &str = "/api/v1/persistentvolumes/pv";
const CLAIM: &str = "/api/v1/namespaces/copy/persistentvolumeclaims/data";

fn kept_volume(claim: &str, phase: &str) -> Value {
    let mut volume = item("v1", "PersistentVolume", "pv");
    let (namespace, name) = claim.split_once('/').unwrap();
    volume["spec"] = json!({"persistentVolumeReclaimPolicy": "Retain",
        "claimRef": {"namespace": namespace, "name": name, "uid": "u"}});
    volume["status"] = json!({"phase": phase});
    volume
}

fn claim_of_volume() -> Value {
    let mut claim = item("v1", "PersistentVolumeClaim", "data");
    claim["spec"] = json!({"volumeName": "pv"});
    claim
}

fn copied(update: bool) -> Value {
    let policy = if update { "update" } else { "none" };
    json!({"namespaceMapping": {"a": "copy"}, "existingResourcePolicy": policy, "includeClusterResources": true})
}

#[tokio::test]
async fn a_claim_whose_volume_another_claim_holds_is_an_error_that_says_whose_it_is() {
    let items = [
        ("persistentvolumeclaims", Some("a"), claim_of_volume()),
        ("persistentvolumes", None, kept_volume("a/data", "Bound")),
    ];
    for (update, held) in [(false, "a/data"), (true, "a/data"), (true, "third/other")] {
        let fake = fake::server();
        fake.put(PV, kept_volume(held, "Bound"));
        let report = restored_in(&fake, &items, copied(update)).await;
        assert_eq!(report.counts(), (1, 1), "update: {update}");
        assert_eq!(
            fake.get(PV).unwrap()["spec"],
            kept_volume(held, "Bound")["spec"]
        );
        assert!(fake.get(CLAIM).is_none());
        let files = report.into_files();
        let text = serde_json::to_string(&files.results).unwrap();
        assert_says!(text, &format!("belongs to claim {held}, and two claims"));
        assert_eq!(
            text.matches("existingResourcePolicy").count(),
            1,
            "only after the claim was deleted: {text}"
        );
        let missing = backup_core::volume_data::MissingData::of(&files.volume_info).unwrap();
        assert_eq!(
            missing.volumes["copy/data"],
            format!("its volume belongs to claim {held}")
        );
    }
    // An existing claim keeps its volume.
    let fake = fake::server();
    fake.put(PV, kept_volume("a/data", "Bound"));
    let mut existing = claim_of_volume();
    existing["spec"] = json!({"volumeName": "own"});
    fake.put(CLAIM, existing.clone());
    let report = restored_in(&fake, &items, copied(true)).await;
    assert_eq!(
        report.counts(),
        (2, 0),
        "the volume, and the data of the claim"
    );
    assert_eq!(fake.get(CLAIM).unwrap()["spec"], existing["spec"]);
}

#[tokio::test]
async fn a_claim_gets_a_volume_that_is_free_or_its_own() {
    let items = [
        ("persistentvolumeclaims", Some("a"), claim_of_volume()),
        ("persistentvolumes", None, kept_volume("a/data", "Bound")),
    ];
    for (there, update, warnings) in [
        (None, false, 0),
        (Some(("copy/data", "Bound")), false, 0),
        (Some(("a/data", "Released")), true, 0),
    ] {
        let fake = fake::server();
        if let Some((holder, phase)) = there {
            fake.put(PV, kept_volume(holder, phase));
        }
        let report = restored_in(&fake, &items, copied(update)).await;
        assert_eq!(
            report.counts(),
            (warnings, 0),
            "{there:?}: {:?}",
            report.into_files().results
        );
        assert_eq!(
            fake.get(PV).unwrap()["spec"]["claimRef"]["namespace"],
            "copy"
        );
        assert_eq!(fake.get(CLAIM).unwrap()["spec"]["volumeName"], "pv");
    }
    // Without its volume the claim waits, which is reported.
    let spec =
        json!({"namespaceMapping": {"a": "copy"}, "excludedResources": ["persistentvolumes"]});
    let (fake, report) = restored(&items, spec).await;
    assert!(fake.get(CLAIM).is_some());
    let results = report.into_files().results;
    assert_says!(
        results.warnings.namespaces["copy"][0],
        "waits for volume \"pv\""
    );
}

#[tokio::test]
async fn what_serves_the_original_of_a_copy_stays_with_it_while_that_is_there() {
    let binding = |namespace: &str| {
        let mut binding = item("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "app");
        binding["subjects"] =
            json!([{"kind": "ServiceAccount", "name": "app", "namespace": namespace}]);
        binding
    };
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/app";
    let items = [
        (
            "clusterrolebindings.rbac.authorization.k8s.io",
            None,
            binding("a"),
        ),
        stored_item("configmaps", "v1 ConfigMap", "a/c"),
    ];
    for (there, update, expected, warned) in [
        (true, false, "a", "serves namespace \"a\""),
        (true, true, "a", "serves namespace \"a\""),
        (
            false,
            false,
            "a",
            "existingResourcePolicy: update changes what",
        ),
        (false, true, "copy", ""),
    ] {
        let fake = fake::server();
        fake.put(path, binding("a"));
        if there {
            fake.put("/api/v1/namespaces/a", item("v1", "Namespace", "a"));
        }
        let report = restored_in(&fake, &items, copied(update)).await;
        assert_eq!(
            fake.get(path).unwrap()["subjects"][0]["namespace"],
            expected,
            "{there} {update}"
        );
        let warnings = report.into_files().results.warnings.cluster.join("; ");
        assert!(
            warnings.contains(warned) && warnings.is_empty() == warned.is_empty(),
            "{warnings}"
        );
        assert!(
            !there || !warnings.contains("existingResourcePolicy"),
            "{warnings}"
        );
    }
}

fn owned(mut object: Value, api_version: &str, kind: &str, name: &str, uid: &str) -> Value {
    object["metadata"]["ownerReferences"] = json!([{"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": true}]);
    object
}

#[tokio::test]
async fn a_resource_claim_of_a_template_is_left_to_its_pod() {
    let items = [
        stored_item("pods", "v1 Pod", "a/p"),
        (
            "resourceclaims.resource.k8s.io",
            Some("a"),
            owned(
                item("resource.k8s.io/v1", "ResourceClaim", "p-g-x7x7x"),
                "v1",
                "Pod",
                "p",
                "old",
            ),
        ),
        stored_item(
            "resourceclaims.resource.k8s.io",
            "resource.k8s.io/v1 ResourceClaim",
            "a/of-a-user",
        ),
    ];
    let claims = "/apis/resource.k8s.io/v1/namespaces/a/resourceclaims/";
    let (fake, report) = restored(&items, json!({})).await;
    assert_eq!(
        fake.under(claims).into_keys().collect::<Vec<_>>(),
        [format!("{claims}of-a-user")]
    );
    assert_eq!(report.left_out_sentences().len(), 1);
    assert_eq!(report.counts(), (0, 0));
    // Without its pod it is restored, and that is reported.
    let (fake, report) = restored(
        &items,
        json!({"includedResources": ["resourceclaims.resource.k8s.io"]}),
    )
    .await;
    assert_eq!(fake.under(claims).len(), 2);
    assert_eq!(report.counts(), (1, 0));
}

/// Objects that do not follow a mapping are named with their fields; links to other namespaces are
/// not reported.
#[tokio::test]
async fn a_link_into_a_mapped_namespace_that_does_not_follow_is_named() {
    let mut class = item("networking.k8s.io/v1", "IngressClass", "ic");
    class["spec"] = json!({"parameters": {"kind": "Settings", "name": "s", "namespace": "a", "scope": "Namespace"}});
    let mut elsewhere = class.clone();
    elsewhere["metadata"]["name"] = json!("other");
    elsewhere["spec"]["parameters"]["namespace"] = json!("b");
    let mut policy = item("networking.k8s.io/v1", "NetworkPolicy", "np");
    let peer = |values: Value| json!({"from": [{"namespaceSelector": {"matchLabels": values}}]});
    let name = "kubernetes.io/metadata.name";
    policy["spec"] = json!({"ingress": [peer(json!({name: "a"})), peer(json!({name: "b"}))]});
    let classes = "ingressclasses.networking.k8s.io";
    let items = [
        (classes, None, class.clone()),
        (classes, None, elsewhere),
        (
            "networkpolicies.networking.k8s.io",
            Some("a"),
            policy.clone(),
        ),
    ];
    let (fake, report) = restored(&items, copied(false)).await;
    let stored = fake
        .get("/apis/networking.k8s.io/v1/namespaces/copy/networkpolicies/np")
        .unwrap();
    assert_eq!(
        stored["spec"],
        json!({"ingress": [peer(json!({name: "copy"})), peer(json!({name: "b"}))]})
    );
    let warnings = report.into_files().results.warnings.cluster;
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    let expected = [
        "IngressClass \"ic\"",
        "spec.parameters.namespace",
        "\"a\"",
        "\"copy\"",
    ];
    assert!(
        expected.iter().all(|part| warnings[0].contains(part)),
        "{warnings:?}"
    );
    // The object is unchanged, so there is nothing to do.
    let report = restored_in(&fake, &items, copied(false)).await;
    assert_eq!(report.counts(), (0, 0), "{:?}", report.into_files().results);
    let (_, report) = restored(&items, json!({"includeClusterResources": true})).await;
    assert_eq!(
        report.counts(),
        (0, 0),
        "without a mapping each link is right"
    );
}

fn pod_of_job() -> Value {
    let mut pod = owned(
        item("v1", "Pod", "work-x"),
        "batch/v1",
        "Job",
        "work",
        "old",
    );
    pod["metadata"]["labels"] = json!({"batch.kubernetes.io/controller-uid": "old"});
    pod["metadata"]["namespace"] = json!("a");
    pod["spec"] =
        json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]});
    pod
}

#[tokio::test]
async fn a_pod_is_left_to_its_job_which_is_said_in_the_log_and_in_the_plan() {
    let claim = item("v1", "PersistentVolumeClaim", "data");
    let items = [
        ("pods", Some("a"), pod_of_job()),
        ("persistentvolumeclaims", Some("a"), claim),
        stored_item("jobs.batch", "batch/v1 Job", "a/work"),
    ];
    let (pod, job) = (
        "/api/v1/namespaces/a/pods/work-x",
        "/apis/batch/v1/namespaces/a/jobs/work",
    );
    let (fake, report) = restored(&items, json!({})).await;
    assert!(fake.get(pod).is_none() && fake.get(job).is_some());
    assert!(
        fake.get("/api/v1/namespaces/a/persistentvolumeclaims/data")
            .is_some(),
        "its claims come along"
    );
    let sentences = report.left_out_sentences();
    assert_eq!(
        sentences,
        ["Pod a/work-x: its Job makes its pods again, and does not adopt this one"]
    );
    assert_eq!(report.counts(), (0, 0));
    // Without the Job it is restored, and that is reported.
    let (fake, report) = restored(&items, json!({"includedResources": ["pods"]})).await;
    assert!(fake.get(pod).is_some() && report.left_out_sentences().is_empty());
    let results = report.into_files().results;
    assert_says!(
        results.warnings.namespaces["a"][0],
        "without its Job \"work\""
    );
}

#[tokio::test]
async fn a_job_keeps_its_cron_job_unless_that_is_gone_or_another_one() {
    let mut cron_job = item("batch/v1", "CronJob", "nightly");
    cron_job["spec"] = json!({"schedule": "0 3 * * *"});
    let job = owned(
        item("batch/v1", "Job", "nightly-1"),
        "batch/v1",
        "CronJob",
        "nightly",
        "old",
    );
    let items = [
        ("jobs.batch", Some("a"), job),
        ("cronjobs.batch", Some("a"), cron_job.clone()),
    ];
    let path = "/apis/batch/v1/namespaces/a/cronjobs/nightly";
    let there = |schedule: &str, uid: &str| {
        let mut there = cron_job.clone();
        there["spec"]["schedule"] = json!(schedule);
        there["metadata"]["uid"] = json!(uid);
        Some(there)
    };
    for (there, expected, lost) in [
        (None, Some("new"), ""),
        (there("0 3 * * *", "equal"), Some("equal"), ""),
        (there("0 5 * * *", "old"), Some("old"), ""),
        (
            there("0 5 * * *", "another"),
            None,
            "the CronJob of that name is another one",
        ),
    ] {
        let fake = fake::server();
        if let Some(there) = &there {
            fake.put(path, there.clone());
        }
        let report = restored_in(&fake, &items, json!({})).await;
        let uid = fake.get(path).unwrap()["metadata"]["uid"].clone();
        let job = fake
            .get("/apis/batch/v1/namespaces/a/jobs/nightly-1")
            .unwrap();
        let owner = &job["metadata"]["ownerReferences"][0];
        assert_eq!(
            owner["uid"],
            if expected.is_some() { uid } else { Value::Null },
            "{job}"
        );
        let warnings = report
            .into_files()
            .results
            .warnings
            .namespaces
            .remove("a")
            .unwrap_or_default()
            .join("; ");
        assert_says!(warnings, lost);
        assert_eq!(
            warnings.contains("without its CronJob"),
            !lost.is_empty(),
            "{warnings}"
        );
    }
    let (_, report) = restored(&items[..1], json!({})).await;
    let results = report.into_files().results;
    assert_says!(
        results.warnings.namespaces["a"][0],
        "that CronJob is not in the cluster"
    );
    // An existing Job keeps its controller.
    let fake = fake::server();
    fake.put(
        "/apis/batch/v1/namespaces/a/jobs/nightly-1",
        item("batch/v1", "Job", "nightly-1"),
    );
    let report = restored_in(&fake, &items, json!({"existingResourcePolicy": "update"})).await;
    let job = fake
        .get("/apis/batch/v1/namespaces/a/jobs/nightly-1")
        .unwrap();
    assert_eq!(job["metadata"]["ownerReferences"], Value::Null);
    assert_eq!(report.counts(), (0, 0));
}

#[tokio::test]
async fn a_claim_of_an_ephemeral_volume_is_left_to_its_pod_unless_it_has_data() {
    let mut claim = owned(
        item("v1", "PersistentVolumeClaim", "p-scratch"),
        "v1",
        "Pod",
        "p",
        "old",
    );
    claim["spec"] = json!({"volumeName": "pv"});
    let path = "/api/v1/namespaces/a/persistentvolumeclaims/p-scratch";
    for (policy, comes_back) in [("Delete", false), ("Retain", true)] {
        let mut volume = item("v1", "PersistentVolume", "pv");
        volume["spec"] = json!({"persistentVolumeReclaimPolicy": policy});
        let items = [
            ("persistentvolumeclaims", Some("a"), claim.clone()),
            ("persistentvolumes", None, volume),
            stored_item("pods", "v1 Pod", "a/p"),
        ];
        let (fake, report) = restored(&items, json!({"includedNamespaces": ["a"]})).await;
        assert_eq!(fake.get(path).is_some(), comes_back, "{policy}");
        assert_eq!(
            report.left_out_sentences().is_empty(),
            comes_back,
            "{policy}"
        );
        assert_eq!(report.counts(), (i64::from(comes_back), 0), "{policy}");
    }
}
