//! What retention did in a location, as data. Pure.

use backup_core::{
    api::BackupStorageLocation,
    labels::{RETENTION_ANNOTATION, RETENTION_REQUEST_ANNOTATION, annotation},
    retention::RetentionRecord,
    text::counted,
};
use jiff::Timestamp;
use kube::ResourceExt as _;
use serde::Serialize;

use crate::print::{Screen, Style, Tone, ago, plain};

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LocationRetention {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Whether a look at its backups was requested and has not begun.
    pub(crate) requested: bool,
    /// The last record; null if nothing was removed or refused yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last: Option<RetentionRecord>,
}

pub(crate) fn location(location: &BackupStorageLocation) -> LocationRetention {
    let text = annotation(location, RETENTION_ANNOTATION);
    LocationRetention {
        namespace: location.namespace().unwrap_or_default(),
        name: location.name_any(),
        requested: annotation(location, RETENTION_REQUEST_ANNOTATION).is_some(),
        last: text.map(|text| RetentionRecord::read(Some(text))),
    }
}

/// That retention has stopped in a location, in short; `None` if it has not.
pub(crate) fn stopped(location: &BackupStorageLocation) -> Option<String> {
    let refused = self::location(location).last?.refused;
    (refused > 0).then(|| {
        let backups = counted(refused, "expired backup");
        format!("retention has stopped: {backups} at once are too many to remove without consent")
    })
}

impl LocationRetention {
    pub(crate) fn refused(&self) -> u64 {
        self.last.as_ref().map_or(0, |last| last.refused)
    }

    pub(crate) fn text(&self, now: Timestamp, style: Style) -> String {
        let (tone, state) = match self.refused() {
            0 => (Tone::Good, "nothing waits for consent"),
            _ => (Tone::Warn, "stopped"),
        };
        let state = style.tone(tone, state);
        let mut screen = Screen::of(style, tone, &plain(&self.name), &[&state]);
        screen.line("");
        let mut facts = Vec::new();
        match &self.last {
            None => facts.push(("Removed", "nothing yet".to_owned())),
            Some(last) => {
                facts.push(("Recorded", ago(last.at, now)));
                let removed = counted(last.removed, "backup");
                facts.push(("Removed", format!("{removed} by the last pass")));
                if last.refused > 0 {
                    facts.push(("Not removed", counted(last.refused, "backup")));
                }
                facts.extend(last.reason.iter().map(|why| ("Why", plain(why))));
            }
        }
        screen.facts(13, facts);
        if self.refused() > 0 {
            screen.section("NEXT");
            screen.line(&format!(
                "  If they are to go: kubectl backup locations retention {} --accept-removals={}",
                plain(&self.name),
                self.refused()
            ));
        }
        screen.text
    }
}
