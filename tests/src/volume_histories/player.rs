//! Carries out the steps of one history, and looks after each whether all promises are kept.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use backup_core::data_movement::{MoverOutcome, MoverResult};

use super::{
    plan::{KillMoment, PlannedStep, Step, VOLUMES, VolumeMistake},
    program::{Mover, ResticCheck, RunningMover},
    record::{HistoryRecord, VolumeEvent, VolumePromise, compare_snapshots},
    repository::{NAMESPACE, RepositoryFiles, RepositoryFolder},
    volume::{Listing, Volume},
};
use crate::{history::random::Random, moved_clock::MovedClock};

const BACKUP: &str = "backup";
const RESTORE: &str = "restore";
const CHECK: &str = "check";
const MAINTAIN: &str = "maintain";

/// Limit of the rate of programs that are killed: an upload takes a while then.
const KILLED_RATE: &str = "2Mi";
/// The same for an upload beside which a maintenance is due: it does not end before it is paused.
const SHARED_RATE: &str = "512Ki";
/// Time of such an upload.
const UPLOAD_TIME: Duration = Duration::from_hours(2);
/// The delay of a removal that is shorter than that upload.
const SHORT_DELAY: &str = "1h";
/// Longer than the delay of a removal (72h, as the controller leaves it).
const BEYOND_DELAY: Duration = Duration::from_hours(73);
/// One history in this many is checked by restic, too.
const RESTIC_EVERY: u64 = 10;

/// What a history is played with.
#[derive(Clone, Copy)]
pub(super) struct Stage<'a> {
    pub(super) program: &'a Path,
    pub(super) clock: &'a MovedClock,
    /// Folder of the history, which is empty.
    pub(super) folder: &'a Path,
    pub(super) seed: u64,
    pub(super) number: u64,
    pub(super) mistake: Option<VolumeMistake>,
}

/// Plays a history to its end. Returns an error if the test kit itself fails.
pub(super) fn play(stage: Stage<'_>, steps: &[PlannedStep]) -> anyhow::Result<HistoryRecord> {
    let bucket = stage.folder.join("bucket");
    let mut player = Player::new(stage, &bucket)?;
    for PlannedStep { wait, step } in steps {
        player.record.note(format!("after {wait:?}: {step:?}"));
        player.pass(*wait)?;
        player.step(step)?;
        player.compare_snapshots()?;
    }
    player.finish()?;
    Ok(player.record)
}

struct CompletedBackup {
    volume: usize,
    uid: String,
    snapshot: String,
    /// The volume when it was saved.
    saved: Listing,
}

/// An upload whose pods are gone.
struct EndedUpload {
    /// Uid of its backup.
    backup: String,
    /// The snapshot that the backup names.
    snapshot: Option<String>,
}

struct Player<'a> {
    stage: Stage<'a>,
    mover: Mover<'a>,
    repository: RepositoryFolder,
    volumes: Vec<Volume>,
    /// Decides how volumes change.
    random: Random,
    /// Time that has passed.
    now: Duration,
    /// Number of backups that have begun.
    begun: u64,
    /// Oldest first.
    backups: Vec<CompletedBackup>,
    /// Uploads since the last maintenance.
    ended: Vec<EndedUpload>,
    /// Snapshots of deleted backups.
    forgotten: BTreeSet<String>,
    /// Snapshots that killed uploads have left since the last maintenance: no backup names them.
    unnamed: BTreeSet<String>,
    /// Time that the last program of each kind took.
    durations: BTreeMap<&'static str, Duration>,
    record: HistoryRecord,
}

