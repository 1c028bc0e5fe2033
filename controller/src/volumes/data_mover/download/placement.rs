//! Changes of a pod before it is created: where it should run, and a pod that only has its claim
//! bound. Pure.

use k8s_openapi::api::core::v1::{
    NodeSelectorRequirement, NodeSelectorTerm, Pod, PreferredSchedulingTerm,
};
use kube::ResourceExt as _;

use crate::volumes::data_mover::pod::WORK_LABEL;

/// Value of [`WORK_LABEL`] for a pod that only has its claim bound.
const PROBE: &str = "bind";
/// Largest weight of a preference.
const MAX_WEIGHT: i32 = 100;

/// Has a pod prefer a node, so that a volume that is made for it is accessible there.
pub(super) fn prefer_node(pod: &mut Pod, node: &str) {
    let Some(spec) = &mut pod.spec else {
        return;
    };
    let by_name = NodeSelectorRequirement {
        key: "metadata.name".to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node.to_owned()]),
    };
    let preferred = PreferredSchedulingTerm {
        weight: MAX_WEIGHT,
        preference: NodeSelectorTerm {
            match_fields: Some(vec![by_name]),
            ..NodeSelectorTerm::default()
        },
    };
    let affinity = spec.affinity.get_or_insert_default();
    affinity
        .node_affinity
        .get_or_insert_default()
        .preferred_during_scheduling_ignored_during_execution
        .get_or_insert_default()
        .push(preferred);
}

/// Makes a pod of the mover one that only has its claim bound: it has no secrets, and ends at once.
pub(super) fn make_probe(pod: &mut Pod) {
    let labels = pod.labels_mut();
    labels.insert(WORK_LABEL.to_owned(), PROBE.to_owned());
    let containers = pod.spec.iter_mut().flat_map(|spec| &mut spec.containers);
    for container in containers {
        container.args = Some(vec!["--version".to_owned()]);
        container.env = None;
    }
}

pub(super) fn is_probe(pod: &Pod) -> bool {
    pod.labels().get(WORK_LABEL).map(String::as_str) == Some(PROBE)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod() -> Pod {
        let container = json!({"name": "mover", "image": "i", "args": ["restore", "--snapshot=k1"],
            "env": [{"name": "BACKUP_REPOSITORY_PASSWORD", "value": "secret"}],
            "volumeDevices": [{"name": "volume", "devicePath": "/dev/volume"}]});
        serde_json::from_value(json!({
            "metadata": {"name": "d", "labels": {WORK_LABEL: "restore"}},
            "spec": {"containers": [container]},
        }))
        .unwrap()
    }

    #[test]
    fn a_pod_prefers_the_node_that_was_chosen_for_the_application() {
        let mut pod = pod();
        prefer_node(&mut pod, "n1");
        let pod = serde_json::to_value(&pod).unwrap();
        let name = json!({"key": "metadata.name", "operator": "In", "values": ["n1"]});
        let expected = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 100, "preference": {"matchFields": [name]}}]}});
        assert_eq!(pod["spec"]["affinity"], expected);
    }

    #[test]
    fn a_probe_has_the_claim_and_neither_work_nor_secrets() {
        let mut pod = pod();
        assert!(!is_probe(&pod));
        make_probe(&mut pod);
        assert!(is_probe(&pod));
        let spec = pod.spec.unwrap();
        let container = &spec.containers[0];
        assert_eq!(
            container.args.as_deref(),
            Some(&["--version".to_owned()][..])
        );
        assert_eq!(container.env, None);
        assert!(container.volume_devices.is_some());
    }
}
