//! Init containers that hooks of a restore add to pods (Velero
//! `pkg/restore/actions/init_restorehook_pod_action.go` and `internal/hook/item_hook_handler.go`,
//! v1.18).

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use backup_core::{
    api::{
        Restore,
        restore::{InitRestoreHook, RestoreResourceHookSpec},
    },
    digest::short_sha256,
};
use serde_json::{Value, json};

use super::{
    action::{RestoreActionInput, RestoreActionOutput, RestoreItemAction},
    json::{self as walk, Object},
    rules::RestoreRules,
};
use crate::{
    action::{ActionError, BuiltInAction},
    hook::{Filter, PodSelector, command},
};

/// Prefix of the annotations of an init hook.
pub const INIT_HOOK: &str = "init.hook.restore.velero.io/";
/// Name of the action that adds the init containers.
pub const INIT_HOOKS: &str = "velero.io/init-restore-hook";
/// The container with which Velero restores files into volumes. It stays first, so that hooks find
/// the files.
const WAIT: &str = "restore-wait";

/// The pods of an entry of a Restore's `spec.hooks.resources`; `None` if it applies to no pods.
pub fn pods_of_hook(hook: &RestoreResourceHookSpec) -> Option<PodSelector> {
    let namespaces = Filter {
        included: &hook.included_namespaces,
        excluded: &hook.excluded_namespaces,
    };
    let resources = Filter {
        included: &hook.included_resources,
        excluded: &hook.excluded_resources,
    };
    PodSelector::new(namespaces, resources, &hook.label_selector)
}

/// Adds the init containers of a pod: the one in its annotations, otherwise those of the Restore.
pub(super) struct InitHooks(pub(super) Arc<RestoreRules>);

impl BuiltInAction for InitHooks {
    const NAME: &'static str = INIT_HOOKS;
    const RESOURCE: &'static str = "pods";
}

#[async_trait]
impl RestoreItemAction for InitHooks {
    fn may_add_items(&self) -> bool {
        false
    }

    async fn execute(
        &self,
        input: RestoreActionInput<'_>,
    ) -> Result<RestoreActionOutput, ActionError> {
        let added = match annotated(input.item) {
            Some(container) => vec![container],
            None => specified(input.item, input.restore, &self.0),
        };
        let item = (!added.is_empty()).then(|| with_first(input.item, added));
        Ok(RestoreActionOutput {
            item,
            ..RestoreActionOutput::default()
        })
    }
}

/// The container in the annotations, if they name an image. Without a command it runs the image's
/// own.
fn annotated(pod: &Object) -> Option<Value> {
    let image = annotation(pod, "container-image")?;
    let name = annotation(pod, "container-name").map_or_else(|| generated_name(pod), str::to_owned);
    let mut container = json!({ "name": name, "image": image });
    if let Some(text) = annotation(pod, "command") {
        container["command"] = json!(command(text));
    }
    Some(container)
}

/// The trimmed value of an annotation of the hook; `None` if it is missing or empty.
fn annotation<'a>(pod: &'a Object, name: &str) -> Option<&'a str> {
    let key = format!("{INIT_HOOK}{name}");
    walk::text(pod, &["metadata", "annotations"], &key)
        .map(str::trim)
        .filter(|text| !text.is_empty())
}

/// Deterministic, so that a pod that is restored again does not differ. (Velero uses a random
/// name.)
fn generated_name(pod: &Object) -> String {
    let namespace = walk::text(pod, &["metadata"], "namespace").unwrap_or_default();
    let name = walk::text(pod, &["metadata"], "name").unwrap_or_default();
    let of = format!("{namespace}/{name}");
    format!("velero-restore-init-{}", short_sha256(of.as_bytes(), 4))
}

/// The init containers of the Restore's hooks. Namespaces of hooks are target namespaces.
fn specified(pod: &Object, restore: &Restore, rules: &RestoreRules) -> Vec<Value> {
    let namespace = rules.target(walk::text(pod, &["metadata"], "namespace").unwrap_or_default());
    let labels: BTreeMap<String, String> = walk::labels(pod);
    let hooks = restore.spec.hooks.iter().flat_map(|hooks| &hooks.resources);
    hooks
        .filter(|hook| pods_of_hook(hook).is_some_and(|pods| pods.matches(namespace, &labels)))
        .flat_map(|hook| hook.post_hooks.iter().filter_map(|hook| hook.init.as_ref()))
        .flat_map(
            |InitRestoreHook {
                 init_containers, ..
             }| init_containers.iter().cloned(),
        )
        .collect()
}

/// The pod with these init containers before its own. One of its own with the name of an added one
/// comes from an earlier restore and is removed: a pod cannot have two of one name.
fn with_first(pod: &Object, added: Vec<Value>) -> Object {
    let mut pod = pod.clone();
    let spec = walk::object(&pod, &["spec"]);
    let own = spec
        .and_then(|spec| spec.get("initContainers"))
        .and_then(Value::as_array);
    let mut own = own.cloned().unwrap_or_default();
    let names: Vec<Value> = added.iter().map(|one| one["name"].clone()).collect();
    own.retain(|one| !names.contains(&one["name"]));
    let waits = own.first().is_some_and(|first| first["name"] == WAIT);
    own.splice(usize::from(waits)..usize::from(waits), added);
    walk::set(&mut pod, &["spec"], "initContainers", Value::from(own));
    pod
}

