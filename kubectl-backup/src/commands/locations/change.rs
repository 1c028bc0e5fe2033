//! `locations create` and `set`.

use backup_core::api::{BackupStorageLocationSpec, LocationPhase, common::SecretKey};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Map;

use super::trial;
use crate::{
    cli::{
        CreationArgs, DryRun, LocationCreateArgs, LocationFlags, LocationSetArgs, ProviderFlags,
    },
    commands::{
        create::{self, Connection, CreationOutcome, SpecErrors},
        prelude::*,
        spec,
    },
};

pub(super) async fn create(args: LocationCreateArgs, terminal: &mut Terminal) -> CommandResult {
    let mut spec = BackupStorageLocationSpec {
        provider: args.provider,
        ..BackupStorageLocationSpec::default()
    };
    spec.object_storage.bucket = args.bucket;
    spec.object_storage.prefix = args.prefix;
    let spec = merged(&spec, &changes(&args.flags, terminal)?)?;
    let mut location = BackupStorageLocation::new(&args.name, spec);
    spec::describe_object(&mut location.metadata, &args.object);
    let connection = Connection::new();
    if args.dry_run != Some(DryRun::Client) {
        let session = connection.session(terminal).await?;
        let others = session
            .list_readable(ListParams::default(), Some::<BackupStorageLocation>)
            .await?;
        if let Some(other) = others
            .iter()
            .find(|other| is_nested(&location.spec, &other.spec))
        {
            return Err(nested(&location, other));
        }
    }
    let is_tried = !args.trial.no_verify && args.dry_run.is_none();
    if is_tried {
        // A location that would be refused anyway is not tried.
        let creation = CreationArgs {
            dry_run: Some(DryRun::Server),
            ..CreationArgs::default()
        };
        create::make(
            location.clone(),
            &SpecErrors::default(),
            &creation,
            &connection,
            terminal,
        )
        .await?;
        let session = connection.session(terminal).await?;
        let spec = location.spec.clone();
        let kept = "nothing was created";
        if let Err(exit) =
            trial::check(session, &args.name, spec, &args.trial, kept, terminal).await?
        {
            return Ok(exit);
        }
    }
    let creation = CreationArgs {
        dry_run: args.dry_run,
        ..CreationArgs::default()
    };
    let created = match create::make(
        location,
        &SpecErrors::default(),
        &creation,
        &connection,
        terminal,
    )
    .await?
    {
        CreationOutcome::Dry(location, how) => {
            create::print(&location, args.output, how, terminal)?;
            return Ok(Exit::Done);
        }
        CreationOutcome::Stored(created) => created,
    };
    create::print(&created, args.output, "", terminal)?;
    let session = connection.session(terminal).await?;
    if args.flags.default {
        no_other_default(session, &args.name, terminal).await?;
    }
    if args.wait {
        return until_validated(session, &args.name, args.trial.timeout, terminal).await;
    }
    if !is_tried {
        terminal.say(&format!(
            "Whether it can be used: kubectl backup locations describe {}",
            args.name
        ));
    }
    Ok(Exit::Done)
}

pub(super) async fn set(args: &LocationSetArgs, terminal: &mut Terminal) -> CommandResult {
    let name = &args.name;
    let flags = &args.flags;
    let changes = changes(flags, terminal)?;
    if changes.is_empty() {
        let remedy = "kubectl backup locations set --help";
        return Err(Problem::usage("nothing is to be changed").with_remedy(remedy));
    }
    let session = Session::connect(terminal).await?;
    // The bucket need not be tried if only periods or the default change, or if the location
    // becomes read-only.
    let is_used_otherwise = flags.cacert.is_some()
        || flags.access_mode.as_deref() == Some("ReadWrite")
        || !provider_changes(&flags.provider).is_empty();
    if is_used_otherwise && !args.trial.no_verify {
        let stored = session.get::<BackupStorageLocation>(name).await?;
        let spec = merged(&stored.spec, &changes)?;
        let kept = "nothing was changed";
        if let Err(exit) = trial::check(&session, name, spec, &args.trial, kept, terminal).await? {
            return Ok(exit);
        }
    }
    patch_spec::<BackupStorageLocation>(&session, name, &changes, terminal).await?;
    if flags.default {
        no_other_default(&session, name, terminal).await?;
    }
    Ok(Exit::Done)
}

