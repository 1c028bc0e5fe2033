//! Settings in `spec.config` of a BackupStorageLocation.

use std::collections::BTreeMap;

use backup_core::api::BackupStorageLocationSpec;
use url::Url;

use crate::StoreError;

/// Checks that a bucket or container is a plain name. `what` is the provider's word for it.
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
    config
        .get(key)
        .map(String::as_str)
        .filter(|value| !value.is_empty())
}

pub(super) fn endpoint(
    config: &BTreeMap<String, String>,
    key: &str,
) -> Result<Option<Url>, StoreError> {
    let Some(text) = get(config, key) else {
        return Ok(None);
    };
    match Url::parse(text) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => Ok(Some(url)),
        _ => Err(invalid(key, text, "an http:// or https:// URL")),
    }
}

/// Parses a switch as Go does; off if it is not set.
pub(super) fn flag(config: &BTreeMap<String, String>, key: &str) -> Result<bool, StoreError> {
    match config.get(key).map(String::as_str) {
        None | Some("" | "false" | "False" | "FALSE" | "f" | "F" | "0") => Ok(false),
        Some("true" | "True" | "TRUE" | "t" | "T" | "1") => Ok(true),
        Some(other) => Err(invalid(key, other, "true or false")),
    }
}

pub(super) fn invalid(key: &str, value: &str, expected: &str) -> StoreError {
    StoreError::config(
        &format!("spec.config[{key}]"),
        format!("{value:?} is not valid: expected {expected}"),
    )
}

/// Settings of every provider: those that Velero adds to each
/// (`pkg/plugin/framework/validation.go`, v1.18), and those that only its file repositories read.
pub(super) const OF_ALL: [&str; 5] = [
    "bucket",
    "prefix",
    "caCert",
    "credentialsFile",
    "resticRepoPrefix",
];

/// Settings without effect here, whatever their value, each with the reason why ignoring it changes
/// no backup or request.
#[cfg(test)]
pub(super) const WITHOUT_EFFECT: [(&str, &str); 4] = [
    (
        "resticRepoPrefix",
        "only Velero's repositories of files read it",
    ),
    (
        "enableSharedConfig",
        "a credentials file is always read with its shared profiles",
    ),
    (
        "serviceAccount",
        "it names who signs URLs: here that is the identity that signs in",
    ),
    ("blockSizeInBytes", "blocks of an upload have 8 MiB"),
];

/// Refuses a setting that the provider does not have, as Velero's plugins do: it is usually a
/// misspelt one. `ca` is the bundle of `spec.objectStorage`.
pub(super) fn known(
    spec: &BackupStorageLocationSpec,
    ca: Option<&[u8]>,
    keys: &[&str],
) -> Result<(), StoreError> {
    let unknown = spec
        .config
        .keys()
        .find(|key| !keys.contains(&key.as_str()) && !OF_ALL.contains(&key.as_str()));
    if let Some(other) = unknown {
        let known = [keys, &OF_ALL].concat().join(", ");
        let message = format!(
            "there is no such setting here: correct or remove it (known are {known}), or have the location served by its plugin \
             (--object-store-plugins)"
        );
        return Err(StoreError::config(
            &format!("spec.config[{other}]"),
            message,
        ));
    }
    common(spec)?;
    let given = get(&spec.config, "caCert").map(|text| text.trim().as_bytes());
    if given.is_some() && given != ca.map(<[u8]>::trim_ascii) {
        return Err(differs("caCert", "caCert or caCertRef"));
    }
    Ok(())
}

/// Refuses settings that no provider may have, not even a plugin: a file of credentials, and a
/// bucket or prefix other than the one in `spec.objectStorage`, which Velero writes over these
/// settings.
pub(super) fn common(spec: &BackupStorageLocationSpec) -> Result<(), StoreError> {
    refuse(
        &spec.config,
        "credentialsFile",
        "name a Secret in spec.credential",
    )?;
    let storage = &spec.object_storage;
    let fields = [
        ("bucket", storage.bucket.as_str()),
        ("prefix", storage.prefix.as_deref().unwrap_or_default()),
    ];
    for (key, field) in fields {
        if get(&spec.config, key)
            .is_some_and(|value| value.trim_matches('/') != field.trim_matches('/'))
        {
            return Err(differs(key, key));
        }
    }
    Ok(())
}

