//! The zone of a volume (Velero `pkg/backup/item_backupper.go`, v1.18). Pure.

use serde_json::Value;

use backup_actions::json::list;

const LABELS: [&str; 2] = [
    "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/zone",
];
/// Only here a volume may be in several zones.
const GKE: &str = "topology.gke.io/zone";
const KEYS: [&str; 6] = [
    "topology.ebs.csi.aws.com/zone",
    "topology.disk.csi.azure.com/zone",
    "topology.manila.csi.openstack.org/zone",
    "topology.cinder.csi.openstack.org/zone",
    LABELS[0],
    LABELS[1],
];

/// The zone in the labels of a PersistentVolume, or in its node affinity; several are joined with
/// `__`. Empty if unknown.
pub(crate) fn of(volume: &Value) -> String {
    let labels = &volume["metadata"]["labels"];
    if let Some(zone) = LABELS
        .iter()
        .find_map(|label| labels.get(label).and_then(Value::as_str))
    {
        return zone.to_owned();
    }
    let mut several = Vec::new();
    for term in list(volume, "/spec/nodeAffinity/required/nodeSelectorTerms") {
        for wish in list(term, "/matchExpressions").filter(|wish| wish["operator"] == "In") {
            let (Some(key), Some(zone)) = (wish["key"].as_str(), wish["values"][0].as_str()) else {
                continue;
            };
            if KEYS.contains(&key) {
                return zone.to_owned();
            }
            if key == GKE {
                several.push(zone.to_owned());
            }
        }
    }
    several.join("__")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn on(terms: &[(&str, &[&str])]) -> Value {
        let terms: Vec<_> = terms
            .iter()
            .map(|(key, values)| {
                json!({ "matchExpressions": [
                    { "key": "other", "operator": "In", "values": ["x"] },
                    { "key": key, "operator": "In", "values": values },
                ] })
            })
            .collect();
        json!({ "spec": { "nodeAffinity": { "required": { "nodeSelectorTerms": terms } } } })
    }

    #[test]
    fn the_zone_is_that_of_the_labels_or_of_the_nodes() {
        let labels = |key: &str| json!({ "metadata": { "labels": { key: "a" } } });
        assert_eq!(of(&labels("topology.kubernetes.io/zone")), "a");
        assert_eq!(of(&labels("failure-domain.beta.kubernetes.io/zone")), "a");
        assert_eq!(
            of(&on(&[("topology.ebs.csi.aws.com/zone", &["b", "c"])])),
            "b"
        );
        assert_eq!(of(&on(&[(GKE, &["d"]), (GKE, &["e"])])), "d__e");
        assert_eq!(of(&on(&[("unknown", &["f"])])), "");
        assert_eq!(of(&json!({})), "");
    }
}
