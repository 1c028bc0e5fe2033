//! Runs a collection against the fake API server.

use std::{collections::HashMap, sync::Arc};

use backup_actions::{
    ActionSet, ItemId,
    backup::{self, BackupActionOutput, BackupItemAction, ItemBlockAction},
};
use backup_core::{
    api::{Backup, BackupSpec, common::HookStatus},
    resources::{ResourceFilter, ResourceType},
};
use backup_runtime::leader::Leadership;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::super::{fake::Api, operations::Done, *};
use crate::{
    backup::hooks::{
        Owed,
        fake::{FakePods, Kept as JobJournal},
    },
    job::action_journal::{ActionRecords, PriorAttempt},
};

/// Keeps what it is given: path and object.
#[derive(Default)]
pub struct Kept {
    pub items: Vec<(String, Value)>,
    pub refuse: Option<&'static str>,
    pub full_after: Option<usize>,
}

impl Sink for Kept {
    async fn item(&mut self, path: &ItemPath<'_>, json: &[u8]) -> Result<(), StoreError> {
        if self.refuse == Some(path.name) {
            return Err(StoreError::Item { path: path.name.to_owned(), detail: "too large".to_owned() });
        }
        if self.full_after.is_some_and(|most| self.items.len() >= most) {
            return Err(StoreError::Io { action: "write".to_owned(), detail: "disk full".to_owned() });
        }
        let name = match path.namespace {
            Some(namespace) => format!("{}/{namespace}/{}", path.group_resource, path.name),
            None => format!("{}/{}", path.group_resource, path.name),
        };
        self.items.push((name, serde_json::from_slice(json).unwrap()));
        Ok(())
    }
}

pub fn resource(group: &str, plural: &str, kind: &str, namespaced: bool) -> ResourceType {
    ResourceType {
        group: group.to_owned(),
        version: "v1".to_owned(),
        plural: plural.to_owned(),
        kind: kind.to_owned(),
        namespaced,
        verbs: ["list", "create", "get", "delete"].map(str::to_owned).to_vec(),
    }
}

/// Pods, ConfigMaps, claims and volumes, Namespaces, definitions, and a custom type.
pub fn served() -> Vec<ResourceType> {
    vec![
        resource("", "configmaps", "ConfigMap", true),
        resource("", "namespaces", "Namespace", false),
        resource("", "persistentvolumeclaims", "PersistentVolumeClaim", true),
        resource("", "persistentvolumes", "PersistentVolume", false),
        resource("", "pods", "Pod", true),
        resource("apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition", false),
        resource("example.com", "widgets", "Widget", true),
    ]
}

pub fn item(namespace: &str, name: &str) -> Value {
    json!({ "metadata": { "name": name, "namespace": namespace, "uid": format!("{namespace}-{name}") } })
}

pub fn namespace(name: &str) -> Value {
    json!({ "metadata": { "name": name }, "status": { "phase": "Active" } })
}

pub fn cluster() -> Api {
    Api::default()
        .list("/api/v1/configmaps", vec![item("a", "one"), item("a", "two"), item("b", "one")])
        .list("/api/v1/persistentvolumeclaims", vec![])
        .list("/api/v1/persistentvolumes", vec![])
        .list("/api/v1/pods", vec![])
        .list("/apis/example.com/v1/widgets", vec![])
        .list("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", vec![])
        .list("/api/v1/namespaces", vec![namespace("a"), namespace("b"), namespace("empty")])
}

pub struct Outcome {
    pub sink: Kept,
    pub result: Result<Collected, CollectError>,
    pub errors: Vec<String>,
    pub warnings: Vec<String>,
    pub progress: Progress,
    pub paths: Vec<String>,
    pub told: Vec<String>,
    pub hooks: HookStatus,
    pub owed: Vec<Owed>,
}

impl Outcome {
    pub fn names(&self) -> Vec<&str> {
        self.sink.items.iter().map(|(name, _)| name.as_str()).collect()
    }
}

pub async fn collect(spec: Value, api: Api, sink: Kept) -> Outcome {
    collect_with(spec, api, sink, &Cancellation::new(Leadership::always(), CancellationToken::new())).await
}

pub async fn collect_with(spec: Value, api: Api, sink: Kept, cancellation: &Cancellation) -> Outcome {
    let setup = Setup { spec, api, sink, ..Setup::default() };
    setup.collect(cancellation).await
}

/// Collects with these actions.
pub async fn collect_by(spec: Value, api: Api, actions: Vec<Arc<dyn BackupItemAction>>) -> Outcome {
    let setup = Setup { spec, api, actions, ..Setup::default() };
    setup.collect(&Cancellation::new(Leadership::always(), CancellationToken::new())).await
}

