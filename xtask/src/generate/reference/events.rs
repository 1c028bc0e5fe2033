//! Reasons of events with their meanings: exactly those that the source contains.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};
use backup_tests::binaries::root;

/// Reason, kind of the object, meaning.
const EVENTS: &[(&str, &str, &str)] = &[
    (
        "AmbiguousSchedule",
        "Schedule",
        "Velero's two cron libraries run it at other times, or one refuses it; how they differ",
    ),
    ("Available", "BackupStorageLocation", "it can be used"),
    ("BackupCreated", "Schedule", "a Backup was made for a time"),
    ("Blocked", "Backup, Restore", "it waits for something that has to be corrected; it continues by itself"),
    (
        "BreakGlass",
        "Backup, Restore",
        "it was admitted in spite of a conflict; who asked, and the reason given",
    ),
    ("CommandsOwed", "Backup", "a hook that ends what another began could not be run"),
    ("Completed", "Backup, Restore", "it has ended"),
    ("Enabled", "Schedule", "it is valid; the next three times"),
    ("Expired", "Backup", "its time is over; its deletion is requested"),
    ("Failed", "Backup, Restore", "it has ended without a usable result"),
    ("FailedValidation", "Backup, Restore, Schedule", "it was refused; every field that is wrong"),
    ("FilesLeft", "Restore", "it was deleted, and its files are still in the store"),
    ("FoldersPruned", "BackupStorageLocation", "folders of backups that never ended were removed"),
    ("ForcedEnd", "Backup, Restore", "a person with break-glass ended it while it was at work"),
    (
        "ForcedRelease",
        "Backup, Restore, Lease",
        "`kubectl backup locks release` took its claim; who, and why",
    ),
    ("NamesConflict", "BackupStorageLocation", "backups in it have names that another location uses"),
    ("NotDefault", "BackupStorageLocation", "another location was made the default later"),
    ("NotDeleted", "Backup, DeleteBackupRequest", "it could not be deleted"),
    ("NotRemovable", "BackupStorageLocation", "backups can be stored there and not deleted"),
    ("NotSynced", "BackupStorageLocation", "it could not be compared with the cluster"),
    (
        "ObjectLock",
        "BackupStorageLocation, Backup, DeleteBackupRequest",
        "object lock is on, or keeps what is to be deleted; until when",
    ),
    ("PartiallyFailed", "Backup, Restore", "it has ended, and something is missing"),
    ("PartlySynced", "Backup", "it was imported, and some of its objects were not"),
    ("Refused", "Schedule", "the creation of its Backup was refused; it is tried again"),
    (
        "RemovalRefused",
        "BackupStorageLocation",
        "more than half of its backups are gone; nothing is removed until a person agrees",
    ),
    ("Skipped", "Schedule", "no Backup is made for a time; which, and why"),
    ("SnapshotsLeft", "Backup", "it came to nothing, and a snapshot of it could not be removed"),
    ("Started", "Backup, Restore", "its work has begun"),
    ("StrayFolders", "BackupStorageLocation", "folders in it hold no finished backup"),
    ("Synced", "BackupStorageLocation", "how many Backups were created and removed"),
    ("Unavailable", "BackupStorageLocation", "it cannot be used, and why"),
    ("Unclaimed", "Backup, Restore", "it runs without a claim, beside others"),
    (
        "Unconditional",
        "BackupStorageLocation",
        "the store overwrites a key that is there; each is looked at before",
    ),
    ("UnknownPhase", "Backup, Restore", "a newer version has written its phase; it counts as running"),
    ("Unreadable", "any of `velero.io`", "it cannot be decoded; the field"),
    ("VersionsStay", "BackupStorageLocation, Backup", "a permission to remove old versions is missing"),
    ("Waiting", "Restore, DeleteBackupRequest", "what is in its way; it starts when that has ended"),
];

/// Reasons that are the final phase of an object.
const PHASES: [&str; 4] = ["Completed", "PartiallyFailed", "Failed", "FailedValidation"];
/// Code with which programs write an event, up to its reason.
const CALLS: [&str; 6] =
    [".normal(", ".warning(", ".warning_on(", ".emit_event(", ".report(", "reason: Some("];
/// Maximum distance between such code and the reason (bytes).
const REACH: usize = 120;

pub(super) fn table() -> anyhow::Result<String> {
    let mut found = BTreeSet::from(PHASES.map(str::to_owned));
    for folder in ["controller/src", "webhook/src", "crates", "kubectl-backup/src/commands/locks"] {
        for path in sources(&root().join(folder))? {
            let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
            found.extend(reasons(&text));
        }
    }
    let known: BTreeSet<String> = EVENTS.iter().map(|(reason, ..)| (*reason).to_owned()).collect();
    let new: Vec<_> = found.difference(&known).collect();
    let gone: Vec<_> = known.difference(&found).collect();
    ensure!(
        new.is_empty() && gone.is_empty(),
        "xtask/src/generate/reference/events.rs: write what {new:?} mean, and remove {gone:?}, which no source names"
    );
    let row = |(reason, object, text): &(&str, &str, &str)| {
        [format!("`{reason}`"), (*object).to_owned(), (*text).to_owned()]
    };
    Ok(super::table(["reason", "on", "what it says"], EVENTS.iter().map(row)))
}

/// The Rust files in a folder, except those of tests.
fn sources(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let path = entry?.path();
        let is_test = path.file_stem().is_some_and(|stem| stem == "tests" || stem == "testkit");
        if is_test {
            continue;
        }
        if path.is_dir() {
            all.extend(sources(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            all.push(path);
        }
    }
    Ok(all)
}

/// The reasons in a source: the first text after such a call, if it is one word in PascalCase.
fn reasons(source: &str) -> BTreeSet<String> {
    let code = source.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let mut reasons = BTreeSet::new();
    for call in CALLS {
        for (at, _) in code.match_indices(call) {
            let rest = &code[at + call.len()..];
            let near = &rest[..rest.floor_char_boundary(REACH)];
            let text = near.split('"').nth(1).unwrap_or_default();
            let is_word = text.starts_with(|first: char| first.is_ascii_uppercase())
                && text.chars().all(|letter| letter.is_ascii_alphabetic());
            // The text must be complete.
            if is_word && near.matches('"').count() > 1 {
                reasons.insert(text.to_owned());
            }
        }
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_found_on_one_line_and_on_several() {
        let source = "events.normal(object, \"Done\", &note);\nself.events.warning(\n    location,\n    \"NotSynced\",\n);\n\
             log.warning(\"a sentence\");\nevents.warning(object, &reason, \"Text\");\n#[cfg(test)]\nmod tests {\n\
             events.normal(x, \"Never\", y);\n";
        let found = reasons(source);
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ["Done", "NotSynced", "Text"]);
    }

    #[test]
    fn the_reasons_are_those_of_the_source_and_sorted() {
        assert!(EVENTS.is_sorted_by_key(|(reason, ..)| reason));
        table().unwrap();
    }
}