#[cfg(test)]
mod tests {
    use super::*;

    fn restore(hooks: &Value) -> Restore {
        let spec =
            json!({ "namespaceMapping": { "shop": "copy" }, "hooks": { "resources": hooks } });
        Restore::new("r", serde_json::from_value(spec).unwrap())
    }

    fn pod(annotations: &Value, init: &Value) -> Object {
        let pod = json!({
            "metadata": { "namespace": "shop", "name": "db-0", "labels": { "app": "db" }, "annotations": annotations },
            "spec": { "containers": [{ "name": "main" }], "initContainers": init },
        });
        serde_json::from_value(pod).unwrap()
    }

    /// Init containers after the action; `None` if it changes nothing.
    async fn made(pod: &Object, restore: &Restore) -> Option<Vec<Value>> {
        let namespaces = Arc::new(restore.spec.namespace_mapping.clone());
        let rules = RestoreRules {
            namespaces,
            ..RestoreRules::default()
        };
        let input = RestoreActionInput {
            item: pod,
            from_backup: pod,
            restore,
            left_to_controller: None,
        };
        let item = InitHooks(Arc::new(rules))
            .execute(input)
            .await
            .unwrap()
            .item?;
        Some(item["spec"]["initContainers"].as_array().unwrap().clone())
    }

    fn hook(names: &[&str]) -> Value {
        let containers: Vec<Value> = names
            .iter()
            .map(|name| json!({ "name": name, "image": "i", "command": ["c"] }))
            .collect();
        json!({ "name": "h", "postHooks": [{ "init": { "initContainers": containers } }] })
    }

    fn names(containers: &[Value]) -> Vec<&str> {
        containers
            .iter()
            .map(|one| one["name"].as_str().unwrap())
            .collect()
    }

    #[rstest::rstest]
    #[case::everywhere(json!({}), true)]
    #[case::by_target(json!({ "includedNamespaces": ["copy"] }), true)]
    #[case::not_by_source(json!({ "includedNamespaces": ["shop"] }), false)]
    #[case::excluded(json!({ "excludedNamespaces": ["copy"] }), false)]
    #[case::short_name(json!({ "includedResources": ["po"] }), true)]
    #[case::other_type(json!({ "includedResources": ["deployments"] }), false)]
    #[case::by_label(json!({ "labelSelector": { "matchLabels": { "app": "db" } } }), true)]
    #[case::other_label(json!({ "labelSelector": { "matchLabels": { "app": "web" } } }), false)]
    #[tokio::test]
    async fn init_containers_are_added_to_the_pods_of_their_hook(
        #[case] filter: Value,
        #[case] added: bool,
    ) {
        let mut hook = hook(&["warm"]);
        hook.as_object_mut()
            .unwrap()
            .extend(filter.as_object().unwrap().clone());
        let made = made(
            &pod(&json!({}), &json!([{ "name": "own" }])),
            &restore(&json!([hook])),
        )
        .await;
        assert_eq!(made.is_some(), added);
        assert!(made.is_none_or(|made| names(&made) == ["warm", "own"]));
    }

    #[tokio::test]
    async fn they_come_in_the_order_of_hooks_before_those_of_the_pod_and_after_the_wait_for_files()
    {
        let restore = restore(&json!([hook(&["a", "b"]), hook(&["c"])]));
        let own = json!([{ "name": "restore-wait" }, { "name": "own" }, { "name": "b" }]);
        let made = made(&pod(&json!({}), &own), &restore).await.unwrap();
        assert_eq!(
            names(&made),
            ["restore-wait", "a", "b", "c", "own"],
            "b is of an earlier restore"
        );
        assert_eq!(made[2]["image"], "i");
    }

    #[tokio::test]
    async fn annotations_take_the_place_of_the_hooks_of_the_restore() {
        let annotations = json!({
            "init.hook.restore.velero.io/container-image": "busybox",
            "init.hook.restore.velero.io/container-name": "own",
            "init.hook.restore.velero.io/command": r#"["/bin/warm", "--all"]"#,
        });
        let restore = restore(&json!([hook(&["warm"])]));
        let one = made(&pod(&annotations, &json!(null)), &restore)
            .await
            .unwrap();
        assert_eq!(
            one,
            [json!({ "name": "own", "image": "busybox", "command": ["/bin/warm", "--all"] })]
        );
        let image = json!({ "init.hook.restore.velero.io/container-image": "busybox" });
        let [bare] = &made(&pod(&image, &json!([])), &restore).await.unwrap()[..] else {
            panic!("not one")
        };
        let name = bare["name"].as_str().unwrap();
        assert!(
            name.starts_with("velero-restore-init-") && name.len() == 28,
            "{name}"
        );
        assert_eq!(bare.get("command"), None, "that of the image");
        let again = made(&pod(&image, &json!([bare])), &restore).await.unwrap();
        assert_eq!(names(&again), [name], "the same name each time");
    }
}
