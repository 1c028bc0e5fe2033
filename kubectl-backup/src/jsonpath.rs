//! kubectl's dialect of JSONPath (k8s.io/client-go `util/jsonpath`), as far as it is commonly used:
//! `{.items[*].metadata.name}`, `{range .items[*]}…{"\n"}{end}`, `[?(@.status.phase=="Failed")]`.
//! Unsupported syntax is refused by name, never guessed.
//!
//! Existing crates for JSONPath implement RFC 9535, which has no templates and requires `$` at the
//! beginning.

mod read;

use std::cmp::Ordering;

use serde::Serialize;
use serde_json::Value;

/// Steps that lead from a value to other values: `.metadata.name`, `[0]`, `[*]`, `['a.b/c']`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Path {
    /// Whether it starts at the root (`$`, or a path outside any `range`).
    from_root: bool,
    steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    Every,
    Index(i64),
    Slice(Option<i64>, Option<i64>),
    Where(Box<Filter>),
}

/// `?(@.a == "b")`; without an operator: whether the path exists.
#[derive(Clone, Debug, PartialEq)]
struct Filter {
    path: Path,
    wanted: Option<(Comparison, Value)>,
}

/// Orderings between a value and the wanted value for which a comparison is true.
type Comparison = &'static [Ordering];
const EQUAL: Comparison = &[Ordering::Equal];
const OTHER: Comparison = &[Ordering::Less, Ordering::Greater];

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Template(Vec<Piece>);

#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Text(String),
    Values(Path),
    Range(Path, Vec<Piece>),
}

impl Path {
    /// Parses one path, with or without braces and first dot, as kubectl does for `--sort-by` and
    /// columns.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let inner = text.trim();
        let inner = inner
            .strip_prefix('{')
            .and_then(|rest| rest.strip_suffix('}'))
            .unwrap_or(inner)
            .trim();
        let dotted = if inner.starts_with(['.', '[', '$', '@']) {
            inner.to_owned()
        } else {
            format!(".{inner}")
        };
        read::path(&dotted)
    }

    /// All values to which the path leads; empty if a step is missing.
    pub(crate) fn find<'value>(&self, value: &'value Value) -> Vec<&'value Value> {
        find(self, value, value)
    }

    pub(crate) fn first(&self, value: &Value) -> Option<Value> {
        self.find(value).first().copied().cloned()
    }
}

impl Template {
    /// Parses a template; a path without braces is a template, too.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Err("it is empty; it looks like {.items[*].metadata.name}".to_owned());
        }
        if !text.contains('{') && text.starts_with(['.', '[', '$', '@']) {
            return Ok(Self(vec![Piece::Values(read::path(text)?)]));
        }
        read::template(text).map(Self)
    }

    /// Fills the template from a value. Several values of one path are separated by a space, as in
    /// kubectl.
    pub(crate) fn fill(&self, value: &Value) -> String {
        let mut text = String::new();
        fill(&self.0, value, value, &mut text);
        text
    }
}

fn fill(pieces: &[Piece], root: &Value, current: &Value, text: &mut String) {
    for piece in pieces {
        match piece {
            Piece::Text(fixed) => text.push_str(fixed),
            Piece::Values(path) => {
                let all: Vec<String> = find(path, root, current).into_iter().map(show).collect();
                text.push_str(&all.join(" "));
            }
            Piece::Range(path, inner) => {
                for one in find(path, root, current) {
                    fill(inner, root, one, text);
                }
            }
        }
    }
}

fn find<'value>(path: &Path, root: &'value Value, current: &'value Value) -> Vec<&'value Value> {
    let mut found = vec![if path.from_root { root } else { current }];
    for step in &path.steps {
        found = found
            .into_iter()
            .flat_map(|value| follow(step, root, value))
            .collect();
    }
    found
}

fn follow<'value>(step: &Step, root: &'value Value, value: &'value Value) -> Vec<&'value Value> {
    match (step, value) {
        (Step::Field(name), Value::Object(all)) => all.get(name).into_iter().collect(),
        (Step::Every, Value::Object(all)) => all.values().collect(),
        (Step::Every, Value::Array(all)) => all.iter().collect(),
        (Step::Index(at), Value::Array(all)) => place(*at, all.len())
            .and_then(|at| all.get(at))
            .into_iter()
            .collect(),
        (Step::Slice(from, to), Value::Array(all)) => {
            let from = slice_edge(*from, 0, all.len());
            let to = slice_edge(*to, all.len(), all.len());
            all.get(from..to).unwrap_or_default().iter().collect()
        }
        (Step::Where(filter), Value::Array(all)) => {
            all.iter().filter(|one| holds(filter, root, one)).collect()
        }
        _ => Vec::new(),
    }
}

/// The position of an edge of a slice; `default` if the edge is left out.
fn slice_edge(at: Option<i64>, default: usize, length: usize) -> usize {
    at.map_or(default, |at| place(at, length).unwrap_or(0))
        .min(length)
}

/// Negative indexes count from the end.
fn place(at: i64, length: usize) -> Option<usize> {
    let length = i64::try_from(length).ok()?;
    usize::try_from(if at < 0 { at + length } else { at }).ok()
}

fn holds(filter: &Filter, root: &Value, one: &Value) -> bool {
    let found = find(&filter.path, root, one);
    let Some((comparison, wanted)) = &filter.wanted else {
        return !found.is_empty();
    };
    found
        .first()
        .is_some_and(|value| compare(value, comparison, wanted))
}

