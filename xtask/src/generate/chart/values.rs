//! The values of the chart: their defaults, taken from `deploy/`, and their schema.

use anyhow::Context as _;
use backup_deploy::{NAMESPACE, Options, id, programs};
use serde_json::{Value, json};

const DEFAULTS: &str = include_str!("values.yaml");

/// `values.yaml`.
pub(super) fn defaults() -> anyhow::Result<String> {
    let objects = programs(NAMESPACE, &Options::default())?;
    let mut text = DEFAULTS.to_owned();
    for program in ["webhook", "controller"] {
        let name = format!("backup-{program}");
        let deployment = objects
            .iter()
            .find(|object| id(object) == ("Deployment", &name));
        let spec = &deployment.with_context(|| format!("no Deployment {name}"))?["spec"];
        let pod = &spec["template"]["spec"];
        let container = &pod["containers"][0];
        let resources = serde_saphyr::to_string(&container["resources"])?;
        let resources: String = resources
            .lines()
            .map(|line| format!("    {line}\n"))
            .collect();
        text = text
            .replace(
                &format!("{{{program}.replicas}}"),
                &spec["replicas"].to_string(),
            )
            .replace(&format!("{{{program}.resources}}\n"), &resources);
        let scratch = pod["volumes"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|volume| volume["name"] == "scratch");
        if let Some(size) = scratch.and_then(|volume| volume["emptyDir"]["sizeLimit"].as_str()) {
            text = text.replace("{controller.scratchSize}", size);
        }
    }
    Ok(text.replace("{profiles}", &Options::known_profiles().join(", ")))
}

/// `values.schema.json`. Unknown values are refused, so that a typing mistake is noticed.
pub(super) fn schema() -> anyhow::Result<String> {
    let text = json!({ "type": "string" });
    let texts = json!({ "type": "array", "items": { "type": "string", "minLength": 1 } });
    let objects = json!({ "type": "array", "items": { "type": "object" } });
    let flag = json!({ "type": "boolean" });
    let replicas = json!({ "type": "integer", "minimum": 1, "maximum": 100 });
    let resources = json!({ "type": "object" });
    let schema = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the chart backup",
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "mode": { "enum": ["engine", "guard"] },
            "definitions": flag,
            "profiles": { "type": "array", "uniqueItems": true, "items": { "enum": Options::known_profiles() } },
            "hostNetwork": flag,
            "monitoring": flag,
            "networkPolicies": fields(&json!({
                "enabled": flag,
                "storePorts": {
                    "type": "array", "minItems": 1, "items": { "type": "integer", "minimum": 1, "maximum": 65535 },
                },
            })),
            // Helm's own value, for charts that include this one.
            "global": { "type": "object" },
            "image": fields(&json!({
                "registry": text,
                "tag": text,
                "pullPolicy": { "enum": ["Always", "IfNotPresent", "Never"] },
                "pullSecrets": objects,
            })),
            "webhook": fields(&json!({
                "image": { "type": "string", "minLength": 1 },
                "replicas": replicas,
                "resources": resources,
                "extraArgs": texts,
            })),
            "controller": fields(&json!({
                "image": { "type": "string", "minLength": 1 },
                "replicas": replicas,
                "resources": resources,
                "scratchSize": { "type": "string", "pattern": "^[0-9.]+(Ki|Mi|Gi|Ti|k|M|G|T)?$" },
                "initContainers": objects,
                "features": texts,
                "extraArgs": texts,
            })),
            "mover": fields(&json!({
                "enabled": flag,
                "image": { "type": "string", "minLength": 1 },
            })),
        },
    });
    Ok(serde_json::to_string_pretty(&schema)? + "\n")
}

/// The schema of an object with only these fields.
fn fields(properties: &Value) -> Value {
    json!({ "type": "object", "additionalProperties": false, "properties": properties })
}
