//! Lists and documents in the forms that a person can choose (`-o`).

use serde::Serialize;
use serde_json::Value;

use super::{
    json,
    table::{plain, table},
};
use crate::{
    cli::{
        Output,
        output::{Column, Form},
    },
    error::Problem,
    jsonpath::show,
};

/// What kubectl shows where nothing is.
const NOTHING: &str = "<none>";

/// A document in a form for programs; none where rows or names were asked for, which each command makes itself. Columns
/// are made of what stands under `items` in it.
pub fn document<T: Serialize>(
    document: &T,
    items: &str,
    form: &Form,
    no_headers: bool,
) -> Result<Option<String>, Problem> {
    let value = || {
        serde_json::to_value(document)
            .map_err(|error| Problem::Other { message: format!("cannot print: {error}"), remedy: None })
    };
    Ok(match form {
        Form::Plain(output @ (Output::Json | Output::Yaml)) => Some(json::object(document, *output)?),
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

/// The headers of columns.
pub fn headers(columns: &[Column]) -> Vec<&str> {
    columns.iter().map(|column| column.header.as_str()).collect()
}

/// A row of them.
pub fn cells(columns: &[Column], value: &Value) -> Vec<String> {
    let cell = |column: &Column| {
        let found: Vec<String> = column.path.find(value).into_iter().map(|one| plain(&show(one))).collect();
        if found.iter().all(String::is_empty) { NOTHING.to_owned() } else { found.join(",") }
    };
    columns.iter().map(cell).collect()
}