/// What a collection is made of, if it matters.
#[derive(Default)]
pub struct Setup {
    pub spec: Value,
    pub api: Api,
    pub sink: Kept,
    pub actions: Vec<Arc<dyn BackupItemAction>>,
    /// Actions on blocks besides those that are built in; none is none at all.
    pub blocks: Option<Vec<Arc<dyn ItemBlockAction>>>,
    /// Takes snapshots.
    pub natives: Option<Natives>,
    pub policy: Option<ResourcePolicy>,
    pub pods: Arc<FakePods>,
    pub notes: JobJournal,
    /// Namespaces that live; a, b and empty if it does not matter.
    pub live: Vec<String>,
    pub page_size: Option<u32>,
    /// What an earlier try has made of items, by their names.
    pub earlier: HashMap<String, PriorAttempt<BackupActionOutput>>,
}

impl Setup {
    pub async fn collect(self, cancellation: &Cancellation) -> Outcome {
        let Self {
            spec,
            api,
            mut sink,
            actions,
            blocks,
            mut natives,
            policy,
            pods,
            notes,
            mut live,
            page_size,
            earlier,
        } = self;
        if live.is_empty() {
            live = ["a", "b", "empty"].map(str::to_owned).to_vec();
        }
        let spec: BackupSpec = serde_json::from_value(spec).unwrap();
        let served = ServedTypes::just(&served());
        let filter = ResourceFilter::for_backup(&spec, &|name| served.resolve(name));
        let types = Types::choose(served.types(), &filter);
        let (client, api) = api.client();
        let resolve = |name: &str| served.resolve(name);
        let items = backup::ordered(actions, Vec::new(), &resolve);
        let mut actions = BackupActions { items, ..BackupActions::default() };
        if let Some(plugins) = blocks {
            let all = backup::built_in_blocks(&client).into_iter().chain(plugins);
            actions.blocks = ActionSet::new("block action", all, &resolve);
        }
        let order = Order {
            definitions_come_along: types.definitions.as_ref().is_some_and(|crds| !filter.excludes(crds)),
            ordered: Ordered::of(&spec.ordered_resources, &types.listed, &|name| served.resolve(name)),
            types,
            filter,
            policy,
            hooks: Rules::of(spec.hooks.as_ref(), &|name| served.resolve(name)),
            served,
            scope: Scope::resolve(&spec, &live),
            labels: LabelFilter::of(&spec.label_selector, &spec.or_label_selectors),
            page_size: page_size.unwrap_or(2),
            patience: Patience::none(),
        };
        let mut report = Report::new("b").unwrap();
        let progress = Progress::default();
        let mut operations = Told(Vec::new(), earlier);
        let hooks = Hooks::new(Arc::clone(&pods) as _, Arc::new(notes.clone()), progress.clone());
        let backup = Backup::new("b", spec);
        let result = super::super::collect(Given {
            client: &client,
            backup: &backup,
            order: &order,
            actions: &actions,
            operations: &mut operations,
            hooks: Some(&hooks),
            natives: natives.as_mut(),
            sink: &mut sink,
            report: &mut report,
            progress: &progress,
            cancellation,
        })
        .await;
        let flat = |set: &backup_store::ResultSet| -> Vec<String> {
            set.velero.iter().chain(&set.cluster).chain(set.namespaces.values().flatten()).cloned().collect()
        };
        let (results, _) = report.into_parts();
        if let Ok(collected) = &result {
            assert_eq!(collected.list.len() as u64, progress.written());
            assert_eq!(sink.items.len() as u64, progress.written());
        }
        Outcome {
            sink,
            result,
            errors: flat(&results.errors),
            warnings: flat(&results.warnings),
            hooks: progress.hooks().unwrap_or_default(),
            progress,
            paths: api.paths(),
            told: operations.0,
            owed: Owed::of(&notes.all()).unwrap(),
        }
    }
}

/// Remembers what it was told; by item, what an earlier try has done.
pub struct Told(pub Vec<String>, pub HashMap<String, PriorAttempt<BackupActionOutput>>);

impl ActionRecords<BackupActionOutput> for Told {
    fn prior_attempt(&mut self, _: &str, item: &ItemId) -> Option<PriorAttempt<BackupActionOutput>> {
        self.1.get(&item.name).cloned()
    }

    fn begin<'a>(&'a mut self, action: &'a str, item: &'a ItemId) -> BoxFuture<'a, Result<(), StoreError>> {
        self.0.push(format!("{action} may act on {}", item.name));
        Box::pin(std::future::ready(Ok(())))
    }

    fn end<'a>(
        &'a mut self,
        action: &'a str,
        item: &'a ItemId,
        started: Option<&'a Done>,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        let what = started.and_then(|done| done.executed.operation.as_deref()).unwrap_or("nothing");
        self.0.push(format!("{action} started {what} on {}", item.name));
        Box::pin(std::future::ready(Ok(())))
    }
}
