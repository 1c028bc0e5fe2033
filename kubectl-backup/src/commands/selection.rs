//! Commands that are about several objects: by their names, their labels, or all.

use super::prelude::*;
use crate::cli::{DeletionArgs, SelectionArgs};

/// Names in a question.
const NAMED: usize = 20;

/// The names of those that are meant, also of those that cannot be decoded. Says so where there are none.
pub(super) async fn selected<K: TableKind>(
    session: &Session,
    args: &SelectionArgs,
    terminal: &mut Terminal,
) -> Result<Vec<String>, Problem> {
    if !args.names.is_empty() {
        return Ok(args.names.clone());
    }
    let params = ListParams { label_selector: args.selector.clone(), ..ListParams::default() };
    let api: Api<DeserializeGuard<K>> = session.api();
    let names = session.list(About::of::<K>("list", ""), &api, params, |item| Some(item.name_any())).await?;
    if names.is_empty() {
        terminal.say(&format!("No {} found in namespace {}.", K::plural(&()), session.namespace));
    }
    Ok(names)
}

/// Runs it for each name, also after a failure. The worst of what came of them.
pub(super) async fn each<F>(names: &[String], terminal: &mut Terminal, mut run: F) -> CommandResult
where
    F: AsyncFnMut(&str, &mut Terminal) -> CommandResult,
{
    let mut worst = Ok(Exit::Done);
    for name in names {
        match run(name, terminal).await {
            Ok(exit) => worst = worst.map(|before: Exit| before.max(exit)),
            Err(problem) => {
                if let Err(before) = std::mem::replace(&mut worst, Err(problem)) {
                    terminal.say(&format!("error: {before}"));
                }
            }
        }
    }
    worst
}

/// Asks a person unless they have said yes, then deletes each that is meant. `what` ends the question.
pub(super) async fn delete_each<K: TableKind, F>(
    DeletionArgs { selection, yes }: &DeletionArgs,
    what: &str,
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
    if !*yes {
        let names = named(&all);
        match terminal.confirm(&format!("Delete {names}{what}?")) {
            Some(true) => {}
            Some(false) => {
                terminal.say("nothing was deleted");
                return Ok(Exit::Failed);
            }
            None => return Err(no_terminal("delete", &names)),
        }
    }
    each(&all, terminal, async |name: &str, terminal: &mut Terminal| delete(&session, name, terminal).await)
        .await
}

pub(super) fn no_terminal(verb: &str, what: &str) -> Problem {
    Problem::usage(format!("cannot ask whether to {verb} {what}: there is no terminal"))
        .with_remedy("Confirm it with --yes.")
}

/// The first of them, and how many more.
fn named(all: &[String]) -> String {
    let names = all[..all.len().min(NAMED)].join(", ");
    match all.len().saturating_sub(NAMED) {
        0 => names,
        more => format!("{names} and {more} more"),
    }
}
