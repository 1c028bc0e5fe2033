//! `copy`: adds a copy in another location to the spec of a backup; the controller makes it.

use backup_core::{
    api::backup::{BackupCopy, BackupCopyStatus, CopyPhase},
    labels::{VERIFIED_ANNOTATION, annotation},
    verification::Verification,
    volume_data::MissingData,
    volume_info::VolumeInfo,
};

use super::{
    poll::{Look, in_vain, poll},
    prelude::*,
    selection, verify,
};
use crate::{
    cli::CopyArgs,
    stored::{StoredFile, document},
};

/// Maximum number of tries after write conflicts.
const MAX_ATTEMPTS: u32 = 5;

pub(super) async fn run(args: CopyArgs, terminal: &mut Terminal) -> CommandResult {
    let session = Session::connect(terminal).await?;
    // The right to read locations is not needed.
    if let Err(problem) = session.get::<BackupStorageLocation>(&args.to).await
        && problem.is_not_found()
    {
        return Err(problem.with_remedy("List them with: kubectl backup locations"));
    }
    selection::each(
        &args.names,
        terminal,
        async |name: &str, terminal: &mut Terminal| {
            Box::pin(one(&session, name, &args, terminal)).await
        },
    )
    .await
}

async fn one(
    session: &Session,
    name: &str,
    args: &CopyArgs,
    terminal: &mut Terminal,
) -> CommandResult {
    let location = &args.to;
    let Some(backup) = request(session, name, args).await? else {
        terminal.data(&format!(
            "{} was copied to {location} before\n",
            full_name::<Backup>(name)
        ))?;
        terminal
            .say("That is what the Backup has recorded: the files there were not looked for now.");
        return Ok(Exit::Done);
    };
    terminal.data(&format!(
        "{} copy to {location} requested\n",
        full_name::<Backup>(name)
    ))?;
    if let Some(left) = left_behind(session, &backup).await {
        terminal.say(&format!("note: {left}"));
    }
    let verified = Verification::read(annotation(&backup, VERIFIED_ANNOTATION));
    if let Some(last) = verified.filter(|last| last.findings > 0) {
        terminal.say(&format!(
            "warning: the files of {name} are {}, and the copy will be the same",
            last.result()
        ));
    }
    if args.wait.wait {
        return until_copied(session, &backup, args, terminal).await;
    }
    terminal.say(&format!("Follow it with: kubectl backup describe {name}"));
    Ok(Exit::Done)
}

/// Adds the copy to the spec. A copy that has failed is tried again at once. Returns `None` if the
/// copy is complete.
async fn request(
    session: &Session,
    name: &str,
    args: &CopyArgs,
) -> Result<Option<Backup>, Problem> {
    for _ in 0..MAX_ATTEMPTS {
        let backup = get_named::<Backup>(session, "copy", name).await?;
        verify::has_files(&backup)?;
        if backup.spec.storage_location.as_ref() == Some(&args.to) {
            let message = format!("backup {name} itself is stored in location {:?}", args.to);
            return Err(Problem::other(message)
                .with_remedy("Name another location: kubectl backup locations"));
        }
        if backup
            .copy_in(&args.to)
            .is_some_and(BackupCopyStatus::is_complete)
        {
            return Ok(None);
        }
        let uid = backup.metadata.uid.as_ref();
        let patched = session.patch::<Backup>(name, uid, patch(&backup, args));
        match patched.await {
            Err(Problem {
                kind: ProblemKind::Api { code: 409, .. },
                ..
            }) => continue,
            Err(problem) => return Err(problem),
            Ok(_) => {}
        }
        let patched = session.get::<Backup>(name).await?;
        let is_named = |copy: &BackupCopy| copy.location == args.to;
        if patched.spec.copies.iter().any(is_named) {
            return Ok(Some(patched));
        }
        let message = "the definition of Backups in this cluster has no field spec.copies";
        return Err(Problem::other(message)
            .with_remedy("Bring the installation to this version: kubectl backup upgrade"));
    }
    let message = format!("backup {name:?} is changed by others all the time");
    Err(Problem::other(message).with_remedy("Try again."))
}

