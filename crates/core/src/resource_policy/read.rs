//! Reads a policy. All errors are found at once, each with its position.

mod filters;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Map, Value};

use super::{
    CLUSTER_SCOPED, Conditions, CsiCondition, FilterPolicies, GlobalVolumePolicies,
    INCLUDE_EXCLUDE, NAMESPACED, NamespaceLabels, NfsCondition, ResourcePolicy, SNAPSHOT_CLASS,
    TypeLists, VolumeAction, VolumeActionKind, VolumePolicy, volume::TYPES,
};
use crate::{
    config_map::{ConfigReader, join, only_value},
    quantity,
    selection::parse_selector,
    validate::{Finding, label_selector},
};

/// The controller flag for the policies of all backups; findings in them start with it.
pub const GLOBAL_POLICIES: &str = "--global-backup-volume-policies-configmap";
/// The field of the Backup that refers to the policy; findings start with it.
const FIELD: &str = "spec.resourcePolicy";
const PHASES: [&str; 3] = ["Pending", "Bound", "Lost"];
const VOLUME_MODES: [&str; 2] = ["Filesystem", "Block"];
const ACCESS_MODES: [&str; 4] = [
    "ReadWriteOnce",
    "ReadOnlyMany",
    "ReadWriteMany",
    "ReadWriteOncePod",
];
/// Allowed parts of a backup's policy.
const PARTS: [&str; 5] = [
    "version",
    CLUSTER_SCOPED,
    NAMESPACED,
    "volumePolicies",
    INCLUDE_EXCLUDE,
];
/// Allowed parts of a restore's policy.
const RESTORE_PARTS: [&str; 3] = ["version", CLUSTER_SCOPED, NAMESPACED];

/// Reads a policy from the data of a ConfigMap, which must have exactly one key.
/// Errors: all findings.
pub fn read(data: &BTreeMap<String, String>) -> Result<ResourcePolicy, Vec<Finding>> {
    let value = only_value(FIELD, "a policy", data).map_err(|finding| vec![finding])?;
    let mut reader = ConfigReader::new(FIELD);
    let policy = reader.policy(&value, &PARTS);
    reader.finish(policy)
}

/// Reads the policies for all backups, as [`read`] does (Velero `GetGlobalResourcePolicies`,
/// v1.18.3).
pub fn read_global(data: &BTreeMap<String, String>) -> Result<GlobalVolumePolicies, Vec<Finding>> {
    let value = only_value(GLOBAL_POLICIES, "a policy", data).map_err(|finding| vec![finding])?;
    let mut reader = ConfigReader::new(GLOBAL_POLICIES);
    let policy = reader.policy(&value, &PARTS);
    let ignored = policy.selecting_parts();
    reader.finish(GlobalVolumePolicies {
        volumes: policy.volumes,
        ignored,
    })
}

/// Reads the policy of a restore, as [`read`] does. It has no rules for volume data or types
/// (Velero `internal/resourcepolicies`, `ValidateForRestore`, after 1.18).
pub fn read_for_restore(data: &BTreeMap<String, String>) -> Result<FilterPolicies, Vec<Finding>> {
    let value = only_value(FIELD, "a policy", data).map_err(|finding| vec![finding])?;
    let mut reader = ConfigReader::new(FIELD);
    let policy = reader.policy(&value, &RESTORE_PARTS);
    reader.finish(policy.filters)
}

impl ConfigReader {
    fn policy(&mut self, value: &Value, parts: &[&str]) -> ResourcePolicy {
        let Some(fields) = self.fields(value, "", parts) else {
            return ResourcePolicy::default();
        };
        match fields.get("version").and_then(Value::as_str) {
            Some("v1") => {}
            Some(other) => self.find("version", format!("{other:?} is not known; write v1")),
            None => self.find("version", "is missing; write v1"),
        }
        let filters = self.filter_policies(fields);
        let volumes = self.list(fields, "", "volumePolicies");
        let volumes = volumes.into_iter().flatten().enumerate();
        let volumes = volumes
            .map(|(at, rule)| self.rule(rule, &format!("volumePolicies[{at}]")))
            .collect();
        let (types, namespaces) = fields
            .get(INCLUDE_EXCLUDE)
            .map(|value| self.include_exclude(value))
            .unwrap_or_default();
        ResourcePolicy {
            volumes,
            types,
            namespaces,
            filters,
        }
    }

    fn rule(&mut self, value: &Value, at: &str) -> VolumePolicy {
        let Some(fields) = self.fields(value, at, &["conditions", "action"]) else {
            return VolumePolicy::default();
        };
        let conditions = match fields.get("conditions") {
            Some(conditions) => self.conditions(conditions, &format!("{at}.conditions")),
            None => Conditions::default(),
        };
        let at = format!("{at}.action");
        let action = if let Some(action) = fields.get("action") {
            self.action(action, &at)
        } else {
            self.find(&at, "is missing; say what is done with the volumes");
            VolumeAction::default()
        };
        VolumePolicy { conditions, action }
    }

