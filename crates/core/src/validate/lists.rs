//! Include and exclude lists.

use super::Findings;
use crate::names::is_dns_label;

/// A pair of lists of a spec: `included<what>` and `excluded<what>`.
pub(super) struct Lists<'a> {
    parent: &'a str,
    what: &'static str,
    included: &'a [String],
    excluded: &'a [String],
}

impl<'a> Lists<'a> {
    pub(super) fn of(what: &'static str, included: &'a [String], excluded: &'a [String]) -> Self {
        Self {
            parent: "spec",
            what,
            included,
            excluded,
        }
    }

    /// Sets the field of the spec that contains the lists.
    pub(super) fn in_field(self, parent: &'a str) -> Self {
        Self { parent, ..self }
    }

    /// Checks a pair of lists of resources whose excludes cannot be `*`.
    pub(super) fn check(&self, found: &mut Findings) {
        self.check_common(found);
        self.check_not_all_excluded(found);
        self.check_items(resource_pattern, found);
    }

    /// Checks a pair of lists of resources for one scope; here everything may be excluded.
    pub(super) fn check_scoped(&self, found: &mut Findings) {
        self.check_common(found);
        star_alone(self.excludes(), self.excluded, found);
        if !self.included.is_empty() && has_star(self.excluded) {
            found.say(
                self.includes(),
                format!("must be empty when excluded{} is \"*\"", self.what),
            );
        }
        self.check_items(resource_pattern, found);
    }

    /// Checks a pair of namespace lists: each item must be a name or a glob of one.
    pub(super) fn check_namespaces(&self, found: &mut Findings) {
        self.check_common(found);
        self.check_not_all_excluded(found);
        self.check_items(namespace_pattern, found);
    }

    /// Excluding everything would select nothing.
    fn check_not_all_excluded(&self, found: &mut Findings) {
        if has_star(self.excluded) {
            found.say(
                self.excludes(),
                "\"*\" would leave nothing; name what is to be excluded",
            );
        }
    }

    fn check_items(&self, check: fn(&str) -> Result<(), &'static str>, found: &mut Findings) {
        for (field, items) in [
            (self.includes(), self.included),
            (self.excludes(), self.excluded),
        ] {
            for item in items {
                if let Err(message) = check(item) {
                    found.say(&field, format!("{item:?} {message}"));
                }
            }
        }
    }

    fn check_common(&self, found: &mut Findings) {
        star_alone(self.includes(), self.included, found);
        for item in self
            .excluded
            .iter()
            .filter(|item| self.included.contains(item))
        {
            let message = format!(
                "{item:?} is in included{} too; remove it from one of them",
                self.what
            );
            found.say(self.excludes(), message);
        }
    }

    fn includes(&self) -> String {
        format!("{}.included{}", self.parent, self.what)
    }

    fn excludes(&self) -> String {
        format!("{}.excluded{}", self.parent, self.what)
    }
}

fn has_star(items: &[String]) -> bool {
    items.iter().any(|item| item == "*")
}

fn star_alone(field: String, items: &[String], found: &mut Findings) {
    if has_star(items) && items.iter().any(|item| item != "*") {
        found.say(
            field,
            "\"*\" already means all; give it alone, or name the items",
        );
    }
}

/// Whether this can match a resource (our own rule: Velero would silently select nothing).
fn resource_pattern(pattern: &str) -> Result<(), &'static str> {
    if pattern.trim().is_empty() {
        return Err("is empty; remove it, or name a resource");
    }
    if pattern.contains(|c: char| c.is_whitespace() || c == '/') {
        return Err(
            "has a character that no resource has in its name, such as \"deployments.apps\"",
        );
    }
    if pattern.matches('{').count() != pattern.matches('}').count() {
        return Err("has a { without a }, or a } without a {");
    }
    if pattern.contains(',') && !pattern.contains('{') {
        return Err("is more than one name; give each as an item of its own");
    }
    brackets(pattern)
}

/// Whether the brackets of a glob are paired, with characters between them.
fn brackets(pattern: &str) -> Result<(), &'static str> {
    let mut rest = pattern;
    while let Some(at) = rest.find(['[', ']']) {
        let inside = rest[at..].strip_prefix('[').ok_or("has a ] without a [")?;
        match inside.find(']') {
            None => return Err("has a [ without a ]"),
            Some(0) => return Err("has an empty []; name the characters between the brackets"),
            Some(end) => rest = &inside[end + 1..],
        }
    }
    Ok(())
}

/// Whether this can match a namespace. The empty name means "no namespace" and is accepted, as in
/// Velero.
pub(crate) fn namespace_pattern(pattern: &str) -> Result<(), &'static str> {
    if pattern.is_empty() {
        return Ok(());
    }
    if pattern.contains(['|', '(', ')', '!', '{', '}', ',']) {
        return Err("has a character that globs of namespaces do not know; use * ? and [abc]");
    }
    if pattern.contains("**") {
        return Err("has more than one * in a row; use a single one");
    }
    brackets(pattern)?;
    // With every wildcard replaced by a letter it must be a name.
    if is_dns_label(&pattern.replace(['*', '?', '[', ']'], "x")) {
        Ok(())
    } else {
        Err(
            "can not be the name of a namespace: lower-case letters, digits and inner dashes, at most 63",
        )
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

    #[rstest::rstest]
    #[case("pods", true)]
    #[case("Deployment", true)]
    #[case("deployments.v1.apps", true)]
    #[case("*.example.com", true)]
    #[case("{pods,secrets}", true)]
    #[case("[ps]*", true)]
    #[case("", false)]
    #[case(" ", false)]
    #[case("pods secrets", false)]
    #[case("pods,secrets", false)]
    #[case("pods/log", false)]
    #[case("{pods,secrets", false)]
    #[case("[ps", false)]
    #[case("ps]", false)]
    fn a_resource_is_given_by_name_or_glob(#[case] pattern: &str, #[case] valid: bool) {
        assert_eq!(resource_pattern(pattern).is_ok(), valid);
    }
}
