//! Services: addresses and ports that the cluster assigned are removed; those that a user chose
//! stay.

use serde_json::Value;

use super::json::{self, Object};

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Clears cluster IPs (except `None`) and assigned node ports. `from` is the service in the backup:
/// it shows which ports a user chose.
pub(crate) fn rewrite(item: &mut Object, from: &Object, preserve_node_ports: bool) {
    let headless = json::text(item, &["spec"], "clusterIP") == Some("None");
    let ports = (!preserve_node_ports).then(|| Explicit::of(from));
    let Some(spec) = json::object_mut(item, &["spec"]) else {
        return;
    };
    if !headless {
        spec.remove("clusterIP");
        spec.remove("clusterIPs");
    }
    let Some(explicit) = ports else { return };
    if !explicit.health_check {
        spec.remove("healthCheckNodePort");
    }
    for port in json::list_mut(spec, &[], "ports")
        .into_iter()
        .flatten()
        .filter_map(Value::as_object_mut)
    {
        if !explicit.keeps(port) {
            port.remove("nodePort");
        }
    }
}

/// Ports whose node port a user has set, according to the last applied manifest and the managed
/// fields.
#[derive(Default)]
struct Explicit {
    /// Names, or numbers for ports without a name.
    applied: Vec<String>,
    /// Number and protocol.
    managed: Vec<(u64, String)>,
    health_check: bool,
}

impl Explicit {
    fn of(item: &Object) -> Self {
        let mut found = Self::default();
        found.read_applied(item);
        found.read_managed(item);
        found
    }

    fn keeps(&self, port: &Object) -> bool {
        let number = port.get("port").and_then(Value::as_u64).unwrap_or_default();
        let protocol = port
            .get("protocol")
            .and_then(Value::as_str)
            .unwrap_or("TCP");
        self.applied.contains(&key(port))
            || self
                .managed
                .iter()
                .any(|(n, p)| *n == number && p == protocol)
    }

    fn read_applied(&mut self, item: &Object) {
        let Some(manifest) = json::text(item, &["metadata", "annotations"], LAST_APPLIED) else {
            return;
        };
        // An unreadable manifest tells nothing; the API server never parses it either.
        let Ok(manifest) = serde_json::from_str::<Object>(manifest) else {
            return;
        };
        let Some(spec) = json::object(&manifest, &["spec"]) else {
            return;
        };
        self.health_check |= is_set(spec.get("healthCheckNodePort"));
        for port in spec
            .get("ports")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_object)
        {
            if is_set(port.get("nodePort")) {
                self.applied.push(key(port));
            }
        }
    }

    fn read_managed(&mut self, item: &Object) {
        let entries = json::object(item, &["metadata"])
            .and_then(|m| m.get("managedFields"))
            .and_then(Value::as_array);
        for fields in entries
            .into_iter()
            .flatten()
            .filter_map(|e| json::object(e.as_object()?, &["fieldsV1", "f:spec"]))
        {
            self.health_check |= fields.contains_key("f:healthCheckNodePort");
            for (k, owned) in json::object(fields, &["f:ports"]).into_iter().flatten() {
                if owned.get("f:nodePort").is_none() {
                    continue;
                }
                // The key of a list entry: `k:{"port":80,"protocol":"TCP"}`.
                let Some(Ok(k)) = k.strip_prefix("k:").map(serde_json::from_str::<Object>) else {
                    continue;
                };
                if let Some(number) = k.get("port").and_then(Value::as_u64) {
                    let protocol = k.get("protocol").and_then(Value::as_str).unwrap_or("TCP");
                    self.managed.push((number, protocol.to_owned()));
                }
            }
        }
    }
}

fn is_set(number: Option<&Value>) -> bool {
    number.and_then(Value::as_u64).is_some_and(|n| n > 0)
}

fn key(port: &Object) -> String {
    match port.get("name").and_then(Value::as_str) {
        Some(name) if !name.is_empty() => name.to_owned(),
        _ => port
            .get("port")
            .map(ToString::to_string)
            .unwrap_or_default(),
    }
}
