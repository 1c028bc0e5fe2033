//! Patches of the states of copies.

use backup_core::api::{
    Backup,
    backup::{BackupCopyStatus, CopyPhase},
};
use serde_json::{Value, json};

/// Sets the state of a copy; `None` if the Backup has it, or is being deleted.
pub(super) fn state(current: &Backup, state: &BackupCopyStatus) -> Option<Value> {
    if !current.has_copyable_files() || current.copy_in(&state.location) == Some(state) {
        return None;
    }
    let mut copies = current.status.copies.clone();
    match copies
        .iter_mut()
        .find(|copy| copy.location == state.location)
    {
        Some(copy) => copy.clone_from(state),
        None => copies.push(state.clone()),
    }
    Some(json!({ "status": { "copies": copies } }))
}

/// Adds the state of a copy; `None` if there is one for its location.
pub(crate) fn added(current: &Backup, found: &BackupCopyStatus) -> Option<Value> {
    if current.copy_in(&found.location).is_some() {
        return None;
    }
    state(current, found)
}

/// Has a complete copy made again, as its files are gone; `None` if there is none.
pub(crate) fn renewed(current: &Backup, location: &str) -> Option<Value> {
    let gone = current
        .copy_in(location)
        .filter(|copy| copy.is_complete())?;
    let renewed = BackupCopyStatus {
        location: gone.location.clone(),
        phase: Some(CopyPhase::New),
        message: "its files were gone from the location; it is made again".to_owned(),
        ..BackupCopyStatus::default()
    };
    state(current, &renewed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_state_changes_and_the_others_stay() {
        let copies =
            json!([{ "location": "a", "phase": "Completed" }, { "location": "b", "later": 1 }]);
        let status = json!({ "phase": "Completed", "copies": copies });
        let mut backup: Backup = serde_json::from_value(json!({ "status": status })).unwrap();
        let of = |location: &str| BackupCopyStatus {
            location: location.to_owned(),
            phase: Some("Failed".into()),
            ..BackupCopyStatus::default()
        };
        let failed = |location: &str| json!({ "location": location, "phase": "Failed" });
        let patched = |backup: &Backup, location: &str| {
            state(backup, &of(location)).map(|patch| patch["status"]["copies"].clone())
        };
        let expected = json!([failed("a"), { "location": "b", "later": 1 }]);
        assert_eq!(patched(&backup, "a"), Some(expected));
        let expected = json!([{ "location": "a", "phase": "Completed" }, failed("b")]);
        assert_eq!(patched(&backup, "b"), Some(expected));
        let all = patched(&backup, "c").unwrap();
        assert_eq!(all[2], failed("c"));
        backup.status.copies = serde_json::from_value(all).unwrap();
        assert_eq!(patched(&backup, "c"), None);
        assert_eq!(added(&backup, &of("a")), None);
        assert!(added(&backup, &of("d")).is_some());
        let again = renewed(&backup, "a").unwrap();
        assert_eq!(again["status"]["copies"][0]["phase"], "New");
        assert_eq!(renewed(&backup, "b"), None, "it was never complete");
        backup.status.phase = Some("Deleting".into());
        assert_eq!(patched(&backup, "d"), None);
        assert_eq!(renewed(&backup, "a"), None);
    }
}
