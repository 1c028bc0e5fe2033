use std::sync::LazyLock;

use backup_core::{
    api::RestoreSpec,
    resources::{DEFINITIONS, ResourceType},
};
use serde_json::{Value, json};

use super::*;
use crate::{
    job::journal::MemoryJournal,
    restore::{
        fake::{self, FakeApi, Fault, backup},
        select::Served,
        snapshots::tests as snapshots,
    },
};

async fn stored(items: &[(&str, Option<&str>, Value)]) -> (tempfile::TempDir, Contents) {
    let (folder, location, _) = backup::stored(items).await;
    let contents = location.read_contents("b").await.unwrap();
    (folder, contents)
}

/// Types that are served from the start, and one that is once its definition is there.
#[derive(Clone)]
struct Cluster(FakeApi);

struct Types(Vec<ResourceType>);

fn served(group: &str, plural: &str, kind: &str, namespaced: bool) -> ResourceType {
    ResourceType {
        group: group.to_owned(),
        version: "v1".to_owned(),
        plural: plural.to_owned(),
        kind: kind.to_owned(),
        namespaced,
        verbs: vec![],
    }
}

impl Served for Types {
    fn complete(&self, name: &str) -> Option<String> {
        self.0.iter().find(|t| t.plural == name || t.kind == name).map(ResourceType::group_resource)
    }
    fn find(&self, group_resource: &str) -> Option<ResourceType> {
        self.0.iter().find(|t| t.group_resource() == group_resource).cloned()
    }
}

impl Discover for Cluster {
    type Found = Types;
    async fn load(&self) -> Result<Types, String> {
        let mut types = vec![
            served("", "configmaps", "ConfigMap", true),
            served("", "pods", "Pod", true),
            served("", "namespaces", "Namespace", false),
            served("", "persistentvolumes", "PersistentVolume", false),
            served("", "persistentvolumeclaims", "PersistentVolumeClaim", true),
            served("apps", "deployments", "Deployment", true),
            served("storage.k8s.io", "storageclasses", "StorageClass", false),
            served("coordination.k8s.io", "leases", "Lease", true),
        ];
        if self.0.get(&format!("{CRDS}/widgets.example.com")).is_some() {
            types.push(served("example.com", "widgets", "Widget", true));
        }
        Ok(Types(types))
    }
}

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn item(api_version: &str, kind: &str, name: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}})
}

fn definition(plural: &str) -> (&'static str, Option<&'static str>, Value) {
    let name = format!("{plural}.example.com");
    (DEFINITIONS, None, item("apiextensions.k8s.io/v1", "CustomResourceDefinition", &name))
}

async fn restored(
    fake: &FakeApi,
    contents: &Contents,
    spec: &RestoreSpec,
) -> (Report, Result<(), WorkError>) {
    restored_with(fake, contents, spec, &Footprint::everything()).await
}

async fn restored_with(
    fake: &FakeApi,
    contents: &Contents,
    spec: &RestoreSpec,
    claimed: &Footprint,
) -> (Report, Result<(), WorkError>) {
    let restore = Restore::new("r", spec.clone());
    let (report, calls, journal) = (Report::new().unwrap(), fake::calls(fake), journal());
    let mut work = work(fake, contents, &restore, &calls, &report, &journal);
    work.claimed = claimed;
    let done = work.run().await.map(drop);
    (report, done)
}

fn journal() -> ActionJournal<RestoreActionOutput> {
    ActionJournal::take_over(Arc::new(MemoryJournal::default()), &[]).unwrap()
}

/// The work of a restore without actions, which has claimed everything.
fn work<'a>(
    fake: &FakeApi,
    contents: &'a Contents,
    restore: &'a Restore,
    calls: &'a Calls,
    report: &'a Report,
    journal: &'a ActionJournal<RestoreActionOutput>,
) -> Work<'a, Cluster> {
    static EVERYTHING: LazyLock<Footprint> = LazyLock::new(Footprint::everything);
    let (plugins, log, turn) = (vec![], PluginLog::default(), tokio::sync::Mutex::default());
    Work {
        contents,
        restore,
        actions: ActionContext { plugins, log, turn, journal, csi: fake::csi(fake) },
        calls,
        report,
        discover: Cluster(fake.clone()),
        own: "velero",
        claimed: &EVERYTHING,
        patience: Duration::from_secs(5),
        created: None,
        resumed: false,
        rules: RestoreRules {
            backup_label: "b".to_owned(),
            restore_label: "r".to_owned(),
            namespaces: restore.spec.namespace_mapping.clone(),
            ..RestoreRules::default()
        },
        snapshots: snapshots::none(),
    }
}

