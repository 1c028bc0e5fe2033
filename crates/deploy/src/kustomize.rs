//! The part of kustomize that `deploy/` uses. An unknown field or patch is an error, and a test
//! compares the output with kustomize's for the same folders.

use std::collections::BTreeSet;

use regex::Regex;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::files::FILES;

/// Why the manifests cannot be built. Only a mistake in `deploy/` or in the options causes this.
#[derive(Debug, thiserror::Error)]
pub enum DeployError {
    /// The program contains no file or folder of this name.
    #[error("deploy/{0} is not part of this program")]
    Missing(String),
    /// A file cannot be parsed.
    #[error("deploy/{path} cannot be read: {why}")]
    Unreadable {
        /// Path below `deploy/`.
        path: String,
        /// What is wrong with the file.
        why: String,
    },
    /// A patch changes nothing, or cannot be applied.
    #[error("a patch of deploy/{path} for {kind} {name} cannot be applied: {why}")]
    Patch {
        /// The kustomization that contains the patch.
        path: String,
        /// The target kind.
        kind: String,
        /// The target name, as a pattern.
        name: String,
        /// What is wrong with the patch.
        why: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Kustomization {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(default)]
    resources: Vec<String>,
    #[serde(default)]
    patches: Vec<TargetedPatch>,
    #[serde(default)]
    images: Vec<Image>,
    #[serde(default)]
    configurations: Vec<String>,
    #[serde(default)]
    config_map_generator: Vec<GeneratedMap>,
    #[serde(default)]
    common_annotations: Map<String, Value>,
}

/// A ConfigMap of files, under a name without a content hash.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GeneratedMap {
    name: String,
    namespace: String,
    files: Vec<String>,
    options: MapOptions,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct MapOptions {
    disable_name_suffix_hash: bool,
    #[serde(default)]
    labels: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TargetedPatch {
    target: Target,
    patch: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Target {
    kind: String,
    /// A regular expression for the whole name, as in kustomize.
    name: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Image {
    name: String,
    new_name: String,
    new_tag: String,
}

/// Configuration of transformers: further fields with images.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Configuration {
    images: Vec<ImageField>,
}

/// A field with an image.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ImageField {
    kind: String,
    /// The names that lead to it, separated by `/`; names of lists end with `[]`.
    path: String,
}

/// The fields with images that need no configuration.
const CONTAINER_IMAGES: &str = "spec/template/spec/containers[]/image";

/// The objects of a folder of `deploy/`.
pub(crate) fn build(folder: &str) -> Result<Vec<Value>, DeployError> {
    let mut objects = Vec::new();
    add_component(&mut objects, folder)?;
    Ok(objects)
}

/// Adds the resources of a folder, and applies its patches, images and annotations.
pub(crate) fn add_component(objects: &mut Vec<Value>, folder: &str) -> Result<(), DeployError> {
    let path = join(folder, "kustomization.yaml");
    let kustomization: Kustomization =
        serde_saphyr::from_str(file(&path)?).map_err(|error| unreadable(&path, &error))?;
    for resource in &kustomization.resources {
        let below = join(folder, resource);
        // A resource that is not a file is a folder.
        if FILES.iter().any(|(name, _)| *name == below) {
            let documents: Vec<Value> = serde_saphyr::from_multiple(file(&below)?)
                .map_err(|error| unreadable(&below, &error))?;
            objects.extend(documents);
        } else {
            objects.append(&mut build(&below)?);
        }
    }
    for map in &kustomization.config_map_generator {
        objects.push(map.object(folder, &path)?);
    }
    for patch in &kustomization.patches {
        patch.change(&path, objects)?;
    }
    let fields = image_fields(folder, &kustomization.configurations)?;
    for object in objects {
        set_images(object, CONTAINER_IMAGES, &kustomization.images);
        for field in &fields {
            if object["kind"] == *field.kind {
                set_images(object, &field.path, &kustomization.images);
            }
        }
        if !kustomization.common_annotations.is_empty() {
            let annotations = Value::Object(kustomization.common_annotations.clone());
            json_patch::merge(
                object,
                &json!({ "metadata": { "annotations": annotations } }),
            );
        }
    }
    Ok(())
}

impl GeneratedMap {
    fn object(&self, folder: &str, path: &str) -> Result<Value, DeployError> {
        if !self.options.disable_name_suffix_hash {
            let why = format!(
                "the name of the ConfigMap {} changes with its files, which is not known here",
                self.name
            );
            return Err(DeployError::Unreadable {
                path: path.to_owned(),
                why,
            });
        }
        let mut data = Map::new();
        for name in &self.files {
            data.insert(name.clone(), json!(file(&join(folder, name))?));
        }
        Ok(
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": data,
            "metadata": { "name": self.name, "namespace": self.namespace, "labels": self.options.labels } }),
        )
    }
}

