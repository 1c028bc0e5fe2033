//! `delete` and `restore delete`.

use backup_core::{
    api::{
        BackupPhase, DeleteBackupRequest, DeleteBackupRequestPhase,
        delete_backup_request::DeleteBackupRequestSpec,
    },
    labels,
    phase::{Phase as _, Stage},
};
use kube::api::Preconditions;

use super::{
    poll::{Look, Polled, poll},
    prelude::*,
    retained,
    selection::delete_each,
};
use crate::{
    cli::{DeleteArgs, DeleteBackupsArgs},
    error::Role,
    owned,
    view::workload::has_not_begun,
};

/// Maximum number of backups that are read for the question.
const MAX_READ: usize = 20;
/// Maximum number of tries after write conflicts.
const MAX_ATTEMPTS: u32 = 3;
/// Polls of a backup whose request is gone before the command reports that nothing was deleted.
const MAX_POLLS_WITHOUT_REQUEST: u32 = 3;

pub(super) async fn backups(
    DeleteBackupsArgs {
        delete: args,
        forget_data,
        keep_copies,
    }: DeleteBackupsArgs,
    terminal: &mut Terminal,
) -> CommandResult {
    let wishes = [
        (labels::FORGET_DATA_ANNOTATION, forget_data),
        (labels::KEEP_COPIES_ANNOTATION, keep_copies),
    ];
    let wishes = wishes.into_iter().filter(|(_, is_wished)| *is_wished);
    let wishes: Vec<&str> = wishes.map(|(annotation, _)| annotation).collect();
    delete_each::<Backup, _>(
        &args.deletion,
        retained::last_good_warning,
        async |session: &Session, names: &[String]| {
            Box::pin(consequence(session, names, keep_copies)).await
        },
        terminal,
        async |session: &Session, name: &str, terminal: &mut Terminal| {
            delete_backup(session, name, &wishes, &args, terminal).await
        },
    )
    .await
}

/// The end of the question. A backup that cannot be read counts as one without copies.
async fn consequence(session: &Session, names: &[String], keep_copies: bool) -> String {
    let mut copies = Vec::new();
    let read = if keep_copies { 0 } else { MAX_READ };
    for name in names.iter().take(read) {
        if let Ok(backup) = session.get::<Backup>(name).await {
            copies.extend(backup.complete_copies().map(|copy| copy.location.clone()));
        }
    }
    copies.sort_unstable();
    copies.dedup();
    let copies = if copies.is_empty() {
        String::new()
    } else {
        format!(", its copies ({})", plain(&copies.join(", ")))
    };
    format!(" with all that is stored of it{copies}, and the restores from it")
}

async fn delete_backup(
    session: &Session,
    name: &str,
    wishes: &[&str],
    args: &DeleteArgs,
    terminal: &mut Terminal,
) -> CommandResult {
    let Some(backup) = ended_backup(session, name, terminal).await? else {
        return Ok(Exit::Done);
    };
    let request = request(session, &backup, wishes).await?;
    terminal.data(&format!(
        "{} deletion requested\n",
        full_name::<Backup>(name)
    ))?;
    terminal.say("The restores from it that have ended go with it, and their logs.");
    if args.wait {
        return until_deleted(session, &backup, &request.name_any(), args, terminal).await;
    }
    terminal.say(&format!("Follow it with: kubectl backup describe {name}"));
    Ok(Exit::Done)
}

/// Returns the backup if it has ended. A backup that has not started has no stored data and is
/// deleted at once.
///
/// Errors: the backup is running.
async fn ended_backup(
    session: &Session,
    name: &str,
    terminal: &mut Terminal,
) -> Result<Option<DynamicObject>, Problem> {
    let resource = ApiResource::erase::<Backup>(&());
    // A backup that cannot be decoded can be deleted as well.
    let api: Api<DynamicObject> =
        Api::namespaced_with(session.client.clone(), &session.namespace, &resource);
    for _ in 0..MAX_ATTEMPTS {
        let found = session
            .call(About::of::<Backup>("get", name), api.get(name))
            .await;
        let found = match found {
            Err(problem) if problem.kind == ProblemKind::Forbidden => {
                Err(refusal(session, &resource, name, problem).await)
            }
            found => found,
        };
        let backup = hinted::<Backup, _>(session, "delete", name, found).await?;
        let phase = BackupPhase::from(
            backup
                .data
                .pointer("/status/phase")
                .and_then(Value::as_str)
                .unwrap_or_default(),
        );
        let stage = phase.stage();
        if stage.is_terminal() || stage == Stage::Unknown {
            return Ok(Some(backup));
        }
        if !has_not_begun(stage) {
            let message = format!(
                "backup {name:?} is still running ({})",
                plain(phase.as_str())
            );
            return Err(Problem::other(message).with_remedy(format!(
                "End it early (kubectl backup cancel {name}), or wait for it (kubectl backup wait {name}); then delete it."
            )));
        }
        // Fails if the backup starts in the meantime.
        let as_read = Preconditions {
            uid: backup.uid(),
            resource_version: backup.resource_version(),
        };
        match session.delete::<Backup>(name, as_read).await {
            Ok(()) => {
                terminal.data(&format!("{} deleted\n", full_name::<Backup>(name)))?;
                terminal.say("It had not begun, so nothing was stored.");
                return Ok(None);
            }
            Err(Problem {
                kind: ProblemKind::Api { code: 409, .. },
                ..
            }) => {}
            Err(problem) => return Err(problem),
        }
    }
    Err(
        Problem::other(format!("backup {name:?} is changed by others all the time"))
            .with_remedy("Try again."),
    )
}

