//! Reads an object that the user has named, with a hint if the name belongs to another kind.

use backup_core::api::{Backup, Restore, Schedule};
use futures::join;
use kube::api::ObjectMeta;

use crate::{
    error::{Problem, ProblemKind},
    fetched::fetched,
    owned,
    session::Session,
    view::{TableKind, Workload as _},
};

/// A kind of objects, and the commands that another kind has, too.
struct NamedKind {
    kind: &'static str,
    /// Prefix of its commands.
    command: &'static str,
    verbs: &'static [&'static str],
}

const WORK_VERBS: [&str; 6] = ["cancel", "delete", "describe", "logs", "operations", "wait"];

const BACKUPS: NamedKind = NamedKind {
    kind: Backup::KIND,
    command: Backup::COMMAND,
    verbs: &WORK_VERBS,
};
const RESTORES: NamedKind = NamedKind {
    kind: Restore::KIND,
    command: Restore::COMMAND,
    verbs: &WORK_VERBS,
};
const SCHEDULES: NamedKind = NamedKind {
    kind: Schedule::KIND,
    command: "kubectl backup schedules",
    verbs: &["delete", "describe"],
};

impl NamedKind {
    /// The command that does the same with an object of this kind; for `ls`, which a restore does
    /// not have, the one that lists its items; otherwise the one that describes the object.
    fn command_like(&self, verb: &str, name: &str) -> String {
        let Self {
            kind,
            command,
            verbs,
        } = self;
        if verbs.contains(&verb) {
            return format!("{command} {verb} {name}");
        }
        let details = if verb == "ls" && *kind == Restore::KIND {
            " --details"
        } else {
            ""
        };
        format!("{command} describe {name}{details}")
    }
}

/// The object of this name, for the command `verb`. If it does not exist, the remedy names the
/// command for an object of another kind with this name.
pub(super) async fn get_named<K: TableKind>(
    session: &Session,
    verb: &str,
    name: &str,
) -> Result<K, Problem> {
    let read = match session.get::<K>(name).await {
        Err(problem) if problem.kind == ProblemKind::Forbidden => {
            let owned = Box::pin(owned::get(session, name)).await;
            owned.unwrap_or(Err(problem))
        }
        read => read,
    };
    hinted::<K, _>(session, verb, name, read).await
}

/// The metadata of the object of this name, read as by [`get_named`]; also of an object that cannot
/// be decoded.
pub(super) async fn get_named_metadata<K: TableKind>(
    session: &Session,
    verb: &str,
    name: &str,
) -> Result<ObjectMeta, Problem> {
    let read = match session.get_metadata::<K>(name).await {
        Err(problem) if problem.kind == ProblemKind::Forbidden => {
            let owned = Box::pin(owned::get::<K>(session, name)).await;
            owned
                .unwrap_or(Err(problem))
                .map(|object| object.meta().clone())
        }
        read => read.map(|object| object.metadata),
    };
    hinted::<K, _>(session, verb, name, read).await
}

/// Sets the remedy of an object of kind `K` that does not exist, as [`get_named`] does.
pub(super) async fn hinted<K: TableKind, T>(
    session: &Session,
    verb: &str,
    name: &str,
    read: Result<T, Problem>,
) -> Result<T, Problem> {
    match read {
        Err(problem) if problem.is_not_found() => {
            Err(match Box::pin(of_another_kind::<K>(session, name)).await {
                Some(other) => {
                    let kind = other.kind;
                    let command = other.command_like(verb, name);
                    problem.with_remedy(format!("There is a {kind} of this name: {command}"))
                }
                None => problem,
            })
        }
        read => read,
    }
}

/// The kind of another object with the name.
async fn of_another_kind<K: TableKind>(
    session: &Session,
    name: &str,
) -> Option<&'static NamedKind> {
    let (backup, restore, schedule) = join!(
        exists::<Backup>(session, name),
        exists::<Restore>(session, name),
        exists::<Schedule>(session, name)
    );
    let kinds = [
        (&SCHEDULES, schedule),
        (&RESTORES, restore),
        (&BACKUPS, backup),
    ];
    let other = kinds
        .into_iter()
        .find(|(one, exists)| *exists && one.kind != K::KIND);
    other.map(|(one, _)| one)
}

async fn exists<K: TableKind>(session: &Session, name: &str) -> bool {
    fetched(session, session.get_metadata::<K>(name))
        .await
        .known()
        .is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_for_another_kind_does_the_same_or_describes() {
        for (kind, verb, command) in [
            (&RESTORES, "describe", "kubectl backup restore describe x"),
            (&RESTORES, "logs", "kubectl backup restore logs x"),
            (&RESTORES, "delete", "kubectl backup restore delete x"),
            (
                &RESTORES,
                "ls",
                "kubectl backup restore describe x --details",
            ),
            (&RESTORES, "verify", "kubectl backup restore describe x"),
            (&SCHEDULES, "delete", "kubectl backup schedules delete x"),
            (&SCHEDULES, "logs", "kubectl backup schedules describe x"),
            (&SCHEDULES, "ls", "kubectl backup schedules describe x"),
            (&BACKUPS, "logs", "kubectl backup logs x"),
            (&BACKUPS, "pause", "kubectl backup describe x"),
        ] {
            assert_eq!(kind.command_like(verb, "x"), command);
        }
    }
}
