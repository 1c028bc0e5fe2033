//! `verify`: reads every stored file of a backup to its end, and holds them against one another and against the status.

use std::io::Write as _;

use backup_core::{
    api::{Backup, BackupPhase, BackupStorageLocation, download_request::DownloadTargetKind as Kind},
    operation::BackupOperation,
    results::Results,
};
use flate2::write::MultiGzDecoder;
use kube::ResourceExt as _;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{describe::get, listed::Listed as _, subject::Subject as _};
use crate::{
    Terminal,
    cli::{GlobalArgs, Output, VerifyArgs},
    client::Session,
    error::{Exit, Problem},
    print::{json, table::plain, verify as print},
    stored::{Wanted, piped, read, sized},
    view::{
        part::LocationView,
        stored::{
            contents::ResourceList,
            volumes::{Entry, VolumeView},
        },
        verify::{FileView, Finding, PUT_BACK, Verification, counts, tarball},
    },
};

/// What to do where files and status do not agree.
const DISAGREE: &str =
    "Don't rest on this backup alone: make another one, and look for who has written into its folder.";

/// `verify`
pub async fn run(global: &GlobalArgs, args: VerifyArgs, terminal: &mut Terminal) -> Result<Exit, Problem> {
    let session = Session::connect(global, terminal).await?;
    let backup = get::<Backup>(&session, &args.name).await?;
    has_files(&backup)?;
    let uid = backup.uid().unwrap_or_default();
    let mut reading = Reading {
        session: &session,
        name: &args.name,
        uid: &uid,
        terminal: &mut *terminal,
        files: Vec::new(),
        findings: Vec::new(),
    };
    tokio::select! {
        done = reading.all(&backup) => done?,
        _ = tokio::signal::ctrl_c() => return Ok(Exit::Interrupted),
    }
    let Reading { files, findings, .. } = reading;
    if !findings.is_empty() {
        can_be_read(&session, &backup).await?;
    }
    let verification = Verification::new(&args.name, backup.phase_name(), files, findings);
    terminal.data(&match args.output {
        Some(form) => json::object(&verification, Output::from(form))?,
        None => print::text(&verification, terminal.out_style())?,
    })?;
    Ok(if verification.good { Exit::Done } else { Exit::Failed })
}

/// Files are promised of what has ended well, in whole or in part. Whether a newer server's phase promises them, they show.
fn has_files(backup: &Backup) -> Result<(), Problem> {
    let name = backup.name_any();
    let (phase, remedy) = match backup.phase() {
        BackupPhase::Completed | BackupPhase::PartiallyFailed | BackupPhase::Unknown(_) => return Ok(()),
        phase if phase.is_terminal() => (phase, format!("kubectl backup describe {name}")),
        phase => (phase, format!("kubectl backup wait {name}")),
    };
    let message =
        format!("backup {name} is {phase}: its files are promised once it is Completed or PartiallyFailed");
    Err(Problem::Other { message, remedy: Some(remedy) })
}

/// What is read in a location that can't be used says nothing of its files. One that can't be looked up is taken for usable.
async fn can_be_read(session: &Session, backup: &Backup) -> Result<(), Problem> {
    let Some(name) = &backup.spec.storage_location else { return Ok(()) };
    let api = session.api::<BackupStorageLocation>();
    let Ok(location) = session.call(BackupStorageLocation::about("get", name), api.get(name)).await else {
        return Ok(());
    };
    let place = LocationView::of(&location, &backup.name_any());
    if !place.is_unavailable() {
        return Ok(());
    }
    let why = format!("location {name} is Unavailable: {}", place.message.unwrap_or_default());
    Err(not_verified(&backup.name_any(), &why))
}

fn not_verified(name: &str, why: &str) -> Problem {
    Problem::Other {
        message: format!("backup {name} could not be verified: {why}"),
        remedy: Some("Its files may be as they should be: see to that first, and try again.".to_owned()),
    }
}

struct Reading<'a> {
    session: &'a Session,
    name: &'a str,
    uid: &'a str,
    terminal: &'a mut Terminal,
    files: Vec<FileView>,
    findings: Vec<Finding>,
}

