//! The copies of a last good backup: which count, and remarks about the others. Pure.

use backup_core::{
    api::{Backup, backup::CopyPhase},
    restorability::Places,
    text::shortened,
};

use super::BackupFacts;
use crate::print::plain;

/// Maximum length of the message of a copy in a remark.
const MAX_MESSAGE_CHARS: usize = 120;

/// The locations of complete copies that can be read; none if the locations are not known.
pub(super) fn readable(good: &BackupFacts, places: Option<&Places>) -> Vec<String> {
    let Some(places) = places else {
        return Vec::new();
    };
    let copies = good.evidence.copies.iter();
    copies
        .filter(|name| places.find(name).copy_problem().is_none())
        .map(|name| plain(name))
        .collect()
}

/// Why copies do not count, and which have failed or wait.
pub(super) fn remarks(good: &BackupFacts, places: Option<&Places>) -> Vec<String> {
    let mut remarks = unreadable(good, places);
    remarks.extend(good.stopped_copies.iter().cloned());
    remarks
}

/// Why complete copies do not count; that no location could be read is said once for all.
fn unreadable(good: &BackupFacts, places: Option<&Places>) -> Vec<String> {
    let Some(places) = places else {
        return Vec::new();
    };
    let copies = good.evidence.copies.iter();
    copies
        .filter_map(|name| {
            let why = places.find(name).copy_problem()?;
            Some(plain(&format!("its copy in {name} does not count: {why}")))
        })
        .collect()
}

/// A sentence for each copy that has failed, or waits.
pub(super) fn stopped(backup: &Backup) -> Vec<String> {
    backup
        .stopped_copies()
        .map(|copy| {
            let location = plain(&copy.location);
            let state = if copy.phase() == CopyPhase::Failed {
                "has failed"
            } else {
                "waits"
            };
            let why = shortened(&plain(&copy.message), MAX_MESSAGE_CHARS);
            let why = if why.is_empty() {
                why
            } else {
                format!(": {why}")
            };
            format!("its copy in {location} {state}{why}")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;

    #[test]
    fn copies_that_have_failed_or_wait_are_remarks() {
        let backup: Backup = serde_json::from_value(json!({ "metadata": { "name": "b" },
            "spec": { "storageLocation": "default", "copies": [
                { "location": "second" }, { "location": "third" }, { "location": "fourth" }, { "location": "fifth" }] },
            "status": { "phase": "Completed", "copies": [
                { "location": "second", "phase": "Failed", "message": "403\nAccessDenied" },
                { "location": "third", "phase": "New", "message": "location third is read-only" },
                { "location": "fourth", "phase": "InProgress" },
                { "location": "fifth", "phase": "Failed" }] } }))
        .unwrap();
        let good = BackupFacts::of(&backup, Timestamp::UNIX_EPOCH);
        assert_eq!(
            remarks(&good, None),
            [
                "its copy in second has failed: 403 AccessDenied",
                "its copy in third waits: location third is read-only",
                "its copy in fifth has failed",
            ]
        );
    }
}
