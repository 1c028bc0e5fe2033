//! A hook in the annotations of a pod. Pure.

use backup_core::api::GoDuration;

use super::Pod;

/// The annotations of one hook of a pod. What cannot be read is added to the problems, and its default is meant.
pub(crate) struct HookAnnotations<'a> {
    pod: &'a Pod,
    /// What their keys begin with.
    prefix: &'a str,
    problems: &'a mut Vec<String>,
}

impl<'a> HookAnnotations<'a> {
    pub(crate) fn new(pod: &'a Pod, prefix: &'a str, problems: &'a mut Vec<String>) -> Self {
        Self { pod, prefix, problems }
    }

    pub(crate) fn value(&self, name: &str) -> Option<&'a str> {
        let found = self.pod.annotations.get(&format!("{}{name}", self.prefix));
        found.map(|text| text.trim()).filter(|text| !text.is_empty())
    }

    /// Whether `on-error` is `Fail`.
    pub(crate) fn fails(&mut self, default: bool) -> bool {
        match self.value("on-error") {
            None => default,
            Some("Fail") => true,
            Some("Continue") => false,
            Some(other) => {
                let meant = if default { "Fail" } else { "Continue" };
                self.problem("on-error", &format!(" is {other:?}, not Fail or Continue; {meant} is meant"));
                default
            }
        }
    }

    /// A duration; `default` says what is meant without it.
    pub(crate) fn duration(&mut self, name: &str, default: &str) -> Option<GoDuration> {
        match self.value(name)?.parse::<GoDuration>() {
            Ok(duration) if duration.as_secs() < 0 => {
                self.problem(name, &format!(" is {duration}, which is negative; {default} is meant"));
                None
            }
            Ok(duration) => Some(duration),
            Err(error) => {
                self.problem(name, &format!(": {error}; {default} is meant"));
                None
            }
        }
    }

    pub(crate) fn problem(&mut self, name: &str, what: &str) {
        self.problems.push(format!("annotation {}{name}{what}", self.prefix));
    }
}
