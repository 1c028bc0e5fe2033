//! `operations` and `restore operations`: what actions have started, and how far it has come.

use std::collections::HashMap;

use backup_core::{
    api::{Backup, Restore, download_request::DownloadTargetKind},
    operation::{BackupOperation, Operation, RestoreOperation},
};
use kube::ResourceExt as _;
use serde::de::DeserializeOwned;

use super::{
    describe::get,
    subject::Subject,
    wait::{LONGEST, Look, Waited, poll},
};
use crate::{
    Terminal,
    cli::{GlobalArgs, OperationsArgs, Output, output::Form},
    client::Session,
    error::{Exit, Problem},
    print::{form, operations as print},
    stored::{Wanted, document},
    view::stored::operations::{OperationList, OperationView, views},
};

/// A kind whose actions may start operations.
pub trait Operated: Subject {
    /// One of them, as it is stored.
    type Operation: Operation + DeserializeOwned;
    /// The file that they are in.
    const FILE: DownloadTargetKind;
    /// How many were started, as far as that is published.
    fn attempted(&self) -> i64;
}

impl Operated for Backup {
    type Operation = BackupOperation;
    const FILE: DownloadTargetKind = DownloadTargetKind::BackupItemOperations;

    fn attempted(&self) -> i64 {
        self.status.backup_item_operations_attempted
    }
}

impl Operated for Restore {
    type Operation = RestoreOperation;
    const FILE: DownloadTargetKind = DownloadTargetKind::RestoreItemOperations;

    fn attempted(&self) -> i64 {
        self.status.restore_item_operations_attempted
    }
}

/// Shows them, or with `-w` each change until the end.
pub async fn run<K: Operated>(
    global: &GlobalArgs,
    args: OperationsArgs,
    terminal: &mut Terminal,
) -> Result<Exit, Problem> {
    let session = Session::connect(global, terminal).await?;
    if args.watch {
        return watch::<K>(&session, &args, terminal).await;
    }
    let object = get::<K>(&session, &args.name).await?;
    let operations = read(&session, &object).await?;
    if operations.is_empty() && args.output.form.is_table() {
        let so_far = if object.ended().is_some() { "" } else { " so far" };
        terminal.say(&format!("{} {} has started no operations{so_far}.", K::KIND, args.name));
        return Ok(Exit::Done);
    }
    show(operations, &args, !args.output.no_headers, |_| true, terminal)?;
    Ok(Exit::Done)
}

/// As they are now; none where none are published.
async fn read<K: Operated>(session: &Session, object: &K) -> Result<Vec<OperationView>, Problem> {
    if object.attempted() == 0 {
        return Ok(Vec::new());
    }
    let (name, uid) = (object.name_any(), object.uid().unwrap_or_default());
    let wanted = Wanted { kind: K::FILE, name: &name, uid: &uid };
    Ok(views(&document::<Vec<K::Operation>>(session, &wanted).await?))
}

async fn watch<K: Operated>(
    session: &Session,
    args: &OperationsArgs,
    terminal: &mut Terminal,
) -> Result<Exit, Problem> {
    let mut told: HashMap<(String, String), OperationView> = HashMap::new();
    let watched = poll(session, terminal, LONGEST, async |terminal: &mut Terminal| {
        let object = get::<K>(session, &args.name).await?;
        let operations = read(session, &object).await?;
        let is_new = |now: &OperationView| told.get(&key(now)) != Some(now);
        let changed = operations.iter().any(is_new);
        let next = operations.iter().map(|operation| (key(operation), operation.clone())).collect();
        if changed {
            let header = told.is_empty() && !args.output.no_headers;
            show(operations, args, header, is_new, terminal)?;
        }
        told = next;
        Ok(match object.ended() {
            Some(_) => Look::Over(()),
            None if changed => Look::Changed,
            None => Look::Same,
        })
    });
    Ok(match watched.await? {
        Waited::Over(()) => Exit::Done,
        Waited::TimedOut => Exit::TimedOut,
        Waited::Interrupted => Exit::Interrupted,
    })
}

/// Actions choose ids each for itself.
fn key(operation: &OperationView) -> (String, String) {
    (operation.action.clone(), operation.id.clone())
}

/// Those that are asked for, in columns as wide as all of them need.
fn show(
    mut operations: Vec<OperationView>,
    args: &OperationsArgs,
    header: bool,
    shown: impl Fn(&OperationView) -> bool,
    terminal: &mut Terminal,
) -> Result<(), Problem> {
    let form = &args.output.form;
    let text = if *form == Form::Plain(Output::Name) {
        let wanted = operations.iter().filter(|one| shown(one));
        wanted.fold(String::new(), |all, one| all + &one.id + "\n")
    } else if let Form::Plain(Output::Table | Output::Wide) = form {
        let wide = *form == Form::Plain(Output::Wide);
        let lines = print::lines(&operations, wide, terminal.now(), terminal.out_style())?;
        let wanted = std::iter::once(header).chain(operations.iter().map(shown));
        lines.into_iter().zip(wanted).filter_map(|(line, wanted)| wanted.then_some(line)).collect()
    } else {
        operations.retain(shown);
        let list = OperationList::new(&args.name, operations);
        form::document(&list, "items", form, !header)?.unwrap_or_default()
    };
    Ok(terminal.data(&text)?)
}
