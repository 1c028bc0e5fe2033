use backup_core::{
    api::BackupSpec,
    resource_policy::FilterPolicies,
    resources::{DEFINITIONS, ResourceType},
    volume_info::VolumeInfo,
};
use backup_plugins::PluginLog;
use backup_store::Limits;
use futures::FutureExt as _;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{item_coordinator::ItemCoordinator, plugin_turns::PluginTurns, prune::RenamedItems, *};
use crate::{
    discovery::ServedTypes,
    hooks::tests::fake::FakePods,
    job::{
        action_journal::ActionJournal,
        journal::{JournalWriter, MemoryJournal},
    },
    restore::{
        hooks::HookJournal,
        tests::fake::{self, FakeApi, Fault, backup},
        volume_snapshots::tests as snapshots,
    },
    testing::resource,
};

/// Items of a backup: group resource, namespace, object.
type Items<'a> = &'a [(&'a str, Option<&'a str>, Value)];

/// Types that are served from the start, and one that is served once its definition exists.
fn served(fake: &FakeApi) -> ServedTypes {
    let mut types = vec![
        resource("", "configmaps", "ConfigMap", true),
        resource("", "pods", "Pod", true),
        resource("", "namespaces", "Namespace", false),
        resource("", "persistentvolumes", "PersistentVolume", false),
        resource("", "persistentvolumeclaims", "PersistentVolumeClaim", true),
        resource("apps", "deployments", "Deployment", true),
        resource("batch", "cronjobs", "CronJob", true),
        resource("batch", "jobs", "Job", true),
        resource(
            "rbac.authorization.k8s.io",
            "clusterrolebindings",
            "ClusterRoleBinding",
            false,
        ),
        resource("storage.k8s.io", "storageclasses", "StorageClass", false),
        resource(
            "scheduling.k8s.io",
            "priorityclasses",
            "PriorityClass",
            false,
        ),
        resource("coordination.k8s.io", "leases", "Lease", true),
        resource("example.com", "databaserestores", "DatabaseRestore", true),
        resource("networking.k8s.io", "ingressclasses", "IngressClass", false),
        resource(
            "networking.k8s.io",
            "networkpolicies",
            "NetworkPolicy",
            true,
        ),
        resource("resource.k8s.io", "resourceclaims", "ResourceClaim", true),
        resource(SNAPSHOT_GROUP, "volumesnapshots", "VolumeSnapshot", true),
        resource(
            SNAPSHOT_GROUP,
            "volumesnapshotcontents",
            "VolumeSnapshotContent",
            false,
        ),
        ResourceType {
            status_is_data: true,
            ..resource("example.com", "notes", "Note", true)
        },
    ];
    let mut others = Vec::new();
    if let Some(definition) = fake.get(&format!("{CRDS}/widgets.example.com")) {
        let mut widgets = resource("example.com", "widgets", "Widget", true);
        let versions = definition["spec"]["versions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let seen = fake.get(LATE).map_or(versions.len(), |_| 1);
        fake.delete(LATE);
        let versions = versions.iter().take(seen);
        let mut versions =
            versions.filter_map(|version| version["name"].as_str().map(str::to_owned));
        widgets.version = versions.next().unwrap_or(widgets.version);
        others.extend(versions);
        types.push(widgets);
    }
    let mut served = ServedTypes::just(&types);
    for version in others {
        served = served.and_in(&version, "widgets.example.com");
    }
    served
        .failed
        .extend(fake.get(AWAY).map(|_| "example.com/v1".to_owned()));
    served
}

/// Exists while the server of a group does not answer.
const AWAY: &str = "/apis/apiregistration.k8s.io/v1/apiservices/v1.example.com";

/// Exists until the first read of the served types, which sees only the first version of a type.
const LATE: &str = "/api/v1/namespaces/default/configmaps/late";

/// API group of snapshots.
const SNAPSHOT_GROUP: &str = "snapshot.storage.k8s.io";
/// When the Restore was created.
const CREATED: &str = "2026-01-01T00:00:00Z";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn item(api_version: &str, kind: &str, name: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}})
}

