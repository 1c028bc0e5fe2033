//! JSON patches (RFC 6902), with values given as text, as in modifiers.

use json_patch::{PatchErrorKind, PatchOperation};
use serde_json::{Value, json};

/// The operations of a rule, in their order.
#[derive(Clone, Debug, Default)]
pub(super) struct JsonPatch(pub(super) Vec<PatchOperation>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JsonPatchOutcome {
    Done,
    /// An operation `test` found another value: nothing is changed, and there is no error (Velero
    /// `json_patch.go`, v1.18).
    TestFailed,
}

impl JsonPatch {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// On an error, and if a test fails, `item` is left partly changed.
    pub(super) fn apply(&self, item: &mut Value) -> Result<JsonPatchOutcome, String> {
        for operation in &self.0 {
            if let PatchOperation::Test(test) = operation {
                match holds(item, test.path.as_str(), &test.value) {
                    Some(true) => continue,
                    Some(false) => return Ok(JsonPatchOutcome::TestFailed),
                    None => return Err(format!("{operation}: what holds the path is not there")),
                }
            }
            if let Err(error) = json_patch::patch_unsafe(item, std::slice::from_ref(operation)) {
                let why = match error.kind {
                    PatchErrorKind::InvalidFromPointer => "\"from\" is not there".to_owned(),
                    PatchErrorKind::InvalidPointer => "the path is not there".to_owned(),
                    other => other.to_string(),
                };
                return Err(format!("{operation}: {why}"));
            }
        }
        Ok(JsonPatchOutcome::Done)
    }
}

/// Whether the value at a path is the expected one; `None` if its parent is missing. A missing
/// value counts as null.
fn holds(item: &Value, path: &str, expected: &Value) -> Option<bool> {
    if let Some(value) = item.pointer(path) {
        return Some(value == expected);
    }
    let (parent, _) = path.rsplit_once('/')?;
    let parent = item.pointer(parent)?;
    (parent.is_object() || parent.is_array()).then_some(expected.is_null())
}

/// One operation of a patch. Errors: the name of the wrong field, and what is wrong.
pub(super) fn operation(
    name: &str,
    from: &str,
    path: &str,
    value: &str,
) -> Result<PatchOperation, (&'static str, String)> {
    let name = name.to_ascii_lowercase();
    let mut operation = json!({"op": name, "path": path});
    match name.as_str() {
        "add" | "replace" | "test" => {
            operation["value"] = self::value(value).map_err(|why| ("value", why))?;
        }
        "move" | "copy" => {
            pointer(from).map_err(|why| ("from", why))?;
            operation["from"] = json!(from);
        }
        "remove" => {}
        other => {
            let why = format!("{other:?} is not one of add, remove, replace, move, copy and test");
            return Err(("operation", why));
        }
    }
    pointer(path).map_err(|why| ("path", why))?;
    serde_json::from_value(operation).map_err(|error| ("path", error.to_string()))
}

/// Whether a text is a valid pointer (RFC 6901) to a value in an item.
fn pointer(text: &str) -> Result<(), String> {
    let escaped = text
        .split('~')
        .skip(1)
        .all(|rest| rest.starts_with(['0', '1']));
    if !text.starts_with('/') || !escaped {
        return Err(format!(
            "{text:?} is no path; write one such as \"/spec/replicas\", with ~1 for a slash and ~0 for a tilde in a name"
        ));
    }
    Ok(())
}

/// The value of a text: null, booleans, numbers, objects and lists are JSON; everything else, and
/// anything in quotes, is a string (Velero `json_patch.go`, `addQuotes`, v1.18).
fn value(text: &str) -> Result<Value, String> {
    if let Some(quoted) = text
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'))
    {
        return Ok(as_text(quoted));
    }
    let is_json = text == "null"
        || ["true", "false"]
            .iter()
            .any(|word| text.eq_ignore_ascii_case(word))
        || text.starts_with(['{', '['])
        || text.parse::<f64>().is_ok();
    if !is_json {
        return Ok(as_text(text));
    }
    serde_json::from_str(text).map_err(|error| {
        format!(
            "{text:?} looks like JSON and is none ({error}); if it is a text, put it in quotes: '\"{text}\"'"
        )
    })
}

/// Escapes are those of JSON, as Velero puts the text into a JSON document; text that is invalid
/// there is used unchanged.
fn as_text(text: &str) -> Value {
    let read = serde_json::from_str::<String>(&format!("\"{text}\""));
    Value::from(read.unwrap_or_else(|_| text.to_owned()))
}
