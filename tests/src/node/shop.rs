//! An application on the node: pods that serve the data of a ConfigMap.

use serde_json::{Value, json};

use super::{Node, START, TOOLS};
use crate::{api::objects_in, wait::until};

impl Node {
    /// Creates the application in a namespace `shop`.
    pub async fn create_shop(&self) -> anyhow::Result<()> {
        let kubectl = self.kubectl()?;
        for object in objects() {
            kubectl
                .succeeds(&["apply", "-f", &kubectl.manifest(&object)?])
                .await?;
        }
        Ok(())
    }

    /// Waits until its pods answer.
    pub async fn wait_for_shop(&self) -> anyhow::Result<()> {
        let deployments = objects_in(&self.client, "shop", "apps/v1", "Deployment");
        until("the shop is available", START, async || {
            let deployment = deployments.get("server").await?;
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
