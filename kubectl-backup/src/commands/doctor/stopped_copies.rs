//! Copies of backups that have failed, or wait, in locations that exist.

use std::collections::BTreeMap;

use backup_core::{
    api::backup::CopyPhase,
    restorability::{Place, Places},
    text::{counted, listed, shortened},
};

use super::{
    Finding,
    copies::{MAX_NAMED_BACKUPS, ON},
};
use crate::commands::prelude::*;

/// Maximum length of the message of a copy in a finding.
const MAX_MESSAGE_CHARS: usize = 200;

/// A copy that has failed, or waits.
pub(super) struct StoppedCopy {
    backup: String,
    location: String,
    has_failed: bool,
    message: String,
}

/// Messages of copies by the names of their backups.
type MessageByBackup = BTreeMap<String, String>;

/// The copies of a backup in locations that exist; those in others have a finding of their own.
pub(super) fn of_backup(backup: &Backup, places: &Places) -> Vec<StoppedCopy> {
    let name = plain(&backup.name_any());
    backup
        .stopped_copies()
        .filter(|copy| places.find(&copy.location) != Place::Gone)
        .map(|copy| StoppedCopy {
            backup: name.clone(),
            location: plain(&copy.location),
            has_failed: copy.phase() == CopyPhase::Failed,
            message: shortened(&plain(&copy.message), MAX_MESSAGE_CHARS),
        })
        .collect()
}

/// At most two findings for each location: for copies that have failed, and for those that wait.
pub(super) fn findings(copies: impl Iterator<Item = StoppedCopy>) -> Vec<Finding> {
    let mut groups = BTreeMap::<(String, bool), MessageByBackup>::new();
    for copy in copies {
        let group = groups.entry((copy.location, copy.has_failed)).or_default();
        group.insert(copy.backup, copy.message);
    }
    let groups = groups.iter();
    groups
        .filter_map(|((location, has_failed), copies)| finding(location, *has_failed, copies))
        .collect()
}

/// The finding for copies in one location that have all failed, or all wait. The message is that of
/// the first backup. `None` without a copy.
fn finding(location: &str, has_failed: bool, copies: &MessageByBackup) -> Option<Finding> {
    let (first, message) = copies.first_key_value()?;
    let total = copies.len();
    let names: Vec<&str> = copies
        .keys()
        .take(MAX_NAMED_BACKUPS)
        .map(String::as_str)
        .collect();
    let shown = listed(&names, total);
    let backups = counted(total, "backup");
    let verb = if total == 1 { "is" } else { "are" };
    let state = if has_failed { "has failed" } else { "waits" };
    let message = if message.is_empty() {
        String::new()
    } else {
        format!("; message of {first}: {message}")
    };
    let text = format!(
        "{backups} {verb} not copied into location {location}: the copy {state} ({shown}){message}"
    );
    let remedy = if has_failed {
        format!(
            "It is tried again within an hour; at once: kubectl backup copy {first} --to={location}"
        )
    } else {
        format!("It is made when the cause is gone: kubectl backup locations describe {location}")
    };
    Some(ON.warn(text, remedy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_that_have_failed_or_wait_are_named_with_a_message() {
        let location: BackupStorageLocation = serde_json::from_value(json!({
            "metadata": { "name": "offsite" },
            "spec": { "provider": "aws", "objectStorage": { "bucket": "b" } } }))
        .unwrap();
        let places = Places::of(&[location]);
        let backup = |name: &str, copy: serde_json::Value| -> Backup {
            serde_json::from_value(json!({ "metadata": { "name": name },
                "spec": { "storageLocation": "here", "copies": [{ "location": "offsite" }, { "location": "gone" }] },
                "status": { "phase": "Completed", "copies": [copy, { "location": "gone", "phase": "Failed", "message": "it is gone" }] } }))
            .unwrap()
        };
        let failed =
            json!({ "location": "offsite", "phase": "Failed", "message": "403\nAccessDenied" });
        let all = [
            backup("d", failed.clone()),
            backup("c", failed.clone()),
            backup("b", failed.clone()),
            backup("a", failed),
            backup(
                "e",
                json!({ "location": "offsite", "phase": "New", "message": "it is read-only" }),
            ),
            backup("f", json!({ "location": "offsite", "phase": "New" })),
            backup("g", json!({ "location": "offsite", "phase": "Completed" })),
        ];
        let found = findings(all.iter().flat_map(|one| of_backup(one, &places)));
        let texts: Vec<&str> = found.iter().map(|one| one.text.as_str()).collect();
        assert_eq!(
            texts,
            [
                "1 backup is not copied into location offsite: the copy waits (e); message of e: it is read-only",
                "4 backups are not copied into location offsite: the copy has failed (a, b, c and 1 more); message of a: 403 AccessDenied",
            ]
        );
    }
}
