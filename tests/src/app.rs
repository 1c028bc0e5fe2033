//! A real application that the demo and the tests back up, destroy and restore.

use std::time::Duration;

use k8s_openapi::{
    api::{
        core::v1::{Namespace, Pod, ServiceAccount},
        rbac::v1::{ClusterRole, ClusterRoleBinding},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::{
    api::{ApiExt as _, create_all},
    install::crds_served,
    wait::{TIMEOUT, eventually, when},
};

const GONE: Duration = Duration::from_mins(2);
const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// An application in three namespaces.
#[derive(Clone, Debug)]
pub struct App {
    name: String,
    config_maps: usize,
}

impl App {
    /// An application of this name, with `config_maps` ConfigMaps in each of its namespaces and a
    /// few objects of other kinds.
    pub fn new(name: &str, config_maps: usize) -> Self {
        Self {
            name: name.to_owned(),
            config_maps,
        }
    }

    pub fn namespaces(&self) -> [String; 3] {
        ["web", "data", "batch"].map(|part| format!("{}-{part}", self.name))
    }

    /// Name of the application's CustomResourceDefinition.
    pub fn crd(&self) -> String {
        format!("{}widgets.example.com", self.name)
    }

    fn kind(&self) -> String {
        format!("{}Widget", self.name)
    }

    /// Creates all objects, and waits until the cluster's controllers have made the pods. Returns
    /// the number of objects created.
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
        let name = format!("{}-reader", self.name);
        let rules =
            json!([{ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"] }]);
        let mut objects = vec![
            self.crd_manifest(),
            json!({ "apiVersion": RBAC, "kind": "ClusterRole", "metadata": { "name": name }, "rules": rules }),
            json!({ "apiVersion": RBAC, "kind": "ClusterRoleBinding", "metadata": { "name": name },
                "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name },
                "subjects": [{ "kind": "ServiceAccount", "name": "shop", "namespace": self.namespaces()[0] }] }),
        ];
        objects.extend(self.namespaces().map(|namespace| {
            json!({ "apiVersion": "v1", "kind": "Namespace",
                "metadata": { "name": namespace, "labels": { "app": self.name }, "annotations": { "team": "shop" } } })
        }));
        let count = objects.len();
        create_all(client, objects).await?;
        for namespace in self.namespaces() {
            // The cluster adds it to every namespace; a listing taken before that would differ
            // although our code is correct.
            let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), &namespace);
            accounts
                .wait_until("default", "exists", TIMEOUT, |_| true)
                .await?;
        }
        crds_served(client, &[self.crd()]).await?;
        Ok(count)
    }

    fn crd_manifest(&self) -> Value {
        let plural = format!("{}widgets", self.name);
        let spec = json!({ "type": "object", "properties": { "size": { "type": "integer" }, "colour": { "type": "string" } } });
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": { "name": self.crd() },
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": { "plural": plural, "singular": format!("{}widget", self.name), "kind": self.kind() },
                "versions": [{ "name": "v1", "served": true, "storage": true, "subresources": { "status": {} }, "schema": { "openAPIV3Schema": {
                    "type": "object", "properties": { "spec": spec, "status": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } } } } }],
            },
        })
    }

    /// All objects of one namespace.
    fn objects(&self, namespace: &str) -> Vec<Value> {
        let mut all = Vec::new();
        let mut add = |api_version: &str, kind: &str, name: &str, mut body: Value| {
            let metadata =
                json!({ "name": name, "namespace": namespace, "labels": { "app": self.name } });
            json_patch::merge(
                &mut body,
                &json!({ "apiVersion": api_version, "kind": kind, "metadata": metadata }),
            );
            all.push(body);
        };
        for number in 0..self.config_maps {
            let text = format!("setting {number} of {namespace}: <ünïcode> & \"quotes\"\n")
                .repeat(1 + number % 12);
            let data = json!({ "data": { "settings.ini": text, "number": number.to_string() }, "binaryData": { "blob": "AAECAwQ=" } });
            add("v1", "ConfigMap", &format!("config-{number:04}"), data);
        }
        for number in 0..self.config_maps / 5 {
            let data = json!({ "type": "Opaque", "data": { "password": "c2VjcmV0" }, "immutable": number % 7 == 0 });
            add("v1", "Secret", &format!("secret-{number:04}"), data);
            let widget = json!({ "spec": { "size": number, "colour": "blue" } });
            add(
                "example.com/v1",
                &self.kind(),
                &format!("widget-{number:04}"),
                widget,
            );
        }
        add("v1", "ServiceAccount", "shop", json!({}));
        let rules = json!([{ "apiGroups": [""], "resources": ["secrets"], "verbs": ["get"] }]);
        add(RBAC, "Role", "shop", json!({ "rules": rules }));
        let binding = json!({
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "shop" },
            "subjects": [{ "kind": "ServiceAccount", "name": "shop", "namespace": namespace }] });
        add(RBAC, "RoleBinding", "shop", binding);
        for number in 0..4 {
            let name = format!("server-{number}");
            let labels = json!({ "app": self.name, "server": name });
            let container = json!({ "name": "main", "image": "example.com/server:1",
                "env": [{ "name": "N", "value": number.to_string() }] });
            let template = json!({ "metadata": { "labels": labels },
                "spec": { "serviceAccountName": "shop", "containers": [container] } });
            let spec = json!({ "replicas": 2, "selector": { "matchLabels": labels }, "template": template });
            add("apps/v1", "Deployment", &name, json!({ "spec": spec }));
            let ports = json!([{ "port": 80, "targetPort": 8080 }]);
            add(
                "v1",
                "Service",
                &name,
                json!({ "spec": { "selector": labels, "ports": ports } }),
            );
        }
        let headless = json!({ "clusterIP": "None", "ports": [{ "port": 5432 }] });
        add("v1", "Service", "headless", json!({ "spec": headless }));
        let database = json!({
            "serviceName": "headless", "replicas": 1, "selector": { "matchLabels": { "db": "yes" } },
            "template": { "metadata": { "labels": { "db": "yes" } }, "spec": { "containers": [
                { "name": "main", "image": "example.com/db:1" }] } } });
        add(
            "apps/v1",
            "StatefulSet",
            "database",
            json!({ "spec": database }),
        );
        let nightly = json!({
            "schedule": "0 3 * * *", "suspend": true, "jobTemplate": { "spec": { "template": { "spec": {
                "restartPolicy": "Never", "containers": [{ "name": "main", "image": "example.com/job:1" }] } } } } });
        add("batch/v1", "CronJob", "nightly", json!({ "spec": nightly }));
        add(
            "networking.k8s.io/v1",
            "NetworkPolicy",
            "closed",
            json!({ "spec": { "podSelector": {} } }),
        );
        let budget =
            json!({ "minAvailable": 1, "selector": { "matchLabels": { "app": self.name } } });
        add(
            "policy/v1",
            "PodDisruptionBudget",
            "one",
            json!({ "spec": budget }),
        );
        all
    }

    /// Waits for the pods of each namespace: two for each Deployment, one for the StatefulSet.
    async fn wait_for_pods(&self, client: &Client) -> anyhow::Result<()> {
        for namespace in self.namespaces() {
            let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
            eventually(
                "pods made by the controllers",
                Duration::from_mins(1),
                async || {
                    let count = pods.list_all().await?.len();
                    Ok::<_, kube::Error>(when(count == 9, format!("{count} of 9 in {namespace}")))
                },
            )
            .await?;
        }
        Ok(())
    }

    /// Deletes all objects, and waits until they are gone.
    pub async fn destroy(&self, client: &Client) -> anyhow::Result<()> {
        let reader = format!("{}-reader", self.name);
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
        for namespace in self.namespaces() {
            namespaces.delete_object(&namespace).await?;
        }
        crds.delete_object(&self.crd()).await?;
        Api::<ClusterRole>::all(client.clone())
            .delete_object(&reader)
            .await?;
        Api::<ClusterRoleBinding>::all(client.clone())
            .delete_object(&reader)
            .await?;
        for namespace in self.namespaces() {
            namespaces.wait_gone(&namespace, GONE).await?;
        }
        crds.wait_gone(&self.crd(), GONE).await
    }
}
