//! `debug`: an archive with the data that a problem report needs. Each part is read independently:
//! a part that cannot be read becomes a line of the list. Secrets are removed from each part
//! ([`crate::redact`]), and the list is shown before anything is written.

mod archive;
mod cluster;
mod part;
mod pods;

use std::{
    io::{Read, Write as _},
    path::{Path, PathBuf},
};

use backup_core::api::VolumeSnapshotLocation;
use futures::{StreamExt as _, future::LocalBoxFuture, stream};
use k8s_openapi::api::{
    admissionregistration::v1::ValidatingWebhookConfiguration,
    apps::v1::Deployment,
    core::v1::{Event, Pod},
};

use self::{
    archive::Archive,
    part::{Part, gather},
    pods::LogSource,
};
use super::{doctor::webhook, prelude::*, selection::no_terminal};
use crate::{
    cli::DebugArgs,
    fetched::within,
    new_file::NewFile,
    print::size,
    redact::SecretPatterns,
    stored::{StoredFile, unpacked},
};

/// Time limit for each part.
const PART_TIMEOUT: Duration = Duration::from_secs(30);
/// Parts that are read, and kept in memory, at the same time.
const MAX_CONCURRENT_PARTS: usize = 3;
/// Maximum number of container logs.
const MAX_LOGS: usize = 40;
/// Bytes that are copied in one step.
const PIECE_BYTES: usize = 64 * 1024;

pub(super) async fn run(args: DebugArgs, terminal: &mut Terminal) -> CommandResult {
    let name = format!("backup-debug-{}", terminal.now().strftime("%Y%m%d%H%M%S"));
    let to_stdout = args.output.as_deref() == Some(Path::new("-"));
    if to_stdout && terminal.out_is_terminal {
        return Err(
            Problem::usage("refusing to write binary data to a terminal")
                .with_remedy("kubectl backup debug -o - | tar tz"),
        );
    }
    let path = args
        .output
        .clone()
        .unwrap_or_else(|| PathBuf::from(format!("{name}.tar.gz")));
    let place = if to_stdout {
        "the archive".to_owned()
    } else {
        path.display().to_string()
    };
    if !to_stdout {
        NewFile::check(&path, args.force)?;
    }
    if !args.yes && !terminal.can_ask() {
        return Err(no_terminal("write", &place));
    }
    let session = Session::connect(terminal).await?;
    answers(&session).await?;
    terminal.say(&format!(
        "… reading what there is in namespace {}",
        session.namespace
    ));
    let mut archive = Archive::begin(&name, terminal.now(), patterns()?)?;
    tokio::select! {
        collected = collect(&session, &args, terminal, &mut archive) => collected?,
        _ = tokio::signal::ctrl_c() => return Ok(Exit::Interrupted),
    }
    let list = archive.list()?;
    let (mut file, length) = archive.end(&list)?;
    terminal.say(&list);
    if !args.yes && terminal.confirm(&format!("Write {place} ({})?", size(length))) != Some(true) {
        terminal.say("nothing was written");
        return Ok(Exit::Failed);
    }
    if to_stdout {
        copy(&mut file, |bytes| Ok(terminal.out.write_all(bytes)?))?;
        terminal.data("")?;
        return Ok(Exit::Done);
    }
    let mut new = NewFile::create(path, args.force)?;
    copy(&mut file, |bytes| new.write(bytes))?;
    new.keep()?;
    terminal.say(&format!(
        "{place} ({}): look at it before you give it away; names and messages are in it as they are",
        size(length)
    ));
    Ok(Exit::Done)
}

fn patterns() -> Result<SecretPatterns, Problem> {
    SecretPatterns::new()
        .map_err(|error| Problem::other(format!("cannot make the patterns of secrets: {error}")))
}

/// Fails if the API server does not answer: then there is nothing else to report.
async fn answers(session: &Session) -> Result<(), Problem> {
    let about = About::called("get", "version", "version", "");
    match session
        .call(about, session.client.apiserver_version())
        .await
    {
        Err(problem)
            if matches!(
                problem.kind,
                ProblemKind::Unreachable | ProblemKind::Slow | ProblemKind::Unauthorized
            ) =>
        {
            Err(problem)
        }
        _ => Ok(()),
    }
}

/// A part that has not been read yet.
type Pending<'a> = LocalBoxFuture<'a, Part>;