    fn action(&mut self, value: &Value, at: &str) -> VolumeAction {
        let Some(fields) = self.fields(value, at, &["type", "parameters"]) else {
            return VolumeAction::default();
        };
        let kind = match fields
            .get("type")
            .and_then(Value::as_str)
            .unwrap_or_default()
        {
            "skip" => VolumeActionKind::Skip,
            "fs-backup" => VolumeActionKind::FsBackup,
            "snapshot" => VolumeActionKind::Snapshot,
            "custom" => VolumeActionKind::Custom,
            other => {
                let message =
                    format!("{other:?} is not one of skip, fs-backup, snapshot and custom");
                self.find(&format!("{at}.type"), message);
                VolumeActionKind::default()
            }
        };
        let parameters = match fields.get("parameters") {
            None | Some(Value::Null) => BTreeMap::new(),
            Some(Value::Object(parameters)) => parameters.clone().into_iter().collect(),
            Some(_) => {
                self.find(&format!("{at}.parameters"), "is not a map");
                BTreeMap::new()
            }
        };
        // Parameters for a plugin's action are the plugin's own.
        let unchecked = parameters
            .iter()
            .filter(|_| kind != VolumeActionKind::Custom);
        for (name, value) in unchecked {
            let problem = if name != SNAPSHOT_CLASS {
                "is not followed here"
            } else if kind != VolumeActionKind::Snapshot {
                "is a parameter of snapshot only"
            } else if value.as_str().is_none_or(str::is_empty) {
                "is no name of a VolumeSnapshotClass"
            } else {
                continue;
            };
            self.find(&format!("{at}.parameters.{name}"), problem);
        }
        VolumeAction { kind, parameters }
    }

    fn conditions(&mut self, value: &Value, at: &str) -> Conditions {
        let known = [
            "capacity",
            "storageClass",
            "nfs",
            "csi",
            "volumeTypes",
            "pvcLabels",
            "pvcPhase",
            "pvcVolumeMode",
            "pvcAccessModes",
        ];
        let Some(fields) = self.fields(value, at, &known) else {
            return Conditions::default();
        };
        let volume_types = self.known_texts(fields, at, "volumeTypes", "kind of volume", TYPES);
        let claim_phases = self.known_texts(fields, at, "pvcPhase", "phase of a claim", &PHASES);
        let claim_volume_mode = self.text(fields, at, "pvcVolumeMode");
        if !claim_volume_mode.is_empty() {
            self.check_known(
                &join(at, "pvcVolumeMode"),
                "mode of a volume",
                &VOLUME_MODES,
                &claim_volume_mode,
            );
        }
        let claim_access_modes =
            self.known_texts(fields, at, "pvcAccessModes", "access mode", &ACCESS_MODES);
        let capacity = fields.get("capacity").filter(|value| !value.is_null());
        Conditions {
            capacity: capacity
                .map(|range| self.range(range, &format!("{at}.capacity")))
                .unwrap_or_default(),
            storage_classes: self.texts(fields, at, "storageClass"),
            nfs: fields
                .get("nfs")
                .map(|nfs| self.nfs(nfs, &format!("{at}.nfs"))),
            csi: fields
                .get("csi")
                .map(|csi| self.csi(csi, &format!("{at}.csi"))),
            volume_types,
            claim_labels: self.labels(fields, at, "pvcLabels"),
            claim_phases,
            claim_volume_mode,
            claim_access_modes: claim_access_modes.into_iter().collect(),
        }
    }

    /// `least,most`, either of which may be missing; zero counts as missing.
    fn range(&mut self, value: &Value, at: &str) -> (Option<u128>, Option<u128>) {
        const FORM: &str = "write \"least,most\", such as \"10Gi,100Gi\", \"10Gi,\" or \",100Gi\"";
        let Some(text) = value.as_str() else {
            self.find(at, format!("is not a text; {FORM}"));
            return (None, None);
        };
        if text.trim().is_empty() {
            return (None, None);
        }
        let Some((least, most)) = text.split_once(',') else {
            self.find(at, format!("{text:?} has no comma; {FORM}"));
            return (None, None);
        };
        let mut side = |text: &str| {
            let text = text.trim();
            let bytes = quantity::bytes(text);
            if !text.is_empty() && bytes.is_none() {
                self.find(at, format!("{text:?} is no amount; {FORM}"));
            }
            bytes.filter(|bytes| *bytes > 0)
        };
        let range = (side(least), side(most));
        if let (Some(least), Some(most)) = range
            && least > most
        {
            self.find(at, format!("the least of {text:?} is more than the most"));
        }
        range
    }

    fn nfs(&mut self, value: &Value, at: &str) -> NfsCondition {
        let Some(fields) = self.fields(value, at, &["server", "path"]) else {
            return NfsCondition::default();
        };
        NfsCondition {
            server: self.text(fields, at, "server"),
            path: self.text(fields, at, "path"),
        }
    }

