//! `kubectl backup`: create, get, describe, restore, delete.
//!
//! `run` takes the arguments and a [`Terminal`] (streams, environment, clock) and returns the
//! [`Exit`], so that tests see exactly what a user sees. Data goes to stdout, messages to stderr.

#[cfg(test)]
#[macro_use]
extern crate backup_testkit;

mod api_warnings;
mod backoff;
mod cli;
mod client;
mod commands;
mod complete;
mod error;
mod fetched;
mod home;
mod new_file;
mod owned;
mod print;
mod readable;
mod redact;
mod session;
mod stored;
mod terminal;
mod type_names;
mod view;

use std::ffi::OsString;

use clap::FromArgMatches as _;
use futures::{
    FutureExt as _,
    future::{LocalBoxFuture, ready},
};

use error::{Problem, ProblemKind};

pub use error::Exit;
pub use print::Size;
pub use terminal::Terminal;

/// The definition of the command line, for programs that inspect all commands.
pub fn command() -> clap::Command {
    cli::command()
}

/// Parses the arguments and runs the command on a new runtime. Help is printed without a runtime.
pub fn run_blocking(args: Vec<OsString>, mut terminal: Terminal) -> Exit {
    let task = match task(args, &mut terminal) {
        Ok(task) => task,
        Err(exit) => return exit,
    };
    match tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime.block_on(Box::pin(perform(task, &mut terminal))),
        Err(error) => report(
            &Problem::other(format!("cannot start: {error}")),
            &mut terminal,
        ),
    }
}

/// Parses the arguments and runs the command. The future is boxed, so that it is compiled here
/// once, and not in each program that awaits it.
pub fn run(args: Vec<OsString>, terminal: &mut Terminal) -> LocalBoxFuture<'_, Exit> {
    match task(args, terminal) {
        Ok(task) => perform(task, terminal).boxed_local(),
        Err(exit) => ready(exit).boxed_local(),
    }
}

enum Task {
    /// A command, and the command that the user probably meant if the words are typical of velero
    /// or kubectl.
    Command(Box<cli::Cli>, Option<String>),
    /// Completion of words that are not yet a command.
    Complete(Vec<OsString>),
}

fn task(args: Vec<OsString>, terminal: &mut Terminal) -> Result<Task, Exit> {
    if args.get(1).is_some_and(|word| word == complete::WORD) {
        return Ok(Task::Complete(args[2..].to_vec()));
    }
    let meant = cli::habits::meant(&args);
    parse(args, meant.as_deref(), terminal).map(|cli| Task::Command(Box::new(cli), meant))
}

async fn perform(task: Task, terminal: &mut Terminal) -> Exit {
    match task {
        Task::Command(cli, meant) => Box::pin(execute(*cli, meant, terminal)).await,
        Task::Complete(words) => Box::pin(complete::run(&words, terminal)).await,
    }
}

/// Prints help and version to stdout (exit code 0), and errors in the arguments to stderr (usage).
fn parse(
    args: Vec<OsString>,
    meant: Option<&str>,
    terminal: &mut Terminal,
) -> Result<cli::Cli, Exit> {
    let mut command = cli::command();
    if let Some(width) = terminal.width {
        command = command.term_width(width);
    }
    let words: Vec<String> = args
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let parsed = command
        .try_get_matches_from(args)
        .and_then(|matches| cli::Cli::from_arg_matches(&matches));
    parsed.map_err(|error| {
        if let Some(refusal) = flag_of_velero(&words, &error) {
            let label = terminal.err_style().bad("error:");
            terminal.say(&format!("{label} {refusal}"));
            return Exit::Usage;
        }
        let text = error.render();
        let is_mistake = error.use_stderr();
        let is_terminal = if is_mistake {
            terminal.err_is_terminal
        } else {
            terminal.out_is_terminal
        };
        let colour = is_terminal && !terminal.has_var("NO_COLOR");
        let text = if colour {
            text.ansi().to_string()
        } else {
            text.to_string()
        };
        if !is_mistake {
            return terminal.data(&text).map_or(Exit::Failed, |()| Exit::Done);
        }
        terminal.talk_raw(&text);
        if let Some(meant) = meant {
            terminal.say(&format!("\nDid you mean: {meant}"));
        }
        Exit::Usage
    })
}

/// The message for a flag of velero that the parser does not know.
fn flag_of_velero(words: &[String], error: &clap::Error) -> Option<String> {
    use clap::error::{ContextKind, ContextValue, ErrorKind};
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    (error.kind() == ErrorKind::UnknownArgument)
        .then(|| cli::velero_flags::refusal(words, flag))
        .flatten()
}

async fn execute(cli: cli::Cli, meant: Option<String>, terminal: &mut Terminal) -> Exit {
    terminal.flags = cli.global;
    let done = Box::pin(commands::dispatch(cli.command, terminal)).await;
    terminal.say_api_warnings();
    let problem = match done {
        Ok(exit) => return exit,
        Err(problem) => problem,
    };
    // A kind was parsed as a name.
    if let Some(meant) = meant
        && problem.is_not_found()
    {
        let problem = problem.with_remedy(format!("Or did you mean `{meant}`?"));
        return report(&problem, terminal);
    }
    report(&problem, terminal)
}

/// Prints the problem, then the remedy.
fn report(problem: &Problem, terminal: &mut Terminal) -> Exit {
    if problem.kind == ProblemKind::Output(std::io::ErrorKind::BrokenPipe) {
        return Exit::Failed; // the reader has gone
    }
    let label = terminal.err_style().bad("error:");
    terminal.say(&format!("{label} {problem}"));
    if let Some(remedy) = &problem.remedy {
        terminal.say(&format!("  {remedy}"));
    }
    problem.exit()
}