impl Reading<'_> {
    /// Every file. Older servers did not write all of them: one that the status counts nothing of may be missing.
    async fn all(&mut self, backup: &Backup) -> Result<(), Problem> {
        let status = &backup.status;
        let of_list = |list: &ResourceList| {
            (format!("{} names", list.values().map(Vec::len).sum::<usize>()), counts::list(backup, list))
        };
        let list = self.document(Kind::BackupResourceList, true, of_list).await?;
        let of_results = |results: &Results| {
            let found = format!("{} errors, {} warnings", results.errors(), results.warnings());
            (found, counts::results(status, results))
        };
        let told = status.errors + status.warnings > 0;
        let results = self.document(Kind::BackupResults, told, of_results).await?;
        let of_operations = |all: &Option<Vec<BackupOperation>>| {
            let all = all.as_deref().unwrap_or_default();
            (format!("{} operations", all.len()), counts::operations(status, all))
        };
        let operated = status.backup_item_operations_attempted > 0;
        self.document(Kind::BackupItemOperations, operated, of_operations).await?;
        let of_volumes =
            |all: &Volumes| (format!("{} volumes", all.0.len()), counts::volumes(status, &all.0));
        let by_csi = status.csi_volume_snapshots_attempted > 0;
        self.document(Kind::BackupVolumeInfos, by_csi, of_volumes).await?;
        let of_snapshots = |all: &Option<Vec<Value>>| {
            let count = all.as_ref().map_or(0, Vec::len);
            (format!("{count} native snapshots"), counts::snapshots(status, count))
        };
        let native = status.volume_snapshots_attempted > 0;
        self.document(Kind::BackupVolumeSnapshots, native, of_snapshots).await?;
        self.log().await?;
        self.contents(list.as_ref(), results.as_ref()).await
    }

    /// A file of JSON; `judge` says what is in it, and what is wrong with that.
    async fn document<T: DeserializeOwned>(
        &mut self,
        kind: Kind,
        expected: bool,
        judge: impl FnOnce(&T) -> (String, Vec<String>),
    ) -> Result<Option<T>, Problem> {
        let read = sized::<T>(self.session, &self.wanted(&kind)).await;
        let Some((document, size)) = self.usable(&kind, expected, read)? else { return Ok(None) };
        let (found, wrong) = judge(&document);
        self.seen(&kind, size, found);
        self.wrong(&kind, wrong, DISAGREE);
        Ok(Some(document))
    }

    async fn log(&mut self) -> Result<(), Problem> {
        let kind = Kind::BackupLog;
        let damaged =
            |error: std::io::Error| Problem::BadFile { message: format!("it cannot be read: {error}") };
        let mut length = Length(0);
        let mut text = MultiGzDecoder::new(&mut length);
        let wanted = Wanted { kind: kind.clone(), name: self.name, uid: self.uid };
        let sink = |bytes: &[u8]| text.write_all(bytes).map_err(damaged);
        let size = read(self.session, &wanted, sink, |line| self.terminal.say(line)).await;
        let read = size.and_then(|size| text.try_finish().map(|()| size).map_err(damaged));
        drop(text);
        if let Some(size) = self.usable(&kind, true, read)? {
            self.seen(&kind, size, format!("{} bytes of text", length.0));
        }
        Ok(())
    }

    async fn contents(
        &mut self,
        list: Option<&ResourceList>,
        results: Option<&Results>,
    ) -> Result<(), Problem> {
        let kind = Kind::BackupContents;
        let wanted = Wanted { kind: kind.clone(), name: self.name, uid: self.uid };
        let name = self.name.to_owned();
        let work = move |source| tarball::read(&name, source);
        let read = piped(self.session, &wanted, work, |line| self.terminal.say(line)).await;
        let read = read.and_then(|(tarball, size)| {
            let damaged = |error: backup_store::StoreError| Problem::BadFile { message: error.to_string() };
            tarball.map(|tarball| (tarball, size)).map_err(damaged)
        });
        if let Some((tarball, size)) = self.usable(&kind, true, read)? {
            self.seen(&kind, size, tarball.summary());
            self.wrong(&kind, tarball.findings(list, results), DISAGREE);
        }
        Ok(())
    }

    fn wanted(&self, kind: &Kind) -> Wanted<'_> {
        Wanted { kind: kind.clone(), name: self.name, uid: self.uid }
    }

    /// A file that is missing or damaged is found; whatever else kept it from being read says nothing of it.
    fn usable<T>(
        &mut self,
        kind: &Kind,
        expected: bool,
        read: Result<T, Problem>,
    ) -> Result<Option<T>, Problem> {
        let (message, wrong) = match read {
            Ok(file) => return Ok(Some(file)),
            Err(Problem::NoFile { message }) => (message, expected),
            Err(Problem::BadFile { message }) => (message, true),
            Err(Problem::NotGiven { message }) => {
                return Err(not_verified(self.name, &plain(&message)));
            }
            Err(problem) => return Err(problem),
        };
        let message = plain(&message);
        let found =
            if wrong { "see below".to_owned() } else { format!("{message}; older servers write none") };
        self.files.push(FileView { file: kind.to_string(), size: None, found });
        if wrong {
            self.wrong(kind, vec![message], PUT_BACK);
        }
        Ok(None)
    }

    fn seen(&mut self, kind: &Kind, size: u64, found: String) {
        self.files.push(FileView { file: kind.to_string(), size: Some(size), found });
    }

    fn wrong(&mut self, kind: &Kind, messages: Vec<String>, remedy: &str) {
        let finding = |message| Finding { file: kind.to_string(), message, remedy: remedy.to_owned() };
        self.findings.extend(messages.into_iter().map(finding));
    }
}

/// The entries of volumes; `null` is none.
struct Volumes(Vec<VolumeView>);

impl<'de> serde::Deserialize<'de> for Volumes {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let all = Option::<Vec<Entry>>::deserialize(deserializer)?.unwrap_or_default();
        Ok(Self(all.into_iter().map(VolumeView::from).collect()))
    }
}

/// Counts bytes, and keeps none.
struct Length(u64);

impl std::io::Write for Length {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        self.0 += text.len() as u64;
        Ok(text.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
