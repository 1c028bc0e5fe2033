//! Pods that run commands in memory, for tests.

use std::{collections::HashMap, sync::Mutex};

use futures::future::BoxFuture;

use super::{
    exec::{ExecError, Executor, FoundPod},
    rules::Hook,
};

/// Answers a command: pod, first word, how often this pod was asked before.
type Answer = dyn Fn(&str, &str, usize) -> Result<String, ExecError> + Send + Sync;

/// Pods by name; their uids are `a-<name>`.
pub(crate) struct FakePods {
    pods: HashMap<String, FoundPod>,
    answer: Box<Answer>,
    ran: Mutex<Vec<String>>,
}

impl Default for FakePods {
    fn default() -> Self {
        Self::running(&[])
    }
}

impl FakePods {
    /// All running, and every command works.
    pub(crate) fn running(names: &[&str]) -> Self {
        let found = |name: &&str| ((*name).to_owned(), FoundPod { uid: format!("a-{name}"), running: true });
        Self {
            pods: names.iter().map(found).collect(),
            answer: Box::new(|_, command, _| Ok(format!("{command} was here"))),
            ran: Mutex::default(),
        }
    }

    /// With other answers.
    pub(crate) fn answering(
        mut self,
        answer: impl Fn(&str, &str, usize) -> Result<String, ExecError> + Send + Sync + 'static,
    ) -> Self {
        self.answer = Box::new(answer);
        self
    }

    /// What was run, as pod and first word.
    pub(crate) fn ran(&self) -> Vec<String> {
        self.ran.lock().unwrap().clone()
    }
}

impl Executor for FakePods {
    fn find<'a>(&'a self, _: &'a str, pod: &'a str) -> BoxFuture<'a, Result<Option<FoundPod>, kube::Error>> {
        Box::pin(std::future::ready(Ok(self.pods.get(pod).cloned())))
    }

    fn run<'a>(
        &'a self,
        _: &'a str,
        pod: &'a str,
        hook: &'a Hook,
    ) -> BoxFuture<'a, Result<String, ExecError>> {
        let before = {
            let mut ran = self.ran.lock().unwrap();
            ran.push(format!("{pod} {}", hook.command[0]));
            ran.len() - 1
        };
        Box::pin(std::future::ready((self.answer)(pod, &hook.command[0], before)))
    }
}
