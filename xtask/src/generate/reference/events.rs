//! The table of events.

use backup_core::event_reason::EventReason;

pub(super) fn table() -> String {
    let rows = EventReason::ALL.iter().map(|reason| {
        [
            format!("`{}`", reason.as_str()),
            reason.kinds().to_owned(),
            reason.meaning().to_owned(),
        ]
    });
    super::table(["reason", "on", "what it says"], rows)
}
