//! `sync`: shows what came of comparing buckets with the cluster, and asks for a comparison by annotation.

use backup_core::{
    api::BackupStorageLocation,
    labels::SYNC_REQUEST_ANNOTATION,
    sync::{Request, Summary},
};
use kube::{
    Api, ResourceExt as _,
    api::{ListParams, Patch, PatchParams},
    core::{ApiResource, DeserializeGuard},
};
use serde::Deserialize as _;
use serde_json::json;

use super::{
    get,
    listed::{Listed as _, Listing},
    wait::{Look, Waited, poll},
};
use crate::{
    Terminal,
    cli::{GetArgs, GlobalArgs, Output, SyncArgs, output::Form},
    client::Session,
    error::{Exit, Problem},
    jsonpath,
    print::{form, sync as print},
    view::{
        list,
        sync::{self as view, LocationView},
    },
};

/// `sync`
pub async fn run(global: &GlobalArgs, args: SyncArgs, terminal: &mut Terminal) -> Result<Exit, Problem> {
    let session = Session::connect(global, terminal).await?;
    if args.list.watch {
        return follow(&session, args, terminal).await;
    }
    let Some(name) = &args.location else { return all(&session, &args, terminal).await };
    let location = read(&session, name).await?;
    if !args.now && !args.force {
        return show(&session, vec![view::location(&location)], &args, terminal);
    }
    let request = Request { id: terminal.now().to_string(), remove: agreed(&location, args.force, name)? };
    ask(&session, &location, &request).await?;
    let answered = poll(&session, terminal, args.timeout.as_std(), async |_: &mut Terminal| {
        let location = read(&session, name).await?;
        let pass = view::location(&location).last_pass.unwrap_or_default();
        Ok(if pass.request.as_ref() == Some(&request.id) { Look::Over((location, pass)) } else { Look::Same })
    })
    .await?;
    match answered {
        Waited::Over((location, pass)) => {
            show(&session, vec![view::location(&location)], &args, terminal)?;
            Ok(exit(&pass))
        }
        Waited::TimedOut => {
            terminal.say(&format!(
                "It has not ended within {}. See what came of it with: kubectl backup sync {name}",
                args.timeout
            ));
            Ok(Exit::TimedOut)
        }
        Waited::Interrupted => Ok(Exit::Interrupted),
    }
}

/// What was asked for has not come to its end, or not as it was asked for.
fn exit(pass: &Summary) -> Exit {
    if pass.error.is_some() || pass.refused > 0 { Exit::NotCompleted } else { Exit::Done }
}

async fn all(session: &Session, args: &SyncArgs, terminal: &mut Terminal) -> Result<Exit, Problem> {
    let (api, place): (Api<DeserializeGuard<BackupStorageLocation>>, _) = if args.list.all_namespaces {
        (Api::all(session.client.clone()), String::new())
    } else {
        (session.api(), format!(" in namespace {}", session.namespace))
    };
    let about = BackupStorageLocation::about("list", "");
    // One that can't be read hides no other.
    let seen = |item: DeserializeGuard<BackupStorageLocation>| {
        Some(item.0.map(|location| view::location(&location)).map_err(|error| {
            let name = error.metadata.name.unwrap_or_default();
            let namespace = error.metadata.namespace.unwrap_or_default();
            let resource = ApiResource::erase::<BackupStorageLocation>(&());
            list::warning(about.kind, &resource, &namespace, &name, &error.error)
        }))
    };
    let mut locations = Vec::new();
    for one in session.list(about, &api, ListParams::default(), seen).await? {
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

/// A row for every change, in the way of `get -w`.
async fn follow(session: &Session, args: SyncArgs, terminal: &mut Terminal) -> Result<Exit, Problem> {
    let listing = Listing {
        headers: &print::HEADERS,
        narrow: print::HEADERS.len(),
        status_column: print::STATUS_COLUMN,
        row: Box::new(|object, now, _| {
            Ok(print::row(&view::location(&BackupStorageLocation::deserialize(object)?), now))
        }),
        document: Some(|object| {
            let location = BackupStorageLocation::deserialize(object).ok();
            serde_json::to_value(location.as_ref().map(view::location)).unwrap_or_default()
        }),
        ..Listing::of::<BackupStorageLocation>()
    };
    let wanted = GetArgs {
        names: args.location.into_iter().collect(),
        list: args.list,
        output: args.output,
        ..GetArgs::default()
    };
    get::list(session, &listing, &wanted, terminal).await
}

fn show(
    session: &Session,
    locations: Vec<LocationView>,
    args: &SyncArgs,
    terminal: &mut Terminal,
) -> Result<Exit, Problem> {
    let output = &args.output;
    let mut list = view::list(&session.namespace, locations);
    if let Some(path) = &args.list.sort_by {
        jsonpath::sort(&mut list.locations, path);
    }
    let document = form::document(&list, "locations", &output.form, output.no_headers)?;
    let text = match (document, &output.form, list.locations.as_slice()) {
        (Some(document), ..) => document,
        (_, Form::Plain(Output::Name), all) => all
            .iter()
            .fold(String::new(), |text, one| text + "backupstoragelocation.velero.io/" + &one.name + "\n"),
        (.., [one]) if args.location.is_some() => print::one(one, terminal.now())?,
        _ => {
            let how = print::How { headers: !output.no_headers, namespaces: args.list.all_namespaces };
            print::rows(&list, how, terminal.now())?
        }
    };
    terminal.data(&text)?;
    for LocationView { namespace, name, last_pass, .. } in &list.locations {
        if let Some(pass) = last_pass.as_ref().filter(|pass| pass.refused > 0) {
            let place =
                if *namespace == session.namespace { String::new() } else { format!(" -n {namespace}") };
            terminal.say(&format!(
                "{} Backups of {name} are gone from the bucket and were not removed from the cluster, as they are too many at \
                 once.\nCheck bucket, prefix and credentials. If they are to go: kubectl backup sync {name} --force{place}",
                pass.refused
            ));
        }
    }
    Ok(Exit::Done)
}

/// How many removals a person agrees to: as many as were refused, and shown.
fn agreed(location: &BackupStorageLocation, force: bool, name: &str) -> Result<Option<u64>, Problem> {
    if !force {
        return Ok(None);
    }
    match view::location(location).last_pass.map_or(0, |pass| pass.refused) {
        0 => Err(Problem::Other {
            message: format!("nothing was refused when location {name:?} was last compared with the cluster"),
            remedy: Some(format!("Compare it first: kubectl backup sync {name} --now")),
        }),
        refused => Ok(Some(refused)),
    }
}

/// Idempotent, and for this very object only: the API server refuses a patch with another uid.
async fn ask(session: &Session, location: &BackupStorageLocation, request: &Request) -> Result<(), Problem> {
    let text = serde_json::to_string(request)
        .map_err(|error| Problem::Other { message: error.to_string(), remedy: None })?;
    let patch = json!({ "metadata": {
        "uid": location.metadata.uid,
        "annotations": { SYNC_REQUEST_ANNOTATION: text },
    } });
    let params = PatchParams { field_manager: Some("kubectl-backup".to_owned()), ..PatchParams::default() };
    let (api, name) = (session.api::<BackupStorageLocation>(), location.name_any());
    session
        .call(BackupStorageLocation::about("patch", &name), api.patch(&name, &params, &Patch::Merge(patch)))
        .await
        .map(drop)
}

async fn read(session: &Session, name: &str) -> Result<BackupStorageLocation, Problem> {
    let api = session.api::<BackupStorageLocation>();
    session.call(BackupStorageLocation::about("get", name), api.get(name)).await
}