/// The refusal to read a backup that is to be deleted, with what the deletion takes: a role that
/// only reads is not enough.
async fn refusal(
    session: &Session,
    resource: &ApiResource,
    name: &str,
    problem: Problem,
) -> Problem {
    match Box::pin(owned::named(session, resource, name)).await {
        Some(Ok(_)) => problem.with_remedy(
            "Owners of namespaces create backups and delete none: users with the ClusterRole \
             backup-operator do. Each backup is deleted at the end of its ttl.",
        ),
        Some(Err(of_owner)) => of_owner,
        None => problem.with_remedy(Role::Operator.remedy(&session.namespace)),
    }
}

/// Deletes objects that need no request. `consequence` gives the last part of the question to the
/// user.
pub(super) async fn objects<K: TableKind>(
    args: DeleteArgs,
    consequence: impl AsyncFnOnce(&Session, &[String]) -> String,
    terminal: &mut Terminal,
) -> CommandResult {
    delete_each::<K, _>(
        &args.deletion,
        async |_: &Session, _: &[String]| None,
        consequence,
        terminal,
        async |session: &Session, name: &str, terminal: &mut Terminal| {
            delete_object::<K>(session, name, &args, terminal).await
        },
    )
    .await
}

async fn delete_object<K: TableKind>(
    session: &Session,
    name: &str,
    args: &DeleteArgs,
    terminal: &mut Terminal,
) -> CommandResult {
    let uid = get_named_metadata::<K>(session, "delete", name).await?.uid;
    // Deletes only the object that the user confirmed, not a newer one of the same name.
    session
        .delete::<K>(
            name,
            Preconditions {
                uid: uid.clone(),
                resource_version: None,
            },
        )
        .await?;
    terminal.data(&format!("{} deleted\n", full_name::<K>(name)))?;
    if !args.wait {
        return Ok(Exit::Done);
    }
    let waited = poll(
        session,
        terminal,
        args.timeout.as_std(),
        async |_: &mut Terminal| {
            let found = optional(session.get_metadata::<K>(name).await)?;
            Ok(if found.is_some_and(|found| found.metadata.uid == uid) {
                Look::Same
            } else {
                Look::Found(())
            })
        },
    )
    .await?;
    Ok(ended(
        waited,
        &format!("{} {name}", K::KIND),
        args,
        terminal,
    ))
}

/// The request's name, derived from the backup: a second request for the same backup has the same
/// name.
fn request_name(backup: &str, uid: &str) -> String {
    let suffix: String = uid.chars().take(8).collect();
    let room = 253 - suffix.len() - 1;
    let start = &backup[..backup.floor_char_boundary(room)];
    format!("{}-{suffix}", start.trim_end_matches(['-', '.']))
}

