//! `cancel`: asks for an early end, by the annotation that the controller looks for.

use backup_core::{
    api::{Backup, BackupPhase},
    labels::CANCEL_ANNOTATION,
};
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::{names, subject::Subject, wait::until_ended};
use crate::{
    Terminal,
    cli::{CancelArgs, GlobalArgs},
    client::Session,
    error::{Exit, Problem},
};

/// `cancel`
pub async fn run(global: &GlobalArgs, args: CancelArgs, terminal: &mut Terminal) -> Result<Exit, Problem> {
    names::each(
        global,
        &args.names,
        terminal,
        async |session: &Session, name: &str, terminal: &mut Terminal| {
            one(session, name, &args, terminal).await
        },
    )
    .await
}

async fn one(
    session: &Session,
    name: &str,
    args: &CancelArgs,
    terminal: &mut Terminal,
) -> Result<Exit, Problem> {
    let api = session.api::<Backup>();
    let backup = session.call(Backup::about("get", name), api.get(name)).await?;
    let phase = backup.phase();
    if let Some((why, remedy)) = too_late(&phase, name) {
        return Err(Problem::Other {
            message: format!("backup {name:?} can not be cancelled: {why} ({})", backup.phase_name()),
            remedy: Some(remedy),
        });
    }
    // Idempotent, and for this very object only: the API server refuses a patch with another uid.
    let patch = json!({ "metadata": {
        "uid": backup.metadata.uid,
        "annotations": { CANCEL_ANNOTATION: terminal.now().to_string() },
    } });
    let asked = if backup.is_cancelled() {
        terminal.data(&format!("backup.velero.io/{name} was cancelled before\n"))?;
        backup
    } else {
        let params =
            PatchParams { field_manager: Some("kubectl-backup".to_owned()), ..PatchParams::default() };
        let patch = Patch::Merge(patch);
        let patched = session.call(Backup::about("patch", name), api.patch(name, &params, &patch)).await?;
        terminal.data(&format!("backup.velero.io/{name} cancelled\n"))?;
        patched
    };
    if !args.wait {
        terminal.say(&format!("It ends soon. Follow it with: kubectl backup describe {name}"));
        return Ok(Exit::Done);
    }
    // Any end is the one that was asked for.
    Ok(match until_ended(session, terminal, &asked, args.timeout).await? {
        (Exit::NotCompleted, _) => Exit::Done,
        (exit, _) => exit,
    })
}

/// Why there is nothing to be cancelled any more, and what can be done instead.
fn too_late(phase: &BackupPhase, name: &str) -> Option<(&'static str, String)> {
    let delete = format!("If it is not wanted, delete it: kubectl backup delete {name}");
    if phase.is_terminal() {
        return Some(("it has ended", delete));
    }
    matches!(phase, BackupPhase::Finalizing | BackupPhase::FinalizingPartiallyFailed)
        .then_some(("everything is collected, and it is being stored", delete))
}
