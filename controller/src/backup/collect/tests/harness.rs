//! Runs a collection against the fake API server.

use std::sync::Arc;

use backup_actions::{
    ActionSet, ItemId,
    backup::{self, BackupItemAction, ItemBlockAction},
};
use backup_core::{
    api::{Backup, BackupSpec, common::HookStatus},
    resource_policy::ResourcePolicy,
    resources::{ResourceFilter, ResourceType},
};
use backup_runtime::leader::Leadership;
use backup_store::{ItemPath, StoreError};
use backup_testkit::FakeApi;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::super::*;
use crate::{
    backup::{
        actions::{ActionJournal, BackupActions},
        hooks::{Hooks, PendingPostHooks},
        progress::Progress,
        report::Report,
        volume_snapshots::VolumeSnapshots,
    },
    discovery::ServedTypes,
    hooks::tests::fake::FakePods,
    job::{cancellation::Cancellation, journal::MemoryJournal},
    testing::resource,
};

/// Keeps the items that it is given: path and object.
#[derive(Default)]
pub(super) struct MemorySink {
    pub(super) items: Vec<(String, Value)>,
    pub(super) refuse: Option<&'static str>,
    pub(super) full_after: Option<usize>,
}

impl Sink for MemorySink {
    async fn item(&mut self, path: &ItemPath<'_>, json: &[u8]) -> Result<(), StoreError> {
        if self.refuse == Some(path.name) {
            return Err(StoreError::Item {
                path: path.name.to_owned(),
                detail: "too large".to_owned(),
            });
        }
        if self.full_after.is_some_and(|most| self.items.len() >= most) {
            return Err(StoreError::Io {
                action: "write".to_owned(),
                detail: "disk full".to_owned(),
            });
        }
        let mut name = path.group_resource.to_owned();
        let version = Some(path.version).filter(|_| !path.preferred);
        for part in [version, path.namespace, Some(path.name)]
            .into_iter()
            .flatten()
        {
            name = format!("{name}/{part}");
        }
        self.items
            .push((name, serde_json::from_slice(json).unwrap()));
        Ok(())
    }
}

/// Pods, ConfigMaps, claims and volumes, Namespaces, definitions, and a custom type.
fn served() -> Vec<ResourceType> {
    vec![
        resource("", "configmaps", "ConfigMap", true),
        resource("", "namespaces", "Namespace", false),
        resource("", "persistentvolumeclaims", "PersistentVolumeClaim", true),
        resource("", "persistentvolumes", "PersistentVolume", false),
        resource("", "pods", "Pod", true),
        resource(
            "apiextensions.k8s.io",
            "customresourcedefinitions",
            "CustomResourceDefinition",
            false,
        ),
        resource("example.com", "widgets", "Widget", true),
    ]
}

pub(super) fn id(group_resource: &str, namespace: &str, name: &str) -> ItemId {
    ItemId::new(
        group_resource,
        Some(namespace).filter(|namespace| !namespace.is_empty()),
        name,
    )
}

pub(super) fn item(namespace: &str, name: &str) -> Value {
    json!({ "metadata": { "name": name, "namespace": namespace, "uid": format!("{namespace}-{name}") } })
}

pub(super) fn namespace(name: &str) -> Value {
    json!({ "metadata": { "name": name }, "status": { "phase": "Active" } })
}

/// A running pod in namespace `a`.
pub(super) fn pod(name: &str, annotations: &Value) -> Value {
    let mut pod = item("a", name);
    pod["metadata"]["annotations"] = annotations.clone();
    pod["spec"] = json!({ "containers": [{ "name": "main" }] });
    pod["status"] = json!({ "phase": "Running" });
    pod
}

/// A pod that is frozen before and thawed after its backup.
pub(super) fn frozen(name: &str) -> Value {
    pod(
        name,
        &json!({ "pre.hook.backup.velero.io/command": "freeze", "post.hook.backup.velero.io/command": "thaw" }),
    )
}

/// A claim in namespace `a` that is bound to a volume.
pub(super) fn bound_claim(name: &str, volume: &str) -> Value {
    let mut claim = item("a", name);
    claim["spec"] = json!({ "volumeName": volume });
    claim["status"] = json!({ "phase": "Bound" });
    claim
}

pub(super) fn policy(text: &str) -> ResourcePolicy {
    let data = [(
        "p".to_owned(),
        format!("version: v1\nvolumePolicies:\n{text}"),
    )]
    .into();
    backup_core::resource_policy::read(&data).unwrap()
}

pub(super) fn cluster() -> FakeApi {
    FakeApi::new()
        .with_list(
            "/api/v1/configmaps",
            vec![item("a", "one"), item("a", "two"), item("b", "one")],
        )
        .with_list(
            "/api/v1/namespaces",
            vec![namespace("a"), namespace("b"), namespace("empty")],
        )
}

pub(super) struct Outcome {
    pub(super) sink: MemorySink,
    pub(super) result: Result<CollectedItems, CollectError>,
    pub(super) errors: Vec<String>,
    pub(super) warnings: Vec<String>,
    pub(super) progress: Progress,
    pub(super) paths: Vec<String>,
    pub(super) recorded: Vec<String>,
    pub(super) hooks: HookStatus,
    pub(super) pending: Vec<PendingPostHooks>,
}

