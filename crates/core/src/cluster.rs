//! Requirements on a cluster: checked before an installation, and when a program starts.

use std::collections::BTreeMap;

use serde_json::Value;

/// Oldest minor version with ValidatingAdmissionPolicy, match conditions and aggregated discovery.
pub const OLDEST_MINOR: u32 = 30;

/// The value of the label [`PART_OF`](crate::labels::PART_OF) on everything that belongs to an
/// installation.
pub const INSTALLATION: &str = "backup";

/// Label by which a namespace restricts its pods (Kubernetes, Pod Security Admission).
pub const POD_SECURITY_LABEL: &str = "pod-security.kubernetes.io/enforce";
/// Level that refuses user and capabilities of the pods that move volume data. The level below,
/// `baseline`, admits them.
pub const RESTRICTED: &str = "restricted";

/// The level to which a namespace with these labels restricts its pods.
pub fn pod_security(labels: Option<&BTreeMap<String, String>>) -> &str {
    let level = labels.and_then(|labels| labels.get(POD_SECURITY_LABEL));
    level.map_or("privileged", String::as_str)
}

/// Whether a version, as an API server reports it, is new enough. Some vendors write "30+".
pub fn is_new_enough(major: &str, minor: &str) -> bool {
    version_number(major) > 1 || version_number(minor) >= OLDEST_MINOR
}

/// 0 if the text is no number.
fn version_number(text: &str) -> u32 {
    text.trim_end_matches(|c: char| !c.is_ascii_digit())
        .parse()
        .unwrap_or(0)
}

/// The container of a Velero server in a Deployment; `None` if it has none. Recognized by its image
/// and the argument `server` (Velero `pkg/install/deployment.go`, v1.18).
pub fn velero_container(deployment: &Value) -> Option<&Value> {
    let containers = deployment["spec"]["template"]["spec"]["containers"].as_array();
    containers.into_iter().flatten().find(|container| {
        let image = container["image"].as_str().unwrap_or_default();
        let repository = image
            .split('@')
            .next()
            .unwrap_or_default()
            .rsplit('/')
            .next()
            .unwrap_or_default();
        let mut words = ["command", "args"]
            .into_iter()
            .filter_map(|list| container[list].as_array())
            .flatten();
        repository.split(':').next() == Some("velero") && words.any(|word| word == "server")
    })
}

/// Whether a Deployment is a Velero server that has pods or wants some: two engines in one
/// namespace would both run every backup.
pub fn runs_velero(deployment: &Value) -> bool {
    let replicas = deployment["status"]["replicas"].as_i64().unwrap_or(0);
    let wanted = deployment["spec"]["replicas"].as_i64().unwrap_or(1);
    velero_container(deployment).is_some() && (replicas > 0 || wanted > 0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_cluster_that_is_too_old_is_known() {
        for (major, minor, fits) in [
            ("1", "30", true),
            ("1", "33+", true),
            ("2", "0", true),
            ("1", "29", false),
            ("1", "29+", false),
        ] {
            assert_eq!(is_new_enough(major, minor), fits, "{major}.{minor}");
        }
    }

    #[test]
    fn a_namespace_without_the_label_restricts_nothing() {
        let labels = [(POD_SECURITY_LABEL.to_owned(), RESTRICTED.to_owned())].into();
        assert_eq!(pod_security(Some(&labels)), RESTRICTED);
        assert_eq!(pod_security(Some(&BTreeMap::new())), "privileged");
        assert_eq!(pod_security(None), "privileged");
    }

    #[test]
    fn a_velero_server_is_told_from_other_deployments() {
        for (image, args, replicas, found) in [
            ("velero/velero:v1.18.0", &["server"][..], 1, true),
            (
                "registry:5000/mirror/velero@sha256:0000",
                &["server", "--log-level=debug"],
                1,
                true,
            ),
            ("velero/velero:v1.18.0", &["server"], 0, false),
            ("velero/velero-plugin-for-aws:v1", &["server"], 1, false),
            ("example/ui:velero", &["server"], 1, false),
            ("velero/velero:v1.18.0", &["node-agent"], 1, false),
        ] {
            let deployment = json!({
                "metadata": {"name": "velero"},
                "spec": {"replicas": replicas, "selector": {}, "template": {"spec": {"containers": [
                    {"name": "c", "image": image, "command": ["/velero"], "args": args}]}}},
                "status": {"replicas": replicas},
            });
            assert_eq!(runs_velero(&deployment), found, "{image} {args:?}");
            // A server that is stopped has its container.
            let is_server = found || replicas == 0;
            assert_eq!(velero_container(&deployment).is_some(), is_server);
        }
    }
}