fn compare(value: &Value, comparison: Comparison, wanted: &Value) -> bool {
    let order = match (value, wanted) {
        (Value::Number(a), Value::Number(b)) => a.as_f64().partial_cmp(&b.as_f64()),
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        _ => None,
    };
    match order {
        Some(order) => comparison.contains(&order),
        // Values without an order are either equal or different.
        None => comparison == if value == wanted { EQUAL } else { OTHER },
    }
}

/// A string without quotes, any other value as JSON.
pub(crate) fn show(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// The order of two values. A missing value comes first, as in kubectl; numbers are compared by
/// size, all other values as text.
pub(crate) fn order(a: Option<&Value>, b: Option<&Value>) -> Ordering {
    match (a, b) {
        (Some(Value::Number(a)), Some(Value::Number(b))) => a
            .as_f64()
            .partial_cmp(&b.as_f64())
            .unwrap_or(Ordering::Equal),
        (Some(Value::String(a)), Some(Value::String(b))) => a.cmp(b),
        (Some(a), Some(b)) => a.to_string().cmp(&b.to_string()),
        (a, b) => a.is_some().cmp(&b.is_some()),
    }
}

/// Sorts entries by one of their fields; the sort is stable.
pub(crate) fn sort<T: Serialize>(all: &mut Vec<T>, by: &Path) {
    let mut keyed: Vec<_> = all
        .drain(..)
        .map(|one| {
            let json = serde_json::to_value(&one).unwrap_or_default();
            (by.first(&json), one)
        })
        .collect();
    keyed.sort_by(|(a, _), (b, _)| order(a.as_ref(), b.as_ref()));
    all.extend(keyed.into_iter().map(|(_, one)| one));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn list() -> Value {
        json!({"kind": "List", "items": [
            {"metadata": {"name": "a", "labels": {"velero.io/schedule-name": "nightly"}}, "status": {"phase": "Completed", "errors": 0}},
            {"metadata": {"name": "b"}, "status": {"phase": "Failed", "errors": 12}, "spec": {"includedNamespaces": ["x", "y"]}},
            {"metadata": {"name": "c"}},
        ]})
    }

    #[test]
    fn templates_give_what_kubectl_gives() {
        for (template, text) in [
            ("{.items[*].metadata.name}", "a b c"),
            ("{$.items[*].metadata.name}", "a b c"),
            (".items[*].metadata.name", "a b c"),
            ("{.items[0].metadata.name}", "a"),
            ("{.items[-1].metadata.name}", "c"),
            ("{.items[0:2].metadata.name}", "a b"),
            ("{.items[1:].metadata.name}", "b c"),
            ("{.items[:1].metadata.name}", "a"),
            ("{.items[7].metadata.name}|{.no.such}", "|"),
            ("{.items[*].status.errors}", "0 12"),
            ("{.items[1].spec}", r#"{"includedNamespaces":["x","y"]}"#),
            ("{.items[1].spec.includedNamespaces[*]}", "x y"),
            (
                "{.items[0].metadata.labels.velero\\.io/schedule-name}",
                "nightly",
            ),
            (
                "{.items[0].metadata.labels['velero.io/schedule-name']}",
                "nightly",
            ),
            (r#"{.items[0].metadata["name"]}"#, "a"),
            (
                "{.items[0].metadata.*}",
                r#"{"velero.io/schedule-name":"nightly"} a"#,
            ),
            (
                r#"{.items[?(@.status.phase=="Failed")].metadata.name}"#,
                "b",
            ),
            ("{.items[?(@.status.phase != 'Failed')].metadata.name}", "a"),
            ("{.items[?(@.status.errors > 3)].metadata.name}", "b"),
            ("{.items[?(@.status.errors<=12)].metadata.name}", "a b"),
            ("{.items[?(@.spec)].metadata.name}", "b"),
            (
                r#"{range .items[*]}{.metadata.name}{"\t"}{.status.phase}{"\n"}{end}"#,
                "a\tCompleted\nb\tFailed\nc\t\n",
            ),
            ("names: {.items[*]['metadata'].name}!", "names: a b c!"),
            (r#"{range .items[*]}{$.kind}{"}"}{end}"#, "List}List}List}"),
        ] {
            assert_eq!(
                Template::parse(template).map(|template| template.fill(&list())),
                Ok(text.to_owned()),
                "{template}"
            );
        }
    }

    #[test]
    fn what_is_not_taken_is_refused_by_name() {
        for (template, part) in [
            ("", "empty"),
            ("{.a", "no }"),
            ("{range .items[*]}x", "no {end}"),
            ("x{end}", "{end} without {range}"),
            ("{..name}", "`..`"),
            ("{.items[0,1]}", "[0,1]"),
            ("{.items[0:9:2]}", "[0:9:2]"),
            ("{.items[?(@.a=~\"x\")]}", "=~"),
            ("{.items[?(@.a=='x' && @.b)]}", "&&"),
            ("{.items[}", "no }"),
            (".items[", "no ]"),
            ("{if .a}", "if .a"),
            ("{.a-}b}", ""),
        ] {
            match Template::parse(template) {
                Err(why) => assert!(why.contains(part), "{template}: {why}"),
                Ok(read) => assert!(part.is_empty(), "{template}: {read:?}"),
            }
        }
    }

    #[test]
    fn a_path_may_stand_without_braces_and_dot() {
        for text in [
            ".metadata.name",
            "metadata.name",
            "{.metadata.name}",
            "{ metadata.name }",
        ] {
            let item = &list()["items"][0];
            assert_eq!(
                Path::parse(text).unwrap().find(item),
                [&json!("a")],
                "{text}"
            );
        }
    }
}
