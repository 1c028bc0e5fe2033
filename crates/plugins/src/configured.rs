//! A plugin that needs settings (`Init`) before it can work: a separate process for each set of
//! settings, as a plugin can hold only one. The process is started on demand, restarted after it
//! has ended, and stopped when it is idle.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    io::Write as _,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use backup_client::backoff::Backoff;
use tempfile::NamedTempFile;
use tokio::{sync::Mutex, time::Instant};

use crate::{
    connection::Failure,
    error::PluginError,
    log::Listeners,
    log_line::LogLine,
    process::{Process, Setup},
    store_wire::InitRequest,
    wire::{Answer, Question},
};

/// Backoff between the end of a useless process and the next start.
const RESTART: Backoff = Backoff {
    first: Duration::from_millis(500),
    cap: Duration::from_mins(1),
};
/// Timeout for a plugin to accept its settings; some contact their store.
const INIT_TIMEOUT: Duration = Duration::from_secs(30);
/// Backoff after the plugin was stopped: no calls are expected then.
const STOP_BACKOFF: Duration = Duration::from_hours(24);
/// Variables that name the default credentials in Velero's deployments
/// (`pkg/install/deployment.go`, v1.18).
const DEFAULT_CREDENTIALS: [&str; 4] = [
    "AWS_SHARED_CREDENTIALS_FILE",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "AZURE_CREDENTIALS_FILE",
    "ALIBABA_CLOUD_CREDENTIALS_FILE",
];
/// The setting that names the file with a location's own credentials.
const CREDENTIALS_FILE: &str = "credentialsFile";

#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Settings {
    /// As Velero would pass it.
    pub config: BTreeMap<String, String>,
    /// Its credentials, if there are any.
    pub credentials: Option<Credentials>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Credentials {
    /// The location's own: named by a setting.
    Own(Vec<u8>),
    /// The installation's: named by variables.
    Default(Vec<u8>),
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Settings")
    }
}

/// A plugin with its settings. Its process is started on demand.
#[derive(Debug)]
pub struct ConfiguredPlugin {
    path: PathBuf,
    setup: Setup,
    plugin: String,
    /// The gRPC method that takes the settings.
    init: &'static str,
    settings: Settings,
    state: Mutex<State>,
    listeners: Arc<Listeners>,
}

#[derive(Debug, Default)]
struct State {
    running: Option<Running>,
    /// Number of consecutive processes that answered no call.
    failures: u32,
    /// Time before which no other process is started, and the error of the last one.
    resting: Option<(Instant, PluginError)>,
}

#[derive(Debug)]
struct Running {
    process: Arc<Process>,
    /// Kept until the process has ended, which may read it.
    _credentials: Option<NamedTempFile>,
}

impl ConfiguredPlugin {
    /// A plugin of a binary, with the settings for `init`.
    pub(crate) fn new(
        path: PathBuf,
        setup: Setup,
        plugin: String,
        init: &'static str,
        settings: Settings,
    ) -> Self {
        Self {
            path,
            setup,
            plugin,
            init,
            settings,
            state: Mutex::default(),
            listeners: Arc::default(),
        }
    }

    pub(crate) fn binary(&self) -> String {
        self.path.display().to_string()
    }

    pub(crate) fn name(&self) -> &str {
        &self.plugin
    }

    /// Readers of its output; without any, the output goes into our own log.
    pub(crate) fn listeners(&self) -> &Listeners {
        &self.listeners
    }

    /// The process after `Init`; started if need be. After a process that ended without answering,
    /// the next start is delayed: meanwhile callers get the reason for its end.
    pub(crate) async fn process(&self) -> Result<Arc<Process>, PluginError> {
        let mut state = self.state.lock().await;
        if let Some(running) = &state.running {
            let process = Arc::clone(&running.process);
            if !process.has_ended() {
                return Ok(process);
            }
            let reason = process.ended().await;
            tracing::warn!(
                binary = self.binary(),
                plugin = self.plugin,
                reason,
                "the process of a plugin has ended"
            );
            if process.has_been_useful() {
                state.failures = 0;
            }
            let error = PluginError::Down {
                binary: self.binary(),
                reason,
            };
            failed(&mut state, error);
        }
        if let Some((until, error)) = &state.resting
            && Instant::now() < *until
        {
            return Err(error.clone());
        }
        match self.start().await {
            Ok(running) => {
                tracing::info!(
                    binary = self.binary(),
                    plugin = self.plugin,
                    "a plugin runs with the settings of a location"
                );
                let process = Arc::clone(&running.process);
                state.running = Some(running);
                Ok(process)
            }
            Err(error) => {
                failed(&mut state, error.clone());
                Err(error)
            }
        }
    }

