//! One running plugin binary.

use std::{
    collections::VecDeque,
    path::Path,
    process::{ExitStatus, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufRead, BufReader},
    process::{Child, Command},
    sync::watch,
    task::JoinSet,
};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    connection::{Connection, Failure},
    handshake, lines,
    log_line::{LogLine, Reader},
    wire::{self, Answer, Question, method},
};

/// Timeout for a binary to report its address (go-plugin's `StartTimeout`).
pub(crate) const START_TIMEOUT: Duration = Duration::from_mins(1);
/// Timeout for its health check.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for it to exit by itself (go-plugin: 2 s).
const END_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout for reading its remaining output after its end.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(2);
/// Number of lines that are shown with its end.
const MAX_SHOWN_LINES: usize = 3;

#[derive(Clone, Debug, Default)]
pub(crate) struct Setup {
    pub args: Vec<String>,
    /// Variables added to our own.
    pub env: Vec<(String, String)>,
}

/// A process that answers. Killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Process {
    connection: Arc<Connection>,
    ended: watch::Receiver<Option<String>>,
    useful: AtomicBool,
    _kill: DropGuard,
    kill: CancellationToken,
    _tasks: JoinSet<()>,
    _folder: TempDir,
}

impl Process {
    /// Starts a binary, and waits until it serves. `heard` is called with every line on its
    /// standard error. Errors: a message that says how far it came, with its last lines.
    pub(crate) async fn start(
        program: &Path,
        setup: &Setup,
        heard: impl Fn(LogLine) + Send + 'static,
    ) -> Result<Self, String> {
        let folder = tempfile::Builder::new()
            .prefix("plugin-")
            .tempdir()
            .map_err(|error| format!("no folder for its socket: {error}"))?;
        let (cookie, value) = handshake::COOKIE;
        let mut child = Command::new(program)
            .args(&setup.args)
            .envs(setup.env.iter().map(|(name, value)| (name, value)))
            .env(cookie, value)
            .env("PLUGIN_PROTOCOL_VERSIONS", handshake::PROTOCOL)
            .env("PLUGIN_UNIX_SOCKET_DIR", folder.path())
            .env_remove("PLUGIN_CLIENT_CERT")
            .env_remove("PLUGIN_MULTIPLEX_GRPC")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("it can not be executed: {error}"))?;

        let words = Words::default();
        let mut tasks = JoinSet::new();
        let mut read = JoinSet::new();
        if let Some(stderr) = child.stderr.take() {
            read.spawn(hear(BufReader::new(stderr), words.clone(), heard));
        }
        let stdout = child.stdout.take().map(BufReader::new);
        let kill = CancellationToken::new();
        let guard = kill.clone().drop_guard();
        let (tell, mut ended) = watch::channel(None);
        // Not among the tasks that end with the process handle: it has to wait for the child's
        // exit.
        tokio::spawn(keep(child, kill.clone(), read, words.clone(), tell));

        let opening = async {
            let mut stdout = stdout.ok_or("it has no standard output")?;
            let line = lines::next(&mut stdout)
                .await
                .map_err(|error| error.to_string())?;
            let address = handshake::address(&line.unwrap_or_default());
            // Its later output has to be read, or the process would block.
            tasks.spawn(async move { while let Ok(Some(_)) = lines::next(&mut stdout).await {} });
            let connection = Arc::new(Connection::open(&address?).await?);
            healthy(&connection).await?;
            Ok::<_, String>(connection)
        };
        let opened = tokio::select! {
            opened = tokio::time::timeout(START_TIMEOUT, opening) => opened,
            reason = end(&mut ended) => return Err(too_soon(&reason)),
        };
        let connection = match opened {
            Ok(Ok(connection)) => connection,
            // After its exit there is no address line; report the exit instead.
            Ok(Err(reason)) => {
                let reason = match tokio::time::timeout(OUTPUT_TIMEOUT, end(&mut ended)).await {
                    Ok(ended) => too_soon(&ended),
                    Err(_) => words.after(reason),
                };
                return Err(reason);
            }
            Err(_) => {
                return Err(words.after(format!(
                    "it has not said where it listens within {START_TIMEOUT:?}"
                )));
            }
        };
        let stdio = Arc::clone(&connection);
        tasks.spawn(async move { stdio.drain(method::STDIO).await });
        Ok(Self {
            connection,
            ended,
            useful: AtomicBool::new(false),
            _kill: guard,
            kill,
            _tasks: tasks,
            _folder: folder,
        })
    }

    pub(crate) async fn ask<Q: Question, A: Answer>(
        &self,
        method: &'static str,
        question: Q,
        limit: Duration,
    ) -> Result<A, Failure> {
        match self.connection.ask(method, question, limit).await {
            Ok(answer) => Ok(answer),
            Err(failure) => Err(self.explained(failure).await),
        }
    }

    /// For calls with streams. Their failures must be passed to [`explained`](Self::explained).
    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Finds the cause of a failed call: a process that hangs, or has lost its connection, is
    /// killed.
    pub(crate) async fn explained(&self, failure: Failure) -> Failure {
        match failure {
            Failure::Late => {
                if healthy(&self.connection).await.is_err() {
                    self.kill.cancel();
                    let _ = tokio::time::timeout(END_TIMEOUT, self.ended()).await;
                }
                Failure::Late
            }
            Failure::Broken(reason) => {
                // Without its connection the process is useless; most have ended.
                let how = tokio::time::timeout(END_TIMEOUT, self.ended()).await;
                self.kill.cancel();
                Failure::Broken(how.unwrap_or(reason))
            }
            other @ Failure::Status(..) => other,
        }
    }

    pub(crate) fn was_useful(&self) {
        self.useful.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_been_useful(&self) -> bool {
        self.useful.load(Ordering::Relaxed)
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.borrow().is_some()
    }

    /// Waits for its end, and returns how it ended.
    pub(crate) async fn ended(&self) -> String {
        end(&mut self.ended.clone()).await
    }

    /// Asks it to exit, and kills it if it does not.
    pub(crate) async fn stop(&self) {
        let _ = self
            .connection
            .ask::<(), ()>(method::SHUTDOWN, (), END_TIMEOUT)
            .await;
        if tokio::time::timeout(END_TIMEOUT, self.ended())
            .await
            .is_err()
        {
            self.kill.cancel();
        }
    }
}

