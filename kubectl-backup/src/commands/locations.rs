//! `locations`: where backups and volume snapshots are stored; and `sync`, which shows the result
//! of synchronising buckets with the cluster, and `retention`, which shows what retention did. Both
//! make requests by annotation.

pub(super) mod change;
mod snapshots;
mod trial;

use backup_core::{
    labels::{RETENTION_REQUEST_ANNOTATION, SYNC_REQUEST_ANNOTATION},
    sync::{Request, Summary},
    text::counted,
};

use super::{
    delete, get,
    poll::{Look, Polled, poll},
    prelude::*,
    selection::named,
};
use crate::{
    cli::{DeleteArgs, DescribeOneArgs, GetArgs, LocationsCommand, RetentionArgs, SyncArgs},
    view::{
        KindTable,
        location::describe,
        retention as retention_view,
        sync::{self as view, SyncedLocation},
        unreadable_warning,
    },
};

pub(crate) async fn run(command: LocationsCommand, terminal: &mut Terminal) -> CommandResult {
    match command {
        LocationsCommand::Get(args) => get::run::<BackupStorageLocation>(args, terminal).await,
        LocationsCommand::Snapshots(args) => snapshots::run(args, terminal).await,
        LocationsCommand::Describe(args) => one(&args, terminal).await,
        LocationsCommand::Sync(args) => Box::pin(sync(args, terminal)).await,
        LocationsCommand::Retention(args) => Box::pin(retention(args, terminal)).await,
        LocationsCommand::Create(args) => Box::pin(change::create(*args, terminal)).await,
        LocationsCommand::Set(args) => Box::pin(change::set(&args, terminal)).await,
        LocationsCommand::Delete(deletion) => {
            let args = DeleteArgs {
                deletion,
                wait: false,
                timeout: GoDuration::default(),
            };
            delete::objects::<BackupStorageLocation>(args, backups_that_are_lost, terminal).await
        }
    }
}

/// The consequence for the Backups in these locations.
async fn backups_that_are_lost(session: &Session, locations: &[String]) -> String {
    let backups = session
        .list_readable(ListParams::default(), |backup: Backup| {
            let location = backup.spec.storage_location.as_ref()?;
            locations.contains(location).then(|| backup.name_any())
        })
        .await;
    let Ok(backups) = backups else {
        return "; the bucket stays, and until a location of this name is there again, its Backups cannot be restored or deleted"
            .to_owned();
    };
    if backups.is_empty() {
        return "; the bucket stays, and no Backup is in it".to_owned();
    }
    format!(
        "; the bucket stays, and until a location of this name is there again, {} cannot be restored or deleted: {}",
        counted(backups.len(), "Backup"),
        named(&backups)
    )
}

async fn one(args: &DescribeOneArgs, terminal: &mut Terminal) -> CommandResult {
    let session = Session::connect(terminal).await?;
    let view = describe(&session.get::<BackupStorageLocation>(&args.name).await?);
    json::show(
        "LocationDescription",
        &view,
        args.document,
        terminal,
        |now, style| Ok(view.text(now, style)),
    )?;
    Ok(Exit::Done)
}

async fn sync(args: SyncArgs, terminal: &mut Terminal) -> CommandResult {
    let session = Session::connect(terminal).await?;
    if args.list.watch {
        return follow(&session, args, terminal).await;
    }
    let Some(name) = &args.location else {
        return all(&session, &args, terminal).await;
    };
    let location = session.get::<BackupStorageLocation>(name).await?;
    if !args.now && args.accept_removals.is_none() {
        return show(&session, vec![view::location(&location)], &args, terminal);
    }
    let refused = last_pass(&location).refused;
    let request = Request {
        id: terminal.now().to_string(),
        remove: agreed(&SYNC, refused, args.accept_removals, name)?,
    };
    let answered = ask(&session, &location, &SYNC, &request, args.timeout, terminal).await?;
    let location = match answered {
        Ok(location) => location,
        Err(exit) => return Ok(exit),
    };
    let pass = last_pass(&location);
    show(&session, vec![view::location(&location)], &args, terminal)?;
    // The synchronisation failed, or did not remove everything that was requested.
    let is_short = pass.error.is_some() || pass.refused > 0;
    Ok(if is_short { Exit::NotGood } else { Exit::Done })
}