impl<'a> Player<'a> {
    fn new(stage: Stage<'a>, bucket: &'a Path) -> anyhow::Result<Self> {
        let seed = Random::of(stage.seed, stage.number).number();
        stage.clock.forward(Duration::ZERO)?;
        Ok(Self {
            stage,
            mover: Mover {
                program: stage.program,
                clock: stage.clock,
                folder: stage.folder,
                bucket,
            },
            repository: RepositoryFolder::new(bucket)?,
            volumes: (0..VOLUMES)
                .map(|number| Volume::new(stage.folder.join(volume_name(number)), seed))
                .collect::<Result<_, _>>()?,
            random: Random::of(seed, 0),
            now: Duration::ZERO,
            begun: 0,
            backups: Vec::new(),
            ended: Vec::new(),
            forgotten: BTreeSet::new(),
            unnamed: BTreeSet::new(),
            durations: BTreeMap::new(),
            record: HistoryRecord::default(),
        })
    }

    fn pass(&mut self, time: Duration) -> anyhow::Result<()> {
        self.now += time;
        self.stage.clock.forward(self.now)
    }

    fn step(&mut self, step: &Step) -> anyhow::Result<()> {
        match step {
            Step::Backup {
                volume,
                kills,
                is_given_up,
            } => self.back_up(*volume, kills, *is_given_up),
            Step::TwoBackups { volumes, kill } => self.back_up_two(*volumes, *kill),
            Step::BackupBesideMaintenance {
                volume,
                is_newest_deleted,
            } => self.back_up_beside_maintenance(*volume, *is_newest_deleted),
            Step::Delete { pick } => match self.position(*pick) {
                Some(position) => self.delete(position),
                None => Ok(()),
            },
            Step::Restore { pick, kill_percent } => match self.position(*pick) {
                Some(position) => self.restore(position, *kill_percent, VolumePromise::Restorable),
                None => Ok(()),
            },
            Step::Maintain { kill } => {
                self.maintain(*kill, None)?;
                self.restore_all(VolumePromise::Restorable)
            }
            Step::Check => self.check(),
        }
    }

    /// What has to hold at the end: no backup is lost, and all space is freed once all backups are
    /// deleted.
    fn finish(&mut self) -> anyhow::Result<()> {
        self.record.note("the end".to_owned());
        // Each history has a backup, and so an index: a maintenance needs one to mark orphans.
        self.back_up(0, &[], false)?;
        self.maintain(None, None)?;
        self.restore_all(VolumePromise::Restorable)?;
        self.pass(BEYOND_DELAY)?;
        self.maintain(None, None)?;
        self.restore_all(VolumePromise::NeverLost)?;
        self.check()?;
        if self.stage.number.is_multiple_of(RESTIC_EVERY) {
            self.check_by_restic()?;
        }
        while !self.backups.is_empty() {
            self.delete(0)?;
        }
        self.compare_snapshots()?;
        self.maintain(None, None)?;
        self.pass(BEYOND_DELAY)?;
        self.maintain(None, None)?;
        let packs = self.repository.files()?.packs.len();
        if packs > 0 {
            let detail = format!("{packs} packs are left of deleted backups");
            self.record.violate(VolumePromise::SpaceIsFreed, detail);
        }
        Ok(())
    }

    /// Position of the backup that a number chooses.
    fn position(&self, pick: u64) -> Option<usize> {
        let count = self.backups.len() as u64;
        usize::try_from(pick.checked_rem(count)?).ok()
    }

    fn back_up(
        &mut self,
        volume: usize,
        kills: &[KillMoment],
        is_given_up: bool,
    ) -> anyhow::Result<()> {
        self.volumes[volume].change(&mut self.random)?;
        let saved = self.volumes[volume].listing()?;
        let uid = self.next_uid();
        for moment in kills {
            let before = self.repository.files()?;
            let mut upload = self.start_upload(volume, &uid, Some(KILLED_RATE))?;
            self.kill(&mut upload, BACKUP, *moment, &before)?;
            if let Some(outcome) = self.known_outcome(&mut upload, *moment)? {
                self.record.count(VolumeEvent::UploadEndedBeforeKill);
                self.record_upload(volume, uid, saved, Some(outcome));
                return Ok(());
            }
            self.record_killed_upload(*moment, &before)?;
        }
        if is_given_up {
            self.record.count(VolumeEvent::BackupGivenUp);
            self.ended.push(EndedUpload {
                backup: uid,
                snapshot: None,
            });
            return Ok(());
        }
        let mut upload = self.start_upload(volume, &uid, None)?;
        let outcome = self.end(BACKUP, &mut upload)?;
        self.record_upload(volume, uid, saved, outcome);
        Ok(())
    }

