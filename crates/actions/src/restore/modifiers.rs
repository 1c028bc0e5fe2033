//! Resource modifiers: changes that a person wants made to items before they are created. Pure.
//!
//! `spec.resourceModifier` of a Restore names a ConfigMap with rules (Velero `internal/resourcemodifiers`, v1.18). Each rule has
//! conditions, which are asked of the item as actions have left it, and patches of one kind. Rules are followed in their order,
//! each on what the one before it has made of the item. As with Velero, a rule that cannot be followed is an error of the item,
//! and the item is restored without that rule; what can be found wrong in a rule alone is found before the restore starts.

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
use json_patch::{JsonPatch, Patched};
pub use read::{DEFAULT, FIELD, read};

/// The rules of one ConfigMap.
#[derive(Clone, Debug, Default)]
pub struct ResourceModifiers {
    /// Where they are named: [`FIELD`] or [`DEFAULT`].
    field: &'static str,
    rules: Vec<Rule>,
}

#[derive(Clone, Debug)]
struct Rule {
    used: RuleUse,
    conditions: Conditions,
    patches: Patches,
}

/// The patches of a rule: of one kind, at least one.
#[derive(Clone, Debug)]
enum Patches {
    Json(JsonPatch),
    /// RFC 7386.
    Merge(Vec<Object>),
    Strategic(Vec<Object>),
}

/// What the rules have made of an item.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Modified {
    /// None: as it was.
    pub item: Option<Object>,
    /// Rules that were not followed, and why, as sentences for people.
    pub problems: Vec<String>,
}

impl ResourceModifiers {
    /// Follows the rules that apply to an item. `namespace` is the one that it has in the backup.
    pub fn apply(&self, item: &Object, group_resource: &str, namespace: Option<&str>) -> Modified {
        let mut modified = Modified::default();
        for (at, rule) in self.rules.iter().enumerate() {
            if !rule.conditions.apply_to(item, group_resource, namespace) {
                continue;
            }
            rule.used.note();
            match rule.patches.apply(modified.item.as_ref().unwrap_or(item)) {
                Ok(Some(changed)) => modified.item = Some(changed),
                Ok(None) => {}
                Err(why) => {
                    modified.problems.push(format!("resourceModifierRules[{at}] was not followed: {why}"));
                }
            }
        }
        modified
    }

    /// The rules of a Restore that have applied to no item, as sentences. Rules for all restores need not apply to each.
    pub fn idle(&self) -> Vec<String> {
        let conditions = "conditions (groupResource is a plural name such as deployments.apps, and namespaces are those of the backup, \
                          before the mapping)";
        let rules = self.rules.iter().filter(|_| self.field == FIELD);
        rules.filter_map(|rule| rule.used.idle("item of this restore", conditions)).collect()
    }
}

impl Patches {
    /// The item with all patches, or none if a test of it fails.
    fn apply(&self, item: &Object) -> Result<Option<Object>, String> {
        let mut changed = Value::Object(item.clone());
        match self {
            Self::Json(patch) => {
                if patch.apply(&mut changed)? == Patched::TestFailed {
                    return Ok(None);
                }
            }
            Self::Merge(patches) => {
                for patch in patches {
                    ::json_patch::merge(&mut changed, &Value::Object(patch.clone()));
                }
            }
            Self::Strategic(patches) => {
                let text = |key| json::text(item, &[], key).unwrap_or_default();
                let (api_version, kind) = (text("apiVersion"), text("kind"));
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