impl Outcome {
    pub(super) fn names(&self) -> Vec<&str> {
        self.sink
            .items
            .iter()
            .map(|(name, _)| name.as_str())
            .collect()
    }
}

pub(super) fn cancellation() -> Cancellation {
    Cancellation::new(Leadership::always(), CancellationToken::new())
}

pub(super) async fn collect(spec: Value, api: FakeApi) -> Outcome {
    Setup {
        spec,
        api,
        ..Setup::default()
    }
    .collect()
    .await
}

pub(super) async fn collect_by(
    spec: Value,
    api: FakeApi,
    actions: Vec<Arc<dyn BackupItemAction>>,
) -> Outcome {
    Setup {
        spec,
        api,
        actions,
        ..Setup::default()
    }
    .collect()
    .await
}

/// Inputs of a collection, where they matter.
#[derive(Default)]
pub(super) struct Setup {
    pub(super) spec: Value,
    pub(super) api: FakeApi,
    pub(super) sink: MemorySink,
    pub(super) actions: Vec<Arc<dyn BackupItemAction>>,
    /// Block actions besides the built-in ones; `None`: no block actions at all.
    pub(super) blocks: Option<Vec<Arc<dyn ItemBlockAction>>>,
    pub(super) volume_snapshots: Option<VolumeSnapshots>,
    pub(super) policy: Option<ResourcePolicy>,
    pub(super) pods: Arc<FakePods>,
    pub(super) journal: MemoryJournal,
    /// Live namespaces; a, b and empty if it does not matter.
    pub(super) live: Vec<String>,
    pub(super) page_size: Option<u32>,
    pub(super) all_versions: bool,
    /// Journal entries of an earlier attempt about actions.
    pub(super) prior: Vec<Value>,
}

impl Setup {
    pub(super) async fn collect(self) -> Outcome {
        self.collect_until(&cancellation()).await
    }

    pub(super) async fn collect_until(mut self, cancellation: &Cancellation) -> Outcome {
        if self.live.is_empty() {
            self.live = ["a", "b", "empty"].map(str::to_owned).to_vec();
        }
        let spec: BackupSpec = serde_json::from_value(self.spec).unwrap();
        let served = ServedTypes::just(&served()).and_in("v1beta1", "widgets.example.com");
        let resolve = |name: &str| served.resolve(name);
        let filter = ResourceFilter::for_backup(&spec, &resolve);
        let client = self.api.client();
        let items = backup::ordered(self.actions, Vec::new(), &resolve);
        let mut actions = BackupActions {
            items,
            ..BackupActions::default()
        };
        if let Some(plugins) = self.blocks {
            let all = backup::built_in_blocks(&client).into_iter().chain(plugins);
            actions.blocks = ActionSet::new("block action", all, &resolve);
        }
        let page_size = self.page_size.unwrap_or(2);
        let mut plan = CollectPlan::new(&spec, served, filter, &self.live, self.policy, page_size);
        if self.all_versions {
            plan.add_versions();
        }
        let mut report = Report::new(Some("b")).unwrap();
        let progress = Progress::default();
        let records =
            ActionJournal::take_over(Arc::new(self.journal.clone()), &self.prior).unwrap();
        let hooks = Hooks::new(
            Arc::clone(&self.pods) as _,
            Arc::new(self.journal.clone()),
            progress.clone(),
        );
        let request = CollectRequest {
            client: &client,
            backup: &Backup::new("b", spec),
            plan: &plan,
            actions: &actions,
            hooks: Some(&hooks),
            volume_snapshots: self.volume_snapshots,
            cancellation,
            item_block_workers: 4,
        };
        let output = CollectOutput {
            sink: &mut self.sink,
            action_journal: Some(&records),
            report: &mut report,
            progress: &progress,
        };
        let result = super::super::collect(request, output).await;
        let flat = |set: &backup_store::ResultSet| -> Vec<String> {
            set.velero
                .iter()
                .chain(&set.cluster)
                .chain(set.namespaces.values().flatten())
                .cloned()
                .collect()
        };
        let (results, _) = report.into_parts();
        if let Ok(collected) = &result {
            assert_eq!(collected.list.len() as u64, progress.written());
            assert_eq!(self.sink.items.len() as u64, progress.written());
        }
        Outcome {
            sink: self.sink,
            result,
            errors: flat(&results.errors),
            warnings: flat(&results.warnings),
            hooks: progress.hooks().unwrap_or_default(),
            progress,
            paths: self
                .api
                .requests()
                .into_iter()
                .map(|request| request.path)
                .collect(),
            recorded: self.journal.all().iter().filter_map(told).collect(),
            pending: PendingPostHooks::read(&self.journal.all()).unwrap(),
        }
    }
}

/// A journal entry about an action, as a sentence.
fn told(note: &Value) -> Option<String> {
    let text = |value: &Value| value.as_str().unwrap_or("nothing").to_owned();
    let what = match note.get("actionBegun") {
        Some(_) => "may act".to_owned(),
        None => format!(
            "started {}",
            text(&note["started"]["executed"]["operation"])
        ),
    };
    let of = note
        .get("actionBegun")
        .or_else(|| note.get("actionEnded"))?;
    Some(format!(
        "{} {what} on {}",
        text(&of["action"]),
        text(&of["item"]["name"])
    ))
}
