//! Dotted paths to fields, such as `spec.clusterName`.
//!
//! A dot within a name is written `\.`, as in kubectl's JSONPath:
//! `metadata.labels.app\.kubernetes\.io/instance`.

use std::borrow::Cow;

use serde_json::Value;

/// The value at a path. `None` if a step is missing or leads into a value without named fields.
pub(super) fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    let (name, rest) = first(path);
    let value = object.as_object()?.get(name.as_ref())?;
    match rest {
        Some(rest) => at(value, rest),
        None => Some(value),
    }
}

/// The first name of a path, and the path behind its dot.
fn first(path: &str) -> (Cow<'_, str>, Option<&str>) {
    let dot = path
        .char_indices()
        .find(|(i, c)| *c == '.' && !path[..*i].ends_with('\\'))
        .map(|(i, _)| i);
    let (name, rest) = match dot {
        Some(dot) => (&path[..dot], Some(&path[dot + 1..])),
        None => (path, None),
    };
    (
        if name.contains('\\') {
            name.replace("\\.", ".").into()
        } else {
            name.into()
        },
        rest,
    )
}

/// Whether every step of a path has a name.
pub(super) fn is_path(path: &str) -> bool {
    let (name, rest) = first(path);
    !name.is_empty()
        && !name.chars().any(|c| c.is_whitespace() || c.is_control())
        && rest.is_none_or(is_path)
}

/// An object with only one value, at this path: for testing rules.
pub(super) fn only(path: &str, value: Value) -> Value {
    let (name, rest) = first(path);
    let value = match rest {
        Some(rest) => only(rest, value),
        None => value,
    };
    Value::Object([(name.into_owned(), value)].into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_path_leads_through_named_fields_only() {
        let object = json!({
            "spec": { "clusterName": "c1", "list": [{ "name": "x" }], "none": null },
            "metadata": { "labels": { "app.kubernetes.io/instance": "db" } },
            "": "nothing",
        });
        for (path, expected) in [
            ("spec.clusterName", Some(json!("c1"))),
            ("spec.none", Some(Value::Null)),
            (
                r"metadata.labels.app\.kubernetes\.io/instance",
                Some(json!("db")),
            ),
            ("metadata.labels.app.kubernetes.io/instance", None),
            ("spec", Some(object["spec"].clone())),
            ("spec.missing", None),
            ("spec.clusterName.more", None),
            ("spec.list.0", None),
            ("spec.none.more", None),
        ] {
            assert_eq!(at(&object, path), expected.as_ref(), "{path}");
        }
        assert_eq!(at(&json!("text"), "spec"), None);
    }

    #[test]
    fn every_step_of_a_path_has_a_name() {
        for good in ["a", "a.b", r"a\.b", r"metadata.labels.a\.b/c"] {
            assert!(is_path(good), "{good}");
        }
        for bad in ["", ".", ".a", "a.", "a..b", "a b", "a.b ", "a\n"] {
            assert!(!is_path(bad), "{bad:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn what_is_put_at_a_path_is_found_there(names in proptest::collection::vec("[a-z.]{1,4}", 1..6)) {
            let path = names.iter().map(|name| name.replace('.', "\\.")).collect::<Vec<_>>().join(".");
            let object = only(&path, json!(7));
            proptest::prop_assert_eq!(at(&object, &path), Some(&json!(7)));
        }
    }
}
