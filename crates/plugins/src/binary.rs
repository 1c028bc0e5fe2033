//! One plugin binary: its process, restarted whenever it ends.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use backup_actions::AppliesTo;
use backup_client::backoff::Backoff;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::{
    catalog::{Kind, Offer, is_name},
    connection::Failure,
    error::PluginError,
    log::{Listeners, PluginLog},
    log_line::LogLine,
    process::{Process, Setup},
    wire::{self, Answer, Question, method},
};

/// Backoff between the end of a process and the next start.
const RESTART: Backoff = Backoff {
    first: Duration::from_millis(500),
    cap: Duration::from_mins(1),
};
/// After this number of starts without an answer, calls fail instead of waiting for the next start.
const MAX_SILENT_STARTS: u32 = 4;
/// Timeout for each question at the start.
const START_ASK_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of plugins in one binary.
const MAX_PLUGINS: usize = 1_000;

#[derive(Debug)]
pub(crate) struct Binary {
    path: PathBuf,
    setup: Setup,
    state: watch::Sender<State>,
    /// The plugins it offered when it was last asked.
    offers: Mutex<Option<Vec<Offer>>>,
    listeners: Listeners,
}

#[derive(Clone, Debug)]
enum State {
    /// It is being started, or will be soon.
    Starting,
    Up(Arc<Process>),
    Down(String),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    pub plugin: &'a str,
    pub method: &'static str,
    /// Time limit for the call, including the wait for the process.
    pub limit: Duration,
    pub log: Option<&'a PluginLog>,
}

impl Binary {
    pub(crate) fn new(path: PathBuf, setup: Setup) -> Self {
        Self {
            path,
            setup,
            state: watch::Sender::new(State::Starting),
            offers: Mutex::default(),
            listeners: Listeners::default(),
        }
    }

    pub(crate) fn path(&self) -> String {
        self.path.display().to_string()
    }

    /// Keeps it running for ever: restarts it when it ends, with a backoff that grows until the
    /// process answers.
    pub(crate) async fn supervise(self: Arc<Self>) {
        let path = self.path();
        let mut failures = 0_u32;
        loop {
            let reason = match self.start().await {
                Ok(process) => {
                    tracing::info!(binary = path, "a plugin binary runs");
                    self.state.send_replace(State::Up(Arc::clone(&process)));
                    let reason = process.ended().await;
                    if process.has_been_useful() {
                        failures = 0;
                    }
                    reason
                }
                Err(reason) => {
                    // Waiting for it would be useless.
                    failures = failures.max(MAX_SILENT_STARTS);
                    reason
                }
            };
            failures = failures.saturating_add(1);
            let delay = RESTART.delay(failures);
            tracing::error!(
                binary = path,
                reason,
                ?delay,
                "a plugin binary does not run; it is started again"
            );
            let state = if failures > MAX_SILENT_STARTS {
                State::Down(reason)
            } else {
                State::Starting
            };
            self.state.send_replace(state);
            tokio::time::sleep(delay).await;
        }
    }

    pub(crate) async fn stop(&self) {
        let before = self
            .state
            .send_replace(State::Down("the controller is ending".to_owned()));
        if let State::Up(process) = before {
            process.stop().await;
        }
    }

    /// Starts the process, and asks the questions that must come before all others: Velero's
    /// framework creates a plugin's handler at the first call to it, without a lock, so first calls
    /// are made one after the other.
    async fn start(self: &Arc<Self>) -> Result<Arc<Process>, String> {
        let ears = Arc::downgrade(self);
        let of = self
            .path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let process = Process::start(&self.path, &self.setup, move |said: LogLine| {
            if let Some(binary) = ears.upgrade() {
                binary.listeners.hear(&of, &said);
            }
        })
        .await?;
        let offers = list(&process).await?;
        let offers = Some(offers);
        let mut known = self.offers.lock();
        if *known != offers {
            for offer in offers.iter().flatten() {
                tracing::info!(binary = %self.path(), kind = ?offer.kind, name = offer.name, "a plugin");
            }
            *known = offers;
        }
        Ok(Arc::new(process))
    }

