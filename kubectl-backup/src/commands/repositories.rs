//! `repositories`: the repositories of volume data, their maintenance and check, and the rotation of
//! their password. The controller does the work; this asks for it, and reads nothing of the Secret
//! but its metadata.

mod requests;

use std::collections::BTreeMap;

use backup_core::{
    api::BackupRepository,
    data_movement::{PASSWORD_KEY, PASSWORD_SECRET},
    repository_records::{
        PASSWORD_COPIED_ANNOTATION, ROTATION_REQUEST_ANNOTATION, RotationStage, version_of,
    },
};
use k8s_openapi::api::core::v1::Secret;

use super::{
    get,
    poll::{Look, in_vain, poll},
    prelude::*,
};
use crate::{
    cli::{RepositoriesCommand, RotatePasswordArgs},
    view::repository::{RotationState, changed},
};
use requests::RepositoryWork;

pub(crate) async fn run(command: RepositoriesCommand, terminal: &mut Terminal) -> CommandResult {
    match command {
        RepositoriesCommand::Get(args) => get::run::<BackupRepository>(args, terminal).await,
        RepositoriesCommand::RotatePassword(args) => {
            Box::pin(rotate_password(&args, terminal)).await
        }
        RepositoriesCommand::Maintain(args) => {
            let work = RepositoryWork::Maintenance;
            Box::pin(requests::run(&args.name, work, args.wait, terminal)).await
        }
        RepositoriesCommand::Check(args) => {
            let work = RepositoryWork::Check {
                reads_all_data: args.read_data,
            };
            Box::pin(requests::run(&args.name, work, args.wait, terminal)).await
        }
    }
}

/// The end of a rotation. A copy of the bucket has the keys of its time.
const ROTATED: &str = "The password was rotated: the previous one opens no repository any longer. Keep it only for copies \
     of the bucket that were made before";

/// The printed form of a rotation.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rotation {
    state: RotationState,
    /// The state as a sentence, with the number of repositories that are done.
    text: String,
    uid: Option<String>,
}

async fn rotate_password(args: &RotatePasswordArgs, terminal: &mut Terminal) -> CommandResult {
    let session = Session::connect(terminal).await?;
    let rotation = look(&session).await?;
    if let Some(annotation) = wanted_annotation(&rotation, args.copied)? {
        let annotations = BTreeMap::from([(annotation, terminal.now().to_string())]);
        let patch = json!({"metadata": {"annotations": annotations}});
        session
            .patch::<Secret>(PASSWORD_SECRET, rotation.uid.as_ref(), patch)
            .await?;
    }
    let mut shown = look(&session).await?;
    if let Some(timeout) = args.wait {
        terminal.say(&shown.text);
        let waited = poll(
            &session,
            terminal,
            timeout.as_std(),
            async |terminal: &mut Terminal| {
                let now = look(&session).await?;
                if is_over(now.state, args.copied) {
                    return Ok(Look::Found(now));
                }
                if now == shown {
                    return Ok(Look::Same);
                }
                terminal.say(&now.text);
                shown = now;
                Ok(Look::Changed)
            },
        )
        .await?;
        shown = match waited {
            Ok(now) => now,
            Err(exit) => {
                let what = "the rotation of the password is not at its next step";
                terminal.say(&in_vain(exit, what, timeout));
                terminal.say(&what_it_waits_for(&session));
                return Ok(exit);
            }
        };
    }
    terminal.data(&format!("rotation {}\n", shown.state.word()))?;
    terminal.say(if is_finished(shown.state, args.copied) {
        ROTATED
    } else {
        &shown.text
    });
    for line in next_steps(&session, shown.state) {
        terminal.say(&line);
    }
    Ok(Exit::Done)
}

async fn look(session: &Session) -> Result<Rotation, Problem> {
    let secret = optional(session.get_metadata::<Secret>(PASSWORD_SECRET).await)?;
    let Some(secret) = secret else {
        return Err(Problem::other(format!(
            "Secret {PASSWORD_SECRET} with the password does not exist in namespace {}",
            session.namespace
        ))
        .with_remedy(
            "The controller creates it with the first repository. If there are repositories, bring it back from your copy.",
        ));
    };
    let metadata = secret.metadata;
    let annotations = metadata.annotations.clone().unwrap_or_default();
    let state = RotationState::of(&annotations);
    let text = match state.work() {
        Some(work) => {
            let all =
                session.list_readable(ListParams::default(), |one: BackupRepository| Some(one));
            let (done, total) = changed(&all.await?, work, &version_of(&metadata));
            format!("{}: {done} of {total} repositories", describe(state))
        }
        None => describe(state).to_owned(),
    };
    Ok(Rotation {
        state,
        text,
        uid: metadata.uid,
    })
}