/// Whether the folder of one location is inside that of the other, in the same bucket. A location
/// that contains foreign folders is Unavailable (Velero v1.18 `pkg/persistence/object_store.go`,
/// `IsValid`).
fn is_nested(one: &BackupStorageLocationSpec, other: &BackupStorageLocationSpec) -> bool {
    let is_same_store =
        one.provider == other.provider && one.config.get("s3Url") == other.config.get("s3Url");
    if !is_same_store || one.object_storage.bucket != other.object_storage.bucket {
        return false;
    }
    let one = folder(one);
    let other = folder(other);
    one != other && (one.starts_with(&other) || other.starts_with(&one))
}

/// Where a location stores in its bucket, with a `/` at the end; empty for the root.
fn folder(spec: &BackupStorageLocationSpec) -> String {
    let prefix = spec
        .object_storage
        .prefix
        .as_deref()
        .unwrap_or_default()
        .trim_matches('/');
    if prefix.is_empty() {
        String::new()
    } else {
        format!("{prefix}/")
    }
}

fn nested(location: &BackupStorageLocation, other: &BackupStorageLocation) -> Problem {
    let message = format!(
        "location {:?} would store in {}, and location {} stores in {}: one would find folders of the other and be Unavailable",
        location.name_any(),
        place(location),
        other.name_any(),
        place(other)
    );
    let is_at_root = folder(&location.spec).is_empty() || folder(&other.spec).is_empty();
    Problem::other(message).with_remedy(if is_at_root {
        "Choose another bucket: a location at the root of a bucket has all of it."
    } else {
        "Choose another bucket, or a --prefix that is beside the other one, not inside it."
    })
}

/// Where a location stores, for a message.
fn place(location: &BackupStorageLocation) -> String {
    let bucket = &location.spec.object_storage.bucket;
    match folder(&location.spec).strip_suffix('/') {
        Some(prefix) => format!("{bucket}/{}", plain(prefix)),
        None => format!("the root of {bucket}"),
    }
}

/// The spec with these changes, given as a merge patch.
pub(super) fn merged<T: Serialize + DeserializeOwned>(
    spec: &T,
    changes: &Map<String, Value>,
) -> Result<T, Problem> {
    let merged = serde_json::to_value(spec).and_then(|mut value| {
        json_patch::merge(&mut value, &Value::Object(changes.clone()));
        serde_json::from_value(value)
    });
    merged.map_err(|error| Problem::other(error.to_string()))
}

/// Changes the spec of an existing object, and prints a line about it.
pub(in crate::commands) async fn patch_spec<K: TableKind>(
    session: &Session,
    name: &str,
    changes: &Map<String, Value>,
    terminal: &mut Terminal,
) -> Result<(), Problem> {
    let found = session.get_metadata::<K>(name).await?;
    session
        .patch::<K>(
            name,
            found.metadata.uid.as_ref(),
            json!({ "spec": changes }),
        )
        .await?;
    Ok(terminal.data(&format!("{} changed\n", full_name::<K>(name)))?)
}

/// Provider flags as a merge patch of the spec.
pub(super) fn provider_changes(flags: &ProviderFlags) -> Map<String, Value> {
    let mut spec = Map::new();
    if !flags.config.is_empty() {
        let config = flags
            .config
            .iter()
            .map(|(key, text)| (key.clone(), config_value(text)));
        spec.insert("config".to_owned(), config.collect::<Map<_, _>>().into());
    }
    if let Some((name, key)) = &flags.credential {
        let credential = SecretKey {
            name: name.clone(),
            key: key.clone(),
            ..SecretKey::default()
        };
        spec.insert("credential".to_owned(), json!(credential));
    }
    spec
}

