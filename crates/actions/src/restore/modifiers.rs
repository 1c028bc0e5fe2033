//! Resource modifiers: changes that a user defines for items before they are created. Pure.
//!
//! `spec.resourceModifier` of a Restore names a ConfigMap with rules (Velero
//! `internal/resourcemodifiers`, v1.18). Each rule has conditions, which are evaluated on the item
//! after all actions, and patches of one kind. Rules are applied in their order, each to the result
//! of the one before. As with Velero, a rule that cannot be applied is an error of the item, and
//! the item is restored without that rule; errors in a rule itself are found before the restore
//! starts.

mod conditions;
mod json_patch;
mod merge_keys;
mod read;
mod strategic;
#[cfg(test)]
mod tests;

use serde_json::Value;

use super::json::{self, Object};
use crate::RuleUse;
use conditions::Conditions;
use json_patch::{JsonPatch, JsonPatchOutcome};
pub use read::{DEFAULT, FIELD, read};

/// The rules of one ConfigMap.
#[derive(Clone, Debug, Default)]
pub struct ResourceModifiers {
    /// The field or flag that refers to them: [`FIELD`] or [`DEFAULT`].
    field: &'static str,
    rules: Vec<Rule>,
}

#[derive(Clone, Debug)]
struct Rule {
    used: RuleUse,
    conditions: Conditions,
    patches: Patches,
}

/// The patches of a rule: at least one, all of one kind.
#[derive(Clone, Debug)]
enum Patches {
    Json(JsonPatch),
    /// RFC 7386.
    Merge(Vec<Object>),
    Strategic(Vec<Object>),
}

/// Result of the rules for an item.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModifierOutcome {
    /// `None`: unchanged.
    pub item: Option<Object>,
    /// Rules that could not be applied, with reasons, as sentences for users.
    pub problems: Vec<String>,
}

impl ResourceModifiers {
    /// Applies the rules that match an item. `namespace` is its original namespace.
    pub fn apply(
        &self,
        item: &Object,
        group_resource: &str,
        namespace: Option<&str>,
    ) -> ModifierOutcome {
        let mut modified = ModifierOutcome::default();
        for (at, rule) in self.rules.iter().enumerate() {
            if !rule.conditions.apply_to(item, group_resource, namespace) {
                continue;
            }
            rule.used.note();
            match rule.patches.apply(modified.item.as_ref().unwrap_or(item)) {
                Ok(Some(changed)) => modified.item = Some(changed),
                Ok(None) => {}
                Err(why) => {
                    modified.problems.push(format!(
                        "resourceModifierRules[{at}] was not followed: {why}"
                    ));
                }
            }
        }
        modified
    }

    /// The rules of a Restore that have applied to no item, as sentences. Rules for all restores
    /// need not apply in each.
    pub fn idle(&self) -> Vec<String> {
        let conditions = "conditions (groupResource is a plural name such as deployments.apps, and namespaces are those of the backup, \
                          before the mapping)";
        let rules = self.rules.iter().filter(|_| self.field == FIELD);
        rules
            .filter_map(|rule| rule.used.idle("item of this restore", conditions))
            .collect()
    }
}

impl Patches {
    /// The item with all patches, or `None` if a test operation fails.
    fn apply(&self, item: &Object) -> Result<Option<Object>, String> {
        let mut changed = Value::Object(item.clone());
        match self {
            Self::Json(patch) => {
                if patch.apply(&mut changed)? == JsonPatchOutcome::TestFailed {
                    return Ok(None);
                }
            }
            Self::Merge(patches) => {
                for patch in patches {
                    ::json_patch::merge(&mut changed, &Value::Object(patch.clone()));
                }
            }
            Self::Strategic(patches) => {
                let api_version = json::text(item, &[], "apiVersion").unwrap_or_default();
                let kind = json::text(item, &[], "kind").unwrap_or_default();
                for patch in patches {
                    strategic::merge(&mut changed, patch, api_version, kind)?;
                }
            }
        }
        match changed {
            Value::Object(changed) => Ok(Some(changed)),
            _ => Err("the patch makes something of it that is no object".to_owned()),
        }
    }
}