fn posts(fake: &FakeApi) -> Vec<String> {
    fake.log().iter().filter_map(|line| line.strip_prefix("POST ").map(ToOwned::to_owned)).collect()
}

fn listed(report: Report) -> Value {
    serde_json::to_value(report.into_files().resource_list).unwrap()
}

#[tokio::test]
async fn everything_comes_back_in_the_order_in_which_it_is_needed() {
    let (_folder, contents) = stored(&[
        ("deployments.apps", Some("a"), item("apps/v1", "Deployment", "web")),
        ("widgets.example.com", Some("a"), item("example.com/v1", "Widget", "w")),
        ("pods", Some("a"), item("v1", "Pod", "p")),
        ("configmaps", Some("a"), item("v1", "ConfigMap", "c")),
        ("namespaces", None, item("v1", "Namespace", "a")),
        definition("widgets"),
    ])
    .await;
    let fake = fake::server();
    let (report, done) = restored(&fake, &contents, &RestoreSpec::default()).await;
    done.unwrap();
    assert_eq!(
        posts(&fake),
        [
            CRDS,
            "/api/v1/namespaces",
            "/api/v1/namespaces/a/configmaps",
            "/api/v1/namespaces/a/pods",
            "/apis/apps/v1/namespaces/a/deployments",
            "/apis/example.com/v1/namespaces/a/widgets",
        ]
    );
    assert_eq!(report.counts(), (0, 0));
    let progress = report.progress();
    assert_eq!((progress.total_items, progress.items_restored), (6, 6));
    assert_eq!(listed(report)["v1/ConfigMap"], json!(["a/c(created)"]));
}

#[tokio::test]
async fn running_it_again_changes_nothing_and_says_nothing() {
    let (_folder, contents) =
        stored(&[("configmaps", Some("a"), item("v1", "ConfigMap", "c")), definition("widgets")]).await;
    let fake = fake::server();
    restored(&fake, &contents, &RestoreSpec::default()).await.1.unwrap();
    let before = fake.get("/api/v1/namespaces/a/configmaps/c");
    let (report, done) = restored(&fake, &contents, &RestoreSpec::default()).await;
    done.unwrap();
    assert_eq!(report.counts(), (0, 0));
    assert_eq!(fake.get("/api/v1/namespaces/a/configmaps/c"), before);
    assert_eq!(listed(report)["v1/ConfigMap"], json!(["a/c(skipped)"]));
}

#[tokio::test]
async fn a_mapped_namespace_is_written_and_the_original_untouched() {
    let (_folder, contents) = stored(&[("configmaps", Some("a"), item("v1", "ConfigMap", "c"))]).await;
    let fake = fake::server();
    let spec = RestoreSpec {
        namespace_mapping: [("a".to_owned(), "z".to_owned())].into(),
        ..RestoreSpec::default()
    };
    restored(&fake, &contents, &spec).await.1.unwrap();
    assert_eq!(posts(&fake), ["/api/v1/namespaces", "/api/v1/namespaces/z/configmaps"]);
    assert!(fake.get("/api/v1/namespaces/z").is_some() && fake.get("/api/v1/namespaces/a").is_none());
}

#[tokio::test]
async fn nothing_is_written_into_a_namespace_that_was_not_claimed() {
    let (_folder, contents) = stored(&[
        ("configmaps", Some("a"), item("v1", "ConfigMap", "1")),
        ("configmaps", Some("b"), item("v1", "ConfigMap", "2")),
        ("pods", Some("b"), item("v1", "Pod", "3")),
        ("configmaps", Some("c"), item("v1", "ConfigMap", "4")),
        ("namespaces", None, item("v1", "Namespace", "b")),
    ])
    .await;
    // The mapping was added after the claim.
    let spec = RestoreSpec {
        namespace_mapping: [("c".to_owned(), "z".to_owned())].into(),
        ..RestoreSpec::default()
    };
    let fake = fake::server();
    let (report, done) = restored_with(&fake, &contents, &spec, &Footprint::namespaces(["a", "c"])).await;
    done.unwrap();
    assert_eq!(posts(&fake), ["/api/v1/namespaces", "/api/v1/namespaces/a/configmaps"]);
    assert_eq!(report.counts(), (0, 2), "one error for each namespace");
    let results = report.into_files().results;
    assert!(results.errors.cluster.iter().all(|error| error.contains("namespaces a, c")), "{results:?}");
}

