//! Settings in `spec.config` of a BackupStorageLocation.

use std::collections::BTreeMap;

use url::Url;

use crate::StoreError;

/// A bucket or container, which is a plain name. `what` is what the provider calls it.
pub(super) fn bucket(name: &str, what: &str) -> Result<String, StoreError> {
    if !name.is_empty() && !name.contains('/') {
        return Ok(name.to_owned());
    }
    let message = format!(
        "{name:?} is not the name of a {what}; a path inside the {what} goes into spec.objectStorage.prefix"
    );
    Err(StoreError::config("spec.objectStorage.bucket", message))
}

pub(super) fn get<'a>(config: &'a BTreeMap<String, String>, key: &str) -> Option<&'a str> {
    config.get(key).map(String::as_str).filter(|value| !value.is_empty())
}

pub(super) fn endpoint(config: &BTreeMap<String, String>, key: &str) -> Result<Option<Url>, StoreError> {
    let Some(text) = get(config, key) else { return Ok(None) };
    match Url::parse(text) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => Ok(Some(url)),
        _ => Err(invalid(key, text, "an http:// or https:// URL")),
    }
}

/// A switch, as Go reads it; off if it is not set.
pub(super) fn flag(config: &BTreeMap<String, String>, key: &str) -> Result<bool, StoreError> {
    match config.get(key).map(String::as_str) {
        None | Some("" | "false" | "False" | "FALSE" | "f" | "F" | "0") => Ok(false),
        Some("true" | "True" | "TRUE" | "t" | "T" | "1") => Ok(true),
        Some(other) => Err(invalid(key, other, "true or false")),
    }
}

pub(super) fn invalid(key: &str, value: &str, expected: &str) -> StoreError {
    StoreError::config(&format!("spec.config[{key}]"), format!("{value:?} is not valid: expected {expected}"))
}

/// Settings of every provider: what Velero adds to each (`pkg/plugin/framework/validation.go`, v1.18), and what only its
/// repositories of files read.
const OF_ALL: [&str; 5] = ["bucket", "prefix", "caCert", "credentialsFile", "resticRepoPrefix"];

/// Refuses a setting that the provider does not have, as Velero's plugins do: it is most often a known one, misspelt.
pub(super) fn known(config: &BTreeMap<String, String>, keys: &[&str]) -> Result<(), StoreError> {
    let is_known = |key: &&String| keys.contains(&key.as_str()) || OF_ALL.contains(&key.as_str());
    let Some(other) = config.keys().find(|key| !is_known(key)) else { return Ok(()) };
    let message = format!(
        "there is no such setting here: correct or remove it (known are {}), or have the location served by its plugin \
         (--object-store-plugins)",
        keys.join(", ")
    );
    Err(StoreError::config(&format!("spec.config[{other}]"), message))
}

/// Refuses a setting that this program cannot honour, and whose silent loss would matter.
pub(super) fn refuse(config: &BTreeMap<String, String>, key: &str, instead: &str) -> Result<(), StoreError> {
    if get(config, key).is_none() {
        return Ok(());
    }
    let message = format!("it cannot be honoured, and is not silently ignored: {instead}");
    Err(StoreError::config(&format!("spec.config[{key}]"), message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_honoured_is_refused_and_an_empty_value_is_none() {
        let config = |value: &str| BTreeMap::from([("k".to_owned(), value.to_owned())]);
        assert!(refuse(&config("x"), "k", "do that").unwrap_err().to_string().contains("do that"));
        refuse(&config(""), "k", "do that").unwrap();
        refuse(&config("x"), "other", "do that").unwrap();
        assert_eq!(get(&config(""), "k"), None);
    }
}
