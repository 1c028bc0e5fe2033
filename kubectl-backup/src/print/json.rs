//! Objects, lists and documents in the output forms (`-o`).

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::{Style, plain, table};
use crate::{
    Terminal,
    cli::{Column, DocumentArgs, Form, Output, OutputArgs},
    error::Problem,
    jsonpath,
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

/// Shows a list in the requested form; `names` and `rows` build its text forms. Columns are built
/// from the document's array that `items` names.
pub(crate) fn show_list(
    kind: &'static str,
    list: (&str, &impl Serialize),
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
    (items, list): (&str, &impl Serialize),
    output: &OutputArgs,
    terminal: &Terminal,
    names: impl FnOnce() -> String,
    rows: impl FnOnce(Timestamp, Style) -> Result<String, Problem>,
) -> Result<String, Problem> {
    match &output.form {
        Form::Plain(Output::Name) => Ok(names()),
        Form::Plain(Output::Table | Output::Wide) => {
            Ok(terminal.pasteable(&rows(terminal.now(), terminal.out_style())?))
        }
        form => in_form(&Document::of(kind, list), items, form, !output.no_headers),
    }
}

/// kubectl's text for a missing value.
const NOTHING: &str = "<none>";

/// A document in a form for programs. Columns are built from the array that `items` names.
pub(crate) fn in_form<T: Serialize>(
    document: &T,
    items: &str,
    form: &Form,
    with_headers: bool,
) -> Result<String, Problem> {
    match form {
        Form::Plain(output) => object(document, *output),
        Form::JsonPath(template) => Ok(template.fill(&to_value(document)?)),
        Form::Columns(columns) => {
            let value = to_value(document)?;
            let rows = value[items]
                .as_array()
                .into_iter()
                .flatten()
                .map(|one| cells(columns, one));
            Ok(table(&headers(columns), with_headers, rows)?)
        }
    }
}

fn to_value(document: &impl Serialize) -> Result<Value, Problem> {
    serde_json::to_value(document).map_err(cannot_print)
}

pub(crate) fn headers(columns: &[Column]) -> Vec<&str> {
    columns
        .iter()
        .map(|column| column.header.as_str())
        .collect()
}

pub(crate) fn cells(columns: &[Column], value: &Value) -> Vec<String> {
    columns.iter().map(|column| cell(column, value)).collect()
}

fn cell(column: &Column, value: &Value) -> String {
    let found: Vec<String> = column
        .path
        .find(value)
        .into_iter()
        .map(|one| plain(&jsonpath::show(one)))
        .collect();
    if found.iter().all(String::is_empty) {
        NOTHING.to_owned()
    } else {
        found.join(",")
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
        assert!(
            text.contains("a: \"yes\"") && text.contains("f: \"2026"),
            "{text}"
        );
    }
}
