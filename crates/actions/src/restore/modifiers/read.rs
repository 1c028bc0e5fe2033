//! Reads modifiers from a ConfigMap.

use std::collections::BTreeMap;

use backup_core::{
    config_map::{ConfigReader, join, only_value, yaml},
    selection::{IncludesExcludes, LabelFilter},
    validate::Finding,
};
use regex::Regex;
use serde_json::{Map, Value};

use super::{
    Patches, ResourceModifiers, Rule,
    conditions::{Conditions, pattern},
    json_patch::{JsonPatch, operation},
    strategic,
};
use crate::{RuleUse, restore::json::Object};

/// The field of the Restore that refers to the modifiers; findings start with it.
pub const FIELD: &str = "spec.resourceModifier";

/// The controller flag for the modifiers of restores that have none.
pub const DEFAULT: &str = "--default-resource-modifier-configmap";

/// Reads modifiers from the data of a ConfigMap, which must have exactly one key. Findings start
/// with `field`: [`FIELD`] or [`DEFAULT`]. Errors: all findings.
pub fn read(
    field: &'static str,
    data: &BTreeMap<String, String>,
) -> Result<ResourceModifiers, Vec<Finding>> {
    let value = only_value(field, "the modifier", data).map_err(|finding| vec![finding])?;
    let mut reader = Reader(ConfigReader::new(field));
    let modifiers = ResourceModifiers {
        field,
        ..reader.modifiers(&value)
    };
    reader.0.finish(modifiers)
}

struct Reader(ConfigReader);

impl Reader {
    fn modifiers(&mut self, value: &Value) -> ResourceModifiers {
        let Some(fields) = self
            .0
            .fields(value, "", &["version", "resourceModifierRules"])
        else {
            return ResourceModifiers::default();
        };
        let version = self.text(fields, "", "version");
        if !version.eq_ignore_ascii_case("v1") {
            self.0
                .find("version", format!("{version:?} is not known; write v1"));
        }
        let list = self
            .0
            .list(fields, "", "resourceModifierRules")
            .map(Vec::as_slice)
            .unwrap_or_default();
        if list.is_empty() {
            self.0.find("resourceModifierRules", "has no rules");
        }
        let rules = list.iter().enumerate();
        let rules =
            rules.filter_map(|(at, rule)| self.rule(rule, &format!("resourceModifierRules[{at}]")));
        ResourceModifiers {
            rules: rules.collect(),
            ..ResourceModifiers::default()
        }
    }

    fn rule(&mut self, value: &Value, at: &str) -> Option<Rule> {
        let kinds = ["patches", "mergePatches", "strategicPatches"];
        let fields = self
            .0
            .fields(value, at, &["conditions", kinds[0], kinds[1], kinds[2]])?;
        let conditions = self.conditions(
            fields.get("conditions").unwrap_or(&Value::Null),
            &join(at, "conditions"),
        );
        let given = kinds.map(|kind| {
            self.0
                .list(fields, at, kind)
                .map(Vec::as_slice)
                .unwrap_or_default()
        });
        let patches = match given {
            [json, [], []] if !json.is_empty() => {
                Some(Patches::Json(self.operations(json, &join(at, kinds[0]))))
            }
            [[], merge, []] if !merge.is_empty() => {
                Some(Patches::Merge(self.patches(merge, &join(at, kinds[1]))))
            }
            [[], [], strategic] if !strategic.is_empty() => {
                let at = join(at, kinds[2]);
                let patches = self.patches(strategic, &at);
                for (index, patch) in patches.iter().enumerate() {
                    if let Err(why) = strategic::check(patch) {
                        self.0.find(&format!("{at}[{index}].patchData"), why);
                    }
                }
                Some(Patches::Strategic(patches))
            }
            [[], [], []] => {
                self.0.find(
                    at,
                    "has no patches; give patches, mergePatches or strategicPatches",
                );
                None
            }
            _ => {
                self.0
                    .find(at, "has patches of several kinds; make a rule of each");
                None
            }
        };
        Some(Rule {
            used: RuleUse::new(format!("{FIELD}: {at}")),
            conditions: conditions?,
            patches: patches?,
        })
    }

