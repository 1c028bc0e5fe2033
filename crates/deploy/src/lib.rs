//! The installed objects: the manifests of `deploy/`, and the options for them. One source for
//! users of kustomize, for the Helm chart (`cargo xtask generate`) and for `kubectl backup
//! install`. Pure: no client, no files at run time.

mod files;
mod kinds;
mod kustomize;
mod options;

#[cfg(test)]
mod tests;

use backup_core::{cluster::INSTALLATION, labels::PART_OF};
use serde_json::{Value, json};

pub use kinds::{KINDS, Kind, Stage, kind};
pub use kustomize::DeployError;
pub use options::{Mode, Options, enables_data_mover, enables_snapshots};

/// The namespace used in `deploy/`.
pub const NAMESPACE: &str = "velero";
/// The two programs: name of the Deployment, of its image, and of many related objects.
pub const PROGRAMS: [&str; 2] = ["backup-webhook", "backup-controller"];
/// The program that the controller runs in pods to move volume data: name of its image, and of the
/// account of its pods.
pub const MOVER: &str = "backup-mover";
/// Argument of the controller with the image of [`MOVER`].
pub const MOVER_ARG: &str = "--mover-image=$(MOVER_IMAGE)";
/// The variable that this argument refers to.
pub const MOVER_VARIABLE: &str = "MOVER_IMAGE";

/// The namespace and the definitions, which are applied once and stay when the programs are removed
/// (`deploy/once`). Not for guard mode: there both belong to another server.
pub fn once(namespace: &str) -> Result<Vec<Value>, DeployError> {
    let mut objects = kustomize::build("once")?;
    for object in &mut objects {
        set_namespace(object, namespace);
    }
    Ok(objects)
}

/// The programs with their rights and policies (`deploy`), with the selected components.
pub fn programs(namespace: &str, options: &Options) -> Result<Vec<Value>, DeployError> {
    let mut objects = kustomize::build("")?;
    for component in options.components() {
        kustomize::add_component(&mut objects, &component)?;
    }
    for object in &mut objects {
        set_namespace(object, namespace);
        options.change(object);
    }
    Ok(objects)
}

/// All objects that any options install, for finding installed objects: the programs of both modes
/// with all profiles, without the objects that are applied once.
pub fn everything(namespace: &str) -> Result<Vec<Value>, DeployError> {
    let all = Options {
        profiles: Options::known_profiles(),
        monitoring: true,
        network_policies: true,
        ..Options::default()
    };
    let mut objects = programs(namespace, &all)?;
    let guard = programs(
        namespace,
        &Options {
            mode: Mode::Guard,
            ..all
        },
    )?;
    let new: Vec<Value> = guard
        .into_iter()
        .filter(|object| !objects.iter().any(|other| id(other) == id(object)))
        .collect();
    objects.extend(new);
    Ok(objects)
}

/// Kind and name, which identify an object within an installation.
pub fn id(object: &Value) -> (&str, &str) {
    (
        object["kind"].as_str().unwrap_or_default(),
        object["metadata"]["name"].as_str().unwrap_or_default(),
    )
}

/// Whether labels show that an object belongs to an installation of ours.
pub fn is_ours(labels: Option<&std::collections::BTreeMap<String, String>>) -> bool {
    labels
        .and_then(|labels| labels.get(PART_OF))
        .is_some_and(|part| part == INSTALLATION)
}

/// Replaces the namespace of `deploy/` everywhere: in metadata, in subjects, in references of
/// webhooks, and in the selectors of policies (as `deploy/namespace` does for kustomize).
fn set_namespace(object: &mut Value, namespace: &str) {
    if object["kind"] == "Namespace" {
        object["metadata"]["name"] = json!(namespace);
    }
    replace_namespace(object, namespace);
}

fn replace_namespace(value: &mut Value, namespace: &str) {
    match value {
        Value::Array(items) => {
            for item in items {
                replace_namespace(item, namespace);
            }
        }
        Value::Object(fields) => {
            for (key, field) in fields {
                if matches!(key.as_str(), "namespace" | "kubernetes.io/metadata.name")
                    && *field == NAMESPACE
                {
                    *field = json!(namespace);
                } else {
                    replace_namespace(field, namespace);
                }
            }
        }
        _ => {}
    }
}
