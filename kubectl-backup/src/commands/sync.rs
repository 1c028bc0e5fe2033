//! `sync`: shows what came of comparing buckets with the cluster, and asks for a comparison by annotation.

use backup_core::{
    api::BackupStorageLocation,
    labels::SYNC_REQUEST_ANNOTATION,
    sync::{Request, Summary},
};
use kube::{
    ResourceExt as _,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;

use super::wait::{Look, Waited, poll};
use crate::{
    Terminal,
    cli::{
        GlobalArgs, Output, SyncArgs,
        output::{Form, OutputArgs},
    },
    client::Session,
    error::{About, Exit, Problem},
    print::{form, sync as print},
    view::sync::{self as view, LocationView},
};

/// `sync`
pub async fn run(global: &GlobalArgs, args: SyncArgs, terminal: &mut Terminal) -> Result<Exit, Problem> {
    let session = Session::connect(global, terminal).await?;
    let Some(name) = &args.location else { return all(&session, &args.output, terminal).await };
    let location = get(&session, name).await?;
    if !args.now && !args.force {
        return show(&session, &[location], true, &args.output, terminal);
    }
    let request = Request { id: terminal.now().to_string(), remove: agreed(&location, args.force, name)? };
    ask(&session, &location, &request).await?;
    let answered = poll(&session, terminal, args.timeout.as_std(), async |_: &mut Terminal| {
        let location = get(&session, name).await?;
        let pass = view::location(&location).last_pass.unwrap_or_default();
        Ok(if pass.request.as_ref() == Some(&request.id) { Look::Over((location, pass)) } else { Look::Same })
    })
    .await?;
    match answered {
        Waited::Over((location, pass)) => {
            show(&session, &[location], true, &args.output, terminal)?;
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

async fn all(session: &Session, output: &OutputArgs, terminal: &mut Terminal) -> Result<Exit, Problem> {
    let api = session.api::<BackupStorageLocation>();
    let locations = session.list(about("list", ""), &api, ListParams::default(), Some).await?;
    if locations.is_empty() && output.form.is_table() {
        terminal.say(&format!("No backupstoragelocations found in namespace {}.", session.namespace));
        return Ok(Exit::Done);
    }
    show(session, &locations, false, output, terminal)
}

fn show(
    session: &Session,
    locations: &[BackupStorageLocation],
    in_full: bool,
    output: &OutputArgs,
    terminal: &mut Terminal,
) -> Result<Exit, Problem> {
    let list = view::list(&session.namespace, locations);
    let document = form::document(&list, "locations", &output.form, output.no_headers)?;
    let text = match (document, &output.form, list.locations.as_slice()) {
        (Some(document), ..) => document,
        (_, Form::Plain(Output::Name), all) => all
            .iter()
            .fold(String::new(), |text, one| text + "backupstoragelocation.velero.io/" + &one.name + "\n"),
        (.., [one]) if in_full => print::one(one, terminal.now())?,
        _ => print::rows(&list, !output.no_headers, terminal.now())?,
    };
    terminal.data(&text)?;
    for LocationView { name, last_pass, .. } in &list.locations {
        if let Some(pass) = last_pass.as_ref().filter(|pass| pass.refused > 0) {
            terminal.say(&format!(
                "{} Backups of {name} are gone from the bucket and were not removed from the cluster, as they are too many at \
                 once.\nCheck bucket, prefix and credentials. If they are to go: kubectl backup sync {name} --force",
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
    session.call(about("patch", &name), api.patch(&name, &params, &Patch::Merge(patch))).await.map(drop)
}

async fn get(session: &Session, name: &str) -> Result<BackupStorageLocation, Problem> {
    let api = session.api::<BackupStorageLocation>();
    session.call(about("get", name), api.get(name)).await
}

const fn about<'name>(verb: &'static str, name: &'name str) -> About<'name> {
    About { verb, kind: "backupstoragelocation", plural: "backupstoragelocations", name }
}
