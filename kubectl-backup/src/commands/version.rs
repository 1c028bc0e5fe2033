//! `version`: of this program, of the controller (asked by a ServerStatusRequest, as velero's own command does), of the API
//! server. Each within its time, and none keeps the others from being shown.

use std::time::Duration;

use backup_core::api::{
    ServerStatusRequest,
    server_status_request::{ServerStatusRequestPhase, ServerStatusRequestSpec},
};
use futures::join;
use kube::api::{ObjectMeta, PostParams};
use tokio::time::sleep;

use super::{part::within, pause::pause};
use crate::{
    Terminal,
    cli::{GlobalArgs, Output, VersionArgs},
    client::Session,
    error::{About, Exit, Problem},
    print::{json, table::plain},
    view::{
        description::API_VERSION,
        part::Part,
        version::{ControllerView, VersionView},
    },
};

/// `version`
pub async fn run(global: &GlobalArgs, args: VersionArgs, terminal: &mut Terminal) -> Result<Exit, Problem> {
    let mut view = VersionView {
        api_version: API_VERSION,
        kind: "Version",
        client: env!("CARGO_PKG_VERSION"),
        controller: None,
        api_server: None,
    };
    if !args.client {
        let limit = args.timeout.as_std();
        match Session::connect(global, terminal).await {
            Ok(session) => {
                let (controller, api_server) =
                    join!(within(limit, controller(&session)), within(limit, api_server(&session)));
                (view.controller, view.api_server) = (Some(controller), Some(api_server));
            }
            Err(problem) => {
                let why = plain(&problem.to_string());
                (view.controller, view.api_server) =
                    (Some(Part::missing(why.clone())), Some(Part::missing(why)));
            }
        }
    }
    terminal.data(&match args.output {
        Some(form) => json::object(&view, Output::from(form))?,
        None => view.text(),
    })?;
    Ok(if view.is_complete() { Exit::Done } else { Exit::Failed })
}

/// Create-only, under a name of its own; the controller removes it when it is over.
async fn controller(session: &Session) -> Result<ControllerView, Problem> {
    let api = session.api::<ServerStatusRequest>();
    let about =
        |verb, name| About { verb, kind: "serverstatusrequest", plural: "serverstatusrequests", name };
    let mut request = ServerStatusRequest::new("", ServerStatusRequestSpec::default());
    request.metadata =
        ObjectMeta { generate_name: Some("kubectl-backup-".to_owned()), ..ObjectMeta::default() };
    let created = session.call(about("create", ""), api.create(&PostParams::default(), &request)).await?;
    let name = created.metadata.name.unwrap_or_default();
    for looks in 0.. {
        let status = session.call(about("get", &name), api.get(&name)).await?.status;
        if status.phase == Some(ServerStatusRequestPhase::Processed) {
            return Ok(ControllerView {
                version: plain(&status.server_version.unwrap_or_default()),
                plugins: status.plugins.len(),
            });
        }
        sleep(pause(looks, Duration::from_millis(50), Duration::from_millis(500))).await;
    }
    Err(Problem::Other { message: "the controller has not answered".to_owned(), remedy: None })
}

async fn api_server(session: &Session) -> Result<String, Problem> {
    let about = About { verb: "get", kind: "version", plural: "version", name: "" };
    let info = session.call(about, session.client.apiserver_version()).await?;
    Ok(plain(&info.git_version))
}
