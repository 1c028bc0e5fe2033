//! Errors in rules of retention, of backups or of copies.

use super::{Finding, Findings};
use crate::{
    api::schedule::KeepRules,
    keep::{MAX_PERIODS, Rule},
};

pub(super) fn check(field: &str, rules: &KeepRules) -> Vec<Finding> {
    let mut found = Findings::default();
    for rule in Rule::ALL {
        let periods = rule.periods(rules);
        let of_rule = format!("{field}.{}", rule.as_str());
        if periods < 0 {
            found.say(
                of_rule,
                format!("{periods} is negative; give the number of backups to keep, or 0 for none"),
            );
        } else if periods > MAX_PERIODS {
            found.say(of_rule, format!("{periods} is more than {MAX_PERIODS}"));
        }
    }
    if Rule::ALL.iter().all(|rule| rule.periods(rules) == 0) {
        let names = Rule::ALL.map(Rule::as_str).join(", ");
        found.say(
            field,
            format!(
                "no rule keeps a backup; give a number to one of {names}, or leave {field} out"
            ),
        );
    }
    found.0
}
