//! A real application: what the demo and the tests back up, destroy and restore.

use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::{
    api::{
        core::v1::Namespace,
        rbac::v1::{ClusterRole, ClusterRoleBinding},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, PostParams},
    core::ApiResource,
};
use serde_json::{Value, json};

use crate::wait::{eventually, gone, when};

/// An application in three namespaces.
#[derive(Clone, Debug)]
pub struct App {
    name: String,
    config_maps: usize,
}

/// Connections that load uses; the API server and it share two cores.
const CONNECTIONS: usize = 16;

impl App {
    /// An application of this name with so many ConfigMaps in each of its namespaces, and a little of all else.
    pub fn new(name: &str, config_maps: usize) -> Self {
        Self { name: name.to_owned(), config_maps }
    }

    /// Its namespaces.
    pub fn namespaces(&self) -> [String; 3] {
        ["web", "data", "batch"].map(|part| format!("{}-{part}", self.name))
    }

    /// The plural name of its own custom resource.
    pub fn crd(&self) -> String {
        format!("{}widgets.example.com", self.name)
    }

    fn kind(&self) -> String {
        format!("{}Widget", self.name)
    }

    /// Creates everything, and waits until the cluster's controllers have made the pods. The number of objects created.
    pub async fn create(&self, client: &Client) -> anyhow::Result<usize> {
        let mut count = self.create_cluster_scoped(client).await?;
        let mut objects = Vec::new();
        for namespace in self.namespaces() {
            objects.extend(self.objects(&namespace));
        }
        count += objects.len();
        create_all(client, objects).await?;
        self.wait_for_pods(client).await?;
        Ok(count)
    }

