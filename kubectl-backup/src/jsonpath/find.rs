//! Follows paths.

use serde_json::Value;

use super::{Comparison, Filter, Path, Step};

pub(super) fn path<'value>(path: &Path, root: &'value Value, current: &'value Value) -> Vec<&'value Value> {
    let mut found = vec![if path.from_root { root } else { current }];
    for step in &path.steps {
        found = found.into_iter().flat_map(|value| follow(step, root, value)).collect();
    }
    found
}

fn follow<'value>(step: &Step, root: &'value Value, value: &'value Value) -> Vec<&'value Value> {
    match (step, value) {
        (Step::Field(name), Value::Object(all)) => all.get(name).into_iter().collect(),
        (Step::Every, Value::Object(all)) => all.values().collect(),
        (Step::Every, Value::Array(all)) => all.iter().collect(),
        (Step::Index(at), Value::Array(all)) => {
            place(*at, all.len()).and_then(|at| all.get(at)).into_iter().collect()
        }
        (Step::Slice(from, to), Value::Array(all)) => {
            let edge = |at: Option<i64>, or: usize| {
                at.map_or(or, |at| place(at, all.len()).unwrap_or(0)).min(all.len())
            };
            let (from, to) = (edge(*from, 0), edge(*to, all.len()));
            all.get(from..to).unwrap_or_default().iter().collect()
        }
        (Step::Where(filter), Value::Array(all)) => {
            all.iter().filter(|one| holds(filter, root, one)).collect()
        }
        _ => Vec::new(),
    }
}

/// Negative ones count from the end.
fn place(at: i64, length: usize) -> Option<usize> {
    let length = i64::try_from(length).ok()?;
    usize::try_from(if at < 0 { at + length } else { at }).ok()
}

fn holds(filter: &Filter, root: &Value, one: &Value) -> bool {
    let found = path(&filter.path, root, one);
    let Some((comparison, wanted)) = &filter.wanted else { return !found.is_empty() };
    found.first().is_some_and(|value| compare(value, *comparison, wanted))
}

fn compare(value: &Value, comparison: Comparison, wanted: &Value) -> bool {
    let order = match (value, wanted) {
        (Value::Number(a), Value::Number(b)) => a.as_f64().partial_cmp(&b.as_f64()),
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        _ => None,
    };
    match comparison {
        Comparison::Equal => order.map_or(value == wanted, std::cmp::Ordering::is_eq),
        Comparison::Other => order.map_or(value != wanted, std::cmp::Ordering::is_ne),
        Comparison::Less => order.is_some_and(std::cmp::Ordering::is_lt),
        Comparison::LessOrEqual => order.is_some_and(std::cmp::Ordering::is_le),
        Comparison::Greater => order.is_some_and(std::cmp::Ordering::is_gt),
        Comparison::GreaterOrEqual => order.is_some_and(std::cmp::Ordering::is_ge),
    }
}