/// Names the copy in the spec, and removes the state of an attempt that has ended.
fn patch(backup: &Backup, args: &CopyArgs) -> Value {
    let mut copies = backup.spec.copies.clone();
    match copies.iter_mut().find(|copy| copy.location == args.to) {
        Some(copy) => copy.ttl = args.ttl.or(copy.ttl),
        None => copies.push(BackupCopy {
            location: args.to.clone(),
            ttl: args.ttl,
            ..BackupCopy::default()
        }),
    }
    let mut states = backup.status.copies.clone();
    states.retain(|state| {
        let has_ended = matches!(state.phase(), CopyPhase::Failed | CopyPhase::Expired);
        state.location != args.to || !has_ended
    });
    let mut patch = json!({
        "metadata": { "resourceVersion": backup.metadata.resource_version },
        "spec": { "copies": copies },
    });
    if states.len() < backup.status.copies.len() {
        patch["status"] = json!({ "copies": states });
    }
    patch
}

/// The volumes whose data is not copied, in one sentence; `None` if there are none.
async fn left_behind(session: &Session, backup: &Backup) -> Option<String> {
    let file = StoredFile::of(Backup::FILES.volumes, &backup.metadata);
    let read = Box::pin(document::<Vec<VolumeInfo>>(session, &file));
    match fetched(session, read).await {
        FetchResult::Known(records) => {
            let left = MissingData::left_behind(&records, &[])?;
            Some(plain(&left.sentence("is not copied")))
        }
        FetchResult::Missing { unavailable } => Some(format!(
            "volumes whose data is not copied are not known: {unavailable}"
        )),
    }
}

async fn until_copied(
    session: &Session,
    backup: &Backup,
    args: &CopyArgs,
    terminal: &mut Terminal,
) -> CommandResult {
    let name = backup.name_any();
    let location = &args.to;
    let mut shown = String::new();
    let waited = poll(
        session,
        terminal,
        args.wait.timeout.as_std(),
        async |terminal: &mut Terminal| {
            let now = session.get::<Backup>(&name).await?;
            let Some(state) = now.copy_in(location) else {
                return Ok(Look::Same);
            };
            let is_waiting = matches!(
                state.phase(),
                CopyPhase::New | CopyPhase::InProgress | CopyPhase::Unknown(_)
            );
            if !is_waiting {
                return Ok(Look::Found(state.clone()));
            }
            if state.message != shown {
                shown.clone_from(&state.message);
                terminal.say(&format!("waiting: {}", plain(&shown)));
                return Ok(Look::Changed);
            }
            Ok(Look::Same)
        },
    )
    .await?;
    match waited {
        Ok(state) if state.is_complete() => {
            terminal.say(&format!("backup {name} was copied to location {location}"));
            Ok(Exit::Done)
        }
        Ok(state) => {
            let phase = plain(state.phase().as_str());
            let why = plain(&state.message);
            terminal.say(&format!(
                "error: the copy of backup {name} in location {location} is {phase}: {why}"
            ));
            Ok(Exit::NotGood)
        }
        Err(exit) => {
            let what =
                format!("the copy of backup {name} is not complete; it continues in the cluster");
            terminal.say(&in_vain(exit, &what, args.wait.timeout));
            Ok(exit)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(ttl: Option<&str>) -> CopyArgs {
        CopyArgs {
            names: vec!["b".to_owned()],
            to: "second".to_owned(),
            ttl: ttl.map(|ttl| ttl.parse().unwrap()),
            wait: crate::cli::WaitArgs::default(),
        }
    }

    #[test]
    fn a_copy_is_added_beside_others_and_a_failed_one_begins_again() {
        let object = json!({
            "metadata": { "name": "b", "resourceVersion": "7" },
            "spec": { "copies": [{ "location": "third" }, { "location": "second", "ttl": "2h0m0s" }] },
            "status": { "copies": [{ "location": "third", "phase": "Failed" }, { "location": "second", "phase": "Failed" }] },
        });
        let backup: Backup = serde_json::from_value(object).unwrap();
        let expected = json!({
            "metadata": { "resourceVersion": "7" },
            "spec": { "copies": [{ "location": "third" }, { "location": "second", "ttl": "2h0m0s" }] },
            "status": { "copies": [{ "location": "third", "phase": "Failed" }] },
        });
        assert_eq!(patch(&backup, &args(None)), expected);
        let longer = patch(&backup, &args(Some("3h")));
        assert_eq!(longer["spec"]["copies"][1]["ttl"], "3h0m0s");
        let first = patch(&Backup::default(), &args(Some("1h")));
        let expected = json!({
            "metadata": { "resourceVersion": null },
            "spec": { "copies": [{ "location": "second", "ttl": "1h0m0s" }] },
        });
        assert_eq!(first, expected);
    }
}