    /// The plugins it offers. Waits during its first start; the error says why they are unknown.
    pub(crate) async fn offers(&self) -> Result<Vec<Offer>, PluginError> {
        if let Some(offers) = self.known_offers() {
            return Ok(offers);
        }
        let _ = self.up().await?;
        Ok(self.known_offers().unwrap_or_default())
    }

    fn known_offers(&self) -> Option<Vec<Offer>> {
        self.offers.lock().clone()
    }

    pub(crate) async fn call<Q: Question, A: Answer>(
        &self,
        call: Call<'_>,
        question: Q,
    ) -> Result<A, PluginError> {
        let binary = self.path();
        let begun = Instant::now();
        let process = match tokio::time::timeout(call.limit, self.up()).await {
            Ok(process) => process?,
            Err(_) => {
                return Err(PluginError::Down {
                    binary,
                    reason: "it is being started again".into(),
                });
            }
        };
        let _listening = call.log.map(|log| self.listeners.begin(log));
        let left = call.limit.saturating_sub(begun.elapsed());
        let answer = process.ask(call.method, question, left).await;
        if answer.is_ok() {
            process.was_useful();
        }
        answer.map_err(|failure| {
            PluginError::of_call(failure, binary, call.plugin, call.method, call.limit)
        })
    }

    async fn up(&self) -> Result<Arc<Process>, PluginError> {
        let mut state = self.state.subscribe();
        // A process that has ended stays in the state briefly.
        let state = state
            .wait_for(|state| match state {
                State::Starting => false,
                State::Up(process) => !process.has_ended(),
                State::Down(_) => true,
            })
            .await;
        let reason = match state.as_deref() {
            Ok(State::Up(process)) => return Ok(Arc::clone(process)),
            Ok(State::Down(reason)) => reason.clone(),
            Ok(State::Starting) | Err(_) => "it is not looked after".to_owned(),
        };
        Err(PluginError::Down {
            binary: self.path(),
            reason,
        })
    }
}

/// The offers of a process, of the kinds that are used.
async fn list(process: &Process) -> Result<Vec<Offer>, String> {
    let listed: wire::ListPluginsResponse = process
        .ask(method::LIST, (), START_ASK_TIMEOUT)
        .await
        .map_err(|failure| format!("it does not say what it offers: {}", told(failure)))?;
    if listed.plugins.len() > MAX_PLUGINS {
        return Err(format!(
            "it says that it offers {} plugins, which is nonsense",
            listed.plugins.len()
        ));
    }
    let mut offers = Vec::new();
    for wire::PluginIdentifier { kind, name, .. } in listed.plugins {
        let Some(kind) = Kind::parse(&kind) else {
            tracing::info!(kind, name, "a plugin of a kind that is not used here");
            continue;
        };
        let applies_to = if is_name(&name) {
            match kind.applies_to() {
                Some(method) => applies_to(process, method, &name).await,
                None => Ok(AppliesTo::default()),
            }
        } else {
            Err(format!(
                "{name:?} is no name of a plugin: it has to be domain/name"
            ))
        };
        offers.push(Offer {
            kind,
            name,
            applies_to,
        });
    }
    Ok(offers)
}

async fn applies_to(
    process: &Process,
    method: &'static str,
    name: &str,
) -> Result<AppliesTo, String> {
    let question = wire::AppliesToRequest {
        plugin: name.to_owned(),
    };
    let answer: wire::AppliesToResponse = process
        .ask(method, question, START_ASK_TIMEOUT)
        .await
        .map_err(|failure| {
            format!(
                "it does not say which items it wants to see: {}",
                told(failure)
            )
        })?;
    let selector = answer.selector.unwrap_or_default();
    Ok(AppliesTo {
        included_resources: selector.included_resources,
        excluded_resources: selector.excluded_resources,
        included_namespaces: selector.included_namespaces,
        excluded_namespaces: selector.excluded_namespaces,
        label_selector: selector.selector,
    })
}

fn told(failure: Failure) -> String {
    match failure {
        Failure::Late => format!("no answer within {START_ASK_TIMEOUT:?}"),
        Failure::Broken(reason) => reason,
        Failure::Status(code, message) => format!("{code:?}: {message}"),
    }
}