async fn all(session: &Session, args: &SyncArgs, terminal: &mut Terminal) -> CommandResult {
    let (api, place): (Api<DeserializeGuard<BackupStorageLocation>>, _) =
        if args.list.all_namespaces {
            (Api::all(session.client.clone()), String::new())
        } else {
            (
                session.api(),
                format!(" in namespace {}", session.namespace),
            )
        };
    let about = About::of::<BackupStorageLocation>("list", "");
    let mut locations = Vec::new();
    // A location that cannot be decoded does not hide the others.
    for one in session
        .list(about, &api, ListParams::default(), |item| {
            Some(synced_location(item))
        })
        .await?
    {
        match one {
            Ok(location) => locations.push(location),
            Err(warning) => terminal.say(&warning),
        }
    }
    if locations.is_empty() && args.output.form.is_table() {
        terminal.say(&format!("No backupstoragelocations found{place}."));
        return Ok(Exit::Done);
    }
    show(session, locations, args, terminal)
}

/// The location as `sync` shows it, or a warning if it cannot be decoded.
fn synced_location(
    item: DeserializeGuard<BackupStorageLocation>,
) -> Result<SyncedLocation, String> {
    item.0
        .map(|location| view::location(&location))
        .map_err(|error| {
            let name = error.metadata.name.unwrap_or_default();
            let namespace = error.metadata.namespace.unwrap_or_default();
            let resource = ApiResource::erase::<BackupStorageLocation>(&());
            unreadable_warning(
                BackupStorageLocation::KIND,
                &resource,
                &namespace,
                &name,
                &error.error,
            )
        })
}

/// Prints a row for every change, like `get -w`.
async fn follow(session: &Session, args: SyncArgs, terminal: &mut Terminal) -> CommandResult {
    let table = KindTable {
        columns: view::COLUMNS,
        row: |object, _, now, _| {
            let location: BackupStorageLocation = serde_json::from_value(object.clone())?;
            Ok(view::row(&view::location(&location), now))
        },
        document: Some(|object| {
            let location: Option<BackupStorageLocation> =
                serde_json::from_value(object.clone()).ok();
            serde_json::to_value(location.as_ref().map(view::location)).unwrap_or_default()
        }),
        ..KindTable::of::<BackupStorageLocation>()
    };
    let wanted = GetArgs {
        names: args.location.into_iter().collect(),
        list: args.list,
        output: args.output,
        ..GetArgs::default()
    };
    get::list(session, &table, &wanted, terminal).await
}

fn show(
    session: &Session,
    locations: Vec<SyncedLocation>,
    args: &SyncArgs,
    terminal: &mut Terminal,
) -> CommandResult {
    let list = view::list(&session.namespace, locations);
    json::show_list(
        "SyncList",
        &list,
        &args.output,
        terminal,
        || {
            list.locations
                .iter()
                .map(|one| full_name::<BackupStorageLocation>(&one.name) + "\n")
                .collect()
        },
        |now, style| {
            Ok(match list.locations.as_slice() {
                [one] if args.location.is_some() => view::one(one, now, style)?,
                _ => view::rows(&list, args.output.shown(&args.list), now)?,
            })
        },
    )?;
    for SyncedLocation {
        namespace,
        name,
        last_pass,
        ..
    } in &list.locations
    {
        if let Some(pass) = last_pass.as_ref().filter(|pass| pass.refused > 0) {
            let place = if *namespace == session.namespace {
                String::new()
            } else {
                format!(" -n {namespace}")
            };
            terminal.say(&format!(
                "{} Backups of {name} are gone from the bucket and were not removed from the cluster, as they are too many at \
                 once.\nCheck bucket, prefix and credentials. If they are to go: kubectl backup locations sync {name} --accept-removals={}{place}",
                pass.refused, pass.refused
            ));
        }
    }
    Ok(Exit::Done)
}

/// A kind of request that is made by an annotation of a location, and may carry consent to removals.
struct LocationRequest {
    annotation: &'static str,
    /// Name of the command below `locations`.
    command: &'static str,
    /// What the controller has done: "was last ...".
    past: &'static str,
    /// What to do first if nothing was refused.
    first: &'static str,
    /// The request that the controller has answered last.
    answered: fn(&BackupStorageLocation) -> Option<String>,
}

