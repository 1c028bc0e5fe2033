//! Copies in other locations on the describe screen.

use backup_core::{api::backup::CopyPhase, text::listed};
use jiff::Timestamp;

use crate::{
    print::{size, until},
    view::{copies::CopyView, stored::volumes::VolumeView},
};

/// Maximum number of volumes that are named; the others are counted.
const MAX_NAMED_VOLUMES: usize = 8;

/// "offsite (1.2 MiB, expires in 89d); archive (failed: …)"; `None` if there are none.
pub(super) fn line(copies: &[CopyView], now: Timestamp) -> Option<String> {
    let all: Vec<String> = copies.iter().map(|copy| show(copy, now)).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

fn show(copy: &CopyView, now: Timestamp) -> String {
    if let Some(problem) = &copy.problem {
        let state = if copy.phase() == CopyPhase::Completed {
            "copied, but "
        } else {
            "never made: "
        };
        return format!("{} ({state}{problem})", copy.location);
    }
    let state = match copy.phase() {
        CopyPhase::Completed => {
            let bytes = u64::try_from(copy.bytes).ok().filter(|bytes| *bytes > 0);
            let bytes = bytes.map_or_else(String::new, |bytes| size(bytes) + ", ");
            match copy.expires {
                Some(at) => {
                    let verb = if at > now { "expires" } else { "expired" };
                    format!("{bytes}{verb} {}", until(at, now))
                }
                None => format!("{bytes}never expires"),
            }
        }
        CopyPhase::New => "not begun".to_owned(),
        CopyPhase::InProgress => "being copied".to_owned(),
        CopyPhase::Failed => "failed, tried again every hour".to_owned(),
        CopyPhase::Deleting => "expired, being removed".to_owned(),
        CopyPhase::Expired => "expired".to_owned(),
        CopyPhase::Unknown(phase) => phase,
    };
    let message = if copy.message.is_empty() {
        String::new()
    } else {
        format!(": {}", copy.message)
    };
    format!("{} ({state}{message})", copy.location)
}

/// The volumes with saved data, which is not copied; `None` if there are none.
pub(super) fn left_behind(volumes: &[VolumeView]) -> Option<String> {
    let saved = volumes.iter().filter(|volume| !volume.place.is_empty());
    let names: Vec<&str> = saved.map(|volume| volume.claim.as_str()).collect();
    let first = &names[..names.len().min(MAX_NAMED_VOLUMES)];
    (!names.is_empty()).then(|| format!("data of {}", listed(first, names.len())))
}

#[cfg(test)]
mod tests {
    use backup_core::{
        api::{Backup, BackupStorageLocation},
        restorability::Places,
    };
    use serde_json::json;

    use super::*;
    use crate::view::copies;

    fn location(name: &str) -> BackupStorageLocation {
        let object = json!({ "metadata": { "name": name },
            "spec": { "provider": "aws", "objectStorage": { "bucket": "b" } }, "status": { "phase": "Available" } });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn each_copy_says_how_far_it_is() {
        let wanted: Vec<_> = ["a", "b", "c", "d", "e", "f"]
            .map(|location| json!({ "location": location }))
            .into();
        let states = json!([
            { "location": "a", "phase": "Completed", "bytes": 2048, "expiration": "2026-11-04T00:00:00Z" },
            { "location": "b", "phase": "Failed", "message": "no room" },
            { "location": "c", "phase": "InProgress" },
            { "location": "d", "phase": "Expired" },
            { "location": "e", "phase": "Later" },
            { "location": "g", "phase": "Completed", "expiration": "2026-11-02T23:00:00Z", "message": "rules keep it" },
        ]);
        let object = json!({ "spec": { "copies": wanted }, "status": { "copies": states } });
        let backup: Backup = serde_json::from_value(object).unwrap();
        let now = "2026-11-03T00:00:00Z".parse().unwrap();
        let locations = ["a", "g"].map(location);
        assert_eq!(
            line(&copies::of(&backup, &Places::of(&locations)), now).unwrap(),
            "a (2.0 KiB, expires in 24h); b (failed, tried again every hour: no room); c (being copied); d (expired); e (Later); \
             g (expired 60m ago: rules keep it); f (not begun)"
        );
        let none = Places::of([]);
        assert_eq!(line(&copies::of(&Backup::default(), &none), now), None);
    }

    #[test]
    fn a_copy_whose_location_is_gone_or_unknown_does_not_look_good() {
        let states = json!([{ "location": "offsite", "phase": "Completed", "bytes": 2048 }]);
        let object = json!({ "status": { "copies": states } });
        let backup: Backup = serde_json::from_value(object).unwrap();
        let now = "2026-11-03T00:00:00Z".parse().unwrap();
        let shown = |places: &Places| line(&copies::of(&backup, places), now).unwrap();
        assert_eq!(
            shown(&Places::of([])),
            "offsite (copied, but its location does not exist)"
        );
        assert_eq!(
            shown(&Places(Err("forbidden".to_owned()))),
            "offsite (copied, but its location could not be read: forbidden)"
        );
        assert_eq!(
            shown(&Places::of(&[location("offsite")])),
            "offsite (2.0 KiB, never expires)"
        );
    }

    #[test]
    fn a_copy_into_its_own_location_is_said_to_be_none() {
        let spec = json!({ "storageLocation": "here", "copies": [{ "location": "here" }] });
        let backup: Backup = serde_json::from_value(json!({ "spec": spec })).unwrap();
        let now = "2026-11-03T00:00:00Z".parse().unwrap();
        assert_eq!(
            line(&copies::of(&backup, &Places::of([])), now).unwrap(),
            "here (never made: the backup itself is there)"
        );
    }
}