/// Creates the deletion request for exactly this backup (labels as Velero
/// `pkg/backup/delete_helpers.go`), with annotations that say what stays.
///
/// Create-only under a fixed name. An existing request asks for the same deletion; if it ended with
/// errors, it is deleted (with a precondition on its uid and version) and created again, which
/// retries the deletion.
async fn request(
    session: &Session,
    backup: &DynamicObject,
    wishes: &[&str],
) -> Result<DeleteBackupRequest, Problem> {
    let name = backup.name_any();
    let uid = backup.uid().unwrap_or_default();
    let request_name = request_name(&name, &uid);
    let spec = DeleteBackupRequestSpec {
        backup_name: name.clone(),
        ..DeleteBackupRequestSpec::default()
    };
    let mut request = DeleteBackupRequest::new(&request_name, spec);
    request.metadata.namespace = Some(session.namespace.clone());
    let labels = [
        (labels::BACKUP_NAME, labels::valid_value(&name)),
        (labels::BACKUP_UID, uid.clone()),
    ];
    request.metadata.labels = Some(labels.map(|(key, value)| (key.to_owned(), value)).into());
    for annotation in wishes {
        let annotations = request.annotations_mut();
        annotations.insert((*annotation).to_owned(), "true".to_owned());
    }
    let params = PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    for _ in 0..MAX_ATTEMPTS {
        match session.create(&request, &params).await {
            Err(problem) if problem.kind == ProblemKind::Exists => {}
            other => return other,
        }
        let Some(stored) = optional(session.get::<DeleteBackupRequest>(&request_name).await)?
        else {
            continue;
        };
        let stored_uid = stored.labels().get(labels::BACKUP_UID);
        if stored.spec.backup_name != name
            || stored_uid.is_some_and(|stored_uid| *stored_uid != uid)
        {
            let message = format!(
                "deletebackuprequest {request_name:?} exists already, and is about another backup"
            );
            return Err(Problem::other(message).with_remedy(format!(
                "Delete it: kubectl -n {} delete deletebackuprequests.velero.io {request_name}",
                session.namespace
            )));
        }
        if !has_failed(&stored) {
            return Ok(stored);
        }
        let preconditions = Preconditions {
            uid: stored.uid(),
            resource_version: stored.resource_version(),
        };
        match session
            .delete::<DeleteBackupRequest>(&request_name, preconditions)
            .await
        {
            // Another program wrote first: create again, or find its request.
            Err(Problem {
                kind: ProblemKind::Api { code: 409, .. },
                ..
            })
            | Ok(()) => {}
            Err(problem) => return Err(problem),
        }
    }
    let message = format!("deletebackuprequest {request_name:?} is changed by others all the time");
    Err(Problem::other(message).with_remedy("Try again."))
}

fn has_failed(request: &DeleteBackupRequest) -> bool {
    request.status.phase == Some(DeleteBackupRequestPhase::Processed)
        && !request.status.errors.is_empty()
}

/// Waits until exactly this backup is gone, or its request has ended with errors.
async fn until_deleted(
    session: &Session,
    backup: &DynamicObject,
    request_name: &str,
    args: &DeleteArgs,
    terminal: &mut Terminal,
) -> CommandResult {
    let name = backup.name_any();
    let again = format!("kubectl backup delete {name} --wait");
    let mut polls_without_request = 0;
    let waited = poll(session, terminal, args.timeout.as_std(), async |_: &mut Terminal| {
        let found = optional(session.get_metadata::<Backup>(&name).await)?;
        if found.is_none_or(|found| found.metadata.uid != backup.metadata.uid) {
            return Ok(Look::Found(()));
        }
        let Some(request) = optional(session.get::<DeleteBackupRequest>(request_name).await)?
        else {
            // The server deletes the request after the backup, so the next poll finds the
            // backup gone, too.
            if polls_without_request < MAX_POLLS_WITHOUT_REQUEST {
                polls_without_request += 1;
                return Ok(Look::Same);
            }
            return Err(Problem::other(format!(
                "backup {name:?} is still there, but the request to delete it ({request_name}) is gone"
            ))
            .with_remedy(format!("Ask again: {again}")));
        };
        if !has_failed(&request) {
            return Ok(Look::Same);
        }
        let errors: Vec<String> = request.status.errors.iter().map(|error| plain(error)).collect();
        Err(Problem::other(format!("backup {name:?} was not deleted: {}", errors.join("; ")))
            .with_remedy(format!("Once the cause is gone, ask again: {again}")))
    })
    .await?;
    let exit = ended(
        waited,
        &format!("deletion of backup {name}"),
        args,
        terminal,
    );
    if exit == Exit::Done {
        terminal.say(&format!("backup {name} is gone"));
    }
    Ok(exit)
}

/// Returns the exit code, and reports why waiting stopped before the end.
fn ended(waited: Polled<()>, what: &str, args: &DeleteArgs, terminal: &mut Terminal) -> Exit {
    match &waited {
        Ok(()) => {}
        Err(Exit::TimedOut) => {
            let timeout = args.timeout;
            terminal.say(&format!(
                "error: {what} has not ended after {timeout}; it continues in the cluster"
            ));
        }
        Err(_) => terminal.say(&format!("interrupted: {what} continues in the cluster")),
    }
    waited.err().unwrap_or(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_for_the_same_backup_always_has_the_same_valid_name() {
        let uid = "0123abcd-1111-2222-3333-444455556666";
        assert_eq!(request_name("nightly", uid), "nightly-0123abcd");
        for length in [244, 245, 250, 253] {
            let name = request_name(&"a".repeat(length), uid);
            assert!(
                backup_core::names::is_object_name(&name) && name.len() <= 253,
                "{name}"
            );
        }
        let cut_at_dot = request_name(&format!("{}.{}", "a".repeat(243), "b".repeat(9)), uid);
        assert!(
            backup_core::names::is_object_name(&cut_at_dot),
            "{cut_at_dot}"
        );
    }
}
