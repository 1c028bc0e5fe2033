//! `cancel` and `restore cancel`: request an early end by the annotation that the controller
//! watches.

use backup_core::labels::CANCEL_ANNOTATION;

use super::{prelude::*, selection, wait::until_ended};
use crate::cli::CancelArgs;

pub(super) async fn run<W: Workload>(args: CancelArgs, terminal: &mut Terminal) -> CommandResult {
    let session = Session::connect(terminal).await?;
    selection::each(
        &args.names,
        terminal,
        async |name: &str, terminal: &mut Terminal| one::<W>(&session, name, &args, terminal).await,
    )
    .await
}

async fn one<W: Workload>(
    session: &Session,
    name: &str,
    args: &CancelArgs,
    terminal: &mut Terminal,
) -> CommandResult {
    let work = get_named::<W>(session, "cancel", name).await?;
    let status = work.status();
    let too_late = if status.stage.is_terminal() {
        Some("it has ended")
    } else {
        Some(W::WORDS.too_late).filter(|_| status.is_storing())
    };
    if let Some(why) = too_late {
        let message = format!(
            "{} {name:?} cannot be cancelled: {why} ({})",
            W::KIND,
            status.phase
        );
        return Err(Problem::other(message).with_remedy(format!(
            "If it is not wanted, delete it: {} delete {name}",
            W::COMMAND
        )));
    }
    if status.is_cancelled {
        terminal.data(&format!("{} was cancelled before\n", full_name::<W>(name)))?;
    } else {
        let patch = json!({ "metadata": { "annotations": { CANCEL_ANNOTATION: terminal.now().to_string() } } });
        session
            .patch::<W>(name, work.meta().uid.as_ref(), patch)
            .await?;
        terminal.data(&format!("{} cancelled\n", full_name::<W>(name)))?;
    }
    if !args.wait {
        terminal.say(&format!(
            "It ends soon. Follow it with: {} describe {name}",
            W::COMMAND
        ));
        return Ok(Exit::Done);
    }
    // Any final phase is the requested end.
    match until_ended::<W>(session, terminal, work, args.timeout)
        .await?
        .0
    {
        Exit::NotGood => Ok(Exit::Done),
        exit => Ok(exit),
    }
}
