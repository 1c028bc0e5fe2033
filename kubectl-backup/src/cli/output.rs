//! In which form something is printed: the one home of `-o`, `--no-headers`, `-A`, `-w` and
//! `--sort-by`.

use clap::{
    Args, ValueEnum,
    builder::{PossibleValuesParser, TypedValueParser},
};

use crate::jsonpath::{Path, Template};

/// A form without an argument.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    Table,
    Wide,
    Json,
    Yaml,
    /// Kind and name.
    Name,
}

/// Takes only these forms.
pub(super) fn one_of<const N: usize>(
    forms: [&'static str; N],
) -> impl TypedValueParser<Value = Output> {
    PossibleValuesParser::new(forms).try_map(|form| Output::from_str(&form, false))
}

/// The flag of every command that prints a document of ours.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct DocumentArgs {
    /// Print a document of kubectl-backup/v1, with times in RFC 3339: json or yaml
    #[arg(short, long, value_parser = one_of(["json", "yaml"]), value_name = "FORM", hide_possible_values = true)]
    pub(crate) output: Option<Output>,
}

/// In which form a list is printed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Form {
    Plain(Output),
    JsonPath(Template),
    Columns(Vec<Column>),
}

/// A column that a person chose.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Column {
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
        matches!(
            self,
            Self::Plain(Output::Table | Output::Wide) | Self::Columns(_)
        )
    }

    fn parse(text: &str) -> Result<Self, String> {
        if let Some(template) = text.strip_prefix("jsonpath=") {
            return Template::parse(template).map(Self::JsonPath);
        }
        if let Some(columns) = text.strip_prefix("custom-columns=") {
            return columns
                .split(',')
                .map(column)
                .collect::<Result<_, _>>()
                .map(Self::Columns);
        }
        match text {
            "jsonpath" => {
                Err("jsonpath needs a value, such as jsonpath={.items[*].metadata.name}".to_owned())
            }
            "custom-columns" => {
                Err("custom-columns needs a value, such as custom-columns=NAME:.metadata.name".to_owned())
            }
            _ => Output::from_str(text, false).map(Self::Plain).map_err(|_| {
                "expected wide, json, yaml, name, jsonpath=TEMPLATE or custom-columns=HEADER:PATH,..."
                    .to_owned()
            }),
        }
    }
}

fn column(text: &str) -> Result<Column, String> {
    let parts = text
        .split_once(':')
        .filter(|(header, path)| !header.is_empty() && !path.is_empty());
    let Some((header, path)) = parts else {
        return Err(format!(
            "{text:?} is no column: expected HEADER:PATH, such as NAME:.metadata.name"
        ));
    };
    Ok(Column {
        header: header.to_owned(),
        path: Path::parse(path)?,
    })
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
    /// Print no header line
    #[arg(long)]
    pub(crate) no_headers: bool,
}

/// Flags of every list that can be followed and sorted.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ListFlags {
    /// In all namespaces
    #[arg(short = 'A', long)]
    pub(crate) all_namespaces: bool,
    /// Watch for changes: print a row for each, until interrupted
    #[arg(short, long, conflicts_with = "sort_by")]
    pub(crate) watch: bool,
    /// Sort by this field of each, as `-o json` shows it
    #[arg(long, value_name = "PATH", value_parser = Path::parse, help_heading = "Output")]
    pub(crate) sort_by: Option<Path>,
}

/// The parts of a table that are printed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableParts {
    pub(crate) wide: bool,
    pub(crate) headers: bool,
    pub(crate) namespaces: bool,
}

impl OutputArgs {
    pub(crate) fn is_wide(&self) -> bool {
        self.form == Form::Plain(Output::Wide)
    }

    pub(crate) fn shown(&self, list: &ListFlags) -> TableParts {
        TableParts {
            wide: self.is_wide(),
            headers: !self.no_headers,
            namespaces: list.all_namespaces,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_those_of_kubectl() {
        assert_eq!(Form::parse("wide"), Ok(Form::Plain(Output::Wide)));
        assert!(matches!(
            Form::parse("jsonpath={.a=b}"),
            Ok(Form::JsonPath(_)) | Err(_)
        ));
        assert!(matches!(
            Form::parse("jsonpath={.items[?(@.a==\"b\")].c}"),
            Ok(Form::JsonPath(_))
        ));
        let Ok(Form::Columns(columns)) =
            Form::parse("custom-columns=NAME:.metadata.name,PHASE:status.phase")
        else {
            panic!("no columns");
        };
        assert_eq!(
            columns
                .iter()
                .map(|one| one.header.as_str())
                .collect::<Vec<_>>(),
            ["NAME", "PHASE"]
        );
        for wrong in [
            "xml",
            "",
            "jsonpath",
            "jsonpath=",
            "custom-columns=",
            "custom-columns=NAME",
            "go-template=x",
        ] {
            assert!(Form::parse(wrong).is_err(), "{wrong}");
        }
    }
}
