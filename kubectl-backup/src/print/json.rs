//! Objects, lists and documents in the output forms (`-o`).

use jiff::Timestamp;
use serde::Serialize;

use super::Style;
use crate::{
    Terminal,
    cli::{DocumentArgs, Output, OutputArgs},
    error::Problem,
};

fn cannot_print(error: impl std::fmt::Display) -> Problem {
    Problem::other(format!("cannot print: {error}"))
}

/// An object in the requested form. `Table`, `Wide` and `Name` do not apply to objects, and give
/// JSON.
pub(crate) fn object<T: Serialize>(value: &T, output: Output) -> Result<String, Problem> {
    match output {
        Output::Yaml => serde_saphyr::to_string(value).map_err(cannot_print),
        _ => serde_json::to_string_pretty(value)
            .map(|text| text + "\n")
            .map_err(cannot_print),
    }
}

/// Version of our documents. Adding a field does not change the version; removing or changing one
/// does.
const API_VERSION: &str = "kubectl-backup/v1";

/// A document for programs.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Document<'a, T: Serialize> {
    api_version: &'static str,
    kind: &'static str,
    #[serde(flatten)]
    content: &'a T,
}

impl<'a, T: Serialize> Document<'a, T> {
    /// A document of ours.
    pub(crate) fn of(kind: &'static str, content: &'a T) -> Self {
        Self {
            api_version: API_VERSION,
            kind,
            content,
        }
    }

    /// kubectl's own kind of list; the objects are in `items`.
    pub(crate) fn list(content: &'a T) -> Self {
        Self {
            api_version: "v1",
            kind: "List",
            content,
        }
    }
}

/// Shows a document of this kind if one was requested, else the screen.
pub(crate) fn show(
    kind: &'static str,
    content: &impl Serialize,
    args: DocumentArgs,
    terminal: &mut Terminal,
    screen: impl FnOnce(Timestamp, Style) -> std::io::Result<String>,
) -> Result<(), Problem> {
    let text = match args.output {
        Some(form) => object(&Document::of(kind, content), form)?,
        None => terminal.pasteable(&screen(terminal.now(), terminal.out_style())?),
    };
    Ok(terminal.data(&text)?)
}

/// Shows a list in the requested form; `names` and `rows` build its text forms.
pub(crate) fn show_list(
    kind: &'static str,
    list: &impl Serialize,
    output: &OutputArgs,
    terminal: &mut Terminal,
    names: impl FnOnce() -> String,
    rows: impl FnOnce(Timestamp, Style) -> Result<String, Problem>,
) -> Result<(), Problem> {
    let text = list_text(kind, list, output, terminal, names, rows)?;
    Ok(terminal.data(&text)?)
}

/// The output of [`show_list`].
pub(crate) fn list_text(
    kind: &'static str,
    list: &impl Serialize,
    output: &OutputArgs,
    terminal: &Terminal,
    names: impl FnOnce() -> String,
    rows: impl FnOnce(Timestamp, Style) -> Result<String, Problem>,
) -> Result<String, Problem> {
    match output.form {
        Output::Name => Ok(names()),
        Output::Table | Output::Wide => {
            Ok(terminal.pasteable(&rows(terminal.now(), terminal.out_style())?))
        }
        Output::Json | Output::Yaml => object(&Document::of(kind, list), output.form),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_reads_like_another_type_is_quoted_in_yaml() {
        let value = serde_json::json!({"a": "yes", "b": "1.10", "c": "0 3 * * *", "d": "", "e": "null", "f": "2026-11-03T03:00:00Z", "g": ["*"]});
        let text = object(&value, Output::Yaml).unwrap();
        let back: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(back, value, "{text}");
        assert_says!(text, "a: \"yes\"", "f: \"2026");
    }
}