/// The annotation by which the controller is asked for what the user wants; `None` if it does that
/// already.
fn wanted_annotation(
    rotation: &Rotation,
    is_copied: bool,
) -> Result<Option<&'static str>, Problem> {
    match (rotation.state, is_copied) {
        (RotationState::Idle, false) => Ok(Some(ROTATION_REQUEST_ANNOTATION)),
        (RotationState::Stage(RotationStage::Switched), true) => {
            Ok(Some(PASSWORD_COPIED_ANNOTATION))
        }
        (RotationState::Idle, true) => {
            let message = "no rotation of the password is under way, so there is nothing to copy";
            Err(Problem::other(message)
                .with_remedy("Begin one: kubectl backup repositories rotate-password"))
        }
        (RotationState::Requested | RotationState::Stage(RotationStage::Adding), true) => {
            let message = "the new password does not open all repositories yet";
            Err(Problem::other(message).with_remedy(
                "Wait until it is the current one, and copy it then: kubectl backup repositories rotate-password --wait",
            ))
        }
        (RotationState::Requested | RotationState::Stage(_), _) => Ok(None),
    }
}

/// Whether there is nothing to wait for.
fn is_over(state: RotationState, is_copied: bool) -> bool {
    match state {
        RotationState::Idle => true,
        RotationState::Stage(RotationStage::Switched) => !is_copied,
        RotationState::Requested | RotationState::Stage(_) => false,
    }
}

/// Whether the rotation whose copy this command has confirmed is done.
fn is_finished(state: RotationState, is_copied: bool) -> bool {
    is_copied && state == RotationState::Idle
}

fn describe(state: RotationState) -> &'static str {
    match state {
        RotationState::Idle => "No rotation of the password is under way",
        RotationState::Requested => "The controller is asked for another password",
        RotationState::Stage(RotationStage::Adding) => {
            "All repositories get a key of the next password"
        }
        RotationState::Stage(RotationStage::Switched) => {
            "The new password opens all repositories, and is the current one"
        }
        RotationState::Stage(RotationStage::Removing) => {
            "The keys of the previous password are removed"
        }
    }
}

fn next_steps(session: &Session, state: RotationState) -> Vec<String> {
    let namespace = &session.namespace;
    match state {
        RotationState::Idle => Vec::new(),
        RotationState::Stage(RotationStage::Switched) => vec![
            format!(
                "Copy it out of the cluster: kubectl -n {namespace} get secret {PASSWORD_SECRET} \
                 -o jsonpath='{{.data.{PASSWORD_KEY}}}' | base64 -d"
            ),
            "Then have the keys of the previous one removed: kubectl backup repositories rotate-password --copied"
                .to_owned(),
        ],
        RotationState::Requested | RotationState::Stage(_) => vec![what_it_waits_for(session)],
    }
}

fn what_it_waits_for(session: &Session) -> String {
    format!(
        "See what it waits for: kubectl -n {} describe secret {PASSWORD_SECRET}; kubectl backup repositories get -o wide",
        session.namespace
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_state(state: RotationState) -> Rotation {
        Rotation {
            state,
            text: String::new(),
            uid: None,
        }
    }

    #[test]
    fn a_copy_is_confirmed_only_when_there_is_something_to_copy() {
        let stage = RotationState::Stage;
        for (state, request, copy) in [
            (RotationState::Idle, Some(true), None),
            (RotationState::Requested, Some(false), None),
            (stage(RotationStage::Adding), Some(false), None),
            (stage(RotationStage::Switched), Some(false), Some(true)),
            (stage(RotationStage::Removing), Some(false), Some(false)),
        ] {
            for (is_copied, expected) in [(false, request), (true, copy)] {
                let wanted = wanted_annotation(&in_state(state), is_copied);
                let is_written = wanted.ok().map(|annotation| annotation.is_some());
                assert_eq!(is_written, expected, "{state:?} {is_copied}");
            }
        }
    }

    #[test]
    fn waiting_ends_where_the_user_has_to_do_something_or_all_is_done() {
        let stage = RotationState::Stage;
        for (state, request, copy) in [
            (RotationState::Idle, true, true),
            (RotationState::Requested, false, false),
            (stage(RotationStage::Adding), false, false),
            (stage(RotationStage::Switched), true, false),
            (stage(RotationStage::Removing), false, false),
        ] {
            assert_eq!(is_over(state, false), request, "{state:?}");
            assert_eq!(is_over(state, true), copy, "{state:?}");
            assert!(
                !is_finished(state, false),
                "{state:?}: it may not have begun"
            );
            assert_eq!(is_finished(state, true), state == RotationState::Idle);
        }
    }
}
