//! ConfigMaps that configure built-in actions of restores. Pure.
//!
//! They are in the namespace of the installation, with the label [`SELECTOR`] and a label named
//! after the action with the value `RestoreItemAction` (Velero
//! `pkg/plugin/framework/common/plugin_config.go`, v1.18). Velero reads them for each item; we read
//! them once, and find errors in them before a restore starts.

use std::{collections::BTreeMap, sync::Arc};

use backup_core::validate::Finding;
use kube::Client;

use super::{
    action::RestoreItemAction,
    change_image_name::{ChangeImageName, ImageRule},
    change_storage_class::{ChangeStorageClass, ClassReplacements},
};

/// The label of every ConfigMap that configures an action.
const SELECTOR: &str = "velero.io/plugin-config";
const KIND: &str = "RestoreItemAction";
/// Velero removed the mapping of nodes in 1.18: a claim gets its node when its pod is scheduled.
const NODE_SELECTOR: &str = "velero.io/change-pvc-node-selector";

/// The fields of a ConfigMap that configure actions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigMapData {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub data: BTreeMap<String, String>,
}

/// The configuration of all built-in actions that have one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ActionConfigs {
    storage_classes: Option<ClassReplacements>,
    images: Option<Vec<ImageRule>>,
    /// ConfigMaps without effect, with reasons, as sentences for users.
    pub ignored: Vec<String>,
}

impl ActionConfigs {
    /// The selector of the ConfigMaps to read.
    pub const SELECTOR: &'static str = SELECTOR;

    /// Errors: all findings in the ConfigMaps.
    pub fn read(config_maps: &[ConfigMapData]) -> Result<Self, Vec<Finding>> {
        let mut findings = Vec::new();
        let storage_classes = only(config_maps, ChangeStorageClass::NAME, &mut findings);
        let storage_classes = storage_classes.map(|map| {
            for (from, _) in map.data.iter().filter(|(_, to)| to.trim().is_empty()) {
                let message = format!(
                    "{from:?} is mapped to nothing; name the StorageClass that takes its place"
                );
                findings.push(finding(map, message));
            }
            let trimmed = map
                .data
                .iter()
                .map(|(from, to)| (from.clone(), to.trim().to_owned()));
            ClassReplacements {
                config_map: map.name.clone(),
                classes: trimmed.collect(),
            }
        });
        let images = only(config_maps, ChangeImageName::NAME, &mut findings);
        let images = images.map(|map| {
            let mut rules = Vec::new();
            for (key, value) in &map.data {
                match ImageRule::parse(value) {
                    Some(rule) => rules.push(rule),
                    None => findings.push(finding(
                        map,
                        format!("{key:?} is {value:?}; write \"old,new\": the part of the name of an image that goes, and the \
                                 one that comes"),
                    )),
                }
            }
            rules
        });
        let ignored = of_action(config_maps, NODE_SELECTOR).map(|map| {
            format!(
                "ConfigMap {:?} configures {NODE_SELECTOR}, which does nothing since Velero 1.18: a claim gets its node when a \
                 pod with it is scheduled; remove the ConfigMap",
                map.name
            )
        });
        let configs = Self {
            storage_classes,
            images,
            ignored: ignored.collect(),
        };
        if findings.is_empty() {
            Ok(configs)
        } else {
            Err(findings)
        }
    }

    /// The configured actions. `client` is used to check StorageClasses.
    pub fn actions(&self, client: &Client) -> Vec<Arc<dyn RestoreItemAction>> {
        let storage_classes = self
            .storage_classes
            .iter()
            .filter(|replacements| !replacements.classes.is_empty());
        let storage_classes = storage_classes.map(|replacements| {
            Arc::new(ChangeStorageClass::new(
                replacements.clone(),
                client.clone(),
            )) as Arc<dyn RestoreItemAction>
        });
        let images = self.images.iter().filter(|rules| !rules.is_empty());
        let images = images
            .map(|rules| Arc::new(ChangeImageName(rules.clone())) as Arc<dyn RestoreItemAction>);
        storage_classes.chain(images).collect()
    }
}

