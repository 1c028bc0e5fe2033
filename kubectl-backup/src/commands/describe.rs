//! `describe`: fetches the object, then all its parts concurrently, each within its time limit.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
};

use backup_core::{
    api::{BackupPhase, DeleteBackupRequest, download_request::DownloadTargetKind},
    labels,
    restorability::{Evidence, Place, Places},
};
use futures::{FutureExt as _, future::LocalBoxFuture, join};
use k8s_openapi::api::core::v1::Event;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::{
    damage,
    locks::velero::read_ledger,
    messages::stored_messages,
    poll::{Look, MAX_WAIT, poll},
    prelude::*,
    retained, schedules, transfers,
    wait::until_ended,
};
use crate::{
    cli::DescribeArgs,
    print::{describe::text, page},
    stored::{StoredFile, document},
    view::{
        DeletionView, Description, FileContents, LocationSummary, RunView, WorkloadParts, backup,
        progress::{Meter, share},
        related,
        stored::{FilesState, operations, volumes::Keeper},
        transfer::TransferView,
        workload,
    },
};

/// Maximum number of events and requests that are read: a screen shows only a few.
const MAX_RELATED_OBJECTS: u32 = 100;

/// With `-w`, time that one redraw waits for the parts. Parts that take longer appear in a later
/// redraw.
const REDRAW_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) async fn run<W: Workload>(args: DescribeArgs, terminal: &mut Terminal) -> CommandResult {
    let session = Session::connect(terminal).await?;
    let name = match &args.name {
        Some(name) => name.clone(),
        None => newest::<W>(&session).await?,
    };
    if args.watch {
        return Box::pin(watch::<W>(&session, &name, &args, terminal)).await;
    }
    let work = get_named::<W>(&session, "describe", &name).await?;
    let description = Box::pin(describe(&session, &work, terminal.now())).await;
    show(&description, &args, terminal)?;
    Ok(Exit::Done)
}

/// The name of the newest object.
async fn newest<W: Workload>(session: &Session) -> Result<String, Problem> {
    let api: Api<DynamicObject> = Api::namespaced_with(
        session.client.clone(),
        &session.namespace,
        &ApiResource::erase::<W>(&()),
    );
    let all = session
        .list(
            About::of::<W>("list", ""),
            &api,
            ListParams::default(),
            |one: DynamicObject| {
                let created = one.metadata.creation_timestamp.as_ref().map(|at| at.0);
                Some((created, one.name_any()))
            },
        )
        .await?;
    all.into_iter().max().map(|(_, name)| name).ok_or_else(|| {
        let message = format!("there is no {} in namespace {}", W::KIND, session.namespace);
        Problem::new(ProblemKind::NotFound, message)
            .with_remedy(format!("{} create --help", W::COMMAND))
    })
}

/// Everything about a workload. A part that cannot be fetched contains the reason.
async fn describe<W: Workload>(session: &Session, work: &W, now: Timestamp) -> Description {
    let parts = RefCell::new(WorkloadParts::unread());
    Box::pin(fetch(session, work, &parts)).await;
    workload::describe(work, parts.into_inner(), now)
}

/// Fetches everything about a workload. Each part is stored in `parts` once it is fetched.
async fn fetch<W: Workload>(session: &Session, work: &W, parts: &RefCell<WorkloadParts>) {
    let source = async {
        let source = source(session, work.source().as_deref()).await;
        let (location, place) = match work.as_backup().or(source.value()) {
            Some(backup) => {
                let read_from = labels::annotation(work, labels::READ_FROM_ANNOTATION);
                let (found, place) = location(session, backup, read_from).await;
                let copies = copy_places(session, backup).await;
                let evidence = Evidence::of(backup);
                let place = place_of_copy(&copies, &evidence, place);
                parts.borrow_mut().copies = Places(Ok(copies));
                (found, place)
            }
            None => (FetchResult::Known(None), Place::Gone),
        };
        let mut parts = parts.borrow_mut();
        parts.source = source;
        parts.location = location;
        parts.place = place;
    };
    join!(
        source,
        deletions(session, work.as_backup()).map(|all| parts.borrow_mut().deletions = all),
        previous(session, work.as_backup()).map(|run| parts.borrow_mut().previous = run),
        last_good(session, work.as_backup()).map(|is_last| parts.borrow_mut().last_good = is_last),
        events::<W>(session, work.meta()).map(|events| parts.borrow_mut().events = events),
        fetched(session, read_ledger(session)).map(|ledger| parts.borrow_mut().ledger = ledger),
        moved_data(session, work).map(|all| parts.borrow_mut().transfers = all),
        files(session, work).map(|stored| parts.borrow_mut().stored = stored)
    );
    let repositories = moved_into(&parts.borrow());
    if let Some(backup) = work.as_backup()
        && !repositories.is_empty()
    {
        let mut damaged = damage::in_location_of(session, backup).await;
        damaged.retain(|one| repositories.contains(&one.folder));
        parts.borrow_mut().damage = damaged.into_iter().map(|one| one.damage).collect();
    }
    if let Some(backup) = work.as_backup()
        && parts.borrow().stored.files == FilesState::Missing
    {
        let mut evidence = Evidence::of(backup);
        evidence.finds_no_files();
        let mut parts = parts.borrow_mut();
        if let Places(Ok(copies)) = &parts.copies {
            let place = place_of_copy(copies, &evidence, parts.place.clone());
            parts.place = place;
        }
    }
}

