//! Tracks whether a rule of a spec has applied to anything. A rule that never applies is most
//! likely a mistake, so it is reported at the end.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// Records whether a rule has applied. Clones share the record.
#[derive(Clone, Debug)]
pub struct RuleUse {
    /// The field of the rule, and its name: `spec.hooks.resources[0]: hook "freeze"`.
    rule: String,
    has_applied: Arc<AtomicBool>,
}

impl RuleUse {
    pub fn new(rule: impl Into<String>) -> Self {
        Self {
            rule: rule.into(),
            has_applied: Arc::default(),
        }
    }

    /// Records that the rule has applied.
    pub fn note(&self) {
        self.has_applied.store(true, Ordering::Relaxed);
    }

    /// The sentence about a rule that has never applied. `to` names the possible targets, and
    /// `conditions` the part to correct.
    pub fn idle(&self, to: &str, conditions: &str) -> Option<String> {
        let idle = !self.has_applied.load(Ordering::Relaxed);
        idle.then(|| {
            format!(
                "{} applied to no {to}; correct its {conditions}, or remove it",
                self.rule
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_that_has_applied_to_nothing_is_named() {
        let rule = RuleUse::new("spec.hooks.resources[0]: hook \"h\"");
        let of_run = rule.clone();
        let said = rule.idle("pod of this backup", "labels").unwrap();
        assert_eq!(
            said,
            "spec.hooks.resources[0]: hook \"h\" applied to no pod of this backup; correct its labels, or remove it"
        );
        of_run.note();
        assert_eq!(rule.idle("pod of this backup", "labels"), None);
    }
}
