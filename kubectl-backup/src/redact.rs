//! Removes secrets from data for a report. Pure. In objects, fields that may hold a secret are
//! replaced whether they do or not; in texts, also those in objects, everything that looks like a
//! secret is replaced ([`SecretPatterns`]).

mod patterns;

use backup_core::labels::READ_KEY_ANNOTATION;
use serde_json::Value;

pub(crate) use patterns::SecretPatterns;

/// Replaces every possible secret.
pub(crate) const REDACTED: &str = "REDACTED";

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Settings of locations that are no secrets, of Velero's plugins for AWS, Azure and Google. Other
/// plugins may have other settings, and any of them may be a key, so unknown settings are removed.
const OPEN_SETTINGS: [&str; 27] = [
    "region",
    "profile",
    "s3Url",
    "publicUrl",
    "s3ForcePathStyle",
    "insecureSkipTLSVerify",
    "enableSharedConfig",
    "signatureVersion",
    "serverSideEncryption",
    "kmsKeyId",
    "customerKeyEncryptionFile",
    "credentialsFile",
    "checksumAlgorithm",
    "tagging",
    "storageAccount",
    "storageAccountURI",
    "storageAccountKeyEnvVar",
    "activeDirectoryAuthorityURI",
    "resourceGroup",
    "subscriptionId",
    "useAAD",
    "blockSizeInBytes",
    "storeEndpoint",
    "serviceAccount",
    "kmsKeyName",
    "project",
    "snapshotLocation",
];

/// Removes possible secrets from an object, and its managed fields, which are not useful.
pub(crate) fn redact(value: &mut Value) {
    match value {
        Value::Array(all) => all.iter_mut().for_each(redact),
        Value::Object(fields) => {
            fields.remove("managedFields");
            for (name, value) in fields {
                match name.as_str() {
                    "annotations" => {
                        each_field(value, |name| {
                            [LAST_APPLIED, READ_KEY_ANNOTATION].contains(&name)
                        });
                    }
                    "config" => each_field(value, |name| !OPEN_SETTINGS.contains(&name)),
                    "env" => env(value),
                    // Commands of hooks in a backup or restore often contain the password of a
                    // database.
                    "hooks" => commands(value),
                    "clientConfig" => path(value),
                    _ => {}
                }
                redact(value);
            }
        }
        _ => {}
    }
}

fn hide(value: &mut Value) {
    *value = REDACTED.into();
}

/// Hides the fields with these names.
fn each_field(value: &mut Value, is_hidden: impl Fn(&str) -> bool) {
    let fields = value.as_object_mut().into_iter().flatten();
    fields
        .filter(|(name, _)| is_hidden(name))
        .for_each(|(_, value)| hide(value));
}

/// Hides literal values of environment variables; references to other objects stay.
fn env(value: &mut Value) {
    let variables = value.as_array_mut().into_iter().flatten();
    variables
        .filter_map(|variable| variable.get_mut("value"))
        .for_each(hide);
}

fn commands(value: &mut Value) {
    match value {
        Value::Array(all) => all.iter_mut().for_each(commands),
        Value::Object(fields) => {
            for (name, value) in fields {
                match name.as_str() {
                    "command" | "args" if !value.is_null() => hide(value),
                    _ => commands(value),
                }
            }
        }
        _ => {}
    }
}

/// The path is the secret by which the API server authenticates to the webhook
/// (docs/design/lock.md).
fn path(client: &mut Value) {
    if let Some(path) = client.pointer_mut("/service/path") {
        hide(path);
    }
    if let Some(url) = client.get_mut("url") {
        let host = url.as_str().and_then(|url| url.parse::<http::Uri>().ok());
        let host = host.and_then(|url| {
            url.authority()
                .map(|host| format!("https://{}/", host.as_str()))
        });
        *url = format!("{}{REDACTED}", host.unwrap_or_default()).into();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn redacted(mut value: Value) -> Value {
        redact(&mut value);
        value
    }

    #[test]
    fn pods_keep_names_of_variables_and_lose_values() {
        let container = |value: Value| {
            json!({ "name": "c", "image": "x:1", "env": [{ "name": "KEY", "value": value },
                { "name": "FROM", "valueFrom": { "secretKeyRef": { "name": "s", "key": "k" } } }] })
        };
        let pod = |value: &str, applied: &str| {
            json!({ "metadata": { "name": "p", "annotations": { "a": "b", LAST_APPLIED: applied } },
                "spec": { "containers": [container(json!(value))], "initContainers": [container(json!(value))] },
                "template": { "spec": { "containers": [container(json!(value))] } } })
        };
        let mut planted = pod("hunter2", "{\"hunter2\"}");
        planted["metadata"]["managedFields"] = json!([{ "manager": "kubectl" }]);
        assert_eq!(redacted(planted), pod(REDACTED, REDACTED));
        // A variable without a value does not get one.
        assert_eq!(
            redacted(json!({ "env": [{ "name": "A" }] })),
            json!({ "env": [{ "name": "A" }] })
        );
    }

    #[test]
    fn settings_of_locations_that_are_not_known_are_hidden() {
        let spec = |key: &str| {
            json!({ "spec": { "config": { "region": "eu", "s3Url": "https://s3", "accountKey": key },
                "credential": { "name": "cloud", "key": "azure" } } })
        };
        assert_eq!(redacted(spec("hunter2")), spec(REDACTED));
    }

    #[test]
    fn commands_of_hooks_are_hidden_and_those_of_programs_are_not() {
        let spec = |command: Value| {
            json!({ "hooks": { "resources": [{ "name": "dump", "includedNamespaces": ["db"],
                    "pre": [{ "exec": { "container": "c", "command": command, "timeout": "1m" } }],
                    "postHooks": [{ "init": { "initContainers": [{ "name": "i", "command": command }] } }] }] },
                "containers": [{ "command": ["/backup-controller"], "args": ["server"] }] })
        };
        assert_eq!(
            redacted(spec(json!(["mysql", "-phunter2"]))),
            spec(json!(REDACTED))
        );
    }

    #[test]
    fn the_path_of_the_webhook_is_hidden_and_its_host_is_not() {
        let webhook = |path: &str, url: &str| {
            json!({ "webhooks": [{ "clientConfig": { "caBundle": "x", "service": { "name": "w", "path": path } } },
                { "clientConfig": { "url": url } }] })
        };
        let (path, url) = (
            "/validate/0123abcd",
            "https://10.0.0.1:9443/validate/0123abcd",
        );
        assert_eq!(
            redacted(webhook(path, url)),
            webhook(REDACTED, "https://10.0.0.1:9443/REDACTED")
        );
        assert_eq!(
            redacted(json!({ "clientConfig": { "url": "?" } }))["clientConfig"]["url"],
            REDACTED
        );
    }

    #[test]
    fn the_hash_of_the_key_of_a_download_is_hidden() {
        let request =
            |hash: &str| json!({ "metadata": { "annotations": { READ_KEY_ANNOTATION: hash } } });
        assert_eq!(redacted(request("0123")), request(REDACTED));
    }
}
