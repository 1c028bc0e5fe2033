//! In which form something is printed: the one home of `-o`, `--no-headers`, `-A` and `-w`.

use std::ffi::OsStr;

use clap::{
    Arg, Args, Command, ValueEnum,
    builder::{PossibleValue, StringValueParser, TypedValueParser},
};

#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Output {
    #[default]
    Table,
    Wide,
    Json,
    Yaml,
    /// Kind and name.
    Name,
}

impl Output {
    /// Whether the output is a table for users.
    pub(crate) const fn is_table(self) -> bool {
        matches!(self, Self::Table | Self::Wide)
    }
}

/// Takes only these forms.
#[derive(Clone, Copy, Debug)]
pub(super) struct FormParser(pub(super) &'static [&'static str]);

impl FormParser {
    fn read(self, text: &str) -> Result<Output, String> {
        if self.0.contains(&text) {
            return Output::from_str(text, false);
        }
        let mut expected = format!("expected {}", self.names());
        if KUBECTL_FORMS.iter().any(|form| text.starts_with(form)) {
            expected += "\n  For objects: kubectl get backups.velero.io -o ...\n  \
                For documents of this command: -o json | jq ...";
        }
        Err(expected)
    }

    /// "json, yaml or name"
    fn names(self) -> String {
        match self.0.split_last() {
            Some((last, others)) => format!("{} or {last}", others.join(", ")),
            None => String::new(),
        }
    }
}

/// Forms of kubectl that we do not have, by their beginnings.
const KUBECTL_FORMS: [&str; 4] = ["jsonpath", "custom-columns", "go-template", "template"];

impl TypedValueParser for FormParser {
    type Value = Output;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<Output, clap::Error> {
        let forms = *self;
        StringValueParser::new()
            .try_map(move |text| forms.read(&text))
            .parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.0.iter().map(PossibleValue::new)))
    }
}

/// The flag of every command that prints a document of ours.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct DocumentArgs {
    /// Print a document of kubectl-backup/v1, with times in RFC 3339: json or yaml
    #[arg(short, long, value_parser = FormParser(&["json", "yaml"]), value_name = "FORM", hide_possible_values = true)]
    pub(crate) output: Option<Output>,
}

/// Flags of every command that lists.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Form: table, wide, json, yaml or name
    #[arg(
        short = 'o',
        long = "output",
        value_parser = FormParser(&["table", "wide", "json", "yaml", "name"]),
        default_value = "table",
        hide_possible_values = true,
        value_name = "FORM"
    )]
    pub(crate) form: Output,
    /// Print no header line
    #[arg(long)]
    pub(crate) no_headers: bool,
}

/// Flags of every list that can be followed.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ListFlags {
    /// In all namespaces
    #[arg(short = 'A', long)]
    pub(crate) all_namespaces: bool,
    /// Watch for changes: print a row for each, until interrupted
    #[arg(short, long)]
    pub(crate) watch: bool,
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
        self.form == Output::Wide
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
    fn a_form_is_one_of_those_of_the_flag() {
        let forms = FormParser(&["table", "wide", "json", "yaml", "name"]);
        for (text, form) in [
            ("table", Output::Table),
            ("wide", Output::Wide),
            ("json", Output::Json),
            ("yaml", Output::Yaml),
            ("name", Output::Name),
        ] {
            assert_eq!(forms.read(text), Ok(form));
        }
        for wrong in ["xml", "", "JSON"] {
            let why = forms.read(wrong).unwrap_err();
            assert_eq!(why, "expected table, wide, json, yaml or name");
        }
        assert!(FormParser(&["json", "yaml"]).read("wide").is_err());
    }

    #[test]
    fn forms_of_kubectl_are_answered_with_what_has_them() {
        for form in [
            "jsonpath={.metadata.name}",
            "jsonpath-file=f",
            "custom-columns=NAME:.metadata.name",
            "custom-columns-file=f",
            "go-template={{.metadata.name}}",
            "templatefile=f",
        ] {
            let why = FormParser(&["json", "yaml"]).read(form).unwrap_err();
            assert!(
                why.starts_with("expected json or yaml\n")
                    && why.contains("kubectl get backups.velero.io -o ...")
                    && why.contains("-o json | jq"),
                "{why}"
            );
        }
    }
}