async fn healthy(connection: &Connection) -> Result<(), String> {
    let question = wire::HealthCheckRequest {
        service: wire::HEALTH_SERVICE.to_owned(),
    };
    match connection
        .ask::<_, wire::HealthCheckResponse>(method::HEALTH, question, HEALTH_TIMEOUT)
        .await
    {
        Ok(answer) if answer.status == wire::SERVING => Ok(()),
        Ok(answer) => Err(format!(
            "it says that it does not serve (status {})",
            answer.status
        )),
        Err(Failure::Late) => Err(format!(
            "it has not said within {HEALTH_TIMEOUT:?} whether it is healthy"
        )),
        Err(Failure::Broken(reason)) => Err(reason),
        Err(Failure::Status(code, message)) => {
            Err(format!("its health is not known: {code:?}: {message}"))
        }
    }
}

/// Waits for the exit of a process, or kills it, and reports how it ended.
async fn keep(
    mut child: Child,
    kill: CancellationToken,
    mut read: JoinSet<()>,
    words: Words,
    tell: watch::Sender<Option<String>>,
) {
    let status = tokio::select! {
        status = child.wait() => status,
        () = kill.cancelled() => {
            let _ = child.start_kill();
            child.wait().await
        }
    };
    let _ = tokio::time::timeout(OUTPUT_TIMEOUT, read.join_next()).await;
    let how = status.map_or_else(
        |error| format!("it can not be waited for: {error}"),
        describe,
    );
    let _ = tell.send(Some(words.after(how)));
}

fn too_soon(ended: &str) -> String {
    format!("before it could be spoken to, {ended}")
}

fn describe(status: ExitStatus) -> String {
    format!("it ended with {status}")
}

async fn end(ended: &mut watch::Receiver<Option<String>>) -> String {
    match ended.wait_for(Option::is_some).await {
        Ok(how) => how.clone().unwrap_or_default(),
        Err(_) => "it is no longer watched".to_owned(),
    }
}

async fn hear<R: AsyncBufRead + Unpin>(mut stderr: R, words: Words, heard: impl Fn(LogLine)) {
    let mut reader = Reader::default();
    while let Ok(Some(line)) = lines::next(&mut stderr).await {
        let said = reader.read(&line);
        words.keep(&said.text);
        heard(said);
    }
}

#[derive(Clone, Debug, Default)]
struct Words(Arc<Mutex<VecDeque<String>>>);

impl Words {
    fn keep(&self, line: &str) {
        let mut lines = self.0.lock();
        if lines.len() == MAX_SHOWN_LINES {
            lines.pop_front();
        }
        lines.push_back(line.chars().take(200).collect());
    }

    /// A message, followed by the last lines.
    fn after(&self, sentence: String) -> String {
        let lines = self.0.lock();
        if lines.is_empty() {
            return sentence;
        }
        format!(
            "{sentence}; its last words: {}",
            lines
                .iter()
                .map(String::as_str)
                .collect::<Vec<_>>()
                .join(" / ")
        )
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// Returns why a shell script is no plugin.
    async fn refused(script: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plugin");
        std::fs::write(&path, script).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        Process::start(&path, &Setup::default(), drop)
            .await
            .err()
            .unwrap_or_default()
    }

    #[tokio::test]
    async fn what_is_no_plugin_is_told_with_its_last_words() {
        let ends = refused("#!/bin/sh\necho no luck >&2\nexit 3\n").await;
        assert_says!(ends, "exit status: 3", "no luck");
        let nonsense = refused("#!/bin/sh\necho hello\nexec sleep 60\n").await;
        assert_says!(nonsense, "\"hello\"");
        let nobody = refused("#!/bin/sh\necho '1|2|unix|/nowhere|grpc|'\nexec sleep 60\n").await;
        assert_says!(nobody, "can not connect to /nowhere");
        let not_executable = refused("no script").await;
        assert_says!(not_executable, "can not be executed");
    }

    #[tokio::test(start_paused = true)]
    async fn a_binary_that_says_nothing_is_given_up() {
        let silent = refused("#!/bin/sh\nexec sleep 60\n").await;
        assert_says!(silent, "where it listens within 60s");
    }

    #[tokio::test]
    async fn the_cookie_and_the_version_are_given() {
        let said =
            refused("#!/bin/sh\necho $VELERO_PLUGIN $PLUGIN_PROTOCOL_VERSIONS\nexec sleep 60\n")
                .await;
        assert_says!(said, "\"hello 2\"");
    }
}
