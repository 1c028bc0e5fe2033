//! `verify`: reads every stored file of a backup to its end, and compares the files with one
//! another and with the status.

use std::{
    collections::BTreeSet,
    io::{Read, Write as _},
};

use backup_core::{
    api::{BackupPhase, download_request::DownloadTargetKind as Kind},
    labels::{VERIFIED_ANNOTATION, annotation},
    operation::BackupOperation,
    results::Results,
    text::counted,
    time::whole_seconds,
    verification,
};
use backup_store::{
    StoreError,
    tarball::MAX_TOTAL,
    verification::{DISAGREE, Inventory, PUT_BACK, counts, error_words},
};
use flate2::write::MultiGzDecoder;
use serde::{Serialize, de::DeserializeOwned};

use super::prelude::*;
use crate::{
    cli::VerifyArgs,
    print::{Screen, Style, Tone, size, table},
    stored::{StoredFile, piped, read, sized},
    view::{LocationSummary, ResourceList, stored::volumes::VolumeView, table_kind::dash},
};

pub(crate) async fn run(args: VerifyArgs, terminal: &mut Terminal) -> CommandResult {
    let session = Session::connect(terminal).await?;
    let backup = get_named::<Backup>(&session, "verify", &args.name).await?;
    has_files(&backup)?;
    let mut reading = FileReader {
        session: &session,
        backup: &backup,
        terminal: &mut *terminal,
        files: Vec::new(),
        findings: Vec::new(),
    };
    tokio::select! {
        done = reading.all() => done?,
        _ = tokio::signal::ctrl_c() => return Ok(Exit::Interrupted),
    }
    let FileReader {
        files, findings, ..
    } = reading;
    if !findings.is_empty() {
        can_be_read(&session, &backup).await?;
    }
    keep(&session, &backup, &findings, terminal).await;
    let verification = Verification {
        of: args.name,
        phase: backup.status().phase,
        good: findings.is_empty(),
        files,
        findings,
    };
    json::show(
        "BackupVerification",
        &verification,
        args.document,
        terminal,
        |_, style| verification.text(style),
    )?;
    Ok(if verification.good {
        Exit::Done
    } else {
        Exit::NotGood
    })
}

/// Records the time and the result of the verification in the Backup, for `describe`. Users without
/// the permission to write can verify as well.
///
/// A change that the controller has found by digests cannot be seen here, so its record stays.
async fn keep(
    session: &Session,
    backup: &Backup,
    findings: &[FileFinding],
    terminal: &mut Terminal,
) {
    let last = annotation(backup, VERIFIED_ANNOTATION);
    let last = verification::Verification::read(last);
    if let Some(last) = last.filter(|last| last.findings > 0 && last.compared) {
        terminal.say(&format!(
            "the scheduled verification has compared digests, which this command cannot: {}. Its result stays until the next one",
            plain(&last.result())
        ));
        return;
    }
    let verification = verification::Verification {
        at: whole_seconds(terminal.now()),
        findings: findings.len(),
        first: findings
            .first()
            .map(|first| format!("{}: {}", first.file, first.message))
            .unwrap_or_default(),
        compared: false,
    };
    let patch = json!({ "metadata": { "annotations": { VERIFIED_ANNOTATION: verification.annotation() } } });
    let name = backup.name_any();
    let Err(problem) = session
        .patch::<Backup>(&name, backup.metadata.uid.as_ref(), patch)
        .await
    else {
        return;
    };
    if problem.kind != ProblemKind::Forbidden {
        terminal.say(&format!(
            "the time of this verification could not be written to backup {name}: {problem}"
        ));
    }
}

/// Fails if the backup's phase says that it has no files. With an unknown phase of a newer server,
/// the files are tried.
pub(super) fn has_files(backup: &Backup) -> Result<(), Problem> {
    let name = backup.name_any();
    let (phase, remedy) = match backup.phase() {
        BackupPhase::Completed | BackupPhase::PartiallyFailed | BackupPhase::Unknown(_) => {
            return Ok(());
        }
        phase if phase.is_terminal() => (phase, format!("kubectl backup describe {name}")),
        phase => (phase, format!("kubectl backup wait {name}")),
    };
    let message = format!(
        "backup {name} is {phase}: its files are promised once it is Completed or PartiallyFailed"
    );
    Err(Problem::other(message).with_remedy(remedy))
}

/// Fails if the location is unavailable: then a failure to read says nothing about the files. If
/// the location cannot be read, it counts as available.
async fn can_be_read(session: &Session, backup: &Backup) -> Result<(), Problem> {
    let Some(name) = &backup.spec.storage_location else {
        return Ok(());
    };
    let Ok(location) = session.get::<BackupStorageLocation>(name).await else {
        return Ok(());
    };
    let place = LocationSummary::of(&location, &backup.name_any());
    if !place.is_unavailable() {
        return Ok(());
    }
    let why = format!(
        "location {name} is Unavailable: {}",
        place.message.unwrap_or_default()
    );
    Err(not_verified(&backup.name_any(), &why))
}

