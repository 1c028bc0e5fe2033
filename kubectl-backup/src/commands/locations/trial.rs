//! Tries a bucket before its location is stored. Only the controller reaches buckets, so the
//! command creates a trial location for it to validate: under another name, with the new settings.
//! The trial location is excluded from synchronisation, is never the default, and is deleted
//! afterwards whatever the result. Meanwhile backups use the stored location.

use backup_core::{
    api::{BackupStorageLocationSpec, LocationPhase},
    names,
};
use kube::api::Preconditions;
use tokio::time::{Instant, sleep};

use crate::{
    backoff::pauses,
    cli::TrialArgs,
    commands::{
        poll::{Look, Polled, poll},
        prelude::*,
    },
};

/// Time limit for the deletion of a trial location.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(30);

/// Whether a location called `name` can be used with this spec. Returns an error with the reason if
/// not, or an exit code if that is unknown. `kept` is the end of the sentence that says what was
/// not done.
pub(super) async fn check(
    session: &Session,
    name: &str,
    spec: BackupStorageLocationSpec,
    args: &TrialArgs,
    kept: &str,
    terminal: &mut Terminal,
) -> Result<Polled<()>, Problem> {
    let trial_name = names::timestamped(&format!("{name}-try"), terminal.now());
    terminal.say(&format!(
        "Trying the bucket by location {trial_name}, which is deleted again"
    ));
    let trial = BackupStorageLocation::new(
        &trial_name,
        BackupStorageLocationSpec {
            default: None,
            backup_sync_period: Some(GoDuration::default()),
            // A Velero server never validates a location whose frequency is 0.
            validation_frequency: None,
            ..spec
        },
    );
    let mut uid = None;
    let validated = tokio::select! {
        validated = validate(session, &trial, args.timeout, &mut uid, terminal) => validated,
        _ = tokio::signal::ctrl_c() => Ok(Err(Exit::Interrupted)),
    };
    let is_removed = if let Some(uid) = &uid {
        remove(session, &trial_name, uid, terminal).await
    } else {
        let is_known = validated
            .as_ref()
            .is_err_and(|problem| !problem.is_transient());
        if !is_known {
            let delete = format!("kubectl backup locations delete {trial_name}");
            terminal.say(&format!("location {trial_name} may be left: {delete}"));
        }
        is_known
    };
    Ok(match validated? {
        Ok((LocationPhase::Available, _)) => {
            if is_removed {
                Ok(())
            } else {
                terminal.say(&format!("error: {kept}"));
                Err(Exit::Failed)
            }
        }
        Ok((phase, message)) => {
            let why = plain(&message.unwrap_or_default()).replace(&trial_name, name);
            let message = format!("location {name:?} would be {phase}, so {kept}: {why}");
            return Err(
                Problem::other(message).with_remedy("Without a try of the bucket: --no-verify")
            );
        }
        Err(Exit::TimedOut) => {
            terminal.say(&format!(
                "error: the controller has not tried the bucket within {}, so {kept}: does it run?\n  \
                 Without a try of the bucket: --no-verify",
                args.timeout
            ));
            Err(Exit::TimedOut)
        }
        Err(exit) => {
            terminal.say(&format!("interrupted: {kept}"));
            Err(exit)
        }
    })
}

/// Creates the trial location, and waits for its validation. `uid` is set as soon as the location
/// exists.
async fn validate(
    session: &Session,
    trial: &BackupStorageLocation,
    timeout: GoDuration,
    uid: &mut Option<String>,
    terminal: &mut Terminal,
) -> Result<Polled<Validation>, Problem> {
    let params = PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    *uid = session.create(trial, &params).await?.uid();
    validated(session, &trial.name_any(), timeout, terminal).await
}

/// Phase and message of a validated location.
type Validation = (LocationPhase, Option<String>);

/// Waits until the controller has validated a location.
pub(super) async fn validated(
    session: &Session,
    name: &str,
    timeout: GoDuration,
    terminal: &mut Terminal,
) -> Result<Polled<Validation>, Problem> {
    poll(
        session,
        terminal,
        timeout.as_std(),
        async |_: &mut Terminal| {
            let status = session.get::<BackupStorageLocation>(name).await?.status;
            Ok(status
                .phase
                .map_or(Look::Same, |phase| Look::Found((phase, status.message))))
        },
    )
    .await
}

/// Deletes the trial location. If that fails, a warning tells the user.
async fn remove(session: &Session, name: &str, uid: &str, terminal: &mut Terminal) -> bool {
    let deadline = Instant::now() + REMOVAL_TIMEOUT;
    let mut pauses = pauses();
    let problem = loop {
        let only_this = Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: None,
        };
        let Err(problem) = session
            .delete::<BackupStorageLocation>(name, only_this)
            .await
        else {
            return true;
        };
        match pauses
            .next()
            .filter(|_| problem.is_transient() && Instant::now() < deadline)
        {
            Some(pause) => sleep(pause).await,
            None => break problem,
        }
    };
    terminal.say(&format!(
        "warning: location {name} of the try is left: {problem}\n  \
         Delete it: kubectl backup locations delete {name}"
    ));
    false
}
