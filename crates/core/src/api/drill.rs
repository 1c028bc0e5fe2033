//! Drills: restores that are only tried. Velero does not have these fields.

use std::collections::BTreeMap;

use super::{
    duration::GoDuration,
    go_json::null_default,
    kind::{api_part, api_struct},
};

api_struct! {
    /// A restore that is only tried: its namespaces are scratch ones, and are removed again.
    DrillSpec {
        #[serde(flatten)]
        settings: DrillSettings,
    }
}

api_part! {
    /// How a drill restores, and what it checks.
    DrillSettings {
        /// Limits of each scratch namespace, as in a ResourceQuota; they replace the default ones
        /// of the same name.
        quota?: BTreeMap<String, String>,
        /// Types to restore besides those that have no effect outside of their namespace, such as
        /// `certificates.cert-manager.io`.
        additional_resources?: Vec<String>,
        /// Whether claims are restored, too, whose data the backup has in CSI snapshots or in the
        /// bucket. Their volumes are new ones, and are removed with the scratch namespaces.
        volumes?: bool,
        /// Whether hooks of the restore run in its pods.
        hooks?: bool,
        /// Time to wait for workloads to become ready; unset: 10m.
        ready_timeout?: Option<GoDuration>,
        /// Whether workloads that are not ready in time fail the drill.
        require_ready?: bool,
        /// Jobs that have to succeed, and expressions that have to be true.
        checks?: Vec<DrillCheck>,
    }
}

api_struct! {
    /// A Job that has to succeed, or an expression that has to be true.
    DrillCheck {
        /// Name of the check.
        name: String,
        /// Namespace of the backup; the check is made in its scratch namespace.
        namespace: String,
        /// Type of the restored objects that the expression is about, such as `deployments.apps`.
        resource?: Option<String>,
        /// CEL expression over the list `objects` of these objects, such as
        /// `objects.all(o, o.status.readyReplicas > 0)`.
        expression?: Option<String>,
        /// Spec of the Job, as in Kubernetes.
        #[serde(
            default,
            skip_serializing_if = "serde_json::Value::is_null",
            deserialize_with = "null_default"
        )]
        #[schemars(schema_with = "super::crd::any_object")]
        job: serde_json::Value,
        /// Time limit of the Job; unset: 5m.
        timeout?: Option<GoDuration>,
    }
}
