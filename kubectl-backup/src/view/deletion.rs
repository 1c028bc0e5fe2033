//! A Backup that is being deleted.

use backup_core::{api::Backup, deletion::Waits, labels::DELETION_WAITS_ANNOTATION};

use super::description::Verdict;
use crate::print::{style::Tone, table::plain};

/// How its deletion stands: at work, or waiting for what the store has locked.
pub fn verdict(backup: &Backup) -> Verdict {
    let verdict = Verdict::new(Tone::Busy, "It is being deleted, with all that is stored of it.");
    let annotation = backup.metadata.annotations.as_ref().and_then(|all| all.get(DELETION_WAITS_ANNOTATION));
    match Waits::read(annotation.map(String::as_str)) {
        None => verdict,
        Some(waits) => verdict.because([
            plain(&format!("{waits}.")),
            format!(
                "It ends by itself; it is looked at again at {}.",
                waits.again.strftime("%Y-%m-%dT%H:%M:%SZ")
            ),
        ]),
    }
}

/// What stands behind the phase in a list, if there is something to say.
pub fn until(backup: &Backup) -> Option<String> {
    let annotation = backup.metadata.annotations.as_ref()?.get(DELETION_WAITS_ANNOTATION)?;
    let waits = Waits::read(Some(annotation))?;
    Some(waits.until.map_or_else(
        || "legal hold".to_owned(),
        |until| format!("locked until {}", until.strftime("%Y-%m-%d %H:%MZ")),
    ))
}