/// An item of a backup: its type, its version and kind, and `NAMESPACE/NAME` or `NAME`.
fn stored_item(
    resource: &'static str,
    kind: &str,
    place: &'static str,
) -> (&'static str, Option<&'static str>, Value) {
    let (api_version, kind) = kind.split_once(' ').unwrap();
    match place.split_once('/') {
        Some((namespace, name)) => (resource, Some(namespace), item(api_version, kind, name)),
        None => (resource, None, item(api_version, kind, place)),
    }
}

fn definition(plural: &str) -> (&'static str, Option<&'static str>, Value) {
    let name = format!("{plural}.example.com");
    (
        DEFINITIONS,
        None,
        item("apiextensions.k8s.io/v1", "CustomResourceDefinition", &name),
    )
}

/// Restores items into a new server, with a claim for everything.
async fn restored(items: Items<'_>, spec: Value) -> (FakeApi, Report) {
    let fake = fake::server();
    let report = restored_in(&fake, items, spec).await;
    (fake, report)
}

async fn restored_in(fake: &FakeApi, items: Items<'_>, spec: Value) -> Report {
    let (claimed, calls) = (Footprint::everything(), fake::calls(fake));
    let (report, done) = run(fake, &calls, items, spec, &claimed, vec![]).await;
    done.unwrap();
    report
}

/// As after a crash: a run before this one may have restored everything.
async fn resumed_in(fake: &FakeApi, items: Items<'_>) -> Report {
    let (claimed, calls) = (Footprint::everything(), fake::calls(fake));
    let world = World {
        resumed: true,
        ..World::new(fake, &calls, &claimed)
    };
    let (report, done) = Box::pin(world.run(items, json!({}))).await;
    done.unwrap();
    report
}

async fn run(
    fake: &FakeApi,
    calls: &Calls,
    items: Items<'_>,
    spec: Value,
    claimed: &Footprint,
    plugins: Vec<Arc<dyn RestoreItemAction>>,
) -> (Report, Result<Vec<StartedOperation>, RestoreError>) {
    let world = World {
        plugins,
        ..World::new(fake, calls, claimed)
    };
    Box::pin(world.run(items, spec)).await
}

/// The environment of a restore.
struct World<'a> {
    fake: &'a FakeApi,
    calls: &'a Calls,
    claimed: &'a Footprint,
    backup: Backup,
    plugins: Vec<Arc<dyn RestoreItemAction>>,
    resumed: bool,
    saved: SavedVolumes,
    has_mover: bool,
    modifiers: Option<ResourceModifiers>,
    versions: Option<VersionPriorities>,
    filters: FilterPolicies,
    journal: Arc<dyn JournalWriter>,
    turns: PluginTurns,
    /// Runs the commands of hooks.
    pods: Option<&'a FakePods>,
}

impl<'a> World<'a> {
    fn new(fake: &'a FakeApi, calls: &'a Calls, claimed: &'a Footprint) -> Self {
        Self {
            fake,
            calls,
            claimed,
            backup: Backup::new("b", BackupSpec::default()),
            plugins: Vec::new(),
            resumed: false,
            saved: SavedVolumes::default(),
            has_mover: true,
            modifiers: None,
            versions: None,
            filters: FilterPolicies::default(),
            journal: Arc::new(MemoryJournal::default()),
            turns: PluginTurns::default(),
            pods: None,
        }
    }