impl TargetedPatch {
    fn change(&self, path: &str, objects: &mut Vec<Value>) -> Result<(), DeployError> {
        let name = Regex::new(&format!("^(?:{})$", self.target.name))
            .map_err(|error| self.failed(path, error.to_string()))?;
        let change: Value = serde_saphyr::from_str(&self.patch)
            .map_err(|error| self.failed(path, error.to_string()))?;
        if !objects.iter().any(|object| self.is_target(object, &name)) {
            return Err(self.failed(path, "there is no such object".to_owned()));
        }
        if change["$patch"] == "delete" {
            objects.retain(|object| !self.is_target(object, &name));
            return Ok(());
        }
        let operations: json_patch::Patch = serde_json::from_value(change)
            .map_err(|error| self.failed(path, format!("it is no JSON patch: {error}")))?;
        for object in objects {
            if self.is_target(object, &name) {
                json_patch::patch(object, &operations)
                    .map_err(|error| self.failed(path, error.to_string()))?;
            }
        }
        Ok(())
    }

    fn is_target(&self, object: &Value, name: &Regex) -> bool {
        let (kind, found) = crate::id(object);
        kind == self.target.kind && name.is_match(found)
    }

    fn failed(&self, path: &str, why: String) -> DeployError {
        DeployError::Patch {
            path: path.to_owned(),
            kind: self.target.kind.clone(),
            name: self.target.name.clone(),
            why,
        }
    }
}

/// The fields with images that these files of a folder name.
fn image_fields(folder: &str, files: &[String]) -> Result<Vec<ImageField>, DeployError> {
    let mut fields = Vec::new();
    for name in files {
        let path = join(folder, name);
        let configuration: Configuration =
            serde_saphyr::from_str(file(&path)?).map_err(|error| unreadable(&path, &error))?;
        fields.extend(configuration.images);
    }
    Ok(fields)
}

/// Replaces the image in all fields of this path.
fn set_images(object: &mut Value, path: &str, images: &[Image]) {
    let mut found = vec![object];
    for name in path.split('/') {
        let is_list = name.ends_with("[]");
        let next = found
            .into_iter()
            .filter_map(|value| value.get_mut(name.trim_end_matches("[]")));
        found = if is_list {
            next.filter_map(Value::as_array_mut).flatten().collect()
        } else {
            next.collect()
        };
    }
    for value in found {
        if let Some(image) = images.iter().find(|image| *value == *image.name) {
            *value = json!(format!("{}:{}", image.new_name, image.new_tag));
        }
    }
}

fn file(path: &str) -> Result<&'static str, DeployError> {
    let found = FILES.iter().find(|(name, _)| *name == path);
    found
        .map(|(_, text)| *text)
        .ok_or_else(|| DeployError::Missing(path.to_owned()))
}

/// The path of a name relative to a folder.
fn join(folder: &str, name: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in name.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." | "" => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

fn unreadable(path: &str, error: &serde_saphyr::Error) -> DeployError {
    DeployError::Unreadable {
        path: path.to_owned(),
        why: error.to_string(),
    }
}

/// Names of the direct subfolders of a folder.
pub(crate) fn folders(below: &str) -> Vec<&'static str> {
    let prefix = format!("{below}/");
    let names = FILES
        .iter()
        .filter_map(|(path, _)| path.strip_prefix(prefix.as_str())?.split('/').next());
    let names: BTreeSet<&str> = names.collect();
    names.into_iter().collect()
}
