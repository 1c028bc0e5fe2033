//! `delete` and `restore delete`.

use backup_core::{
    api::{
        Backup, DeleteBackupRequest, DeleteBackupRequestPhase, Restore,
        delete_backup_request::DeleteBackupRequestSpec,
    },
    labels,
};
use kube::{
    api::{DeleteParams, PostParams, Preconditions},
    core::PartialObjectMeta,
};

use super::{
    listed::Listed,
    names,
    wait::{Look, Waited, poll},
};
use crate::{
    Terminal,
    cli::{ChosenArgs, DeleteArgs, GlobalArgs},
    client::Session,
    error::{About, Exit, Problem},
    print::table::plain,
};

/// Names in a question.
const NAMED: usize = 20;
/// Looks at a backup whose request is gone before it is said that nothing happened.
const LOOKS_WITHOUT_REQUEST: u32 = 3;

/// `delete`
pub async fn backups(
    global: &GlobalArgs,
    args: DeleteArgs,
    terminal: &mut Terminal,
) -> Result<Exit, Problem> {
    each::<Backup, _>(
        global,
        &args.chosen,
        args.yes,
        "with all that is stored of it",
        terminal,
        async |session: &Session, name: &str, terminal: &mut Terminal| {
            // Only the metadata: one that can not be read can be deleted, too.
            let backup =
                session.call(Backup::about("get", name), session.api::<Backup>().get_metadata(name)).await?;
            let request = ask(session, &backup).await?;
            terminal.data(&format!("backup.velero.io/{name} deletion requested\n"))?;
            if args.wait {
                return until_deleted(session, &backup, &request, &args, terminal).await;
            }
            terminal.say(&format!("Follow it with: kubectl backup describe {name}"));
            Ok(Exit::Done)
        },
    )
    .await
}

/// `restore delete`
pub async fn restores(
    global: &GlobalArgs,
    args: DeleteArgs,
    terminal: &mut Terminal,
) -> Result<Exit, Problem> {
    each::<Restore, _>(
        global,
        &args.chosen,
        args.yes,
        "; what it restored stays",
        terminal,
        async |session: &Session, name: &str, terminal: &mut Terminal| {
            let api = session.api::<Restore>();
            let restore = session.call(Restore::about("get", name), api.get_metadata(name)).await?;
            let uid = restore.metadata.uid.clone();
            // Only the object that was asked about: another of the same name stays (precondition on the uid).
            let preconditions = Preconditions { uid: uid.clone(), resource_version: None };
            let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
            match session.call(Restore::about("delete", name), api.delete(name, &params)).await {
                Ok(_) | Err(Problem::NotFound { .. }) => {}
                Err(problem) => return Err(problem),
            }
            terminal.data(&format!("restore.velero.io/{name} deleted\n"))?;
            if !args.wait {
                return Ok(Exit::Done);
            }
            let waited =
                poll(session, terminal, args.timeout.as_std(), async |_: &mut Terminal| {
                    match session.call(Restore::about("get", name), api.get_metadata(name)).await {
                        Ok(restore) if restore.metadata.uid == uid => Ok(Look::Same),
                        Ok(_) | Err(Problem::NotFound { .. }) => Ok(Look::Over(())),
                        Err(problem) => Err(problem),
                    }
                })
                .await?;
            Ok(ended(waited, "restore", name, &args, terminal).map_or_else(|exit| exit, |()| Exit::Done))
        },
    )
    .await
}

/// Asks a person, then does it for each that is meant.
pub async fn each<K: Listed, F>(
    global: &GlobalArgs,
    args: &ChosenArgs,
    yes: bool,
    what: &str,
    terminal: &mut Terminal,
    delete: F,
) -> Result<Exit, Problem>
where
    F: AsyncFnMut(&Session, &str, &mut Terminal) -> Result<Exit, Problem>,
{
    let session = Session::connect(global, terminal).await?;
    let all = names::chosen::<K>(&session, args, terminal).await?;
    if all.is_empty() {
        return Ok(Exit::Done);
    }
    let names = named(&all);
    let space = if what.starts_with(';') { "" } else { " " };
    if !yes {
        match terminal.confirm(&format!("Delete {names}{space}{what}?")) {
            Some(true) => {}
            Some(false) => {
                terminal.say("nothing was deleted");
                return Ok(Exit::Failed);
            }
            None => {
                return Err(Problem::Usage {
                    message: format!("nobody can be asked whether to delete {names}: there is no terminal"),
                    remedy: Some("Say it with --yes.".to_owned()),
                });
            }
        }
    }
    names::each(&session, &all, terminal, delete).await
}