    async fn run(
        self,
        items: Items<'_>,
        spec: Value,
    ) -> (Report, Result<Vec<StartedOperation>, RestoreError>) {
        let fake = self.fake;
        let no_pods = FakePods::default();
        let hooks = HookJournal::take_over(Arc::new(MemoryJournal::default()), &[]).unwrap();
        let (_folder, location, _) = backup::stored(items).await;
        let contents = location.read_contents("b", Limits::DEFAULT).await.unwrap();
        let mut restore = Restore::new("r", serde_json::from_value(spec).unwrap());
        restore.metadata.uid = Some("uid-r".to_owned());
        let report = Report::new().unwrap();
        let journal = ActionJournal::take_over(self.journal, &[]).unwrap();
        let log = PluginLog::default();
        let restoring = Restoring {
            contents: &contents,
            restore: &restore,
            backup: &self.backup,
            memory: &ItemMemory::new(256 << 20),
            actions: ActionContext {
                plugins: self.plugins,
                configured: Vec::new(),
                log,
                turns: self.turns,
                journal: &journal,
                csi: fake::csi(fake),
                downloads: (!self.calls.is_dry_run()).then(|| fake::downloads(fake)),
                coordinator: ItemCoordinator::default(),
                started: Mutex::default(),
                renamed: RenamedItems::default(),
            },
            calls: self.calls,
            report: &report,
            discover: Box::new(|| std::future::ready(Ok(served(fake))).boxed()),
            own: "velero",
            order: &RestoreOrder::default(),
            versions: self.versions.as_ref(),
            guarded: &["databaserestores.example.com".to_owned()],
            claimed: self.claimed,
            patience: Duration::from_secs(5),
            created: (self.resumed || restore.spec.prune == Some(true)).then(|| CREATED.to_owned()),
            resumed: self.resumed,
            rules: RestoreRules {
                backup_label: "b".to_owned(),
                restore_label: "r".to_owned(),
                namespaces: Arc::new(restore.spec.namespace_mapping.clone()),
                ..RestoreRules::default()
            },
            configuration: Configuration {
                modifiers: self.modifiers,
                filters: self.filters,
                ..Configuration::default()
            },
            snapshots: snapshots::none(),
            saved: self.saved,
            mover: BackupMover {
                is_running: self.has_mover,
                location: "default",
            },
            plan: VolumePlan::default(),
            hooks: HookContext {
                executor: self.pods.unwrap_or(&no_pods),
                journal: &hooks,
            },
        };
        let done = restoring.run().await;
        (report, done)
    }
}

fn posts(fake: &FakeApi) -> Vec<String> {
    fake.log()
        .iter()
        .filter_map(|line| line.strip_prefix("POST ").map(ToOwned::to_owned))
        .collect()
}

fn listed(report: Report) -> Value {
    serde_json::to_value(report.into_files().resource_list).unwrap()
}

#[tokio::test]
async fn everything_comes_back_in_the_order_in_which_it_is_needed() {
    let items = [
        stored_item("deployments.apps", "apps/v1 Deployment", "a/web"),
        stored_item("widgets.example.com", "example.com/v1 Widget", "a/w"),
        stored_item("pods", "v1 Pod", "a/p"),
        stored_item("configmaps", "v1 ConfigMap", "a/c"),
        stored_item("namespaces", "v1 Namespace", "a"),
        definition("widgets"),
    ];
    let (fake, report) = restored(&items, json!({})).await;
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
    let items = [
        stored_item("configmaps", "v1 ConfigMap", "a/c"),
        definition("widgets"),
    ];
    let (fake, _) = restored(&items, json!({})).await;
    let before = fake.get("/api/v1/namespaces/a/configmaps/c");
    let report = restored_in(&fake, &items, json!({})).await;
    assert_eq!(report.counts(), (0, 0));
    assert_eq!(fake.get("/api/v1/namespaces/a/configmaps/c"), before);
    assert_eq!(listed(report)["v1/ConfigMap"], json!(["a/c(skipped)"]));
}

#[tokio::test]
async fn a_mapped_namespace_is_written_and_the_original_untouched() {
    let items = [stored_item("configmaps", "v1 ConfigMap", "a/c")];
    let (fake, _) = restored(&items, json!({"namespaceMapping": {"a": "z"}})).await;
    assert_eq!(
        posts(&fake),
        ["/api/v1/namespaces", "/api/v1/namespaces/z/configmaps"]
    );
    assert!(
        fake.get("/api/v1/namespaces/z").is_some() && fake.get("/api/v1/namespaces/a").is_none()
    );
}

#[tokio::test]
async fn nothing_is_written_into_a_namespace_that_was_not_claimed() {
    let items = [
        stored_item("configmaps", "v1 ConfigMap", "a/1"),
        stored_item("configmaps", "v1 ConfigMap", "b/2"),
        stored_item("pods", "v1 Pod", "b/3"),
        stored_item("configmaps", "v1 ConfigMap", "c/4"),
        stored_item("namespaces", "v1 Namespace", "b"),
    ];
    // The mapping was added after the claim.
    let spec = json!({"namespaceMapping": {"c": "z"}});
    let (fake, claimed) = (fake::server(), Footprint::namespaces(["a", "c"]));
    let (report, done) = run(&fake, &fake::calls(&fake), &items, spec, &claimed, vec![]).await;
    done.unwrap();
    assert_eq!(
        posts(&fake),
        ["/api/v1/namespaces", "/api/v1/namespaces/a/configmaps"]
    );
    assert_eq!(report.counts(), (0, 2), "one error for each namespace");
    let results = report.into_files().results;
    assert!(
        results
            .errors
            .cluster
            .iter()
            .all(|error| error.contains("namespaces a, c")),
        "{results:?}"
    );
}