    async fn create_cluster_scoped(&self, client: &Client) -> anyhow::Result<usize> {
        let post = PostParams::default();
        let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
        crds.create(&post, &serde_json::from_value(self.crd_manifest())?).await?;
        let name = format!("{}-reader", self.name);
        let rules = json!([{ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"] }]);
        let role = json!({ "metadata": { "name": name }, "rules": rules });
        Api::<ClusterRole>::all(client.clone()).create(&post, &serde_json::from_value(role)?).await?;
        let binding = json!({ "metadata": { "name": name },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name },
            "subjects": [{ "kind": "ServiceAccount", "name": "shop", "namespace": self.namespaces()[0] }] });
        Api::<ClusterRoleBinding>::all(client.clone())
            .create(&post, &serde_json::from_value(binding)?)
            .await?;
        for namespace in self.namespaces() {
            let object = json!({ "metadata": { "name": namespace, "labels": { "app": self.name }, "annotations": { "team": "shop" } } });
            Api::<Namespace>::all(client.clone()).create(&post, &serde_json::from_value(object)?).await?;
            // The cluster adds it to every namespace; a listing taken before that would differ for no reason of ours.
            let account: Api<k8s_openapi::api::core::v1::ServiceAccount> =
                Api::namespaced(client.clone(), &namespace);
            eventually("default ServiceAccount", Duration::from_secs(30), async || {
                Ok::<_, kube::Error>(when(account.get_opt("default").await?.is_some(), "none"))
            })
            .await?;
        }
        eventually("custom resource served", Duration::from_secs(30), async || {
            let crd = crds.get(&self.crd()).await?;
            let conditions = crd.status.and_then(|status| status.conditions).unwrap_or_default();
            Ok::<_, kube::Error>(when(
                conditions
                    .iter()
                    .any(|condition| condition.type_ == "Established" && condition.status == "True"),
                "not established",
            ))
        })
        .await?;
        Ok(3 + self.namespaces().len())
    }

    fn crd_manifest(&self) -> Value {
        let plural = format!("{}widgets", self.name);
        let spec = json!({ "type": "object", "properties": { "size": { "type": "integer" }, "colour": { "type": "string" } } });
        json!({
            "metadata": { "name": self.crd() },
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": { "plural": plural, "singular": format!("{}widget", self.name), "kind": self.kind() },
                "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": {
                    "type": "object", "properties": { "spec": spec, "status": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } } } } }],
            },
        })
    }

    /// Everything in one namespace, with the types to create it by.
    fn objects(&self, namespace: &str) -> Vec<(ApiResource, Value)> {
        let mut all = Vec::new();
        let mut add = |group: &str, version: &str, kind: &str, plural: &str, name: &str, body: Value| {
            let resource = ApiResource {
                group: group.to_owned(),
                version: version.to_owned(),
                api_version: if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") },
                kind: kind.to_owned(),
                plural: plural.to_owned(),
            };
            let mut object = json!({ "apiVersion": resource.api_version, "kind": kind,
                "metadata": { "name": name, "namespace": namespace, "labels": { "app": self.name } } });
            for (field, value) in body.as_object().into_iter().flatten() {
                object[field] = value.clone();
            }
            all.push((resource, object));
        };
        for number in 0..self.config_maps {
            let text =
                format!("setting {number} of {namespace}: <ünïcode> & \"quotes\"\n").repeat(1 + number % 12);
            let data = json!({ "data": { "settings.ini": text, "number": number.to_string() }, "binaryData": { "blob": "AAECAwQ=" } });
            add("", "v1", "ConfigMap", "configmaps", &format!("config-{number:04}"), data);
        }
        for number in 0..self.config_maps / 5 {
            let data =
                json!({ "type": "Opaque", "data": { "password": "c2VjcmV0" }, "immutable": number % 7 == 0 });
            add("", "v1", "Secret", "secrets", &format!("secret-{number:04}"), data);
            let widget = json!({ "spec": { "size": number, "colour": "blue" }, "status": { "ready": true } });
            add(
                "example.com",
                "v1",
                &self.kind(),
                &format!("{}widgets", self.name),
                &format!("widget-{number:04}"),
                widget,
            );
        }
        add("", "v1", "ServiceAccount", "serviceaccounts", "shop", json!({}));
        add(
            "rbac.authorization.k8s.io",
            "v1",
            "Role",
            "roles",
            "shop",
            json!({
            "rules": [{ "apiGroups": [""], "resources": ["secrets"], "verbs": ["get"] }] }),
        );
        add(
            "rbac.authorization.k8s.io",
            "v1",
            "RoleBinding",
            "rolebindings",
            "shop",
            json!({
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "shop" },
            "subjects": [{ "kind": "ServiceAccount", "name": "shop", "namespace": namespace }] }),
        );
        for number in 0..4 {
            let name = format!("server-{number}");
            let labels = json!({ "app": self.name, "server": name });
            add(
                "apps",
                "v1",
                "Deployment",
                "deployments",
                &name,
                json!({ "spec": {
                "replicas": 2, "selector": { "matchLabels": labels },
                "template": { "metadata": { "labels": labels }, "spec": { "serviceAccountName": "shop", "containers": [
                    { "name": "main", "image": "example.com/server:1", "env": [{ "name": "N", "value": number.to_string() }] }] } } } }),
            );
            add(
                "",
                "v1",
                "Service",
                "services",
                &name,
                json!({ "spec": {
                "selector": labels, "ports": [{ "port": 80, "targetPort": 8080 }] } }),
            );
        }
        add(
            "",
            "v1",
            "Service",
            "services",
            "headless",
            json!({ "spec": { "clusterIP": "None", "ports": [{ "port": 5432 }] } }),
        );
        add(
            "apps",
            "v1",
            "StatefulSet",
            "statefulsets",
            "database",
            json!({ "spec": {
            "serviceName": "headless", "replicas": 1, "selector": { "matchLabels": { "db": "yes" } },
            "template": { "metadata": { "labels": { "db": "yes" } }, "spec": { "containers": [
                { "name": "main", "image": "example.com/db:1" }] } } } }),
        );
        add(
            "batch",
            "v1",
            "CronJob",
            "cronjobs",
            "nightly",
            json!({ "spec": {
            "schedule": "0 3 * * *", "suspend": true, "jobTemplate": { "spec": { "template": { "spec": {
                "restartPolicy": "Never", "containers": [{ "name": "main", "image": "example.com/job:1" }] } } } } } }),
        );
        add(
            "networking.k8s.io",
            "v1",
            "NetworkPolicy",
            "networkpolicies",
            "closed",
            json!({ "spec": { "podSelector": {} } }),
        );
        add(
            "policy",
            "v1",
            "PodDisruptionBudget",
            "poddisruptionbudgets",
            "one",
            json!({ "spec": {
            "minAvailable": 1, "selector": { "matchLabels": { "app": self.name } } } }),
        );
        all
    }

    /// Deployments make two pods each, the StatefulSet one, in each namespace.
    async fn wait_for_pods(&self, client: &Client) -> anyhow::Result<()> {
        for namespace in self.namespaces() {
            let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(client.clone(), &namespace);
            eventually("pods made by the controllers", Duration::from_mins(1), async || {
                let count = pods.list(&kube::api::ListParams::default()).await?.items.len();
                Ok::<_, kube::Error>(when(count == 9, format!("{count} of 9 in {namespace}")))
            })
            .await?;
        }
        Ok(())
    }

    /// Deletes everything, and waits until it is gone.
    pub async fn destroy(&self, client: &Client) -> anyhow::Result<()> {
        let (delete, name) = (DeleteParams::background(), format!("{}-reader", self.name));
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
        for namespace in self.namespaces() {
            namespaces.delete(&namespace, &delete).await?;
        }
        crds.delete(&self.crd(), &delete).await?;
        Api::<ClusterRole>::all(client.clone()).delete(&name, &delete).await?;
        Api::<ClusterRoleBinding>::all(client.clone()).delete(&name, &delete).await?;
        for namespace in self.namespaces() {
            gone(&namespaces, &namespace).await?;
        }
        gone(&crds, &self.crd()).await
    }
}

/// Creates objects over several connections.
pub async fn create_all(client: &Client, objects: Vec<(ApiResource, Value)>) -> anyhow::Result<()> {
    stream::iter(objects)
        .map(|(resource, object)| {
            let client = client.clone();
            async move {
                let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
                let api: Api<DynamicObject> = Api::namespaced_with(client, &namespace, &resource);
                api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
                anyhow::Ok(())
            }
        })
        .buffer_unordered(CONNECTIONS)
        .try_collect()
        .await
}