const SYNC: LocationRequest = LocationRequest {
    annotation: SYNC_REQUEST_ANNOTATION,
    command: "sync",
    past: "compared with the cluster",
    first: "Compare it first",
    answered: |location| last_pass(location).request,
};

const RETENTION: LocationRequest = LocationRequest {
    annotation: RETENTION_REQUEST_ANNOTATION,
    command: "retention",
    past: "looked at by retention",
    first: "Have it looked at first",
    answered: |location| retention_view::location(location).last?.request,
};

fn last_pass(location: &BackupStorageLocation) -> Summary {
    view::location(location).last_pass.unwrap_or_default()
}

/// Number of removals that the user agrees to: as many as were refused and shown.
fn agreed(
    kind: &LocationRequest,
    refused: u64,
    accepted: Option<u64>,
    name: &str,
) -> Result<Option<u64>, Problem> {
    let Some(accepted) = accepted else {
        return Ok(None);
    };
    let LocationRequest {
        command,
        past,
        first,
        ..
    } = kind;
    if refused == 0 {
        let message = format!("nothing was refused when location {name:?} was last {past}");
        return Err(Problem::other(message).with_remedy(format!(
            "{first}: kubectl backup locations {command} {name} --now"
        )));
    }
    if refused > accepted {
        let message = format!(
            "{refused} removals of location {name:?} were refused, not {accepted}: all of them are made, or none"
        );
        return Err(Problem::other(message).with_remedy(format!(
            "See what is gone: kubectl backup locations {command} {name}"
        )));
    }
    Ok(Some(accepted))
}

/// Makes a request, and waits until it is answered. Returns the location then, or the exit code if
/// waiting stopped before.
async fn ask(
    session: &Session,
    location: &BackupStorageLocation,
    kind: &LocationRequest,
    request: &Request,
    timeout: GoDuration,
    terminal: &mut Terminal,
) -> Result<Polled<BackupStorageLocation>, Problem> {
    let text = serde_json::to_string(request).map_err(|error| Problem::other(error.to_string()))?;
    let patch = json!({ "metadata": { "annotations": { (kind.annotation): text } } });
    let name = location.name_any();
    session
        .patch::<BackupStorageLocation>(&name, location.metadata.uid.as_ref(), patch)
        .await?;
    let answered = poll(
        session,
        terminal,
        timeout.as_std(),
        async |_: &mut Terminal| {
            let location = session.get::<BackupStorageLocation>(&name).await?;
            Ok(
                if (kind.answered)(&location).as_ref() == Some(&request.id) {
                    Look::Found(location)
                } else {
                    Look::Same
                },
            )
        },
    )
    .await?;
    if matches!(answered, Err(Exit::TimedOut)) {
        terminal.say(&format!(
            "It has not ended within {timeout}. See what came of it with: kubectl backup locations {} {name}",
            kind.command
        ));
    }
    Ok(answered)
}

async fn retention(args: RetentionArgs, terminal: &mut Terminal) -> CommandResult {
    let session = Session::connect(terminal).await?;
    let name = &args.name;
    let location = session.get::<BackupStorageLocation>(name).await?;
    if !args.now && args.accept_removals.is_none() {
        show_retention(&location, &args, terminal)?;
        return Ok(Exit::Done);
    }
    let refused = retention_view::location(&location).refused();
    let request = Request {
        id: terminal.now().to_string(),
        remove: agreed(&RETENTION, refused, args.accept_removals, name)?,
    };
    let asked = ask(
        &session,
        &location,
        &RETENTION,
        &request,
        args.timeout,
        terminal,
    );
    let location = match asked.await? {
        Ok(location) => location,
        Err(exit) => return Ok(exit),
    };
    show_retention(&location, &args, terminal)?;
    Ok(match retention_view::location(&location).refused() {
        0 => Exit::Done,
        _ => Exit::NotGood,
    })
}

fn show_retention(
    location: &BackupStorageLocation,
    args: &RetentionArgs,
    terminal: &mut Terminal,
) -> Result<(), Problem> {
    let view = retention_view::location(location);
    json::show(
        "LocationRetention",
        &view,
        args.document,
        terminal,
        |now, style| Ok(view.text(now, style)),
    )
}
