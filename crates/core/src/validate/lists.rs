//! Include and exclude lists.

use super::Finding;
use crate::names::is_namespace_name;

/// A pair of lists and where it stands in the spec.
pub(super) struct Lists<'a> {
    /// Name of the field with the includes.
    pub included: (&'a str, &'a [String]),
    /// Name of the field with the excludes.
    pub excluded: (&'a str, &'a [String]),
}

impl Lists<'_> {
    /// Checks a pair whose excludes cannot be `*`: everything excluded is nothing selected.
    pub(crate) fn check(&self, findings: &mut Vec<Finding>) {
        self.check_common(findings);
        if self.excluded.1.iter().any(|item| item == "*") {
            findings.push(finding(self.excluded.0, "\"*\" would leave nothing; name what is to be excluded"));
        }
    }

    /// Checks a pair for one scope, where everything may be excluded.
    pub(crate) fn check_scoped(&self, findings: &mut Vec<Finding>) {
        self.check_common(findings);
        star_alone(self.excluded, findings);
        if !self.included.1.is_empty() && self.excluded.1.iter().any(|item| item == "*") {
            let message = format!("must be empty when {} is \"*\"", self.excluded.0);
            findings.push(finding(self.included.0, message));
        }
    }

    /// Checks a pair of namespace lists: each item must be a name or a glob of one.
    pub(crate) fn check_namespaces(&self, findings: &mut Vec<Finding>) {
        self.check(findings);
        for (field, items) in [self.included, self.excluded] {
            for item in items {
                if let Err(message) = namespace_pattern(item) {
                    findings.push(finding(field, format!("{item:?} {message}")));
                }
            }
        }
    }

    fn check_common(&self, findings: &mut Vec<Finding>) {
        star_alone(self.included, findings);
        for item in self.excluded.1.iter().filter(|item| self.included.1.contains(item)) {
            let message = format!("{item:?} is in {} too; remove it from one of them", self.included.0);
            findings.push(finding(self.excluded.0, message));
        }
    }
}

fn finding(field: &str, message: impl Into<String>) -> Finding {
    Finding::new(format!("spec.{field}"), message)
}

fn star_alone((field, items): (&str, &[String]), findings: &mut Vec<Finding>) {
    if items.iter().any(|item| item == "*") && items.iter().any(|item| item != "*") {
        findings.push(finding(field, "\"*\" already means all; give it alone, or name the items"));
    }
}

/// Whether this can match a namespace. The empty name stands for "no namespace" and is taken, as Velero does.
fn namespace_pattern(pattern: &str) -> Result<(), &'static str> {
    if pattern.is_empty() {
        return Ok(());
    }
    if pattern.contains(['|', '(', ')', '!', '{', '}', ',']) {
        return Err("has a character that globs of namespaces do not know; use * ? and [abc]");
    }
    if pattern.contains("**") {
        return Err("has more than one * in a row; use a single one");
    }
    let mut rest = pattern;
    while let Some(at) = rest.find(['[', ']']) {
        let inside = rest[at..].strip_prefix('[').ok_or("has a ] without a [")?;
        match inside.find(']') {
            None => return Err("has a [ without a ]"),
            Some(0) => return Err("has an empty []; name the characters between the brackets"),
            Some(end) => rest = &inside[end + 1..],
        }
    }
    // With every wildcard as a letter it must be a name.
    if is_namespace_name(&pattern.replace(['*', '?', '[', ']'], "x")) {
        Ok(())
    } else {
        Err("can not be the name of a namespace: lower-case letters, digits and inner dashes, at most 63")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case("default", true)]
    #[case("", true)]
    #[case("*", true)]
    #[case("team-*", true)]
    #[case("team-[ab]-?", true)]
    #[case("team-[a-c]", true)]
    #[case("Team", false)]
    #[case("team_a", false)]
    #[case("team-", false)]
    #[case("a.b", false)]
    #[case("a**", false)]
    #[case("{a,b}", false)]
    #[case("[!a]", false)]
    #[case("a|b", false)]
    #[case("[a", false)]
    #[case("a]", false)]
    #[case("a[]", false)]
    #[case(&"a".repeat(64), false)]
    fn a_namespace_is_given_by_name_or_glob(#[case] pattern: &str, #[case] valid: bool) {
        assert_eq!(namespace_pattern(pattern).is_ok(), valid);
    }
}
