//! Label selectors as kubectl takes them: `app=shop,tier!=cache,env in (a,b),!legacy`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

/// Selectors of which one must match.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Alternatives(pub(crate) Vec<LabelSelector>);

/// Reads `SELECTOR or SELECTOR ...`, as velero's `--or-selector`.
pub(crate) fn parse_or(text: &str) -> Result<Alternatives, String> {
    text.split(" or ")
        .map(parse)
        .collect::<Result<_, _>>()
        .map(Alternatives)
}

/// Reads a selector (the grammar of k8s.io/apimachinery `labels.Parse`, without `<` and `>`).
pub(crate) fn parse(text: &str) -> Result<LabelSelector, String> {
    let mut selector = LabelSelector::default();
    for term in split_outside_parentheses(text) {
        let term = term.trim();
        let requirement = parse_term(term).ok_or_else(|| {
            format!("{term:?} is no part of a selector: expected key=value, key!=value, key in (a,b), key notin (a,b), key or !key")
        })?;
        match requirement {
            Term::Equal(key, value) => {
                let labels = selector.match_labels.get_or_insert_default();
                if labels
                    .insert(key.clone(), value.clone())
                    .is_some_and(|earlier| earlier != value)
                {
                    return Err(format!("label {key:?} cannot have two values"));
                }
            }
            Term::Expression(expression) => {
                selector
                    .match_expressions
                    .get_or_insert_default()
                    .push(expression);
            }
        }
    }
    Ok(selector)
}

enum Term {
    Equal(String, String),
    Expression(LabelSelectorRequirement),
}

fn parse_term(term: &str) -> Option<Term> {
    if let Some(key) = term.strip_prefix('!') {
        return expression(key, "DoesNotExist", None);
    }
    if let Some(open) = term.find('(') {
        let list = term[open + 1..].strip_suffix(')')?;
        let values = list
            .split(',')
            .map(label_value)
            .collect::<Option<Vec<_>>>()?;
        let (key, word) = term[..open].trim().rsplit_once(char::is_whitespace)?;
        return match word {
            "in" => expression(key, "In", Some(values)),
            "notin" => expression(key, "NotIn", Some(values)),
            _ => None,
        };
    }
    if let Some((key, value)) = term.split_once("!=") {
        return expression(key, "NotIn", Some(vec![label_value(value)?]));
    }
    if let Some((key, value)) = term.split_once('=') {
        return Some(Term::Equal(
            label_key(key)?,
            label_value(value.strip_prefix('=').unwrap_or(value))?,
        ));
    }
    expression(term, "Exists", None)
}

fn expression(key: &str, operator: &str, values: Option<Vec<String>>) -> Option<Term> {
    let key = label_key(key)?;
    Some(Term::Expression(LabelSelectorRequirement {
        key,
        operator: operator.to_owned(),
        values,
    }))
}

fn label_key(text: &str) -> Option<String> {
    let text = text.trim();
    let is_valid = text
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/'));
    (!text.is_empty() && is_valid).then(|| text.to_owned())
}

fn label_value(text: &str) -> Option<String> {
    let text = text.trim();
    let is_valid = text
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    (text.len() <= 63 && is_valid).then(|| text.to_owned())
}

fn split_outside_parentheses(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = 0;
    let mut depth = 0_i32;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

/// A selector as kubectl prints it (`metav1.FormatLabelSelector`).
pub(crate) fn show(selector: &LabelSelector) -> String {
    let equal = selector
        .match_labels
        .iter()
        .flatten()
        .map(|(key, value)| format!("{key}={value}"));
    let others = selector.match_expressions.iter().flatten().map(|one| {
        let values = one.values.clone().unwrap_or_default().join(",");
        match one.operator.as_str() {
            "In" => format!("{} in ({values})", one.key),
            "NotIn" => format!("{} notin ({values})", one.key),
            "Exists" => one.key.clone(),
            "DoesNotExist" => format!("!{}", one.key),
            other => format!("{} {other} ({values})", one.key),
        }
    });
    equal.chain(others).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_kubectl_takes_is_taken_and_shown_again() {
        for (typed, shown) in [
            ("app=shop", "app=shop"),
            ("app==shop, tier!=cache", "app=shop,tier notin (cache)"),
            (
                "env in (a, b),example.com/x notin (c),!legacy,new",
                "env in (a,b),example.com/x notin (c),!legacy,new",
            ),
            ("empty=", "empty="),
        ] {
            assert_eq!(
                parse(typed).map(|selector| show(&selector)),
                Ok(shown.to_owned()),
                "{typed}"
            );
        }
        for wrong in [
            "",
            "a=b=c",
            "a in b",
            "a in (b",
            "=x",
            "a b",
            "a=b,",
            "a=x,a=y",
            "a under (b)",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn alternatives_are_separated_by_or() {
        let Alternatives(all) = parse_or("app=a or app=b,x").unwrap();
        assert_eq!(
            all.iter().map(show).collect::<Vec<_>>(),
            ["app=a", "app=b,x"]
        );
        assert!(parse_or("app=a or ").is_err());
    }
}