    fn back_up_two(&mut self, volumes: [usize; 2], kill: Option<KillMoment>) -> anyhow::Result<()> {
        let [first, second] = volumes;
        let mut saved = Vec::new();
        for volume in volumes {
            self.volumes[volume].change(&mut self.random)?;
            saved.push((volume, self.volumes[volume].listing()?));
        }
        let uids = [self.next_uid(), self.next_uid()];
        let before = self.repository.files()?;
        let mut upload = self.start_upload(first, &uids[0], kill.map(|_| KILLED_RATE))?;
        let mut other = self.start_upload(second, &uids[1], None)?;
        self.record.count(VolumeEvent::BackupsSideBySide);
        let mut first_end = match kill {
            Some(moment) => {
                self.kill(&mut upload, BACKUP, moment, &before)?;
                self.known_outcome(&mut upload, moment)?
            }
            None => upload.end()?,
        };
        let second_end = other.end()?;
        if kill.is_some() && first_end.is_none() {
            // The files do not show its progress: the other upload writes the same files.
            self.record.count(VolumeEvent::UploadKilledBesideAnother);
            let mut again = self.start_upload(first, &uids[0], None)?;
            first_end = again.end()?;
        }
        let ends = uids.into_iter().zip([first_end, second_end]);
        for ((volume, saved), (uid, outcome)) in saved.into_iter().zip(ends) {
            self.record_upload(volume, uid, saved, outcome);
        }
        if kill.is_some() {
            self.record_unnamed()?;
        }
        Ok(())
    }

    /// A maintenance is due while an upload runs. The controller begins it once the upload has
    /// ended; with a mistake it runs while the upload is paused.
    fn back_up_beside_maintenance(
        &mut self,
        volume: usize,
        is_newest_deleted: bool,
    ) -> anyhow::Result<()> {
        self.volumes[volume].change(&mut self.random)?;
        self.volumes[volume].add_large(&mut self.random)?;
        let saved = self.volumes[volume].listing()?;
        let newest = self.backups.iter().rposition(|one| one.volume == volume);
        if let Some(position) = newest.filter(|_| is_newest_deleted) {
            self.delete(position)?;
        }
        let before = self.repository.files()?;
        let uid = self.next_uid();
        let mut upload = self.start_upload(volume, &uid, Some(SHARED_RATE))?;
        self.wait_for_write(&mut upload, &before)?;
        upload.pause()?;
        match self.stage.mistake {
            None | Some(VolumeMistake::NoNotes) => {
                self.record.count(VolumeEvent::MaintenanceAwaitedUpload);
                self.pass(UPLOAD_TIME)?;
            }
            Some(VolumeMistake::BesideUpload) => {
                self.maintain(None, None)?;
                self.pass(UPLOAD_TIME)?;
            }
            Some(VolumeMistake::ShortDelay) => {
                self.maintain(None, Some(SHORT_DELAY))?;
                self.pass(UPLOAD_TIME)?;
                self.maintain(None, Some(SHORT_DELAY))?;
            }
        }
        upload.resume()?;
        let outcome = upload.end()?;
        self.record_upload(volume, uid, saved, outcome);
        if self.stage.mistake.is_none() {
            self.maintain(None, None)?;
        }
        self.restore_all(VolumePromise::Restorable)
    }

    /// Uid of the next backup, which has one upload.
    fn next_uid(&mut self) -> String {
        self.begun += 1;
        format!("backup-{}", self.begun)
    }

