//! `operations` and `restore operations`: operations that actions have started, and their progress.

use std::collections::HashMap;

use super::{
    poll::{Look, MAX_WAIT, poll},
    prelude::*,
};
use crate::{
    cli::{OperationsArgs, Output},
    print::json::Document,
    stored::{StoredFile, document},
    view::stored::operations::{OperationList, OperationView, lines, views},
};

/// Shows the operations, or with `-w` each change until the end.
pub(super) async fn run<W: Workload>(
    args: OperationsArgs,
    terminal: &mut Terminal,
) -> CommandResult {
    let session = Session::connect(terminal).await?;
    if args.watch {
        return watch::<W>(&session, &args, terminal).await;
    }
    let work = get_named::<W>(&session, "operations", &args.name).await?;
    let operations = read(&session, &work).await?;
    if operations.is_empty() && args.output.form.is_table() {
        let so_far = if work.status().stage.is_terminal() {
            ""
        } else {
            " so far"
        };
        terminal.say(&format!(
            "{} {} has started no operations{so_far}.",
            W::KIND,
            args.name
        ));
        return Ok(Exit::Done);
    }
    show(
        operations,
        &args,
        !args.output.no_headers,
        |_| true,
        terminal,
    )?;
    Ok(Exit::Done)
}

/// The current operations; empty if none are published.
async fn read<W: Workload>(session: &Session, work: &W) -> Result<Vec<OperationView>, Problem> {
    if work.status().operations.attempted == 0 {
        return Ok(Vec::new());
    }
    let file = StoredFile::of(W::FILES.operations, work.meta());
    Ok(views(&document::<Vec<W::Operation>>(session, &file).await?))
}

async fn watch<W: Workload>(
    session: &Session,
    args: &OperationsArgs,
    terminal: &mut Terminal,
) -> CommandResult {
    let mut shown_last: HashMap<(String, String), OperationView> = HashMap::new();
    let watched = poll(
        session,
        terminal,
        MAX_WAIT,
        async |terminal: &mut Terminal| {
            let work = session.get::<W>(&args.name).await?;
            let operations = read(session, &work).await?;
            let changed = operations.iter().any(|now| is_new(&shown_last, now));
            let next = operations
                .iter()
                .map(|operation| (key(operation), operation.clone()))
                .collect();
            if changed {
                let header = shown_last.is_empty() && !args.output.no_headers;
                show(
                    operations,
                    args,
                    header,
                    |now| is_new(&shown_last, now),
                    terminal,
                )?;
            }
            shown_last = next;
            Ok(if work.status().stage.is_terminal() {
                Look::Found(work.status().ended() == Some(true))
            } else if changed {
                Look::Changed
            } else {
                Look::Same
            })
        },
    );
    Ok(watched.await?.map_or_else(|exit| exit, Exit::of_end))
}

/// Whether the operation was not shown before, or has changed since.
fn is_new(shown_last: &HashMap<(String, String), OperationView>, now: &OperationView) -> bool {
    shown_last.get(&key(now)) != Some(now)
}

/// Ids are unique only within an action.
fn key(operation: &OperationView) -> (String, String) {
    (operation.action.clone(), operation.id.clone())
}

/// Shows the selected operations, in columns wide enough for all operations.
fn show(
    mut operations: Vec<OperationView>,
    args: &OperationsArgs,
    header: bool,
    shown: impl Fn(&OperationView) -> bool,
    terminal: &mut Terminal,
) -> Result<(), Problem> {
    let text = match args.output.form {
        Output::Name => {
            let wanted = operations.iter().filter(|one| shown(one));
            wanted.fold(String::new(), |all, one| all + &one.id + "\n")
        }
        Output::Table | Output::Wide => {
            let lines = lines(
                &operations,
                args.output.is_wide(),
                terminal.now(),
                terminal.out_style(),
            )?;
            let wanted = std::iter::once(header).chain(operations.iter().map(shown));
            lines
                .into_iter()
                .zip(wanted)
                .filter_map(|(line, wanted)| wanted.then_some(line))
                .collect()
        }
        form @ (Output::Json | Output::Yaml) => {
            operations.retain(shown);
            let list = OperationList {
                of: args.name.clone(),
                items: operations,
            };
            json::object(&Document::of("OperationList", &list), form)?
        }
    };
    Ok(terminal.data(&text)?)
}
