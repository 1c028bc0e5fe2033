//! `locations create` and `set`.

use backup_core::api::{
    BackupStorageLocationSpec, backup_storage_location::LocationPhase, common::SecretKey,
};

use crate::{
    cli::{CreationArgs, LocationCreateArgs, LocationFlags, LocationSetArgs},
    commands::{
        create::{self, Connection, Made},
        poll::{Look, poll},
        prelude::*,
        spec,
    },
};

pub(super) async fn create(args: LocationCreateArgs, terminal: &mut Terminal) -> CommandResult {
    let mut spec =
        BackupStorageLocationSpec { provider: args.provider, ..BackupStorageLocationSpec::default() };
    spec.object_storage.bucket = args.bucket;
    spec.object_storage.prefix = args.prefix;
    let flags = changes(&args.flags, terminal)?;
    let mut value = json!({ "spec": spec });
    json_patch::merge(&mut value, &json!({ "spec": flags }));
    let spec =
        serde_json::from_value(value["spec"].take()).map_err(|error| Problem::other(error.to_string()))?;
    let mut location = BackupStorageLocation::new(&args.name, spec);
    spec::describe_object(&mut location.metadata, &args.object);
    let creation = CreationArgs { dry_run: args.dry_run, output: args.output, ..CreationArgs::default() };
    let connection = Connection::new();
    let created = match create::make(location, &[], &creation, &connection, terminal).await? {
        Made::Dry(location, how) => {
            create::print(&location, args.output, how, terminal)?;
            return Ok(Exit::Done);
        }
        Made::Stored(created) => created,
    };
    create::print(&created, args.output, "", terminal)?;
    let session = connection.get_or_try_init(|| Session::connect(terminal)).await?;
    if args.flags.default {
        no_other_default(session, &args.name, terminal).await?;
    }
    if args.wait {
        return until_tried(session, &created, args.timeout, terminal).await;
    }
    terminal.say(&format!("Whether it can be used: kubectl backup locations describe {}", args.name));
    Ok(Exit::Done)
}

pub(super) async fn set(args: &LocationSetArgs, terminal: &mut Terminal) -> CommandResult {
    let name = &args.name;
    let changes = changes(&args.flags, terminal)?;
    if changes.as_object().is_none_or(serde_json::Map::is_empty) {
        return Err(
            Problem::usage("nothing is to be changed").with_remedy("kubectl backup locations set --help")
        );
    }
    let session = Session::connect(terminal).await?;
    let found = session.get_metadata::<BackupStorageLocation>(name).await?;
    let uid = found.metadata.uid.as_ref();
    session.patch::<BackupStorageLocation>(name, uid, json!({ "spec": changes })).await?;
    terminal.data(&format!("{} changed\n", full_name::<BackupStorageLocation>(name)))?;
    if args.flags.default {
        no_other_default(&session, name, terminal).await?;
    }
    Ok(Exit::Done)
}

/// What the flags say, as a merge patch of the spec.
fn changes(flags: &LocationFlags, terminal: &mut Terminal) -> Result<Value, Problem> {
    let mut spec = serde_json::Map::new();
    if !flags.config.is_empty() {
        let value = |value: &String| if value.is_empty() { Value::Null } else { json!(value) };
        let config = flags.config.iter().map(|(key, text)| (key.clone(), value(text)));
        spec.insert("config".to_owned(), config.collect::<serde_json::Map<_, _>>().into());
    }
    if let Some((name, key)) = &flags.credential {
        let credential = SecretKey { name: name.clone(), key: key.clone(), ..SecretKey::default() };
        spec.insert("credential".to_owned(), json!(credential));
    }
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
    for (field, period) in
        [("backupSyncPeriod", flags.backup_sync_period), ("validationFrequency", flags.validation_frequency)]
    {
        spec.extend(period.map(|period| (field.to_owned(), json!(period))));
    }
    Ok(Value::Object(spec))
}

/// With two defaults a server takes the one that it finds first.
async fn no_other_default(session: &Session, name: &str, terminal: &mut Terminal) -> Result<(), Problem> {
    let is_other =
        |location: &BackupStorageLocation| location.spec.default == Some(true) && location.name_any() != name;
    let keep = |location| Some(location).filter(is_other);
    for other in session.list_readable(ListParams::default(), keep).await? {
        let other_name = other.name_any();
        let patch = json!({ "spec": { "default": false } });
        session.patch::<BackupStorageLocation>(&other_name, other.metadata.uid.as_ref(), patch).await?;
        terminal.say(&format!("location {other_name} is not the default any more"));
    }
    Ok(())
}

/// Until the controller has looked whether it can be used.
async fn until_tried(
    session: &Session,
    created: &BackupStorageLocation,
    timeout: GoDuration,
    terminal: &mut Terminal,
) -> CommandResult {
    let name = created.name_any();
    let tried = poll(session, terminal, timeout.as_std(), async |_: &mut Terminal| {
        let status = session.get::<BackupStorageLocation>(&name).await?.status;
        Ok(status.phase.map_or(Look::Same, |phase| Look::Found((phase, status.message))))
    });
    Ok(match tried.await? {
        Ok((LocationPhase::Available, _)) => {
            terminal.say(&format!("location {name} can be used"));
            Exit::Done
        }
        Ok((phase, message)) => {
            let why = plain(&message.unwrap_or_default());
            terminal.say(&format!("location {name} is {phase}: {why}"));
            terminal.say(&format!("Correct it: kubectl backup locations set {name} --help"));
            Exit::NotGood
        }
        Err(exit) => {
            if exit == Exit::TimedOut {
                terminal.say(&format!(
                    "error: location {name} was not tried within {timeout}: does the controller run?"
                ));
            }
            exit
        }
    })
}
