//! `describe`: fetches the object, then everything about it side by side, each part within 2 s.

use std::time::Duration;

use backup_core::{
    api::{Backup, BackupStorageLocation, DeleteBackupRequest, Restore},
    labels,
};
use backup_lock::{Ledger, LedgerError, LedgerStore, VELERO_SCOPE, lease::lease_name};
use futures::join;
use k8s_openapi::api::core::v1::Event;
use kube::{
    Api,
    api::{ListParams, ObjectMeta},
    core::DeserializeGuard,
};

use super::{listed::Listed as _, subject::Subject};
use crate::{
    Terminal,
    cli::{DescribeArgs, GlobalArgs, Output},
    client::Session,
    error::{About, Exit, Problem},
    print::{describe::text, json},
    view::{self, description::Description, part::Part},
};

/// How long a part may take.
const PART: Duration = Duration::from_secs(2);
/// Events and requests read at most: a screen shows a few.
const FEW: u32 = 100;

/// `describe`
pub async fn backup(
    global: &GlobalArgs,
    args: DescribeArgs,
    terminal: &mut Terminal,
) -> Result<Exit, Problem> {
    let session = Session::connect(global, terminal).await?;
    let backup: Backup =
        session.call(Backup::about("get", &args.name), session.api::<Backup>().get(&args.name)).await?;
    let (location, deletions, events, ledger) = join!(
        location(&session, &backup),
        deletions(&session, &args.name),
        events(&session, &backup),
        ledger(&session)
    );
    let facts = view::backup::Facts { backup: &backup, location, deletions, events, ledger };
    let description = view::backup::describe(facts, terminal.now());
    show(&description, &args, terminal)
}

/// `restore describe`
pub async fn restore(
    global: &GlobalArgs,
    args: DescribeArgs,
    terminal: &mut Terminal,
) -> Result<Exit, Problem> {
    let session = Session::connect(global, terminal).await?;
    let restore: Restore =
        session.call(Restore::about("get", &args.name), session.api::<Restore>().get(&args.name)).await?;
    let source = async {
        let backup = source(&session, restore.spec.backup_name.as_deref()).await;
        let location = match &backup {
            Part::Known(Some(backup)) => location(&session, backup).await,
            _ => Part::Known(None),
        };
        (backup, location)
    };
    let ((backup, location), events, ledger) = join!(source, events(&session, &restore), ledger(&session));
    let facts = view::restore::Facts { restore: &restore, backup, location, events, ledger };
    let description = view::restore::describe(facts, terminal.now());
    show(&description, &args, terminal)
}

fn show(description: &Description, args: &DescribeArgs, terminal: &mut Terminal) -> Result<Exit, Problem> {
    let output = match args.output {
        Some(form) => json::object(description, Output::from(form))?,
        None => text(description, terminal.now(), terminal.out_style()),
    };
    terminal.data(&output)?;
    Ok(Exit::Done)
}

/// A part within its time, or why it is not there.
async fn part<T>(fetch: impl Future<Output = Result<T, Problem>>) -> Part<T> {
    match tokio::time::timeout(PART, fetch).await {
        Ok(Ok(value)) => Part::Known(value),
        Ok(Err(problem)) => Part::missing(crate::print::table::plain(&problem.to_string())),
        Err(_) => Part::missing(format!("no answer within {PART:?}")),
    }
}

async fn source(session: &Session, name: Option<&str>) -> Part<Option<Backup>> {
    let Some(name) = name else { return Part::Known(None) };
    part(async {
        match session.call(Backup::about("get", name), session.api::<Backup>().get(name)).await {
            Err(Problem::NotFound { .. }) => Ok(None),
            other => other.map(Some),
        }
    })
    .await
}

async fn location(session: &Session, backup: &Backup) -> Part<Option<BackupStorageLocation>> {
    let Some(name) = backup.spec.storage_location.as_deref().filter(|name| !name.is_empty()) else {
        return Part::Known(None);
    };
    let about = About { verb: "get", kind: "location", plural: "backupstoragelocations", name };
    part(async { session.call(about, session.api::<BackupStorageLocation>().get(name)).await.map(Some) })
        .await
}

/// By label, as velero's own command does: the server puts the labels on requests that came without.
async fn deletions(session: &Session, backup: &str) -> Part<Vec<DeleteBackupRequest>> {
    let api: Api<DeserializeGuard<DeleteBackupRequest>> = session.api();
    let params = ListParams::default()
        .labels(&format!("{}={}", labels::BACKUP_NAME, labels::valid_value(backup)))
        .limit(FEW);
    let about = About { verb: "list", kind: "deletebackuprequest", plural: "deletebackuprequests", name: "" };
    part(async {
        let page = session.call(about, api.list(&params)).await?;
        Ok(page.items.into_iter().filter_map(|item| item.0.ok()).collect())
    })
    .await
}

async fn events<K: Subject>(session: &Session, object: &K) -> Part<Vec<Event>> {
    let ObjectMeta { name, uid, .. } = object.meta();
    let fields = format!(
        "involvedObject.kind={},involvedObject.name={},involvedObject.uid={}",
        K::kind(&()),
        name.as_deref().unwrap_or_default(),
        uid.as_deref().unwrap_or_default()
    );
    let api: Api<DeserializeGuard<Event>> = Api::namespaced(session.client.clone(), &session.namespace);
    let about = About { verb: "list", kind: "event", plural: "events", name: "" };
    part(async {
        let page = session.call(about, api.list(&ListParams::default().fields(&fields).limit(FEW))).await?;
        Ok(page.items.into_iter().filter_map(|item| item.0.ok()).collect())
    })
    .await
}

async fn ledger(session: &Session) -> Part<Option<Ledger>> {
    let store = LedgerStore::new(session.client.clone(), &session.namespace);
    part(async {
        let stored = store.read(VELERO_SCOPE).await;
        match stored {
            Ok(stored) => Ok(stored.map(|stored| (*stored.ledger).clone())),
            Err(LedgerError::Denied { source, .. } | LedgerError::Unreachable { source, .. }) => {
                let about =
                    About { verb: "get", kind: "lease", plural: "leases", name: &lease_name(VELERO_SCOPE) };
                Err(about.explain(*source, &session.server, &session.namespace))
            }
            Err(error) => Err(Problem::Other { message: error.to_string(), remedy: None }),
        }
    })
    .await
}
