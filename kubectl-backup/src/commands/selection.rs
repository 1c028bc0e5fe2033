//! Commands for several objects: selected by name, by label, or all.

use std::pin::pin;

use backup_core::text::listed;
use futures::FutureExt as _;

use super::prelude::*;
use crate::cli::{DeletionArgs, SelectionArgs};

/// Maximum number of names in a question.
const MAX_NAMES: usize = 20;

/// The names of the selected objects, including objects that cannot be decoded. Prints a message if
/// there are none.
pub(super) async fn selected<K: TableKind>(
    session: &Session,
    args: &SelectionArgs,
    terminal: &mut Terminal,
) -> Result<Vec<String>, Problem> {
    if !args.names.is_empty() {
        return Ok(args.names.clone());
    }
    let params = ListParams {
        label_selector: args.selector.clone(),
        ..ListParams::default()
    };
    let api: Api<DeserializeGuard<K>> = session.api();
    let names = session
        .list(About::of::<K>("list", ""), &api, params, |item| {
            Some(item.name_any())
        })
        .await?;
    if names.is_empty() {
        terminal.say(&format!(
            "No {} found in namespace {}.",
            K::plural(&()),
            session.namespace
        ));
    }
    Ok(names)
}

/// The worst result for several objects. A problem is worse than any exit code; the last problem
/// becomes the result of the command, the others are printed at once.
pub(super) struct Worst(CommandResult);

impl Default for Worst {
    fn default() -> Self {
        Self(Ok(Exit::Done))
    }
}

impl Worst {
    pub(super) fn take(&mut self, result: CommandResult, terminal: &mut Terminal) {
        match (result, &mut self.0) {
            (Ok(exit), Ok(worst)) => *worst = exit.max(*worst),
            (Ok(_), Err(_)) => {}
            (Err(problem), worst) => {
                if let Err(before) = std::mem::replace(worst, Err(problem)) {
                    terminal.say(&format!("error: {before}"));
                }
            }
        }
    }

    pub(super) fn result(self) -> CommandResult {
        self.0
    }
}

/// Time in which the work on a name may end by itself after an interrupt.
const INTERRUPT_GRACE: Duration = Duration::from_millis(100);

/// Calls `run` for each name, also after a failure, until the user interrupts. Returns the worst
/// result.
pub(super) async fn each<F>(names: &[String], terminal: &mut Terminal, mut run: F) -> CommandResult
where
    F: AsyncFnMut(&str, &mut Terminal) -> CommandResult,
{
    let mut worst = Worst::default();
    // A single listener for all names, so that an interrupt between two is not lost.
    let mut interrupted = pin!(tokio::signal::ctrl_c());
    for (begun, name) in names.iter().enumerate() {
        if interrupted.as_mut().now_or_never().is_some() {
            return Ok(stopped(names, begun, terminal));
        }
        let result = {
            let mut running = pin!(run(name, terminal));
            tokio::select! {
                biased;
                result = &mut running => result,
                // If `run` listens, too, it prints what it was waiting for. Listeners get a signal
                // one after another.
                _ = &mut interrupted => {
                    let result = tokio::time::timeout(INTERRUPT_GRACE, running).await;
                    result.unwrap_or(Ok(Exit::Interrupted))
                }
            }
        };
        if matches!(result, Ok(Exit::Interrupted)) {
            return Ok(stopped(names, begun + 1, terminal));
        }
        worst.take(result, terminal);
    }
    worst.result()
}

/// Prints the names that were not processed because of an interrupt.
fn stopped(names: &[String], begun: usize, terminal: &mut Terminal) -> Exit {
    if begun < names.len() {
        terminal.say(&format!(
            "interrupted: nothing was done about {}",
            named(&names[begun..])
        ));
    }
    Exit::Interrupted
}

/// Asks for confirmation unless `yes` is set, then deletes each selected object. `consequence` is
/// the end of the question; `warning` is said in any case.
pub(super) async fn delete_each<K: TableKind, F>(
    DeletionArgs { selection, yes }: &DeletionArgs,
    warning: impl AsyncFnOnce(&Session, &[String]) -> Option<String>,
    consequence: impl AsyncFnOnce(&Session, &[String]) -> String,
    terminal: &mut Terminal,
    mut delete: F,
) -> CommandResult
where
    F: AsyncFnMut(&Session, &str, &mut Terminal) -> CommandResult,
{
    let session = Session::connect(terminal).await?;
    let all = selected::<K>(&session, selection, terminal).await?;
    if all.is_empty() {
        return Ok(Exit::Done);
    }
    if let Some(warning) = warning(&session, &all).await {
        terminal.say(&format!("warning: {warning}"));
    }
    if !*yes {
        let names = named(&all);
        let what = consequence(&session, &all).await;
        match terminal.confirm(&format!("Delete {names}{what}?")) {
            Some(true) => {}
            Some(false) => {
                terminal.say("nothing was deleted");
                return Ok(Exit::Failed);
            }
            None => return Err(no_terminal("delete", &names)),
        }
    }
    each(
        &all,
        terminal,
        async |name: &str, terminal: &mut Terminal| delete(&session, name, terminal).await,
    )
    .await
}

pub(super) fn no_terminal(verb: &str, what: &str) -> Problem {
    Problem::usage(format!(
        "refusing to {verb} {what} without --yes: there is no terminal to ask on"
    ))
    .with_remedy("Confirm it with --yes.")
}

/// The first names, and the number of the others.
pub(super) fn named(all: &[String]) -> String {
    listed(&all[..all.len().min(MAX_NAMES)], all.len())
}
