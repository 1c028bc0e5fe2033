//! Reads an object that the user has named, with a hint if the name belongs to another kind.

use futures::join;

use super::prelude::*;
use crate::{fetched::fetched, owned};

/// The object of this name. If it does not exist, the remedy names an object of another kind with
/// this name.
pub(super) async fn get_named<K: TableKind>(session: &Session, name: &str) -> Result<K, Problem> {
    match session.get::<K>(name).await {
        Err(problem) if problem.is_not_found() => {
            Err(match Box::pin(of_another_kind::<K>(session, name)).await {
                Some((kind, command)) => {
                    let what = format!("There is a {kind} of this name: {command} describe {name}");
                    problem.with_remedy(what)
                }
                None => problem,
            })
        }
        Err(problem) if problem.kind == ProblemKind::Forbidden => {
            let owned = Box::pin(owned::get(session, name)).await;
            owned.unwrap_or(Err(problem))
        }
        result => result,
    }
}

/// The metadata of the object of this name: that of an object that cannot be decoded, too.
pub(super) async fn get_named_metadata<K: TableKind>(
    session: &Session,
    name: &str,
) -> Result<ObjectMeta, Problem> {
    match session.get_metadata::<K>(name).await {
        Ok(object) => Ok(object.metadata),
        Err(problem) if problem.kind == ProblemKind::Forbidden => {
            let owned = Box::pin(owned::get::<K>(session, name)).await;
            Ok(owned.unwrap_or(Err(problem))?.meta().clone())
        }
        Err(problem) => Err(problem),
    }
}

/// The kind of another object with the name, and the prefix of the commands for that kind.
async fn of_another_kind<K: TableKind>(
    session: &Session,
    name: &str,
) -> Option<(&'static str, &'static str)> {
    let (backup, restore, schedule) = join!(
        exists::<Backup>(session, name),
        exists::<Restore>(session, name),
        exists::<Schedule>(session, name)
    );
    let kinds = [
        (Schedule::KIND, "kubectl backup schedules", schedule),
        (Restore::KIND, Restore::COMMAND, restore),
        (Backup::KIND, Backup::COMMAND, backup),
    ];
    let other = kinds
        .into_iter()
        .find(|(kind, _, exists)| *exists && *kind != K::KIND);
    other.map(|(kind, command, _)| (kind, command))
}

async fn exists<K: TableKind>(session: &Session, name: &str) -> bool {
    fetched(session, session.get_metadata::<K>(name))
        .await
        .known()
        .is_some()
}