fn finding(map: &ConfigMapData, message: impl Into<String>) -> Finding {
    Finding::new(format!("ConfigMap {}", map.name), message)
}

fn of_action<'a>(
    maps: &'a [ConfigMapData],
    action: &'a str,
) -> impl Iterator<Item = &'a ConfigMapData> {
    maps.iter().filter(move |map| {
        map.labels.contains_key(SELECTOR)
            && map.labels.get(action).map(String::as_str) == Some(KIND)
    })
}

/// The ConfigMap of an action; `None`, and a finding, if there are several.
fn only<'a>(
    maps: &'a [ConfigMapData],
    action: &'a str,
    findings: &mut Vec<Finding>,
) -> Option<&'a ConfigMapData> {
    let all: Vec<&ConfigMapData> = of_action(maps, action).collect();
    let [first, others @ ..] = all.as_slice() else {
        return None;
    };
    if others.is_empty() {
        return Some(first);
    }
    let names: Vec<&str> = all.iter().map(|map| map.name.as_str()).collect();
    let message = format!(
        "the ConfigMaps {} all configure {action}; take its label off all but one",
        names.join(", ")
    );
    findings.push(finding(first, message));
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(name: &str, action: &str, data: &[(&str, &str)]) -> ConfigMapData {
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        ConfigMapData {
            name: name.to_owned(),
            labels: [(SELECTOR, ""), (action, KIND)].iter().map(own).collect(),
            data: data.iter().map(own).collect(),
        }
    }

    #[test]
    fn each_action_has_the_config_map_with_its_label() {
        let mut other_kind = map("k", ChangeStorageClass::NAME, &[("x", "y")]);
        other_kind.labels.insert(
            ChangeStorageClass::NAME.to_owned(),
            "ObjectStore".to_owned(),
        );
        let mut unlabelled = map("u", ChangeStorageClass::NAME, &[("x", "y")]);
        unlabelled.labels.remove(SELECTOR);
        let maps = [
            map("c", ChangeStorageClass::NAME, &[("old", " new\n")]),
            map(
                "i",
                ChangeImageName::NAME,
                &[("a", "old.example,new.example")],
            ),
            map("n", NODE_SELECTOR, &[("node-a", "node-b")]),
            map("p", "velero.io/pod-volume-restore", &[]),
            other_kind,
            unlabelled,
        ];
        let configs = ActionConfigs::read(&maps).unwrap();
        let classes = configs.storage_classes.unwrap();
        assert_eq!(classes.config_map, "c");
        assert_eq!(
            classes.classes,
            [("old".to_owned(), "new".to_owned())].into()
        );
        assert_eq!(configs.images.unwrap().len(), 1);
        assert!(
            configs.ignored[0].contains("\"n\"") && configs.ignored.len() == 1,
            "{:?}",
            configs.ignored
        );
        assert_eq!(ActionConfigs::read(&[]), Ok(ActionConfigs::default()));
    }

    #[test]
    fn everything_that_is_wrong_is_found_and_names_the_config_map() {
        let maps = [
            map("a", ChangeStorageClass::NAME, &[]),
            map("b", ChangeStorageClass::NAME, &[]),
            map(
                "i",
                ChangeImageName::NAME,
                &[
                    ("1", "no comma"),
                    ("2", ",new"),
                    ("3", "old, "),
                    ("4", "a,b"),
                ],
            ),
        ];
        let found = ActionConfigs::read(&maps).unwrap_err();
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), 4, "{found:?}");
        assert!(
            found[0].starts_with("ConfigMap a: the ConfigMaps a, b all configure"),
            "{found:?}"
        );
        assert!(
            found[1].starts_with("ConfigMap i: \"1\" is \"no comma\""),
            "{found:?}"
        );
        let empty =
            ActionConfigs::read(&[map("c", ChangeStorageClass::NAME, &[("old", "")])]).unwrap_err();
        assert!(empty[0].message.contains("mapped to nothing"), "{empty:?}");
    }
}
