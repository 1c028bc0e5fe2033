//! A hook in the annotations of a pod. Pure.

use backup_core::api::GoDuration;

use super::Pod;

/// The annotations of one hook of a pod. An unreadable value is added to the problems, and its
/// default applies.
pub(crate) struct HookAnnotations<'a> {
    pod: &'a Pod,
    /// Prefix of the keys.
    prefix: &'a str,
    keys: HookKeys,
    problems: &'a mut Vec<String>,
}

/// The keys of a hook, without their prefix.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HookKeys {
    /// The key that every hook must have.
    pub(crate) main: &'static str,
    pub(crate) others: &'static [&'static str],
    /// Effect of a missing main key, for messages.
    pub(crate) without_main: &'static str,
}

impl HookKeys {
    #[cfg(test)]
    pub(crate) fn all(self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.main).chain(self.others.iter().copied())
    }
}

impl<'a> HookAnnotations<'a> {
    /// Adds a problem for each key that no hook has: most often a known key is misspelt.
    pub(crate) fn new(
        pod: &'a Pod,
        prefix: &'a str,
        keys: HookKeys,
        problems: &'a mut Vec<String>,
    ) -> Self {
        let HookKeys { main, others, .. } = keys;
        let names = pod
            .annotations
            .keys()
            .filter_map(|key| key.strip_prefix(prefix));
        for name in names.filter(|name| *name != main && !others.contains(name)) {
            let known = others.join(", ");
            problems.push(format!(
                "annotation {prefix}{name} is none that a hook has, so it changes nothing (known are {main}, {known})"
            ));
        }
        Self {
            pod,
            prefix,
            keys,
            problems,
        }
    }

    /// The value of the main key. Other keys without it are a problem.
    pub(crate) fn main(&mut self) -> Option<&'a str> {
        let HookKeys {
            main,
            others,
            without_main,
        } = self.keys;
        let found = self.value(main);
        if found.is_none()
            && let Some(other) = others.iter().find(|other| self.value(other).is_some())
        {
            self.problem(
                other,
                &format!(" is there without one that ends with {main}, so {without_main}"),
            );
        }
        found
    }

    pub(crate) fn value(&self, name: &str) -> Option<&'a str> {
        let found = self.pod.annotations.get(&format!("{}{name}", self.prefix));
        found
            .map(|text| text.trim())
            .filter(|text| !text.is_empty())
    }

    /// Whether `on-error` is `Fail`.
    pub(crate) fn fails(&mut self, default: bool) -> bool {
        match self.value("on-error") {
            None => default,
            Some("Fail") => true,
            Some("Continue") => false,
            Some(other) => {
                let meant = if default { "Fail" } else { "Continue" };
                self.problem(
                    "on-error",
                    &format!(" is {other:?}, not Fail or Continue; {meant} is meant"),
                );
                default
            }
        }
    }

    /// A duration; `default` names its default value, for messages.
    pub(crate) fn duration(&mut self, name: &str, default: &str) -> Option<GoDuration> {
        match self.value(name)?.parse::<GoDuration>() {
            Ok(duration) => {
                if duration.as_secs() >= 0 {
                    return Some(duration);
                }
                self.problem(
                    name,
                    &format!(" is {duration}, which is negative; {default} is meant"),
                );
                None
            }
            Err(error) => {
                self.problem(name, &format!(": {error}; {default} is meant"));
                None
            }
        }
    }

    pub(crate) fn problem(&mut self, name: &str, what: &str) {
        self.problems
            .push(format!("annotation {}{name}{what}", self.prefix));
    }
}