/// The first of them, and how many more.
fn named(all: &[String]) -> String {
    let names = all[..all.len().min(NAMED)].join(", ");
    match all.len().saturating_sub(NAMED) {
        0 => names,
        more => format!("{names} and {more} more"),
    }
}

/// The request's name: fixed by the backup, so that asking twice is asking once.
fn request_name(backup: &str, uid: &str) -> String {
    let suffix: String = uid.chars().take(8).collect();
    let room = 253 - suffix.len() - 1;
    let start = &backup[..backup.floor_char_boundary(room)];
    format!("{}-{suffix}", start.trim_end_matches(['-', '.']))
}

/// Creates the request for this very backup (labels as Velero `pkg/backup/delete_helpers.go`).
///
/// Create-only under a fixed name. One that is there already is the same wish; if it ended with errors, it is
/// taken away (with a precondition on its uid and version) and made anew, which is another try.
async fn ask(session: &Session, backup: &PartialObjectMeta<Backup>) -> Result<DeleteBackupRequest, Problem> {
    let name = backup.metadata.name.clone().unwrap_or_default();
    let uid = backup.metadata.uid.clone().unwrap_or_default();
    let request_name = request_name(&name, &uid);
    let spec = DeleteBackupRequestSpec { backup_name: name.clone(), ..DeleteBackupRequestSpec::default() };
    let mut request = DeleteBackupRequest::new(&request_name, spec);
    request.metadata.namespace = Some(session.namespace.clone());
    request.metadata.labels = Some(
        [
            (labels::BACKUP_NAME.to_owned(), labels::valid_value(&name)),
            (labels::BACKUP_UID.to_owned(), uid.clone()),
        ]
        .into(),
    );
    let api = session.api::<DeleteBackupRequest>();
    let about = |verb| About {
        verb,
        kind: "deletebackuprequest",
        plural: "deletebackuprequests",
        name: &request_name,
    };
    let params = PostParams { field_manager: Some("kubectl-backup".to_owned()), ..PostParams::default() };
    for _ in 0..3 {
        match session.call(about("create"), api.create(&params, &request)).await {
            Err(Problem::Exists { .. }) => {}
            other => return other,
        }
        let stored = match session.call(about("get"), api.get(&request_name)).await {
            Ok(stored) => stored,
            Err(Problem::NotFound { .. }) => continue,
            Err(problem) => return Err(problem),
        };
        let stored_uid = stored.metadata.labels.as_ref().and_then(|all| all.get(labels::BACKUP_UID));
        if stored.spec.backup_name != name || stored_uid.is_some_and(|stored_uid| *stored_uid != uid) {
            return Err(Problem::Other {
                message: format!(
                    "deletebackuprequest {request_name:?} exists already, and is about another backup"
                ),
                remedy: Some(format!(
                    "Delete it: kubectl -n {} delete deletebackuprequests.velero.io {request_name}",
                    session.namespace
                )),
            });
        }
        if !has_failed(&stored) {
            return Ok(stored);
        }
        let preconditions = Preconditions {
            uid: stored.metadata.uid.clone(),
            resource_version: stored.metadata.resource_version.clone(),
        };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match session.call(about("delete"), api.delete(&request_name, &params)).await {
            // A conflict: someone else was faster. Either way: create again, or find theirs.
            Ok(_) | Err(Problem::NotFound { .. } | Problem::Api { code: 409, .. }) => {}
            Err(problem) => return Err(problem),
        }
    }
    Err(Problem::Other {
        message: format!("deletebackuprequest {request_name:?} is changed by others all the time"),
        remedy: Some("Try again.".to_owned()),
    })
}

