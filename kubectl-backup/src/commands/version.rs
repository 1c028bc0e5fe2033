//! `version`: the versions of this program, of the controller (asked by a ServerStatusRequest, as
//! velero's own command does), and of the API server. Each has its own time limit, and a failure of
//! one does not hide the others.

use backup_client::backoff::Backoff;
use backup_core::api::{
    ServerStatusRequest,
    server_status_request::{
        ServerStatusRequestPhase, ServerStatusRequestSpec, ServerStatusRequestStatus,
    },
};
use futures::join;
use serde::Serialize;
use tokio::time::sleep;

use super::prelude::*;
use crate::{cli::VersionArgs, fetched::within};

/// Pauses between two looks for the controller's answer.
const BACKOFF: Backoff = Backoff {
    first: Duration::from_millis(50),
    cap: Duration::from_millis(500),
};

pub(crate) async fn run(args: VersionArgs, terminal: &mut Terminal) -> CommandResult {
    let mut view = VersionView {
        client: env!("CARGO_PKG_VERSION"),
        controller: None,
        api_server: None,
    };
    if !args.client {
        let limit = args.timeout.as_std();
        match Session::connect(terminal).await {
            Ok(session) => {
                let (controller, api_server) = join!(
                    within(limit, controller(&session)),
                    within(limit, api_server(&session))
                );
                view.controller = Some(controller);
                view.api_server = Some(api_server);
            }
            Err(problem) => {
                let why = plain(&problem.to_string());
                view.controller = Some(FetchResult::missing(why.clone()));
                view.api_server = Some(FetchResult::missing(why));
            }
        }
    }
    json::show("Version", &view, args.document, terminal, |_, _| {
        Ok(view.text())
    })?;
    Ok(if view.is_complete() {
        Exit::Done
    } else {
        Exit::Failed
    })
}

async fn controller(session: &Session) -> Result<ControllerView, Problem> {
    let status = server_status(session).await?;
    Ok(ControllerView {
        version: plain(&status.server_version.unwrap_or_default()),
        plugins: status.plugins.len(),
    })
}

/// Asks the controller for its version and plugins. Create-only, under a generated name; the
/// controller deletes the expired request.
pub(super) async fn server_status(session: &Session) -> Result<ServerStatusRequestStatus, Problem> {
    let mut request = ServerStatusRequest::new("", ServerStatusRequestSpec::default());
    request.metadata = ObjectMeta {
        generate_name: Some("kubectl-backup-".to_owned()),
        ..ObjectMeta::default()
    };
    let name = session
        .create(&request, &PostParams::default())
        .await?
        .name_any();
    for pause in BACKOFF.delays() {
        let status = session.get::<ServerStatusRequest>(&name).await?.status;
        if status.phase == Some(ServerStatusRequestPhase::Processed) {
            return Ok(status);
        }
        sleep(pause).await;
    }
    Err(Problem::other("the controller has not answered"))
}

async fn api_server(session: &Session) -> Result<String, Problem> {
    let about = About::called("get", "version", "version", "");
    let info = session
        .call(about, session.client.apiserver_version())
        .await?;
    Ok(plain(&info.git_version))
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct VersionView {
    client: &'static str,
    /// The controller's version; null if it was not asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    controller: Option<FetchResult<ControllerView>>,
    /// The API server's version; null if it was not asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    api_server: Option<FetchResult<String>>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct ControllerView {
    version: String,
    plugins: usize,
}

impl VersionView {
    fn is_complete(&self) -> bool {
        self.controller
            .as_ref()
            .is_none_or(|fetched| fetched.known().is_some())
            && self
                .api_server
                .as_ref()
                .is_none_or(|fetched| fetched.known().is_some())
    }

    fn text(&self) -> String {
        let controller = self.controller.as_ref().and_then(|fetched| {
            fetched.shown(|known| Some(format!("{}  (plugins: {})", known.version, known.plugins)))
        });
        let api_server = self
            .api_server
            .as_ref()
            .and_then(|fetched| fetched.shown(|it| Some(it.clone())));
        [
            ("Client", Some(self.client.to_owned())),
            ("Controller", controller),
            ("API server", api_server),
        ]
        .into_iter()
        .filter_map(|(title, text)| text.map(|text| format!("{title:<12}{text}\n")))
        .collect()
    }
}
