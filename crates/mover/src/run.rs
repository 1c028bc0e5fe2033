//! One run of the program.

use std::{
    io::Write as _,
    path::Path,
    time::{Duration, Instant},
};

use backup_core::{
    api::{BackupStorageLocation, BackupStorageLocationSpec},
    data_movement::{CA_VARIABLE, CREDENTIALS_VARIABLE, MoverOutcome, PASSWORD_VARIABLE},
    repository_records::OTHER_PASSWORD_VARIABLE,
};
use backup_store::{Location, Regions, StoreError};
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    Args, BackupRequest, CheckRequest, DataToRead, ExistingFiles, Job, MaintainRequest, MoverError,
    Password, Report, Repository, RestoreRequest, Source, TransferLimits,
    args::{BackupArgs, CheckArgs, Command, MaintainArgs, RestoreArgs, StoreArgs},
    log_lines::write_progress,
    outcome::{self, MAX_TERMINATION_MESSAGE},
};

/// Time for the work to end by itself after a signal.
const CANCEL_GRACE: Duration = Duration::from_millis(700);

/// Runs the program. Prints the outcome, and returns the exit code. To be called in a runtime with
/// several threads; the process is to exit then, as threads may still run.
pub async fn run(args: Args) -> u8 {
    let begun = Instant::now();
    let operation = args.command.name();
    let job = Job::default();
    let outcome = match work(&args, &job).await {
        Ok(outcome) => outcome,
        Err(error) => outcome::failed(operation, &error),
    };
    let moved = job.progress.snapshot().moved_bytes;
    let outcome = outcome::after(outcome, begun.elapsed(), moved);
    write_progress(job.progress.snapshot());
    // Without stdout the exit code remains.
    let _ = writeln!(std::io::stdout(), "{}", outcome.json());
    if let Some(file) = &args.termination_log
        && let Err(error) = std::fs::write(
            file,
            outcome::json_within(&outcome, MAX_TERMINATION_MESSAGE),
        )
    {
        log::warn!("{} cannot be written: {error}", file.display());
    }
    outcome.result.code()
}

async fn work(args: &Args, job: &Job) -> Result<MoverOutcome, MoverError> {
    let repository = repository(&args.store).await?;
    let command = args.command.clone();
    let running = job.clone();
    let mut work = tokio::task::spawn_blocking(move || execute(&repository, command, &running));
    let failed = |error: std::io::Error| MoverError::config("signals", error.to_string());
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut progress = tokio::time::interval(args.progress_interval);
    loop {
        tokio::select! {
            biased;
            ended = &mut work => return flatten(ended),
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = progress.tick() => write_progress(job.progress.snapshot()),
        }
    }
    job.stop.cancel();
    match tokio::time::timeout(CANCEL_GRACE, work).await {
        // It may have been complete already.
        Ok(ended) => flatten(ended),
        // A step that looks at the flag later only, such as the derivation of the key. Nothing is
        // written after the flag is set.
        Err(_) => Err(MoverError::Cancelled),
    }
}

fn flatten(
    ended: Result<Result<MoverOutcome, MoverError>, tokio::task::JoinError>,
) -> Result<MoverOutcome, MoverError> {
    ended.unwrap_or_else(|error| Err(MoverError::panicked(&error.to_string())))
}

fn execute(
    repository: &Repository,
    command: Command,
    job: &Job,
) -> Result<MoverOutcome, MoverError> {
    Ok(match command {
        Command::Init => {
            repository.init(job)?;
            outcome::done("init", Report::default())
        }
        Command::Backup(args) => outcome::done("backup", repository.backup(&args.into(), job)?),
        Command::Restore(args) => outcome::done("restore", repository.restore(&args.into(), job)?),
        Command::Check(args) => outcome::checked(repository.check(&args.into(), job)?),
        Command::Open => {
            repository.open(job)?;
            outcome::done("open", Report::default())
        }
        Command::AddKey => {
            repository.add_key(&other_password()?, job)?;
            outcome::done("add-key", Report::default())
        }
        Command::RemoveKey => {
            repository.remove_keys(&other_password()?, job)?;
            outcome::done("remove-key", Report::default())
        }
        Command::Maintain(args) => outcome::maintained(repository.maintain(&args.into(), job)?),
    })
}