fn has_failed(request: &DeleteBackupRequest) -> bool {
    request.status.phase == Some(DeleteBackupRequestPhase::Processed) && !request.status.errors.is_empty()
}

/// What is known of a deletion.
enum Deleted {
    Gone,
    Failed(Vec<String>),
    RequestGone,
}

/// Waits until this very backup is gone, or its request has ended with errors.
async fn until_deleted(
    session: &Session,
    backup: &PartialObjectMeta<Backup>,
    request: &DeleteBackupRequest,
    args: &DeleteArgs,
    terminal: &mut Terminal,
) -> Result<Exit, Problem> {
    let name = backup.metadata.name.clone().unwrap_or_default();
    let request_name = request.metadata.name.clone().unwrap_or_default();
    let (backups, requests) = (session.api::<Backup>(), session.api::<DeleteBackupRequest>());
    let about = About {
        verb: "get",
        kind: "deletebackuprequest",
        plural: "deletebackuprequests",
        name: &request_name,
    };
    let mut looks_without = 0;
    let waited = poll(session, terminal, args.timeout.as_std(), async |_: &mut Terminal| {
        let is_there = match session.call(Backup::about("get", &name), backups.get_metadata(&name)).await {
            Ok(found) => found.metadata.uid == backup.metadata.uid,
            Err(Problem::NotFound { .. }) => false,
            Err(problem) => return Err(problem),
        };
        if !is_there {
            return Ok(Look::Over(Deleted::Gone));
        }
        match session.call(about, requests.get(&request_name)).await {
            Ok(request) if has_failed(&request) => Ok(Look::Over(Deleted::Failed(request.status.errors))),
            Ok(_) => Ok(Look::Same),
            // The server takes the request away after the backup: the next look finds that gone, too.
            Err(Problem::NotFound { .. }) if looks_without < LOOKS_WITHOUT_REQUEST => {
                looks_without += 1;
                Ok(Look::Same)
            }
            Err(Problem::NotFound { .. }) => Ok(Look::Over(Deleted::RequestGone)),
            Err(problem) => Err(problem),
        }
    })
    .await?;
    match ended(waited, "deletion of backup", &name, args, terminal) {
        Err(exit) => Ok(exit),
        Ok(Deleted::Gone) => {
            terminal.say(&format!("backup {name} is gone"));
            Ok(Exit::Done)
        }
        Ok(Deleted::Failed(errors)) => {
            let errors: Vec<String> = errors.iter().map(|error| plain(error)).collect();
            Err(Problem::Other {
                message: format!("backup {name:?} was not deleted: {}", errors.join("; ")),
                remedy: Some(format!(
                    "Once the cause is gone, ask again: kubectl backup delete {name} --wait"
                )),
            })
        }
        Ok(Deleted::RequestGone) => Err(Problem::Other {
            message: format!(
                "backup {name:?} is still there, but the request to delete it ({request_name}) is gone"
            ),
            remedy: Some(format!("Ask again: kubectl backup delete {name} --wait")),
        }),
    }
}

/// What was waited for, or the exit code after telling why not.
fn ended<T>(
    waited: Waited<T>,
    kind: &str,
    name: &str,
    args: &DeleteArgs,
    terminal: &mut Terminal,
) -> Result<T, Exit> {
    match waited {
        Waited::Over(value) => Ok(value),
        Waited::TimedOut => {
            terminal.say(&format!(
                "error: {kind} {name} has not ended after {}; it goes on in the cluster",
                args.timeout
            ));
            Err(Exit::TimedOut)
        }
        Waited::Interrupted => {
            terminal.say(&format!("interrupted: {kind} {name} goes on in the cluster"));
            Err(Exit::Interrupted)
        }
    }
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
            assert!(backup_core::names::is_object_name(&name) && name.len() <= 253, "{name}");
        }
        let cut_at_dot = request_name(&format!("{}.{}", "a".repeat(243), "b".repeat(9)), uid);
        assert!(backup_core::names::is_object_name(&cut_at_dot), "{cut_at_dot}");
    }
}