/// The value of a key in a merge patch: an empty text removes the key.
fn config_value(text: &str) -> Value {
    if text.is_empty() {
        Value::Null
    } else {
        json!(text)
    }
}

/// All flags as a merge patch of the spec.
fn changes(flags: &LocationFlags, terminal: &mut Terminal) -> Result<Map<String, Value>, Problem> {
    let mut spec = provider_changes(&flags.provider);
    if flags.default {
        spec.insert("default".to_owned(), json!(true));
    }
    if let Some(mode) = &flags.access_mode {
        spec.insert("accessMode".to_owned(), json!(mode));
    }
    if let Some(file) = &flags.cacert {
        let pem = spec::read(file, terminal).map_err(|error| {
            Problem::other(format!("cannot read {}: {error}", file.display()))
                .with_remedy("Name a PEM file with --cacert.")
        })?;
        let encoded = k8s_openapi::ByteString(pem.into_bytes());
        spec.insert("objectStorage".to_owned(), json!({ "caCert": encoded }));
    }
    for (field, period) in [
        ("backupSyncPeriod", flags.backup_sync_period),
        ("validationFrequency", flags.validation_frequency),
    ] {
        spec.extend(period.map(|period| (field.to_owned(), json!(period))));
    }
    Ok(spec)
}

/// Unsets other defaults: with two, a server uses the first that it finds.
async fn no_other_default(
    session: &Session,
    name: &str,
    terminal: &mut Terminal,
) -> Result<(), Problem> {
    let others = session
        .list_readable(ListParams::default(), |location: BackupStorageLocation| {
            let is_other_default =
                location.spec.default == Some(true) && location.name_any() != name;
            is_other_default.then_some(location)
        })
        .await?;
    for other in others {
        let other_name = other.name_any();
        let patch = json!({ "spec": { "default": false } });
        session
            .patch::<BackupStorageLocation>(&other_name, other.metadata.uid.as_ref(), patch)
            .await?;
        terminal.say(&format!("location {other_name} is no longer the default"));
    }
    Ok(())
}

/// Waits until the controller has validated the location.
async fn until_validated(
    session: &Session,
    name: &str,
    timeout: GoDuration,
    terminal: &mut Terminal,
) -> CommandResult {
    Ok(
        match trial::validated(session, name, timeout, terminal).await? {
            Ok((LocationPhase::Available, _)) => {
                terminal.say(&format!("location {name} can be used"));
                Exit::Done
            }
            Ok((phase, message)) => {
                let why = plain(&message.unwrap_or_default());
                terminal.say(&format!("location {name} is {phase}: {why}"));
                terminal.say(&format!(
                    "Correct it: kubectl backup locations set {name} --help"
                ));
                Exit::NotGood
            }
            Err(exit) => {
                if exit == Exit::TimedOut {
                    terminal.say(&format!(
                    "error: location {name} was not validated within {timeout}: does the controller run?"
                ));
                }
                exit
            }
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_inside_the_folder_of_another_location_is_found() {
        let spec = |bucket: &str, prefix: &str, url: &str| -> BackupStorageLocationSpec {
            serde_json::from_value(json!({ "provider": "aws", "config": { "s3Url": url },
                "objectStorage": { "bucket": bucket, "prefix": prefix } }))
            .unwrap()
        };
        for (one, other, expected) in [
            (("b", "", "u"), ("b", "p", "u"), true),
            (("b", "p/q", "u"), ("b", "/p/", "u"), true),
            (("b", "p", "u"), ("b", "p", "u"), false),
            (("b", "p", "u"), ("b", "pq", "u"), false),
            (("b", "", "u"), ("c", "p", "u"), false),
            (("b", "", "u"), ("b", "p", "v"), false),
        ] {
            let (one, other) = (spec(one.0, one.1, one.2), spec(other.0, other.1, other.2));
            assert_eq!(
                (is_nested(&one, &other), is_nested(&other, &one)),
                (expected, expected),
                "{one:?} {other:?}"
            );
        }
    }
}
