//! `locations`: where backups and volume snapshots are stored; and `sync`, which shows the result
//! of synchronising buckets with the cluster, and requests a synchronisation by annotation.

pub(super) mod change;
mod snapshots;
mod trial;

use backup_core::{labels::SYNC_REQUEST_ANNOTATION, sync::Request, text::counted};

use super::{
    delete, get,
    poll::{Look, poll},
    prelude::*,
    selection::named,
};
use crate::{
    cli::{DeleteArgs, DescribeOneArgs, GetArgs, LocationsCommand, SyncArgs},
    view::{
        KindTable,
        location::describe,
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
    let request = Request {
        id: terminal.now().to_string(),
        remove: agreed(&location, args.accept_removals, name)?,
    };
    ask(&session, &location, &request).await?;
    let answered = poll(
        &session,
        terminal,
        args.timeout.as_std(),
        async |_: &mut Terminal| {
            let location = session.get::<BackupStorageLocation>(name).await?;
            let pass = view::location(&location).last_pass.unwrap_or_default();
            Ok(if pass.request.as_ref() == Some(&request.id) {
                Look::Found((location, pass))
            } else {
                Look::Same
            })
        },
    )
    .await?;
    let (location, pass) = match answered {
        Ok(found) => found,
        Err(exit) => {
            if exit == Exit::TimedOut {
                terminal.say(&format!(
                    "It has not ended within {}. See what came of it with: kubectl backup locations sync {name}",
                    args.timeout
                ));
            }
            return Ok(exit);
        }
    };
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

/// Number of removals that the user agrees to: as many as were refused and shown.
fn agreed(
    location: &BackupStorageLocation,
    accepted: Option<u64>,
    name: &str,
) -> Result<Option<u64>, Problem> {
    let Some(accepted) = accepted else {
        return Ok(None);
    };
    let refused = view::location(location)
        .last_pass
        .map_or(0, |pass| pass.refused);
    if refused == 0 {
        let message = format!(
            "nothing was refused when location {name:?} was last compared with the cluster"
        );
        return Err(Problem::other(message).with_remedy(format!(
            "Compare it first: kubectl backup locations sync {name} --now"
        )));
    }
    if refused > accepted {
        let message =
            format!("{refused} removals of location {name:?} were refused, not {accepted}");
        return Err(Problem::other(message).with_remedy(format!(
            "See what is gone: kubectl backup locations sync {name}"
        )));
    }
    Ok(Some(accepted))
}

async fn ask(
    session: &Session,
    location: &BackupStorageLocation,
    request: &Request,
) -> Result<(), Problem> {
    let text = serde_json::to_string(request).map_err(|error| Problem::other(error.to_string()))?;
    let patch = json!({ "metadata": { "annotations": { SYNC_REQUEST_ANNOTATION: text } } });
    let name = location.name_any();
    session
        .patch::<BackupStorageLocation>(&name, location.metadata.uid.as_ref(), patch)
        .await
        .map(drop)
}