    fn csi(&mut self, value: &Value, at: &str) -> CsiCondition {
        let Some(fields) = self.fields(value, at, &["driver", "volumeAttributes"]) else {
            return CsiCondition::default();
        };
        let condition = CsiCondition {
            driver: self.text(fields, at, "driver"),
            volume_attributes: self.labels(fields, at, "volumeAttributes"),
        };
        if condition.driver.is_empty() && !condition.volume_attributes.is_empty() {
            self.find(
                &format!("{at}.driver"),
                "is missing; attributes mean something for one driver only",
            );
        }
        condition
    }

    fn include_exclude(&mut self, value: &Value) -> (TypeLists, NamespaceLabels) {
        let known = [
            "includedClusterScopedResources",
            "excludedClusterScopedResources",
            "includedNamespaceScopedResources",
            "excludedNamespaceScopedResources",
            "includedNamespacesByLabel",
            "excludedNamespacesByLabel",
            "labelSelectorLogic",
        ];
        let [types @ .., included, excluded, logic] = known;
        let Some(fields) = self.fields(value, INCLUDE_EXCLUDE, &known) else {
            return Default::default();
        };
        let all = match self.text(fields, INCLUDE_EXCLUDE, logic).as_str() {
            "" | "OR" => false,
            "AND" => true,
            other => {
                self.find(
                    &join(INCLUDE_EXCLUDE, logic),
                    format!("{other:?} is not one of OR and AND"),
                );
                false
            }
        };
        let [included, excluded] = [included, excluded].map(|name| self.selectors(fields, name));
        (
            self.types(fields, INCLUDE_EXCLUDE, types),
            NamespaceLabels {
                included,
                excluded,
                all,
            },
        )
    }

    /// Label selectors for namespaces, given as texts.
    fn selectors(&mut self, fields: &Map<String, Value>, name: &str) -> Vec<LabelSelector> {
        let mut selectors = Vec::new();
        for (index, text) in self.texts(fields, INCLUDE_EXCLUDE, name).iter().enumerate() {
            let at = format!("{INCLUDE_EXCLUDE}.{name}[{index}]");
            if text.trim().is_empty() {
                self.find(&at, "is empty, which would be all namespaces; name a label");
                continue;
            }
            match parse_selector(text) {
                Ok(selector) => {
                    if let Some(finding) = label_selector(&at, &selector).into_iter().next() {
                        self.find(&at, finding.message);
                    }
                    selectors.push(selector);
                }
                Err(why) => self.find(&at, why),
            }
        }
        selectors
    }

    fn types(&mut self, fields: &Map<String, Value>, at: &str, known: [&str; 4]) -> TypeLists {
        let [
            included_cluster_scoped,
            excluded_cluster_scoped,
            included_namespace_scoped,
            excluded_namespace_scoped,
        ] = known.map(|name| {
            let list = self.texts(fields, at, name);
            if list.iter().any(|item| item == "*") {
                self.find(
                    &format!("{at}.{name}"),
                    "\"*\" can not be given in a policy; name the types",
                );
            }
            list
        });
        for (name, included, excluded) in [
            (known[1], &included_cluster_scoped, &excluded_cluster_scoped),
            (
                known[3],
                &included_namespace_scoped,
                &excluded_namespace_scoped,
            ),
        ] {
            for item in excluded.iter().filter(|item| included.contains(item)) {
                self.find(
                    &format!("{at}.{name}"),
                    format!("{item:?} is included, too; remove it from one list"),
                );
            }
        }
        TypeLists {
            included_cluster_scoped,
            excluded_cluster_scoped,
            included_namespace_scoped,
            excluded_namespace_scoped,
        }
    }

    /// Texts, all of which must be known.
    fn known_texts(
        &mut self,
        fields: &Map<String, Value>,
        at: &str,
        name: &str,
        what: &str,
        known: &[&str],
    ) -> Vec<String> {
        let texts = self.texts(fields, at, name);
        for text in &texts {
            self.check_known(&join(at, name), what, known, text);
        }
        texts
    }

    fn check_known(&mut self, at: &str, what: &str, known: &[&str], text: &str) {
        if !known.contains(&text) {
            self.find(
                at,
                format!("{text:?} is no {what}; known are {}", known.join(", ")),
            );
        }
    }

    fn labels(
        &mut self,
        fields: &Map<String, Value>,
        at: &str,
        name: &str,
    ) -> BTreeMap<String, String> {
        let map = match fields.get(name) {
            None | Some(Value::Null) => return BTreeMap::new(),
            Some(Value::Object(map)) => map,
            Some(_) => {
                self.find(&join(at, name), "is not a map");
                return BTreeMap::new();
            }
        };
        map.keys()
            .map(|key| (key.clone(), self.text(map, &join(at, name), key)))
            .collect()
    }
}