    fn conditions(&mut self, value: &Value, at: &str) -> Option<Conditions> {
        let empty = Map::new();
        let known = [
            "groupResource",
            "namespaces",
            "resourceNameRegex",
            "labelSelector",
            "matches",
        ];
        let fields = self.0.fields(value, at, &known).unwrap_or(&empty);
        let group_resource = self.group_resource(fields, at);
        let name = self.text(fields, at, "resourceNameRegex");
        let name = (!name.is_empty()).then(|| Regex::new(&name));
        if let Some(Err(error)) = &name {
            self.0.find(
                &join(at, "resourceNameRegex"),
                format!("is no regular expression: {error}"),
            );
        }
        let name = name.transpose().ok().flatten();
        let namespaces = self.0.texts(fields, at, "namespaces");
        let labels = self.labels(fields, at);
        let matches = self.matches(fields, at);
        Some(Conditions {
            group_resource: group_resource?,
            namespaces: IncludesExcludes::new(&namespaces, &[]),
            name,
            labels,
            matches,
        })
    }

    fn group_resource(&mut self, fields: &Object, at: &str) -> Option<Regex> {
        let glob = self.text(fields, at, "groupResource");
        let at = join(at, "groupResource");
        if glob.is_empty() {
            self.0.find(
                &at,
                "is missing; name a type, such as deployments.apps, or write a pattern",
            );
            return None;
        }
        if glob == "namespaces" {
            self.0.find(
                &at,
                "namespaces are restored as they are, as with Velero: no rule applies to them",
            );
        }
        let pattern = pattern(&glob);
        if let Err(why) = &pattern {
            self.0.find(&at, format!("{glob:?} is no pattern: {why}"));
        }
        pattern.ok()
    }

    fn labels(&mut self, fields: &Object, at: &str) -> LabelFilter {
        let at = join(at, "labelSelector");
        let Some(value) = fields.get("labelSelector").filter(|value| !value.is_null()) else {
            return LabelFilter::default();
        };
        LabelFilter::of(&self.0.label_selector(value, &at), &None)
    }

    fn matches(&mut self, fields: &Object, at: &str) -> JsonPatch {
        let at = join(at, "matches");
        let list = self
            .0
            .list(fields, at.trim_end_matches(".matches"), "matches")
            .into_iter()
            .flatten();
        let mut tests = Vec::new();
        for (index, value) in list.enumerate() {
            let at = format!("{at}[{index}]");
            let Some(fields) = self.0.fields(value, &at, &["path", "value"]) else {
                continue;
            };
            let path = self.text(fields, &at, "path");
            let value = self.text(fields, &at, "value");
            self.keep(operation("test", "", &path, &value), &at, &mut tests);
        }
        JsonPatch(tests)
    }

    fn operations(&mut self, list: &[Value], at: &str) -> JsonPatch {
        let mut operations = Vec::new();
        for (index, value) in list.iter().enumerate() {
            let at = format!("{at}[{index}]");
            let Some(fields) = self
                .0
                .fields(value, &at, &["operation", "from", "path", "value"])
            else {
                continue;
            };
            let [name, from, path, value] =
                ["operation", "from", "path", "value"].map(|field| self.text(fields, &at, field));
            self.keep(operation(&name, &from, &path, &value), &at, &mut operations);
        }
        JsonPatch(operations)
    }

    fn keep<T>(&mut self, read: Result<T, (&'static str, String)>, at: &str, into: &mut Vec<T>) {
        match read {
            Ok(read) => into.push(read),
            Err((field, why)) => self.0.find(&join(at, field), why),
        }
    }

    fn patches(&mut self, list: &[Value], at: &str) -> Vec<Object> {
        let mut patches = Vec::new();
        for (index, value) in list.iter().enumerate() {
            let at = format!("{at}[{index}]");
            let Some(fields) = self.0.fields(value, &at, &["patchData"]) else {
                continue;
            };
            let text = self.text(fields, &at, "patchData");
            match yaml(&text) {
                Ok(Value::Object(patch)) => patches.push(patch),
                Ok(_) => self.0.find(
                    &join(&at, "patchData"),
                    "is not a map; write a part of an object",
                ),
                Err(error) => {
                    self.0.find(
                        &join(&at, "patchData"),
                        format!("is neither YAML nor JSON: {error}"),
                    );
                }
            }
        }
        patches
    }

    /// A text; a number or boolean counts as its text.
    fn text(&mut self, fields: &Object, at: &str, name: &str) -> String {
        match fields.get(name) {
            Some(scalar @ (Value::Number(_) | Value::Bool(_))) => scalar.to_string(),
            _ => self.0.text(fields, at, name),
        }
    }
}
