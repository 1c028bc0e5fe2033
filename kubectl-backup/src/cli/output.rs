//! What commands list, and in which form: the one home of `-o`, `--no-headers`, `-A`, `-w` and `--sort-by`.

use clap::Args;

use super::Output;
use crate::jsonpath::{Path, Template};

/// In which form a list is printed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Form {
    /// One of the forms without an argument.
    Plain(Output),
    /// What a template makes of it.
    JsonPath(Template),
    /// Columns that a person chose.
    Columns(Vec<Column>),
}

/// A column that a person chose.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Column {
    /// Its header.
    pub(crate) header: String,
    /// What stands in it.
    pub(crate) path: Path,
}

impl Default for Form {
    fn default() -> Self {
        Self::Plain(Output::Table)
    }
}

impl Form {
    /// Whether a person reads it, in rows.
    pub(crate) const fn is_table(&self) -> bool {
        matches!(self, Self::Plain(Output::Table | Output::Wide) | Self::Columns(_))
    }

    fn parse(text: &str) -> Result<Self, String> {
        Ok(match text.split_once('=') {
            Some(("jsonpath", template)) => Self::JsonPath(Template::parse(template)?),
            Some(("custom-columns", columns)) => {
                Self::Columns(columns.split(',').map(column).collect::<Result<_, _>>()?)
            }
            _ => Self::Plain(match text {
                "wide" => Output::Wide,
                "json" => Output::Json,
                "yaml" => Output::Yaml,
                "name" => Output::Name,
                "table" => Output::Table,
                "jsonpath" | "custom-columns" => {
                    return Err(format!(
                        "{text} needs a value, such as {text}={}",
                        if text == "jsonpath" { "{.items[*].metadata.name}" } else { "NAME:.metadata.name" }
                    ));
                }
                _ => return Err(
                    "expected wide, json, yaml, name, jsonpath=TEMPLATE or custom-columns=HEADER:PATH,..."
                        .to_owned(),
                ),
            }),
        })
    }
}

fn column(text: &str) -> Result<Column, String> {
    match text.split_once(':') {
        Some((header, path)) if !header.is_empty() && !path.is_empty() => {
            Ok(Column { header: header.to_owned(), path: Path::parse(path)? })
        }
        _ => Err(format!("{text:?} is no column: expected HEADER:PATH, such as NAME:.metadata.name")),
    }
}

/// Flags of every command that lists.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Form: wide, json, yaml, name, jsonpath=TEMPLATE, custom-columns=HEADER:PATH,...
    #[arg(
        short = 'o',
        long = "output",
        value_parser = Form::parse,
        default_value = "table",
        hide_default_value = true,
        value_name = "FORM"
    )]
    pub(crate) form: Form,
    /// Leave the header line out
    #[arg(long)]
    pub(crate) no_headers: bool,
}

/// Flags of every list that people follow and sort.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ListFlags {
    /// In all namespaces
    #[arg(short = 'A', long)]
    pub(crate) all_namespaces: bool,
    /// Go on with a row for every change, until interrupted
    #[arg(short, long, conflicts_with = "sort_by")]
    pub(crate) watch: bool,
    /// Sort by this field of each, as `-o json` shows it
    #[arg(long, value_name = "PATH", value_parser = Path::parse, help_heading = "Output")]
    pub(crate) sort_by: Option<Path>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_those_of_kubectl() {
        assert_eq!(Form::parse("wide"), Ok(Form::Plain(Output::Wide)));
        assert!(matches!(Form::parse("jsonpath={.a=b}"), Ok(Form::JsonPath(_)) | Err(_)));
        assert!(matches!(Form::parse("jsonpath={.items[?(@.a==\"b\")].c}"), Ok(Form::JsonPath(_))));
        let Ok(Form::Columns(columns)) = Form::parse("custom-columns=NAME:.metadata.name,PHASE:status.phase")
        else {
            panic!("no columns");
        };
        assert_eq!(columns.iter().map(|one| one.header.as_str()).collect::<Vec<_>>(), ["NAME", "PHASE"]);
        for wrong in
            ["xml", "", "jsonpath", "jsonpath=", "custom-columns=", "custom-columns=NAME", "go-template=x"]
        {
            assert!(Form::parse(wrong).is_err(), "{wrong}");
        }
    }
}