fn other_password() -> Result<Password, MoverError> {
    let password = variable(OTHER_PASSWORD_VARIABLE).ok_or_else(|| {
        let detail =
            "it is not set: it is the password whose keys are changed, from the environment only";
        MoverError::config(OTHER_PASSWORD_VARIABLE, detail)
    })?;
    Ok(Password::new(password))
}

async fn repository(args: &StoreArgs) -> Result<Repository, MoverError> {
    let password = variable(PASSWORD_VARIABLE).ok_or_else(|| {
        let detail = "it is not set: it is the repository's password, from the environment only";
        MoverError::config(PASSWORD_VARIABLE, detail)
    })?;
    let location = location(args).await?;
    let path = args.repository.trim_matches('/');
    let prefix = path
        .split('/')
        .filter(|part| !part.is_empty())
        .fold(location.prefix().clone(), object_store::path::Path::join);
    let url = format!("{}/{path}", location.url());
    let limits = TransferLimits {
        parallel_uploads: args.parallel_uploads,
        read_memory: args.read_memory,
        upload_rate: args.upload_limit,
        download_rate: args.download_limit,
        retry_budget: args.retry_for,
        ..TransferLimits::default()
    };
    let store = location.object_store();
    let password = Password::new(password);
    Ok(Repository::new(store, prefix, url, password, limits))
}

async fn location(args: &StoreArgs) -> Result<Location, MoverError> {
    let mut spec = BackupStorageLocationSpec {
        provider: args.provider.clone(),
        config: args.config.iter().cloned().collect(),
        ..BackupStorageLocationSpec::default()
    };
    spec.object_storage.bucket.clone_from(&args.bucket);
    spec.object_storage.prefix.clone_from(&args.prefix);
    let ca = args.ca_file.as_deref().map(read_ca).transpose()?;
    let ca = ca.or_else(|| variable(CA_VARIABLE).map(String::into_bytes));
    let credentials = variable(CREDENTIALS_VARIABLE);
    let location = BackupStorageLocation::new("location", spec);
    let failed = |error: StoreError| MoverError::config("the location", error.to_string());
    let regions = Regions::default();
    let location = regions
        .complete(&location, ca.as_deref())
        .await
        .map_err(failed)?;
    Location::open(
        &location,
        credentials.as_deref().map(str::as_bytes),
        ca.as_deref(),
    )
    .map_err(failed)
}

fn read_ca(file: &Path) -> Result<Vec<u8>, MoverError> {
    std::fs::read(file)
        .map_err(|error| MoverError::config(file.display().to_string(), error.to_string()))
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

impl From<BackupArgs> for BackupRequest {
    fn from(args: BackupArgs) -> Self {
        let source = match (args.folder, args.device) {
            (Some(folder), _) => Source::Folder(folder),
            // One of them is required.
            (None, device) => Source::Device(device.unwrap_or_default()),
        };
        Self {
            source,
            host: args.host,
            label: args.label,
            path: args.path,
            tags: args.tag,
            notes: args.notes,
            read_all: args.read_all,
        }
    }
}

impl From<RestoreArgs> for RestoreRequest {
    fn from(args: RestoreArgs) -> Self {
        Self {
            snapshot: args.snapshot,
            target: args.target,
            existing: ExistingFiles::from(args.existing),
        }
    }
}

impl From<CheckArgs> for CheckRequest {
    fn from(args: CheckArgs) -> Self {
        let read = match args.part {
            Some(part) => DataToRead::Part(part),
            None if args.read_data => DataToRead::Everything,
            None => DataToRead::Nothing,
        };
        Self {
            read,
            packs: args.packs.into_iter().collect(),
        }
    }
}

impl From<MaintainArgs> for MaintainRequest {
    fn from(args: MaintainArgs) -> Self {
        Self {
            forget: args.forget,
            prune: args.prune,
            removal_delay: args.removal_delay,
        }
    }
}