    fn start_upload(
        &self,
        volume: usize,
        uid: &str,
        rate: Option<&str>,
    ) -> anyhow::Result<RunningMover> {
        let mut args = vec![
            format!("--folder={}", self.volumes[volume].folder().display()),
            format!("--host={NAMESPACE}"),
            format!("--label={}", volume_name(volume)),
        ];
        if self.stage.mistake != Some(VolumeMistake::NoNotes) {
            args.push(format!("--note={uid}/upload"));
        }
        args.extend(rate.map(|rate| format!("--upload-limit={rate}")));
        self.mover.start(BACKUP, &args)
    }

    /// The outcome of an upload that was to be killed; `None` if it was killed, or its outcome is
    /// lost.
    fn known_outcome(
        &mut self,
        upload: &mut RunningMover,
        moment: KillMoment,
    ) -> anyhow::Result<Option<MoverOutcome>> {
        let outcome = upload.end()?;
        if moment != KillMoment::OutcomeLost {
            return Ok(outcome);
        }
        if !is_complete(outcome.as_ref()) {
            self.record_failure(BACKUP, outcome.as_ref());
        }
        Ok(None)
    }

    /// Records how an upload ended that was not killed.
    fn record_upload(
        &mut self,
        volume: usize,
        uid: String,
        saved: Listing,
        outcome: Option<MoverOutcome>,
    ) {
        match outcome {
            Some(MoverOutcome {
                result: MoverResult::Complete,
                snapshot: Some(snapshot),
                ..
            }) => {
                self.record.count(VolumeEvent::BackupCompleted);
                self.ended.push(EndedUpload {
                    backup: uid.clone(),
                    snapshot: Some(snapshot.clone()),
                });
                self.backups.push(CompletedBackup {
                    volume,
                    uid,
                    snapshot,
                    saved,
                });
            }
            outcome => self.record_failure(BACKUP, outcome.as_ref()),
        }
    }

    fn record_killed_upload(
        &mut self,
        moment: KillMoment,
        before: &RepositoryFiles,
    ) -> anyhow::Result<()> {
        let event = if moment == KillMoment::OutcomeLost {
            VolumeEvent::OutcomeLost
        } else {
            VolumeEvent::of_killed_upload(before, &self.repository.files()?)
        };
        self.record.count(event);
        self.record_unnamed()
    }

    /// Remembers the snapshots that a killed upload has left.
    fn record_unnamed(&mut self) -> anyhow::Result<()> {
        let left = self.unnamed_snapshots()?;
        self.unnamed.extend(left);
        Ok(())
    }

    /// The snapshots in the repository that no backup has named.
    fn unnamed_snapshots(&self) -> anyhow::Result<BTreeSet<String>> {
        let completed = self.completed();
        let stored = self.repository.files()?.snapshots.into_iter();
        Ok(stored
            .filter(|id| !completed.contains(id) && !self.forgotten.contains(id))
            .collect())
    }

    /// Removes the snapshots of ended uploads that no backup names, as the controller does.
    fn remove_unnamed(&mut self) -> anyhow::Result<()> {
        let before = self.unnamed_snapshots()?.len();
        for EndedUpload { backup, snapshot } in std::mem::take(&mut self.ended) {
            self.repository.forget_noted(&backup, snapshot.as_deref())?;
        }
        let removed = before.saturating_sub(self.unnamed_snapshots()?.len());
        self.record
            .add(VolumeEvent::UnnamedSnapshotRemoved, removed as u64);
        Ok(())
    }

    fn completed(&self) -> BTreeSet<String> {
        let backups = self.backups.iter();
        backups.map(|backup| backup.snapshot.clone()).collect()
    }

    /// Deletes a backup, as the controller does.
    fn delete(&mut self, position: usize) -> anyhow::Result<()> {
        let CompletedBackup { uid, snapshot, .. } = self.backups.remove(position);
        self.repository.forget(&snapshot)?;
        self.repository.forget_noted(&uid, None)?;
        self.forgotten.insert(snapshot);
        self.record.count(VolumeEvent::BackupDeleted);
        Ok(())
    }