fn show(
    description: &Description,
    args: &DescribeArgs,
    terminal: &mut Terminal,
) -> Result<(), Problem> {
    json::show(
        description.kind,
        description,
        args.document,
        terminal,
        |now, style| Ok(text(description, now, style, args.details)),
    )
}

async fn source(session: &Session, name: Option<&str>) -> FetchResult<Option<Backup>> {
    let Some(name) = name else {
        return FetchResult::Known(None);
    };
    fetched(session, async { optional(session.get(name).await) }).await
}

/// The location that the files are read from: the backup's own, unless a restore has chosen another.
async fn location(
    session: &Session,
    backup: &Backup,
    chosen: Option<&str>,
) -> (FetchResult<Option<LocationSummary>>, Place) {
    let own = backup.spec.storage_location.as_deref();
    let Some(name) = chosen.or(own).filter(|name| !name.is_empty()) else {
        return (FetchResult::Known(None), Place::Gone);
    };
    let about = About::called("get", "location", "backupstoragelocations", name);
    let locations = session.api::<BackupStorageLocation>();
    let found = fetched(session, async {
        Ok(session.call(about, locations.get(name)).await)
    })
    .await;
    match found {
        FetchResult::Known(Ok(location)) => (
            FetchResult::Known(Some(LocationSummary::of(&location, &backup.name_any()))),
            Place::of(&location),
        ),
        FetchResult::Known(Err(problem)) => {
            let why = plain(&problem.to_string());
            let place = if problem.is_not_found() {
                Place::Gone
            } else {
                Place::Unread(why.clone())
            };
            (FetchResult::missing(why), place)
        }
        FetchResult::Missing { unavailable } => (
            FetchResult::missing(unavailable.clone()),
            Place::Unread(unavailable),
        ),
    }
}

/// The locations of the complete copies; without those that do not exist.
async fn copy_places(session: &Session, backup: &Backup) -> BTreeMap<String, Place> {
    let mut places = BTreeMap::new();
    for copy in backup.complete_copies() {
        let place = match session.get::<BackupStorageLocation>(&copy.location).await {
            Ok(location) => Place::of(&location),
            Err(problem) if problem.is_not_found() => continue,
            Err(problem) => Place::Unread(plain(&problem.to_string())),
        };
        places.insert(copy.location.clone(), place);
    }
    places
}

/// The place itself, or the first copy that can be read if a restore does not read the files there.
fn place_of_copy(copies: &BTreeMap<String, Place>, evidence: &Evidence, place: Place) -> Place {
    let mut places = copies.clone();
    places.insert(evidence.location.clone(), place);
    Places(Ok(places)).of_backup(evidence)
}

async fn previous(session: &Session, backup: Option<&Backup>) -> FetchResult<Option<RunView>> {
    let Some(backup) = backup else {
        return FetchResult::Known(None);
    };
    let Some(schedule) = backup.schedule().filter(|name| !name.is_empty()) else {
        return FetchResult::Known(None);
    };
    schedules::backups(session, schedule)
        .await
        .map(|all| backup::previous(&all, backup))
}

async fn last_good(session: &Session, backup: Option<&Backup>) -> FetchResult<bool> {
    match backup.filter(|backup| backup.phase() == BackupPhase::Completed) {
        Some(backup) => retained::is_last_good(session, &backup.name_any()).await,
        None => FetchResult::Known(false),
    }
}

async fn moved_data<W: Workload>(session: &Session, work: &W) -> FetchResult<Vec<TransferView>> {
    if !work.may_move_data() {
        return FetchResult::Known(Vec::new());
    }
    fetched(session, transfers::read(session, work)).await
}

/// The repositories of ours that have data of the volumes, by their folders.
fn moved_into(parts: &WorkloadParts) -> BTreeSet<String> {
    let transfers = parts.transfers.known().into_iter().flatten();
    let volumes = parts.stored.volumes.value().into_iter().flatten();
    let of_volumes = volumes.filter(|volume| volume.keeper == Keeper::Repository);
    let all = transfers
        .map(|transfer| transfer.repository.clone())
        .chain(of_volumes.map(|volume| volume.place.clone()));
    all.filter(|folder| !folder.is_empty()).collect()
}

/// Deletion requests, found by label as velero's own command does: the server adds the labels to
/// requests that have none.
async fn deletions(session: &Session, backup: Option<&Backup>) -> FetchResult<Vec<DeletionView>> {
    let Some(backup) = backup.map(ResourceExt::name_any) else {
        return FetchResult::Known(Vec::new());
    };
    let label = format!("{}={}", labels::BACKUP_NAME, labels::valid_value(&backup));
    let params = ListParams::default()
        .labels(&label)
        .limit(MAX_RELATED_OBJECTS);
    let requests = fetched(session, session.page::<DeleteBackupRequest>(&params)).await;
    requests.map(|requests| related::deletions(&requests, &backup))
}