    async fn start(&self) -> Result<Running, PluginError> {
        let mut setup = self.setup.clone();
        let mut config = self.settings.config.clone();
        let credentials = match &self.settings.credentials {
            None => None,
            Some(Credentials::Own(text) | Credentials::Default(text)) => Some(
                private_file(text)
                    .map_err(|error| self.down(format!("no file for its credentials: {error}")))?,
            ),
        };
        if let Some(file) = &credentials {
            let path = file.path().display().to_string();
            if matches!(self.settings.credentials, Some(Credentials::Own(_))) {
                config.insert(CREDENTIALS_FILE.to_owned(), path);
            } else {
                setup
                    .env
                    .extend(DEFAULT_CREDENTIALS.map(|name| (name.to_owned(), path.clone())));
            }
        }
        let of = self.plugin.clone();
        let listeners = Arc::clone(&self.listeners);
        let process = Process::start(&self.path, &setup, move |said: LogLine| {
            listeners.hear(&of, &said);
        })
        .await
        .map_err(|reason| self.down(reason))?;
        let question = InitRequest {
            plugin: self.plugin.clone(),
            config: HashMap::from_iter(config),
        };
        match process
            .ask::<_, ()>(self.init, question, INIT_TIMEOUT)
            .await
        {
            Ok(()) => Ok(Running {
                process: Arc::new(process),
                _credentials: credentials,
            }),
            Err(failure) => Err(self.error(self.init, INIT_TIMEOUT, failure)),
        }
    }

    fn down(&self, reason: String) -> PluginError {
        PluginError::Down {
            binary: self.binary(),
            reason,
        }
    }

    /// Calls a method of one of its processes.
    pub(crate) async fn ask<Q: Question, A: Answer>(
        &self,
        process: &Process,
        method: &'static str,
        question: Q,
        limit: Duration,
    ) -> Result<A, PluginError> {
        let answer = process.ask(method, question, limit).await;
        if answer.is_ok() {
            process.was_useful();
        }
        answer.map_err(|failure| self.error(method, limit, failure))
    }

    pub(crate) fn error(
        &self,
        method: &'static str,
        limit: Duration,
        failure: Failure,
    ) -> PluginError {
        PluginError::of_call(failure, self.binary(), &self.plugin, method, limit)
    }

    pub(crate) async fn stop(&self) {
        let mut state = self.state.lock().await;
        let error = PluginError::Down {
            binary: self.binary(),
            reason: "the controller is ending".to_owned(),
        };
        state.resting = Some((Instant::now() + STOP_BACKOFF, error));
        if let Some(running) = state.running.take() {
            running.process.stop().await;
        }
    }
}

/// Records that a process ended, or could not be started. After the first failure the next one is
/// started at once.
fn failed(state: &mut State, error: PluginError) {
    let delay = match state.failures {
        0 => Duration::ZERO,
        before => RESTART.delay(before),
    };
    state.running = None;
    state.failures = state.failures.saturating_add(1);
    state.resting = Some((Instant::now() + delay, error));
}

fn private_file(text: &[u8]) -> std::io::Result<NamedTempFile> {
    let mut file = tempfile::Builder::new()
        .prefix("plugin-credentials-")
        .tempfile()?;
    file.write_all(text)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[tokio::test]
    async fn a_plugin_that_does_not_start_is_not_started_at_every_call() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plugin");
        let script =
            "#!/bin/sh\ncat $AZURE_CREDENTIALS_FILE >> $0.starts\necho no luck >&2\nexit 3\n";
        std::fs::write(&path, script).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let credentials = Some(Credentials::Default(b"secret\n".to_vec()));
        let settings = Settings {
            config: BTreeMap::new(),
            credentials,
        };
        assert!(
            !format!("{settings:?}").contains("115"),
            "no bytes of a secret"
        );
        let plugin = ConfiguredPlugin::new(
            path.clone(),
            Setup::default(),
            "x/y".into(),
            "/x/Init",
            settings,
        );
        let mut told = Vec::new();
        for _ in 0..5 {
            told.push(plugin.process().await.unwrap_err().to_string());
        }
        assert!(told.iter().all(|told| told.contains("no luck")), "{told:?}");
        let starts = std::fs::read_to_string(folder.path().join("plugin.starts")).unwrap();
        assert_eq!(
            starts, "secret\nsecret\n",
            "once more at once, then with a pause"
        );
        plugin.stop().await;
        assert_says!(plugin.process().await.unwrap_err(), "is ending");
    }
}
