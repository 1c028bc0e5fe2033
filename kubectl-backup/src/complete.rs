//! Completion in shells. kubectl runs `kubectl_complete-backup WORD...` and reads what cobra would print (kubectl
//! `pkg/cmd/plugin/plugin_completion.go`): a candidate a line, with a tab before its description, and a last line
//! `:DIRECTIVE`. Our scripts for bash, zsh and fish read the same. What can't be found out in time is left out in silence.

mod live;
mod question;

use std::{ffi::OsString, fmt::Write as _};

use clap::CommandFactory as _;

use crate::{
    Terminal,
    cli::{Cli, Shell},
    error::Exit,
};

/// The hidden first word under which completions are asked for.
pub const WORD: &str = "__complete";

/// cobra's directives (`completions.go`): files may be offered, or not; no space after the word.
const FILES: u8 = 0;
const NO_FILES: u8 = 4;
const NO_SPACE: u8 = 2;

/// Prints what could stand in place of the last word.
pub async fn run(words: &[OsString], terminal: &mut Terminal) -> Exit {
    let words: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let command = built();
    let question = question::ask(&command, &words);
    let mut directive = if question.files { FILES } else { NO_FILES };
    let mut all = question.fixed;
    if let Some(noun) = question.noun {
        let names = live::names(noun, &words, terminal).await;
        all.extend(names.into_iter().map(|name| (name, String::new())));
    }
    all.retain(|(candidate, _)| {
        candidate.starts_with(&question.typed) && !question.taken.contains(candidate)
    });
    if all.len() == 1 && all[0].0.ends_with('=') {
        directive |= NO_SPACE;
    }
    let mut text = String::new();
    for (candidate, description) in all {
        let _ = match description.as_str() {
            "" => writeln!(text, "{}{candidate}", question.prefix),
            _ => writeln!(text, "{}{candidate}\t{description}", question.prefix),
        };
    }
    let _ = writeln!(text, ":{directive}");
    terminal.data(&text).map_or(Exit::Failed, |()| Exit::Done)
}

/// The commands with everything that clap adds to them.
fn built() -> clap::Command {
    let mut command = Cli::command();
    command.build();
    command
}

/// The script for a shell.
pub const fn script(shell: Shell) -> &'static str {
    match shell {
        Shell::Bash => include_str!("complete/bash.sh"),
        Shell::Zsh => include_str!("complete/zsh.sh"),
        Shell::Fish => include_str!("complete/fish.fish"),
        Shell::Kubectl => include_str!("complete/kubectl.sh"),
    }
}
