//! Hooks as flags: each is an entry of `spec.hooks.resources`, as YAML or JSON.

use backup_core::api::{backup::BackupResourceHookSpec, common::Extra, restore::RestoreResourceHookSpec};
use serde::de::DeserializeOwned;

pub(crate) fn of_backup(text: &str) -> Result<BackupResourceHookSpec, String> {
    let hook: BackupResourceHookSpec = read(text)?;
    check(&hook.extra, hook.pre.is_empty() && hook.post.is_empty(), "pre or post")?;
    Ok(hook)
}

pub(crate) fn of_restore(text: &str) -> Result<RestoreResourceHookSpec, String> {
    let hook: RestoreResourceHookSpec = read(text)?;
    check(&hook.extra, hook.post_hooks.is_empty(), "postHooks")?;
    Ok(hook)
}

fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    // Only the first line: the parser quotes what stands around.
    serde_saphyr::from_str(text)
        .map_err(|error| error.to_string().lines().next().unwrap_or_default().to_owned())
}

/// What a server would store and never run is a mistake.
fn check(unknown: &Extra, runs_nothing: bool, expected: &str) -> Result<(), String> {
    if let Some(field) = unknown.keys().next() {
        return Err(format!("{field:?} is no field of it"));
    }
    if runs_nothing {
        return Err(format!("it runs nothing: expected {expected}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_that_would_never_run_is_refused() {
        let good = "{name: a, includedNamespaces: [db], pre: [{exec: {command: [/bin/sync], timeout: 30s}}]}";
        let hook = of_backup(good).unwrap();
        assert_eq!(hook.pre[0].exec.command, ["/bin/sync"]);
        let restored =
            of_restore(r#"{"name": "a", "postHooks": [{"exec": {"command": ["/bin/true"]}}]}"#).unwrap();
        assert_eq!(restored.post_hooks.len(), 1);
        for (text, why) in [
            ("{name: a}", "pre or post"),
            ("{name: a, before: []}", "\"before\" is no field"),
            ("{pre: [{exec: {command: [a]}}]}", "name"),
            ("{name: a, pre: [{exec: {}}]}", "command"),
            ("{name: a, pre: [", ""),
            ("a", ""),
        ] {
            let error = of_backup(text).unwrap_err();
            assert!(error.contains(why) && error.lines().count() == 1, "{text}: {error}");
        }
        assert!(of_restore(good).unwrap_err().contains("no field"));
    }
}