#[tokio::test]
async fn a_type_that_is_not_served_is_one_error_and_its_items_are_listed() {
    let items = [
        stored_item("gadgets.example.com", "example.com/v1 Gadget", "a/1"),
        stored_item("gadgets.example.com", "example.com/v1 Gadget", "a/2"),
        stored_item("configmaps", "v1 ConfigMap", "a/c"),
    ];
    // Also if the spec has a name that only the backup can complete.
    for (spec, others) in [
        (json!({}), 1),
        (json!({"includedResources": ["gadgets"]}), 0),
    ] {
        let (fake, report) = restored(&items, spec).await;
        assert_eq!(report.counts(), (0, 1));
        let progress = report.progress();
        assert_eq!(progress.total_items, progress.items_restored);
        let files = report.into_files();
        assert_says!(
            files.results.errors.velero[0],
            "gadgets.example.com: 2 items"
        );
        let listed = serde_json::to_value(files.resource_list).unwrap();
        assert_eq!(
            listed["example.com/v1/Gadget"],
            json!(["a/1(failed)", "a/2(failed)"])
        );
        assert_eq!(fake.under("/api/v1/namespaces/a/configmaps").len(), others);
    }
}

#[tokio::test]
async fn what_another_operator_would_run_again_is_left_out_unless_it_is_named() {
    let job = stored_item(
        "databaserestores.example.com",
        "example.com/v1 DatabaseRestore",
        "a/r",
    );
    let items = [job, stored_item("configmaps", "v1 ConfigMap", "a/c")];
    for (included, outcome, warnings) in [
        (vec![], "skipped", 1),
        (vec!["*"], "skipped", 1),
        (vec!["DatabaseRestore"], "created", 0),
        (vec!["configmaps"], "", 0),
    ] {
        let (_, report) = restored(&items, json!({ "includedResources": included })).await;
        assert_eq!(report.counts(), (warnings, 0), "{included:?}");
        let progress = report.progress();
        assert_eq!(progress.total_items, progress.items_restored);
        let listed = listed(report)["example.com/v1/DatabaseRestore"].clone();
        let expected = if outcome.is_empty() {
            Value::Null
        } else {
            json!([format!("a/r({outcome})")])
        };
        assert_eq!(listed, expected, "{included:?}");
    }
}

#[tokio::test]
async fn a_type_whose_server_is_away_for_a_moment_is_waited_for() {
    let items = [
        stored_item("gadgets.example.com", "example.com/v1 Gadget", "a/1"),
        stored_item("widgets.example.com", "example.com/v1 Widget", "a/2"),
    ];
    let fake = fake::server();
    fake.put(AWAY, json!({}));
    let answers = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        fake.delete(AWAY);
        fake.put(&format!("{CRDS}/widgets.example.com"), json!({}));
    };
    let (report, ()) = futures::join!(restored_in(&fake, &items, json!({})), answers);
    assert_eq!(
        report.counts(),
        (0, 1),
        "what is still not served then is an error"
    );
    assert!(
        fake.get("/apis/example.com/v1/namespaces/a/widgets/2")
            .is_some()
    );
}

#[tokio::test]
async fn one_bad_item_never_stops_the_others() {
    let items = [
        ("configmaps", Some("a"), json!([1])),
        stored_item("configmaps", "v1 Secret", "a/wrong-kind"),
        stored_item(
            "configmaps",
            "rbac.authorization.k8s.io/v1 ConfigMap",
            "a/wrong-group",
        ),
        stored_item("configmaps", "v1 ConfigMap", "a/good"),
    ];
    let (fake, report) = restored(&items, json!({})).await;
    assert_eq!(report.counts(), (0, 3));
    assert!(fake.get("/api/v1/namespaces/a/configmaps/good").is_some());
}