    /// Runs a maintenance. By its end each snapshot is one of a completed backup.
    fn maintain(&mut self, kill: Option<KillMoment>, delay: Option<&str>) -> anyhow::Result<()> {
        self.remove_unnamed()?;
        self.run_maintenance(kill, delay)?;
        self.unnamed = self.unnamed_snapshots()?;
        if !self.unnamed.is_empty() {
            let detail = format!("no backup names these: {:?}", self.unnamed);
            self.record.violate(VolumePromise::NoSnapshotIsLeft, detail);
        }
        Ok(())
    }

    /// With the arguments that the controller gives it; a mistake also gives a delay.
    fn run_maintenance(
        &mut self,
        kill: Option<KillMoment>,
        delay: Option<&str>,
    ) -> anyhow::Result<()> {
        let before = self.repository.files()?;
        let mut args = vec!["--prune".to_owned()];
        args.extend(delay.map(|delay| format!("--removal-delay={delay}")));
        args.extend(kill.map(|_| format!("--upload-limit={KILLED_RATE}")));
        let mut maintenance = self.mover.start(MAINTAIN, &args)?;
        let Some(moment) = kill else {
            let outcome = self.end(MAINTAIN, &mut maintenance)?;
            self.record_maintenance(outcome.as_ref());
            return Ok(());
        };
        self.kill(&mut maintenance, MAINTAIN, moment, &before)?;
        if let Some(outcome) = maintenance.end()? {
            self.record.count(VolumeEvent::MaintenanceEndedBeforeKill);
            self.record_maintenance(Some(&outcome));
        } else {
            let after = self.repository.files()?;
            let event = VolumeEvent::of_killed_maintenance(&before, &after);
            self.record.count(event);
        }
        Ok(())
    }

    fn record_maintenance(&mut self, outcome: Option<&MoverOutcome>) {
        let whole = outcome.filter(|outcome| is_complete(Some(outcome)));
        let Some(report) = whole.and_then(|outcome| outcome.maintenance.as_deref()) else {
            self.record_failure(MAINTAIN, outcome);
            return;
        };
        self.record.note(format!("    {report:?}"));
        for (event, count) in [
            (VolumeEvent::Maintained, 1),
            (VolumeEvent::PackMarked, report.marked_packs),
            (VolumeEvent::PackRemoved, report.removed_packs),
            (VolumeEvent::PackRecovered, report.recovered_packs),
            (VolumeEvent::OrphanMarked, report.orphaned_packs),
        ] {
            self.record.add(event, count);
        }
    }

    /// Restores each completed backup.
    fn restore_all(&mut self, promise: VolumePromise) -> anyhow::Result<()> {
        for position in 0..self.backups.len() {
            self.restore(position, None, promise)?;
        }
        Ok(())
    }

    /// Restores a backup and compares the files. It has to succeed for this promise.
    fn restore(
        &mut self,
        position: usize,
        kill_percent: Option<u32>,
        promise: VolumePromise,
    ) -> anyhow::Result<()> {
        let target = self.empty_target()?;
        let snapshot = self.backups[position].snapshot.clone();
        let mut args = vec![
            format!("--snapshot={snapshot}"),
            format!("--target={}", target.display()),
        ];
        if let Some(percent) = kill_percent {
            let mut first = self.mover.start(RESTORE, &args)?;
            thread::sleep(self.part(RESTORE, percent));
            first.kill()?;
            first.end()?;
            self.record.count(VolumeEvent::RestoreKilled);
            args.push("--existing=replace".to_owned());
        }
        let mut restore = self.mover.start(RESTORE, &args)?;
        let outcome = self.end(RESTORE, &mut restore)?;
        if !is_complete(outcome.as_ref()) {
            let detail = format!("snapshot {snapshot}: {}", message(outcome.as_ref()));
            self.record.violate(promise, detail);
            return Ok(());
        }
        self.record.add(VolumeEvent::Restored, 1);
        let restored = Listing::of(&target)?;
        if let Some(difference) = self.backups[position].saved.difference(&restored) {
            let detail = format!("snapshot {snapshot}: {difference}");
            self.record.violate(VolumePromise::SameFiles, detail);
        }
        Ok(())
    }