async fn events<W: Workload>(session: &Session, meta: &ObjectMeta) -> FetchResult<Vec<Event>> {
    let fields = format!(
        "involvedObject.kind={},involvedObject.name={},involvedObject.uid={}",
        W::kind(&()),
        meta.name.as_deref().unwrap_or_default(),
        meta.uid.as_deref().unwrap_or_default()
    );
    fetched(
        session,
        session.page(
            &ListParams::default()
                .fields(&fields)
                .limit(MAX_RELATED_OBJECTS),
        ),
    )
    .await
}

/// Reads the files that the object's state gives a reason to read.
async fn files<W: Workload>(session: &Session, work: &W) -> FileContents {
    let status = work.status();
    let files = W::FILES;
    let is_whole = status.is_whole();
    let is_stored = status.stage.is_past_items() || is_whole;
    let with_operations = is_stored && status.operations.attempted > 0;
    let (messages, operations, contents, volumes) = join!(
        stored_messages(session, work),
        file(session, work, with_operations, files.operations),
        seen_file(session, work, is_whole, files.resources),
        file(session, work, is_whole, files.volumes)
    );
    let (contents, has_list) = contents;
    let item_operations =
        operations.map(|all| all.map(|all: Vec<W::Operation>| operations::views(&all)));
    let files = if is_whole {
        has_list
    } else {
        FilesState::Unread
    };
    FileContents {
        messages,
        item_operations,
        contents,
        volumes,
        files,
    }
}

async fn file<W: Workload, T: DeserializeOwned>(
    session: &Session,
    work: &W,
    is_wanted: bool,
    kind: DownloadTargetKind,
) -> FetchResult<Option<T>> {
    seen_file(session, work, is_wanted, kind).await.0
}

/// Like `file`, and also returns whether the file exists.
async fn seen_file<W: Workload, T: DeserializeOwned>(
    session: &Session,
    work: &W,
    is_wanted: bool,
    kind: DownloadTargetKind,
) -> (FetchResult<Option<T>>, FilesState) {
    if !is_wanted {
        return (FetchResult::Known(None), FilesState::Unread);
    }
    let file = StoredFile::of(kind, work.meta());
    let mut seen = FilesState::Unread;
    let read = async {
        let read = Box::pin(document(session, &file)).await;
        seen = match &read {
            Ok(_) => FilesState::Found,
            Err(problem) => match problem.kind {
                ProblemKind::NoFile => FilesState::Missing,
                ProblemKind::BadFile => FilesState::Bad,
                _ => FilesState::Unread,
            },
        };
        read
    };
    let file = fetched(session, read).await.map(Some);
    (file, seen)
}

/// `-w`: a terminal shows a screen that is redrawn while the object runs. Elsewhere each change is
/// a line, and the end is described.
async fn watch<W: Workload>(
    session: &Session,
    name: &str,
    args: &DescribeArgs,
    terminal: &mut Terminal,
) -> CommandResult {
    if !terminal.out_is_terminal {
        let work = get_named::<W>(session, "describe", name).await?;
        let (exit, work) = match work.ended() {
            Some(completed) => (Exit::of_end(completed), Some(work)),
            None => until_ended::<W>(session, terminal, work, MAX_WAIT.into()).await?,
        };
        if let Some(work) = &work {
            show(
                &Box::pin(describe(session, work, terminal.now())).await,
                args,
                terminal,
            )?;
        }
        return Ok(exit);
    }
    let mut meter = Meter::default();
    let parts = &RefCell::new(WorkloadParts::unread());
    let mut fetching: Option<LocalBoxFuture<'_, ()>> = None;
    let waited = poll(
        session,
        terminal,
        MAX_WAIT,
        async |terminal: &mut Terminal| {
            let work = session.get::<W>(name).await?;
            let ended = work.ended();
            if ended.is_some() {
                // A fetch that is still running may return data from before the end.
                fetching = None;
                Box::pin(fetch(session, &work, parts)).await;
            } else {
                let of = work.clone();
                let begun = fetching.get_or_insert_with(|| {
                    async move { Box::pin(fetch(session, &of, parts)).await }.boxed_local()
                });
                if timeout(REDRAW_TIMEOUT, begun).await.is_ok() {
                    fetching = None;
                }
            }
            let now = terminal.now();
            let description = workload::describe(&work, parts.borrow().clone(), now);
            let shown = text(&description, now, terminal.out_style(), args.details);
            let mut foot = String::new();
            if let Some(share) = share(&work.status()) {
                foot = format!("\n  {}\n", meter.bar(share, now));
            }
            // The last screen stays in the terminal, so it may be longer than the window.
            let size = (terminal.size)().filter(|_| ended.is_none());
            let screen = page(&terminal.pasteable(&shown), &foot, size);
            terminal.data(&screen)?;
            Ok(ended.map_or(Look::Same, Look::Found))
        },
    )
    .await;
    let waited = hinted::<W, _>(session, "describe", name, waited).await?;
    Ok(waited.map_or_else(|exit| exit, Exit::of_end))
}
