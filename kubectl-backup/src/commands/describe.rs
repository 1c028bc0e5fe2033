//! `describe`: fetches the object, then everything about it side by side, each part within 2 s.

mod files;
mod watch;

use backup_core::{
    api::{Backup, BackupStorageLocation, DeleteBackupRequest, Restore},
    labels,
};
use backup_lock::{Ledger, LedgerError, LedgerStore, VELERO_SCOPE, lease::lease_name};
use futures::join;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::{
    Api,
    api::{ListParams, ObjectMeta},
    core::DeserializeGuard,
};

use super::{listed::Listed as _, part::part, schedules, subject::Subject};
use crate::{
    Terminal,
    cli::{DescribeArgs, GlobalArgs, Output},
    client::Session,
    error::{About, Exit, Problem},
    print::{describe::text, json},
    view::{self, description::Description, part::Part},
};

/// Events and requests read at most: a screen shows a few.
const FEW: u32 = 100;

/// `describe`
pub async fn backup(
    global: &GlobalArgs,
    args: DescribeArgs,
    terminal: &mut Terminal,
) -> Result<Exit, Problem> {
    run::<Backup>(global, &args, terminal).await
}

/// `restore describe`
pub async fn restore(
    global: &GlobalArgs,
    args: DescribeArgs,
    terminal: &mut Terminal,
) -> Result<Exit, Problem> {
    run::<Restore>(global, &args, terminal).await
}

async fn run<K: Described>(
    global: &GlobalArgs,
    args: &DescribeArgs,
    terminal: &mut Terminal,
) -> Result<Exit, Problem> {
    let session = Session::connect(global, terminal).await?;
    if args.watch {
        return Box::pin(watch::run::<K>(&session, args, terminal)).await;
    }
    let object = get::<K>(&session, &args.name).await?;
    let description = Box::pin(object.describe(&session, terminal.now())).await;
    show(&description, args, terminal)?;
    Ok(Exit::Done)
}

/// An object by its name.
pub(super) async fn get<K: Subject>(session: &Session, name: &str) -> Result<K, Problem> {
    session.call(K::about("get", name), session.api::<K>().get(name)).await
}

/// A kind that can be described.
trait Described: Subject + Sync {
    /// Everything about it. A part that can't be fetched says so.
    async fn describe(&self, session: &Session, now: Timestamp) -> Description;
}

impl Described for Backup {
    async fn describe(&self, session: &Session, now: Timestamp) -> Description {
        let name = self.metadata.name.as_deref().unwrap_or_default();
        let (location, deletions, events, ledger, siblings, stored) = join!(
            location(session, self),
            deletions(session, name),
            events(session, self),
            ledger(session),
            siblings(session, self),
            files::of_backup(session, self)
        );
        let facts =
            view::backup::Facts { backup: self, location, deletions, events, ledger, siblings, stored };
        view::backup::describe(facts, now)
    }
}

impl Described for Restore {
    async fn describe(&self, session: &Session, now: Timestamp) -> Description {
        let source = async {
            let backup = source(session, self.spec.backup_name.as_deref()).await;
            let location = match &backup {
                Part::Known(Some(backup)) => location(session, backup).await,
                _ => Part::Known(None),
            };
            (backup, location)
        };
        let ((backup, location), events, ledger, stored) =
            join!(source, events(session, self), ledger(session), files::of_restore(session, self));
        let facts = view::restore::Facts { restore: self, backup, location, events, ledger, stored };
        view::restore::describe(facts, now)
    }
}

fn show(description: &Description, args: &DescribeArgs, terminal: &mut Terminal) -> Result<(), Problem> {
    let output = match args.output {
        Some(form) => json::object(description, Output::from(form))?,
        None => text(description, terminal.now(), terminal.out_style(), args.details),
    };
    Ok(terminal.data(&output)?)
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

/// Runs of the same schedule, this one among them.
async fn siblings(session: &Session, backup: &Backup) -> Part<Vec<Backup>> {
    let schedule = backup.metadata.labels.as_ref().and_then(|labels| labels.get(labels::SCHEDULE_NAME));
    let Some(schedule) = schedule.filter(|name| !name.is_empty()) else { return Part::Known(Vec::new()) };
    schedules::backups(session, schedule).await
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
