//! Label selectors as text, in the syntax of `kubectl -l`: `app=web,tier in (a,b),!old`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

/// Reads a selector from its text; an empty one selects everything.
/// Errors: a sentence that names the unreadable condition.
pub fn parse_selector(text: &str) -> Result<LabelSelector, String> {
    let mut expressions = Vec::new();
    for part in conditions(text) {
        let part = part.trim();
        if part.is_empty() {
            if text.trim().is_empty() {
                continue;
            }
            return Err(format!("the selector {text:?} has an empty condition"));
        }
        expressions.push(condition(part).ok_or_else(|| {
            format!("{part:?} in the selector {text:?} is no condition; write key=value, key!=value, key in (a,b), key notin (a,b), key or !key")
        })?);
    }
    Ok(LabelSelector {
        match_labels: None,
        match_expressions: Some(expressions),
    })
}

/// The parts between commas, except for commas in parentheses.
fn conditions(text: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    text.split(move |c| {
        match c {
            '(' => inside = true,
            ')' => inside = false,
            _ => {}
        }
        c == ',' && !inside
    })
}

fn condition(part: &str) -> Option<LabelSelectorRequirement> {
    if let Some(key) = part.strip_prefix('!') {
        return requirement(key, "DoesNotExist", None);
    }
    if let Some((head, values)) = part.strip_suffix(')').and_then(|part| part.split_once('(')) {
        let (key, word) = head.trim().split_once(char::is_whitespace)?;
        let operator = match word.trim() {
            "in" => "In",
            "notin" => "NotIn",
            _ => return None,
        };
        return requirement(
            key,
            operator,
            Some(
                values
                    .split(',')
                    .map(|value| value.trim().to_owned())
                    .collect(),
            ),
        );
    }
    for (sign, operator) in [("!=", "NotIn"), ("==", "In"), ("=", "In")] {
        if let Some((key, value)) = part.split_once(sign) {
            let value = value.trim();
            return if value.contains('=') {
                None
            } else {
                requirement(key, operator, Some(vec![value.to_owned()]))
            };
        }
    }
    requirement(part, "Exists", None)
}

/// `None` if the key is no key of a label.
fn requirement(
    key: &str,
    operator: &str,
    values: Option<Vec<String>>,
) -> Option<LabelSelectorRequirement> {
    let key = key.trim();
    let is_key = !key.is_empty()
        && key
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c));
    is_key.then(|| LabelSelectorRequirement {
        key: key.to_owned(),
        operator: operator.to_owned(),
        values,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selection::LabelFilter;

    #[rstest::rstest]
    #[case("", &[("", "")], true)]
    #[case("app=web", &[("app", "web")], true)]
    #[case("app==web", &[("app", "db")], false)]
    #[case("app!=web", &[("app", "db")], true)]
    #[case("app != web", &[("app", "web")], false)]
    #[case("tier in (a, b),app", &[("tier", "b"), ("app", "")], true)]
    #[case("tier in (a,b)", &[("tier", "c")], false)]
    #[case("tier notin (a,b)", &[("tier", "c")], true)]
    #[case("!old", &[("app", "x")], true)]
    #[case("!old", &[("old", "x")], false)]
    #[case("example.com/team=a,!old", &[("example.com/team", "a")], true)]
    fn a_selector_is_read_as_kubectl_reads_it(
        #[case] text: &str,
        #[case] labels: &[(&str, &str)],
        #[case] matches: bool,
    ) {
        let filter = LabelFilter::of(&Some(parse_selector(text).unwrap()), &None);
        let labels = labels
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        assert_eq!(filter.matches(&labels), matches);
    }

    #[rstest::rstest]
    #[case("app=web,")]
    #[case("tier inside (a)")]
    #[case("a b")]
    #[case("=x")]
    #[case("a=b=c")]
    fn what_is_no_selector_is_refused(#[case] text: &str) {
        assert!(parse_selector(text).is_err());
    }
}
