//! `cancel` and `restore cancel`: ask for an early end, by the annotation that the controller looks for.

use backup_core::labels::CANCEL_ANNOTATION;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::{names, subject::Subject, wait::until_ended};
use crate::{
    Terminal,
    cli::{CancelArgs, GlobalArgs},
    client::Session,
    error::{Exit, Problem},
};

/// `cancel` and `restore cancel`.
pub async fn run<K: Subject>(
    global: &GlobalArgs,
    args: CancelArgs,
    terminal: &mut Terminal,
) -> Result<Exit, Problem> {
    names::each(
        &Session::connect(global, terminal).await?,
        &args.names,
        terminal,
        async |session: &Session, name: &str, terminal: &mut Terminal| {
            one::<K>(session, name, &args, terminal).await
        },
    )
    .await
}

async fn one<K: Subject>(
    session: &Session,
    name: &str,
    args: &CancelArgs,
    terminal: &mut Terminal,
) -> Result<Exit, Problem> {
    let api = session.api::<K>();
    let object = session.call(K::about("get", name), api.get(name)).await?;
    if let Some(why) = object.too_late() {
        return Err(Problem::Other {
            message: format!("{} {name:?} can not be cancelled: {why} ({})", K::KIND, object.phase_name()),
            remedy: Some(format!("If it is not wanted, delete it: {} {name}", K::DELETE)),
        });
    }
    // Idempotent, and for this very object only: the API server refuses a patch with another uid.
    let patch = json!({ "metadata": {
        "uid": object.meta().uid,
        "annotations": { CANCEL_ANNOTATION: terminal.now().to_string() },
    } });
    let asked = if object.is_cancelled() {
        terminal.data(&format!("{}.velero.io/{name} was cancelled before\n", K::KIND))?;
        object
    } else {
        let params =
            PatchParams { field_manager: Some("kubectl-backup".to_owned()), ..PatchParams::default() };
        let patch = Patch::Merge(patch);
        let patched = session.call(K::about("patch", name), api.patch(name, &params, &patch)).await?;
        terminal.data(&format!("{}.velero.io/{name} cancelled\n", K::KIND))?;
        patched
    };
    if !args.wait {
        terminal.say(&format!("It ends soon. Follow it with: {} {name}", K::DESCRIBE));
        return Ok(Exit::Done);
    }
    // Any end is the one that was asked for.
    Ok(match until_ended(session, terminal, &asked, args.timeout).await? {
        (Exit::NotCompleted, _) => Exit::Done,
        (exit, _) => exit,
    })
}