#[tokio::test]
async fn a_type_that_is_not_served_is_one_warning_with_a_count() {
    let (_folder, contents) = stored(&[
        ("gadgets.example.com", Some("a"), item("example.com/v1", "Gadget", "1")),
        ("gadgets.example.com", Some("a"), item("example.com/v1", "Gadget", "2")),
        ("configmaps", Some("a"), item("v1", "ConfigMap", "c")),
    ])
    .await;
    let fake = fake::server();
    let (report, done) = restored(&fake, &contents, &RestoreSpec::default()).await;
    done.unwrap();
    assert_eq!(report.counts(), (1, 0));
    let results = report.into_files().results;
    assert!(results.warnings.velero[0].contains("gadgets.example.com: 2 items"), "{results:?}");
    assert!(fake.get("/api/v1/namespaces/a/configmaps/c").is_some());
}

#[tokio::test]
async fn one_bad_item_never_stops_the_others() {
    let (_folder, contents) = stored(&[
        ("configmaps", Some("a"), json!([1])),
        ("configmaps", Some("a"), item("v1", "Secret", "wrong-kind")),
        ("configmaps", Some("a"), item("rbac.authorization.k8s.io/v1", "ConfigMap", "wrong-group")),
        ("configmaps", Some("a"), item("v1", "ConfigMap", "good")),
    ])
    .await;
    let fake = fake::server();
    let (report, done) = restored(&fake, &contents, &RestoreSpec::default()).await;
    done.unwrap();
    assert_eq!(report.counts(), (0, 3));
    assert!(fake.get("/api/v1/namespaces/a/configmaps/good").is_some());
}

#[tokio::test]
async fn a_namespace_that_cannot_be_created_is_one_error() {
    let (_folder, contents) = stored(&[
        ("configmaps", Some("a"), item("v1", "ConfigMap", "1")),
        ("configmaps", Some("a"), item("v1", "ConfigMap", "2")),
        ("configmaps", Some("b"), item("v1", "ConfigMap", "3")),
    ])
    .await;
    let bodies = std::sync::atomic::AtomicUsize::new(0);
    let fake = fake::faulty(move |request| {
        let first = || bodies.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0;
        let refused = request.is("POST", "/api/v1/namespaces") && first();
        refused.then(|| Fault::refuse(403, "Forbidden", "no"))
    });
    let (report, done) = restored(&fake, &contents, &RestoreSpec::default()).await;
    done.unwrap();
    assert_eq!(report.counts(), (0, 1));
    assert_eq!(listed(report)["v1/ConfigMap"], json!(["a/1(failed)", "a/2(failed)", "b/3(created)"]));
}

#[tokio::test]
async fn filters_select_by_namespace_type_and_label() {
    let mut labelled = item("v1", "ConfigMap", "labelled");
    labelled["metadata"]["labels"] = json!({"app": "web"});
    let (_folder, contents) = stored(&[
        ("configmaps", Some("a"), labelled),
        ("configmaps", Some("a"), item("v1", "ConfigMap", "plain")),
        ("configmaps", Some("b"), item("v1", "ConfigMap", "elsewhere")),
        ("pods", Some("a"), item("v1", "Pod", "p")),
        ("storageclasses.storage.k8s.io", None, item("storage.k8s.io/v1", "StorageClass", "s")),
    ])
    .await;
    let a = || vec!["a".to_owned()];
    for (spec, expected) in [
        (
            json!({"includedNamespaces": a()}),
            vec!["ConfigMap a/labelled", "ConfigMap a/plain", "Namespace a", "Pod a/p"],
        ),
        (json!({"includedNamespaces": a(), "includedResources": ["pods"]}), vec!["Namespace a", "Pod a/p"]),
        (
            json!({"labelSelector": {"matchLabels": {"app": "web"}}}),
            vec!["ConfigMap a/labelled", "Namespace a"],
        ),
        (
            json!({"includedNamespaces": a(), "includedResources": ["pods", "storageclasses"], "includeClusterResources": true}),
            vec!["Namespace a", "Pod a/p", "StorageClass s"],
        ),
        (
            json!({"includeClusterResources": false, "excludedResources": ["configmaps"]}),
            vec!["Namespace a", "Pod a/p"],
        ),
    ] {
        let fake = fake::server();
        let parsed: RestoreSpec = serde_json::from_value(spec.clone()).unwrap();
        let (report, done) = restored(&fake, &contents, &parsed).await;
        done.unwrap();
        let list = listed(report);
        let mut names: Vec<String> = list
            .as_object()
            .unwrap()
            .iter()
            .flat_map(|(kind, names)| {
                let kind = kind.rsplit('/').next().unwrap().to_owned();
                names.as_array().unwrap().iter().map(move |name| {
                    format!("{kind} {}", name.as_str().unwrap().trim_end_matches("(created)"))
                })
            })
            .collect();
        names.sort();
        assert_eq!(names, expected, "{spec}");
    }
}