    fn empty_target(&self) -> anyhow::Result<PathBuf> {
        let target = self.stage.folder.join("target");
        if target.exists() {
            fs::remove_dir_all(&target)?;
        }
        fs::create_dir(&target)?;
        Ok(target)
    }

    fn check(&mut self) -> anyhow::Result<()> {
        let mut check = self.mover.start(CHECK, &["--read-data".to_owned()])?;
        let outcome = self.end(CHECK, &mut check)?;
        if is_complete(outcome.as_ref()) {
            self.record.count(VolumeEvent::Checked);
        } else {
            let detail = message(outcome.as_ref());
            self.record.violate(VolumePromise::NoDamage, detail);
        }
        Ok(())
    }

    fn check_by_restic(&mut self) -> anyhow::Result<()> {
        match ResticCheck::run(self.repository.folder())? {
            ResticCheck::NotInstalled => {}
            ResticCheck::NoErrors => self.record.count(VolumeEvent::CheckedByRestic),
            ResticCheck::Errors(output) => {
                let detail = format!("restic: {output}");
                self.record.violate(VolumePromise::NoDamage, detail);
            }
        }
        Ok(())
    }

    fn compare_snapshots(&mut self) -> anyhow::Result<()> {
        let stored = self.repository.files()?.snapshots;
        for detail in compare_snapshots(&stored, &self.completed(), &self.unnamed) {
            self.record
                .violate(VolumePromise::SnapshotsOfBackups, detail);
        }
        Ok(())
    }

    /// Waits for the end of a program that nothing disturbs, and remembers its time.
    fn end(
        &mut self,
        command: &'static str,
        program: &mut RunningMover,
    ) -> anyhow::Result<Option<MoverOutcome>> {
        let outcome = program.end()?;
        self.durations.insert(command, program.elapsed());
        Ok(outcome)
    }

    /// Waits for this moment, and kills the program, unless it has ended before, or ends by itself.
    /// `before` are the files when it began.
    fn kill(
        &self,
        program: &mut RunningMover,
        command: &str,
        moment: KillMoment,
        before: &RepositoryFiles,
    ) -> anyhow::Result<()> {
        match moment {
            KillMoment::AfterPart { percent } => thread::sleep(self.part(command, percent)),
            KillMoment::AfterFirstWrite { delay } => {
                self.wait_for_write(program, before)?;
                thread::sleep(delay);
            }
            KillMoment::OutcomeLost => return Ok(()),
        }
        program.kill()
    }

    /// Waits until the files are others, or the program has ended.
    fn wait_for_write(
        &self,
        program: &mut RunningMover,
        before: &RepositoryFiles,
    ) -> anyhow::Result<()> {
        program.wait_until(|| Ok(self.repository.files()? != *before))
    }

    /// Part of the time that such a program took the last time.
    fn part(&self, command: &str, percent: u32) -> Duration {
        let duration = self.durations.get(command).copied();
        duration.unwrap_or(Duration::from_millis(50)) * percent / 100
    }

    fn record_failure(&mut self, command: &str, outcome: Option<&MoverOutcome>) {
        let detail = format!("{command}: {}", message(outcome));
        self.record.violate(VolumePromise::Success, detail);
    }
}

fn volume_name(number: usize) -> String {
    format!("volume-{number}")
}

fn is_complete(outcome: Option<&MoverOutcome>) -> bool {
    outcome.is_some_and(|outcome| outcome.result == MoverResult::Complete)
}

/// Why a program has not done its work.
fn message(outcome: Option<&MoverOutcome>) -> String {
    let Some(outcome) = outcome else {
        return "a signal has ended it".to_owned();
    };
    let failures = &outcome.failures.first;
    format!("{}, failures {failures:?}", outcome.message)
}
