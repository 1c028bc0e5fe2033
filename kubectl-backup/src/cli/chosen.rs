//! Which objects a command is about.

use clap::Args;

/// Names, or labels, or all of them: one of the three.
#[derive(Args, Debug, Default)]
#[group(id = "chosen", required = true, multiple = false)]
pub struct ChosenArgs {
    /// Names
    pub names: Vec<String>,
    /// All with these labels
    #[arg(short = 'l', long, value_name = "SELECTOR", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub selector: Option<String>,
    /// All in the namespace
    #[arg(long)]
    pub all: bool,
}