fn differs(key: &str, field: &str) -> StoreError {
    let message = format!(
        "it says something else than spec.objectStorage.{field}, which counts: set that one, and remove this"
    );
    StoreError::config(&format!("spec.config[{key}]"), message)
}

/// Refuses a setting that this program does not support, and that must not be ignored silently.
pub(super) fn refuse(
    config: &BTreeMap<String, String>,
    key: &str,
    instead: &str,
) -> Result<(), StoreError> {
    if get(config, key).is_none() {
        return Ok(());
    }
    let message = format!("it cannot be honoured, and is not silently ignored: {instead}");
    Err(StoreError::config(&format!("spec.config[{key}]"), message))
}

/// Sets each known setting to a value that is not in `base`: this must change the store or be
/// refused. `open` describes the store.
#[cfg(test)]
pub(super) fn assert_each_is_read(
    base: &BackupStorageLocationSpec,
    keys: &[&str],
    values: &[(&str, &str)],
    open: impl Fn(&BackupStorageLocationSpec) -> Result<String, StoreError>,
) {
    let excused = WITHOUT_EFFECT.map(|(name, _)| name);
    backup_testkit::assert_each_key_counts(keys.iter().chain(&OF_ALL).copied(), &excused, |key| {
        let mut changed = base.clone();
        if let Some(key) = key {
            let value = values
                .iter()
                .find(|(name, _)| *name == key)
                .map_or("other", |(_, value)| *value);
            let before = changed.config.insert(key.to_owned(), value.to_owned());
            assert_ne!(before.as_deref(), Some(value), "{key} is not changed");
        }
        open(&changed)
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{location::check_settings, testing::spec};

    #[test]
    fn settings_are_checked_without_credentials() {
        for (provider, key, value, fine) in [
            ("aws", "region", "eu-west-1", true),
            ("velero.io/aws", "signatureVersion", "1", false),
            ("aws", "customerKeyEncryptionSecret", "s/k", false),
            ("aws", "caCert", "PEM", true),
            ("azure", "storageAccount", "acct", true),
            ("azure", "resourceGroup", "g", false),
            ("gcp", "kmsKeyName", "k", false),
            ("velero.io/gcp", "serviceAccount", "s", true),
            ("local", "region", "r", false),
            ("example.com/store", "anything", "x", true),
            ("example.com/store", "credentialsFile", "/etc/passwd", false),
        ] {
            let found = check_settings(&spec(provider, "b", &[(key, value)]));
            assert_eq!(found.is_ok(), fine, "{provider} {key}: {found:?}");
        }
    }

    #[test]
    fn what_says_something_else_than_a_field_is_refused() {
        for (key, value, fine) in [
            ("prefix", "p/q", true),
            ("prefix", "/p/q/", true),
            ("prefix", "", true),
            ("prefix", "p", false),
            ("bucket", "b", true),
            ("bucket", "c", false),
            ("caCert", "PEM\n", true),
            ("caCert", "OTHER", false),
            ("credentialsFile", "/etc/passwd", false),
            ("resticRepoPrefix", "x", true),
        ] {
            let mut spec = spec("aws", "b", &[(key, value)]);
            spec.object_storage.prefix = Some("p/q/".to_owned());
            let found = known(&spec, Some(b"PEM"), &[]).map_err(|error| error.to_string());
            assert_eq!(found.is_ok(), fine, "{key} {value:?}: {found:?}");
            assert!(found.err().is_none_or(|text| text.contains(key)), "{key}");
            // A plugin has settings of its own; it gets the bundle as one of them.
            assert_eq!(
                common(&spec).is_ok(),
                fine || key == "caCert",
                "{key} {value:?}"
            );
        }
    }

    #[test]
    fn what_cannot_be_honoured_is_refused_and_an_empty_value_is_none() {
        let config = |value: &str| BTreeMap::from([("k".to_owned(), value.to_owned())]);
        assert_says!(refuse(&config("x"), "k", "do that").unwrap_err(), "do that");
        refuse(&config(""), "k", "do that").unwrap();
        refuse(&config("x"), "other", "do that").unwrap();
        assert_eq!(get(&config(""), "k"), None);
    }
}
