//! `version`: of this program, of the controller (asked by a ServerStatusRequest, as velero's own command does), of the API
//! server. Each within its time, and none keeps the others from being shown.

use backup_core::api::{
    ServerStatusRequest,
    server_status_request::{ServerStatusRequestPhase, ServerStatusRequestSpec},
};
use futures::join;
use tokio::time::sleep;

use super::prelude::*;
use crate::{
    backoff::backoff,
    cli::VersionArgs,
    fetched::within,
    view::{
        API_VERSION,
        version::{ControllerView, VersionView},
    },
};

pub(crate) async fn run(args: VersionArgs, terminal: &mut Terminal) -> CommandResult {
    let mut view = VersionView {
        api_version: API_VERSION,
        kind: "Version",
        client: env!("CARGO_PKG_VERSION"),
        controller: None,
        api_server: None,
    };
    if !args.client {
        let limit = args.timeout.as_std();
        match Session::connect(terminal).await {
            Ok(session) => {
                let (controller, api_server) =
                    join!(within(limit, controller(&session)), within(limit, api_server(&session)));
                (view.controller, view.api_server) = (Some(controller), Some(api_server));
            }
            Err(problem) => {
                let why = plain(&problem.to_string());
                (view.controller, view.api_server) =
                    (Some(Fetched::missing(why.clone())), Some(Fetched::missing(why)));
            }
        }
    }
    terminal.data(&json::document_or(&view, args.document.output, || Ok(view.text()))?)?;
    Ok(if view.is_complete() { Exit::Done } else { Exit::Failed })
}

/// Create-only, under a name of its own; the controller removes it when it is over.
async fn controller(session: &Session) -> Result<ControllerView, Problem> {
    let mut request = ServerStatusRequest::new("", ServerStatusRequestSpec::default());
    request.metadata =
        ObjectMeta { generate_name: Some("kubectl-backup-".to_owned()), ..ObjectMeta::default() };
    let name = session.create(&request, &PostParams::default()).await?.name_any();
    for pause in backoff(Duration::from_millis(50), Duration::from_millis(500)) {
        let status = session.get::<ServerStatusRequest>(&name).await?.status;
        if status.phase == Some(ServerStatusRequestPhase::Processed) {
            return Ok(ControllerView {
                version: plain(&status.server_version.unwrap_or_default()),
                plugins: status.plugins.len(),
            });
        }
        sleep(pause).await;
    }
    Err(Problem::other("the controller has not answered"))
}

async fn api_server(session: &Session) -> Result<String, Problem> {
    let about = About::called("get", "version", "version", "");
    let info = session.call(about, session.client.apiserver_version()).await?;
    Ok(plain(&info.git_version))
}