fn not_verified(name: &str, why: &str) -> Problem {
    Problem::other(format!("backup {name} could not be verified: {why}"))
        .with_remedy("Its files may be as they should be: see to that first, and try again.")
}

struct FileReader<'a> {
    session: &'a Session,
    backup: &'a Backup,
    terminal: &'a mut Terminal,
    files: Vec<FileView>,
    findings: Vec<FileFinding>,
}

impl FileReader<'_> {
    /// Reads every file. Older servers did not write all of them: a file may be missing if the
    /// status counts nothing in it.
    async fn all(&mut self) -> Result<(), Problem> {
        let backup = self.backup;
        let status = &backup.status;
        let list = self
            .document(Kind::BackupResourceList, true, |list: &ResourceList| {
                let names = list.values().map(Vec::len).sum::<usize>();
                (counted(names, "name"), counts::list(backup, names))
            })
            .await?;
        let has_messages = status.errors + status.warnings > 0;
        let results = self
            .document(Kind::BackupResults, has_messages, |results: &Results| {
                let found = format!(
                    "{}, {}",
                    counted(results.errors(), "error"),
                    counted(results.warnings(), "warning")
                );
                (found, counts::results(status, results))
            })
            .await?;
        let operated = status.backup_item_operations_attempted > 0;
        self.document(
            Kind::BackupItemOperations,
            operated,
            |all: &Option<Vec<BackupOperation>>| {
                let all = all.as_deref().unwrap_or_default();
                (
                    counted(all.len(), "operation"),
                    counts::operations(status, all),
                )
            },
        )
        .await?;
        let by_csi = status.csi_volume_snapshots_attempted > 0;
        self.document(
            Kind::BackupVolumeInfos,
            by_csi,
            |all: &Option<Vec<VolumeView>>| {
                let all = all.as_deref().unwrap_or_default();
                let by_csi = all
                    .iter()
                    .filter(|one| one.method.ends_with("CSI snapshot"));
                (
                    counted(all.len(), "volume"),
                    counts::volumes(status, by_csi.count()),
                )
            },
        )
        .await?;
        let native = status.volume_snapshots_attempted > 0;
        self.document(
            Kind::BackupVolumeSnapshots,
            native,
            |all: &Option<Vec<Value>>| {
                let count = all.as_ref().map_or(0, Vec::len);
                (
                    counted(count, "native snapshot"),
                    counts::snapshots(status, count),
                )
            },
        )
        .await?;
        self.log().await?;
        self.contents(list, results).await
    }

    /// Reads a JSON file; `judge` returns a description of its contents and its findings.
    async fn document<T: DeserializeOwned>(
        &mut self,
        kind: Kind,
        expected: bool,
        judge: impl FnOnce(&T) -> (String, Vec<String>),
    ) -> Result<Option<T>, Problem> {
        let file = StoredFile::of(kind.clone(), &self.backup.metadata);
        let read = sized::<T>(self.session, &file).await;
        let Some((document, size)) = self.usable(&kind, expected, read)? else {
            return Ok(None);
        };
        let (found, wrong) = judge(&document);
        self.seen(&kind, size, found);
        self.wrong(&kind, wrong, DISAGREE);
        Ok(Some(document))
    }

    async fn log(&mut self) -> Result<(), Problem> {
        let kind = Kind::BackupLog;
        let mut text = MultiGzDecoder::new(Vec::new());
        let mut length = 0_usize;
        let file = StoredFile::of(kind.clone(), &self.backup.metadata);
        let stored = read(
            self.session,
            &file,
            |bytes: &[u8]| {
                text.write_all(bytes).map_err(|error| unreadable(&error))?;
                length += std::mem::take(text.get_mut()).len();
                Ok(())
            },
            |line| self.terminal.say(line),
        )
        .await;
        let read = stored.and_then(|stored| {
            text.try_finish()
                .map(|()| stored.length)
                .map_err(|error| unreadable(&error))
        });
        length += text.get_ref().len();
        if let Some(stored) = self.usable(&kind, true, read)? {
            self.seen(&kind, stored, format!("{} of text", size(length as u64)));
        }
        Ok(())
    }

    async fn contents(
        &mut self,
        list: Option<ResourceList>,
        results: Option<Results>,
    ) -> Result<(), Problem> {
        let kind = Kind::BackupContents;
        let file = StoredFile::of(kind.clone(), &self.backup.metadata);
        let name = self.backup.name_any();
        let read = piped(
            self.session,
            &file,
            move |source| compared(&name, source, list.as_ref(), results.as_ref()),
            |line| self.terminal.say(line),
        )
        .await;
        let read = read.and_then(|(inventory, read)| {
            inventory
                .map(|inventory| (inventory, read.length))
                .map_err(|error| Problem::bad_file(error.to_string()))
        });
        if let Some((inventory, size)) = self.usable(&kind, true, read)? {
            self.seen(&kind, size, inventory.summary());
            self.wrong(&kind, inventory.findings(), DISAGREE);
        }
        Ok(())
    }

    /// A missing or damaged file is a finding; any other read error says nothing about the file.
    fn usable<T>(
        &mut self,
        kind: &Kind,
        expected: bool,
        read: Result<T, Problem>,
    ) -> Result<Option<T>, Problem> {
        let problem = match read {
            Ok(file) => return Ok(Some(file)),
            Err(problem) => problem,
        };
        let message = plain(&problem.message);
        let wrong = match problem.kind {
            ProblemKind::NoFile => expected,
            ProblemKind::BadFile => true,
            ProblemKind::NotGiven => return Err(not_verified(&self.backup.name_any(), &message)),
            _ => return Err(problem),
        };
        let found = if wrong {
            "see below".to_owned()
        } else {
            format!("{message}; older servers write none")
        };
        self.files.push(FileView {
            file: kind.to_string(),
            size: None,
            found,
        });
        if wrong {
            self.wrong(kind, vec![message], PUT_BACK);
        }
        Ok(None)
    }

    fn seen(&mut self, kind: &Kind, size: u64, found: String) {
        self.files.push(FileView {
            file: kind.to_string(),
            size: Some(size),
            found,
        });
    }

    fn wrong(&mut self, kind: &Kind, messages: Vec<String>, remedy: &str) {
        self.findings
            .extend(messages.into_iter().map(|message| FileFinding {
                file: kind.to_string(),
                message,
                remedy: remedy.to_owned(),
            }));
    }
}