async fn collect(
    session: &Session,
    args: &DebugArgs,
    terminal: &Terminal,
    archive: &mut Archive,
) -> Result<(), Problem> {
    let found = within(
        PART_TIMEOUT,
        cluster::list::<Pod>(session, ListParams::default()),
    )
    .await;
    let logs: Vec<LogSource> = found
        .known()
        .into_iter()
        .flat_map(|pods| &pods.objects)
        .flat_map(pods::logs)
        .collect();
    let mut parts = installation(session, terminal);
    if let Some(name) = &args.backup {
        parts.extend(object::<Backup>(session, terminal, name));
    }
    if let Some(name) = &args.restore {
        parts.extend(object::<Restore>(session, terminal, name));
    }
    let mut missing = Vec::new();
    match &found {
        FetchResult::Missing { unavailable } => {
            missing.push(Part::missing(
                "logs",
                &format!("the pods are not known: {unavailable}"),
            ));
        }
        FetchResult::Known(_) => {
            if logs.is_empty() {
                let why = "there is no pod of the controller or the webhook in the namespace";
                missing.push(Part::missing("logs", why));
            } else if logs.len() > MAX_LOGS {
                missing.push(Part::missing(
                    "logs",
                    &format!("{} more containers", logs.len() - MAX_LOGS),
                ));
            }
        }
    }
    parts.push(Box::pin(async move {
        gather("pods.yaml", async |kept| match found {
            FetchResult::Known(pods) => cluster::write(pods, kept),
            FetchResult::Missing { unavailable } => Err(Problem::other(unavailable)),
        })
        .await
    }));
    for log in logs.iter().take(MAX_LOGS) {
        parts.push(Box::pin(gather(log.file(), move |kept| {
            pods::read(session, log, args.tail, kept)
        })));
    }
    let mut parts = stream::iter(parts).buffered(MAX_CONCURRENT_PARTS);
    while let Some(part) = parts.next().await {
        archive.add(part)?;
    }
    missing.into_iter().try_for_each(|part| archive.add(part))
}

/// The parts about the installation.
fn installation<'a>(session: &'a Session, terminal: &'a Terminal) -> Vec<Pending<'a>> {
    let lines: [(&'static str, &'static [&'static str]); 4] = [
        ("version.txt", &["version"]),
        ("doctor.txt", &["doctor"]),
        ("status.txt", &["status"]),
        ("locks.txt", &["locks", "-o", "wide"]),
    ];
    let mut parts: Vec<Pending<'a>> = Vec::new();
    for (file, words) in lines {
        parts.push(Box::pin(gather(file, move |kept| {
            part::command(session, terminal, words, kept)
        })));
    }
    parts.push(Box::pin(objects::<BackupStorageLocation>(
        session,
        "locations.yaml",
        "",
    )));
    parts.push(Box::pin(objects::<VolumeSnapshotLocation>(
        session,
        "snapshot-locations.yaml",
        "",
    )));
    parts.push(Box::pin(objects::<Schedule>(session, "schedules.yaml", "")));
    parts.push(Box::pin(objects::<Deployment>(
        session,
        "deployments.yaml",
        "",
    )));
    parts.push(Box::pin(objects::<Event>(session, "events.yaml", "")));
    parts.push(Box::pin(gather(
        "webhook-configuration.yaml",
        async |kept| {
            cluster::write(
                cluster::get::<ValidatingWebhookConfiguration>(session, webhook::NAME).await?,
                kept,
            )
        },
    )));
    parts
}

/// The parts about one backup or restore.
fn object<'a, W: Workload>(
    session: &'a Session,
    terminal: &'a Terminal,
    name: &'a str,
) -> Vec<Pending<'a>> {
    let kind = W::KIND;
    let lines: [(&str, &'static [&'static str]); 2] = [
        ("describe.txt", &["--details"]),
        ("describe.yaml", &["-o", "yaml"]),
    ];
    let mut parts: Vec<Pending<'a>> = Vec::new();
    for (file, more) in lines {
        let words = describe_words::<W>(more, name);
        parts.push(Box::pin(gather(
            format!("{kind}/{file}"),
            async move |kept| part::command(session, terminal, &words, kept).await,
        )));
    }
    parts.push(Box::pin(objects::<W>(
        session,
        format!("{kind}/object.yaml"),
        name,
    )));
    for (file, stored) in [
        ("log.txt", W::FILES.log),
        ("results.json", W::FILES.results),
    ] {
        parts.push(Box::pin(gather(
            format!("{kind}/{file}"),
            async move |kept| {
                let meta = session.get_metadata::<W>(name).await?.metadata;
                unpacked(session, &StoredFile::of(stored, &meta), kept).await
            },
        )));
    }
    parts
}

/// The words of the command that describes the object.
fn describe_words<'a, W: Workload>(flags: &[&'a str], name: &'a str) -> Vec<&'a str> {
    let mut words: Vec<&'a str> = W::COMMAND
        .strip_prefix("kubectl backup")
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    words.push("describe");
    words.extend(flags.iter().copied());
    words.extend(["--", name]);
    words
}

/// Objects of the installation's namespace; only the object called `name` if `name` is not empty.
async fn objects<K>(session: &Session, file: impl Into<String>, name: &str) -> Part
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
{
    let params = match name {
        "" => ListParams::default(),
        name => ListParams::default().fields(&format!("metadata.name={name}")),
    };
    gather(file, async |kept| {
        cluster::write(cluster::list::<K>(session, params).await?, kept)
    })
    .await
}

fn copy(
    from: &mut std::fs::File,
    mut to: impl FnMut(&[u8]) -> Result<(), Problem>,
) -> Result<(), Problem> {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let read = from
            .read(&mut piece)
            .map_err(|error| archive::failed(&error))?;
        if read == 0 {
            return Ok(());
        }
        to(&piece[..read])?;
    }
}
