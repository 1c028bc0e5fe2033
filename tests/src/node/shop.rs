//! An application on the node: pods that serve the data of a ConfigMap, and one that keeps files in
//! a volume.

use serde_json::{Value, json};

use super::{Node, START, TOOLS, csi::STORAGE_CLASS};
use crate::{api::objects_in, wait::until};

/// Fills the volume of the orders, unless that was done before.
const FILL: &str = "\
set -e
if ! [ -e /orders/complete ]; then
  cd /orders
  seq -w 500000 > list
  mkdir invoices
  for month in 01 02 03; do dd if=/dev/urandom of=invoices/$month bs=64k count=48; done
  touch complete
fi
exec sleep 1000000
";

impl Node {
    /// Creates the application in a namespace `shop`.
    pub async fn create_shop(&self) -> anyhow::Result<()> {
        self.apply(&objects()).await
    }

    /// Adds a Deployment `orders` to the namespace, which keeps files in the volume `/orders`, and
    /// waits until they are complete.
    pub async fn add_orders(&self) -> anyhow::Result<()> {
        self.apply(&orders()).await?;
        self.wait_for_orders().await
    }

    /// Applies objects as the cluster's administrator.
    pub async fn apply(&self, objects: &[Value]) -> anyhow::Result<()> {
        let kubectl = self.kubectl()?;
        for object in objects {
            kubectl
                .succeeds(&["apply", "-f", &kubectl.manifest(object)?])
                .await?;
        }
        Ok(())
    }

    /// Waits until its pods answer.
    pub async fn wait_for_shop(&self) -> anyhow::Result<()> {
        self.wait_for_available("server").await
    }

    /// Waits until the pod with the orders runs.
    pub async fn wait_for_orders(&self) -> anyhow::Result<()> {
        self.wait_for_available("orders").await
    }

    async fn wait_for_available(&self, name: &str) -> anyhow::Result<()> {
        let deployments = objects_in(&self.client, "shop", "apps/v1", "Deployment");
        until(&format!("{name} is available"), START, async || {
            let deployment = deployments.get(name).await?;
            anyhow::Ok(
                deployment.data["status"]["availableReplicas"]
                    == deployment.data["spec"]["replicas"],
            )
        })
        .await
    }
}

/// Two pods that serve the settings.
fn objects() -> Vec<Value> {
    let labels = json!({ "app": "server" });
    vec![
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "shop" } }),
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "settings", "namespace": "shop" },
            "data": { "colour": "blue" } }),
        json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "server", "namespace": "shop" },
            "spec": { "replicas": 2, "selector": { "matchLabels": labels }, "template": {
                "metadata": { "labels": labels },
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{ "name": "server", "image": TOOLS,
                        "args": ["httpd", "-f", "-p", "8080", "-h", "/settings"],
                        "readinessProbe": { "httpGet": { "path": "/colour", "port": 8080 }, "periodSeconds": 1 },
                        "volumeMounts": [{ "name": "settings", "mountPath": "/settings" }] }],
                    "volumes": [{ "name": "settings", "configMap": { "name": "settings" } }] } } } }),
    ]
}

/// A claim, and a pod that has filled its volume when it is ready.
fn orders() -> [Value; 2] {
    let labels = json!({ "app": "orders" });
    let ready = ["busybox", "test", "-e", "/orders/complete"];
    [
        json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": { "name": "orders", "namespace": "shop" },
            "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": STORAGE_CLASS,
                "resources": { "requests": { "storage": "100Mi" } } } }),
        json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "orders", "namespace": "shop" },
            "spec": { "replicas": 1, "strategy": { "type": "Recreate" }, "selector": { "matchLabels": labels },
                "template": { "metadata": { "labels": labels }, "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{ "name": "orders", "image": TOOLS, "args": ["sh", "-c", FILL],
                        "readinessProbe": { "exec": { "command": ready }, "periodSeconds": 1 },
                        "volumeMounts": [{ "name": "orders", "mountPath": "/orders" }] }],
                    "volumes": [{ "name": "orders", "persistentVolumeClaim": { "claimName": "orders" } }] } } } }),
    ]
}