#[tokio::test]
async fn a_definition_comes_along_when_its_resources_need_it() {
    let (_folder, contents) = stored(&[
        ("widgets.example.com", Some("a"), item("example.com/v1", "Widget", "w")),
        definition("widgets"),
        definition("others"),
    ])
    .await;
    let spec = RestoreSpec { included_namespaces: vec!["a".to_owned()], ..RestoreSpec::default() };
    let fake = fake::server();
    let (report, done) = restored(&fake, &contents, &spec).await;
    done.unwrap();
    assert_eq!(report.counts(), (0, 0));
    assert!(fake.get("/apis/example.com/v1/namespaces/a/widgets/w").is_some());
    assert!(fake.get(&format!("{CRDS}/others.example.com")).is_none(), "nobody asked for it");
    let spec = RestoreSpec { include_cluster_resources: Some(false), ..spec };
    let fake = fake::server();
    let (report, done) = restored(&fake, &contents, &spec).await;
    done.unwrap();
    assert_eq!(report.counts(), (1, 0), "not served, and not to be brought along");
}

#[tokio::test]
async fn a_volume_that_is_kept_comes_along_with_its_claim() {
    let volume = |name: &str, policy: &str| {
        json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
            "spec": {"persistentVolumeReclaimPolicy": policy, "claimRef": {"namespace": "a", "name": "c", "uid": "u"}}})
    };
    let claim = |name: &str, volume: &str| {
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
            "spec": {"volumeName": volume}})
    };
    let (_folder, contents) = stored(&[
        ("persistentvolumeclaims", Some("a"), claim("kept", "kept")),
        ("persistentvolumeclaims", Some("a"), claim("anew", "gone")),
        ("persistentvolumes", None, volume("kept", "Retain")),
        ("persistentvolumes", None, volume("gone", "Delete")),
        ("persistentvolumes", None, volume("unused", "Retain")),
    ])
    .await;
    let spec = RestoreSpec { included_namespaces: vec!["a".to_owned()], ..RestoreSpec::default() };
    let fake = fake::server();
    restored(&fake, &contents, &spec).await.1.unwrap();
    let volume = fake.get("/api/v1/persistentvolumes/kept").unwrap();
    assert_eq!(volume["spec"]["claimRef"], json!({"namespace": "a", "name": "c"}));
    assert!(fake.get("/api/v1/persistentvolumes/gone").is_none());
    assert!(fake.get("/api/v1/persistentvolumes/unused").is_none());
    let at = |name: &str| fake.get(&format!("/api/v1/namespaces/a/persistentvolumeclaims/{name}")).unwrap();
    assert_eq!(at("kept")["spec"], json!({"volumeName": "kept"}));
    assert_eq!(at("anew")["spec"], Value::Null);
}

#[tokio::test]
async fn what_the_installation_lives_on_is_never_written() {
    let (_folder, contents) = stored(&[
        (
            "leases.coordination.k8s.io",
            Some("velero"),
            item("coordination.k8s.io/v1", "Lease", "backup-lock-velero"),
        ),
        ("backups.velero.io", Some("velero"), item("velero.io/v1", "Backup", "b")),
        ("configmaps", Some("velero"), item("v1", "ConfigMap", "mine")),
    ])
    .await;
    let fake = fake::server();
    let (report, done) = restored(&fake, &contents, &RestoreSpec::default()).await;
    done.unwrap();
    assert_eq!(posts(&fake), ["/api/v1/namespaces", "/api/v1/namespaces/velero/configmaps"]);
    assert_eq!(listed(report)["coordination.k8s.io/v1/Lease"], json!(["velero/backup-lock-velero(skipped)"]));
}

#[tokio::test]
async fn work_that_has_to_stop_writes_nothing_more() {
    let (_folder, contents) = stored(&[("configmaps", Some("a"), item("v1", "ConfigMap", "c"))]).await;
    let (fake, stop) = (fake::server(), tokio_util::sync::CancellationToken::new());
    stop.cancel();
    let (report, calls, journal) = (Report::new().unwrap(), fake::calls_until(&fake, stop), journal());
    let restore = Restore::new("r", RestoreSpec::default());
    let work = work(&fake, &contents, &restore, &calls, &report, &journal);
    assert!(matches!(work.run().await, Err(WorkError::Stopped(StopReason::ShuttingDown))));
    assert!(fake.log().is_empty());
}

mod actions;
