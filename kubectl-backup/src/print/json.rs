//! Objects, lists and documents in the forms that a person can choose (`-o`).

use serde::Serialize;
use serde_json::Value;

use super::{plain, table};
use crate::{
    cli::{Column, Form, Output},
    error::Problem,
    jsonpath::show,
};

fn cannot_print(error: impl std::fmt::Display) -> Problem {
    Problem::other(format!("cannot print: {error}"))
}

/// An object in the form asked for. `Table`, `Wide` and `Name` are no forms of an object: they give JSON.
pub(crate) fn object<T: Serialize>(value: &T, output: Output) -> Result<String, Problem> {
    match output {
        Output::Yaml => serde_saphyr::to_string(value).map_err(cannot_print),
        _ => serde_json::to_string_pretty(value).map(|text| text + "\n").map_err(cannot_print),
    }
}

/// Version of our documents. A field is added without a new version; one is taken away or changed only with it.
pub(crate) const API_VERSION: &str = "kubectl-backup/v1";

/// A document of ours, as programs read it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Document<'a, T: Serialize> {
    api_version: &'static str,
    kind: &'static str,
    #[serde(flatten)]
    content: &'a T,
}

impl<'a, T: Serialize> Document<'a, T> {
    pub(crate) fn of(kind: &'static str, content: &'a T) -> Self {
        Self { api_version: API_VERSION, kind, content }
    }
}

/// A document of this kind if one was asked for, else the screen.
pub(crate) fn document_or(
    kind: &'static str,
    content: &impl Serialize,
    output: Option<Output>,
    screen: impl FnOnce() -> std::io::Result<String>,
) -> Result<String, Problem> {
    match output {
        Some(form) => object(&Document::of(kind, content), form),
        None => Ok(screen()?),
    }
}

/// A manifest: an object as a person would write it, without the status that only a server fills.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Manifest<'a, S: Serialize> {
    pub(crate) api_version: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) metadata: &'a kube::core::ObjectMeta,
    pub(crate) spec: &'a S,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct List<T: Serialize> {
    pub(crate) api_version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) items: Vec<T>,
}

impl<T: Serialize> From<Vec<T>> for List<T> {
    fn from(items: Vec<T>) -> Self {
        Self { api_version: "v1", kind: "List", items }
    }
}

/// What kubectl shows where nothing is.
const NOTHING: &str = "<none>";

/// A document in a form for programs; none where rows or names were asked for, which each command makes itself. Columns
/// are made of what stands under `items` in it.
pub(crate) fn in_form<T: Serialize>(
    document: &T,
    items: &str,
    form: &Form,
    no_headers: bool,
) -> Result<Option<String>, Problem> {
    let value = || serde_json::to_value(document).map_err(cannot_print);
    Ok(match form {
        Form::Plain(output @ (Output::Json | Output::Yaml)) => Some(object(document, *output)?),
        Form::Plain(_) => None,
        Form::JsonPath(template) => Some(template.fill(&value()?)),
        Form::Columns(columns) => {
            let value = value()?;
            let rows: Vec<Vec<String>> =
                value[items].as_array().into_iter().flatten().map(|one| cells(columns, one)).collect();
            Some(table((!no_headers).then_some(&headers(columns)[..]), &rows)?)
        }
    })
}

pub(crate) fn headers(columns: &[Column]) -> Vec<&str> {
    columns.iter().map(|column| column.header.as_str()).collect()
}

pub(crate) fn cells(columns: &[Column], value: &Value) -> Vec<String> {
    let cell = |column: &Column| {
        let found: Vec<String> = column.path.find(value).into_iter().map(|one| plain(&show(one))).collect();
        if found.iter().all(String::is_empty) { NOTHING.to_owned() } else { found.join(",") }
    };
    columns.iter().map(cell).collect()
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
        assert!(text.contains("a: \"yes\"") && text.contains("f: \"2026"), "{text}");
    }
}