#[tokio::test]
async fn a_namespace_that_cannot_be_created_is_one_error() {
    let items = [
        stored_item("configmaps", "v1 ConfigMap", "a/1"),
        stored_item("configmaps", "v1 ConfigMap", "a/2"),
        stored_item("configmaps", "v1 ConfigMap", "b/3"),
    ];
    let fake = fake::faulty(|request| {
        let refused =
            request.is("POST", "/api/v1/namespaces") && request.body["metadata"]["name"] == "a";
        refused.then(|| Fault::refuse(403, "Forbidden", "no"))
    });
    let report = restored_in(&fake, &items, json!({})).await;
    assert_eq!(report.counts(), (0, 1));
    assert_eq!(
        listed(report)["v1/ConfigMap"],
        json!(["a/1(failed)", "a/2(failed)", "b/3(created)"])
    );
}

#[tokio::test]
async fn filters_select_by_namespace_type_and_label() {
    let mut labelled = item("v1", "ConfigMap", "labelled");
    labelled["metadata"]["labels"] = json!({"app": "web"});
    let items = [
        ("configmaps", Some("a"), labelled),
        stored_item("configmaps", "v1 ConfigMap", "a/plain"),
        stored_item("configmaps", "v1 ConfigMap", "b/elsewhere"),
        stored_item("pods", "v1 Pod", "a/p"),
        stored_item(
            "storageclasses.storage.k8s.io",
            "storage.k8s.io/v1 StorageClass",
            "s",
        ),
    ];
    let a = || vec!["a".to_owned()];
    for (spec, expected) in [
        (
            json!({"includedNamespaces": a()}),
            vec![
                "ConfigMap a/labelled",
                "ConfigMap a/plain",
                "Namespace a",
                "Pod a/p",
            ],
        ),
        (
            json!({"includedNamespaces": a(), "includedResources": ["pods"]}),
            vec!["Namespace a", "Pod a/p"],
        ),
        (
            json!({"includedNamespaces": ["[b-c]*"]}),
            vec!["ConfigMap b/elsewhere", "Namespace b"],
        ),
        (
            json!({"excludedNamespaces": ["b*"], "includedResources": ["pods"]}),
            vec!["Namespace a", "Pod a/p"],
        ),
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
        let list = listed(restored(&items, spec.clone()).await.1);
        let mut names: Vec<String> = list
            .as_object()
            .unwrap()
            .iter()
            .flat_map(|(kind, names)| {
                let kind = kind.rsplit('/').next().unwrap().to_owned();
                names.as_array().unwrap().iter().map(move |name| {
                    format!(
                        "{kind} {}",
                        name.as_str().unwrap().trim_end_matches("(created)")
                    )
                })
            })
            .collect();
        names.sort();
        assert_eq!(names, expected, "{spec}");
    }
}

#[tokio::test]
async fn what_the_installation_lives_on_is_never_written() {
    let items = [
        stored_item(
            "leases.coordination.k8s.io",
            "coordination.k8s.io/v1 Lease",
            "velero/backup-lock-velero",
        ),
        stored_item("backups.velero.io", "velero.io/v1 Backup", "velero/b"),
        stored_item("configmaps", "v1 ConfigMap", "velero/mine"),
    ];
    let (fake, report) = restored(&items, json!({})).await;
    assert_eq!(
        posts(&fake),
        ["/api/v1/namespaces", "/api/v1/namespaces/velero/configmaps"]
    );
    assert_eq!(
        listed(report)["coordination.k8s.io/v1/Lease"],
        json!(["velero/backup-lock-velero(skipped)"])
    );
}

#[tokio::test]
async fn work_that_has_to_stop_writes_nothing_more() {
    let items = [stored_item("configmaps", "v1 ConfigMap", "a/c")];
    let (fake, stop) = (fake::server(), tokio_util::sync::CancellationToken::new());
    stop.cancel();
    let (claimed, calls) = (Footprint::everything(), fake::calls_until(&fake, stop));
    let (_, done) = run(&fake, &calls, &items, json!({}), &claimed, vec![]).await;
    assert!(matches!(
        done,
        Err(RestoreError::Stopped(StopReason::ShuttingDown))
    ));
    assert!(fake.log().is_empty());
}

mod action_journal;
mod actions;
mod drill;
mod existing;
mod filters;
mod hooks;
mod links;
mod modifiers;
mod names;
mod namespaces;
mod objects;
mod plan;
mod prune;
mod related;
mod status;
mod unreadable;
mod versions;
mod volumes;