/// Reads a tarball to its end, and compares it with the list. Fails if it cannot be read; the error
/// says where.
fn compared(
    name: &str,
    source: impl Read,
    list: Option<&ResourceList>,
    results: Option<&Results>,
) -> Result<Inventory, StoreError> {
    let title = format!("the tarball of {name}");
    let mut inventory = Inventory::new(list.is_some(), usize::MAX);
    let listed: Vec<(&String, &String)> = list
        .into_iter()
        .flatten()
        .flat_map(|(kind, items)| items.iter().map(move |item| (kind, item)))
        .collect();
    for (kind, item) in &listed {
        inventory
            .add_listed(kind, item)
            .map_err(|detail| StoreError::Corrupt {
                url: title.clone(),
                detail,
            })?;
    }
    inventory.read(&title, source, MAX_TOTAL)?;
    let excused = results.map_or_else(BTreeSet::new, error_words);
    for (kind, item) in &listed {
        inventory.compare(kind, item, &excused);
    }
    Ok(inventory)
}

fn unreadable(error: &std::io::Error) -> Problem {
    Problem::bad_file(format!("it cannot be read: {error}"))
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Verification {
    of: String,
    phase: String,
    good: bool,
    files: Vec<FileView>,
    findings: Vec<FileFinding>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct FileView {
    /// Kind of the file, as in DownloadRequests: `BackupContents`.
    file: String,
    /// Stored size (bytes); null if the file could not be read to its end.
    size: Option<u64>,
    /// Description of the contents, or why they are unknown.
    found: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct FileFinding {
    file: String,
    message: String,
    remedy: String,
}

impl Verification {
    /// A verdict, a row for each file, and the findings.
    fn text(&self, style: Style) -> std::io::Result<String> {
        let Verification {
            of,
            phase,
            files,
            findings,
            ..
        } = self;
        let (tone, verdict) = if self.good {
            (
                Tone::Good,
                "its files are complete, agree with one another and can be read",
            )
        } else {
            (Tone::Bad, "its files are not all that they should be")
        };
        let mut screen = Screen::of(style, tone, of, &[&format!("{phase}: {verdict}")]);
        screen.line("");
        let rows = files.iter().map(|file| {
            let size = file.size.map_or_else(dash, size);
            vec![file.file.clone(), size, file.found.clone()]
        });
        screen.lines(table(&["FILE", "SIZE", "FOUND"], true, rows)?.lines());
        if !findings.is_empty() {
            screen.section("WRONG");
        }
        for FileFinding {
            file,
            message,
            remedy,
        } in findings
        {
            let sign = style.bad(Tone::Bad.sign());
            screen.lines([format!("{sign} {file}: {message}"), format!("  {remedy}")]);
        }
        Ok(screen.text)
    }
}
