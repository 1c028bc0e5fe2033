//! Pods that run commands in memory, for tests.

use std::sync::Mutex;

use async_trait::async_trait;

use crate::hooks::{
    Hook,
    exec::{ExecError, Executor},
};

/// Answers a command: pod, first word.
type Answer = dyn Fn(&str, &str) -> Result<String, ExecError> + Send + Sync;

/// Running pods, by name; their uids are `a-<name>`.
pub(crate) struct FakePods {
    pods: Vec<String>,
    answer: Box<Answer>,
    ran: Mutex<Vec<String>>,
}

impl Default for FakePods {
    fn default() -> Self {
        Self::running(&[])
    }
}

impl FakePods {
    /// Every command succeeds.
    pub(crate) fn running(names: &[&str]) -> Self {
        Self {
            pods: names.iter().map(ToString::to_string).collect(),
            answer: Box::new(|_, command| Ok(format!("{command} was here"))),
            ran: Mutex::default(),
        }
    }

    pub(crate) fn answering(
        mut self,
        answer: impl Fn(&str, &str) -> Result<String, ExecError> + Send + Sync + 'static,
    ) -> Self {
        self.answer = Box::new(answer);
        self
    }

    /// Commands that were run, as pod and first word.
    pub(crate) fn ran(&self) -> Vec<String> {
        self.ran.lock().unwrap().clone()
    }
}

#[async_trait]
impl Executor for FakePods {
    async fn is_running(&self, _: &str, pod: &str, uid: &str) -> Result<bool, kube::Error> {
        Ok(self.pods.iter().any(|name| name == pod) && uid == format!("a-{pod}"))
    }

    async fn run(&self, _: &str, pod: &str, hook: &Hook) -> Result<String, ExecError> {
        self.ran
            .lock()
            .unwrap()
            .push(format!("{pod} {}", hook.command[0]));
        (self.answer)(pod, &hook.command[0])
    }
}
