//! What `doctor` finds, as data.

use std::fmt::Write as _;

use serde::Serialize;

use super::API_VERSION;
use crate::print::{Style, Tone};

/// What `doctor -o json` prints.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    pub(crate) api_version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) namespace: String,
    pub(crate) broken: bool,
    pub(crate) findings: Vec<Finding>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Finding {
    /// What was looked at: a fixed word.
    pub(crate) check: &'static str,
    /// `good`, `warn` (worth a look), `bad` (broken) or `unknown` (could not be asked).
    pub(crate) tone: Tone,
    pub(crate) text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remedy: Option<String>,
}

impl Finding {
    pub(crate) fn good(check: &'static str, text: impl Into<String>) -> Self {
        Self { check, tone: Tone::Good, text: text.into(), remedy: None }
    }

    pub(crate) fn warn(check: &'static str, text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { check, tone: Tone::Warn, text: text.into(), remedy: Some(remedy.into()) }
    }

    pub(crate) fn bad(check: &'static str, text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { check, tone: Tone::Bad, text: text.into(), remedy: Some(remedy.into()) }
    }

    pub(crate) fn unknown(check: &'static str, why: &str, remedy: Option<String>) -> Self {
        Self { check, tone: Tone::Unknown, text: format!("not known: {why}"), remedy }
    }
}

impl Report {
    pub(crate) fn new(namespace: &str, findings: Vec<Finding>) -> Self {
        let broken = findings.iter().any(|finding| finding.tone == Tone::Bad);
        Self {
            api_version: API_VERSION,
            kind: "DoctorReport",
            namespace: namespace.to_owned(),
            broken,
            findings,
        }
    }

    /// A line each, and its remedy below.
    pub(crate) fn text(&self, style: Style) -> String {
        let mut text = String::new();
        for Finding { check, tone, text: seen, remedy } in &self.findings {
            let sign = style.tone(*tone, tone.sign());
            let _ = writeln!(
                text,
                "{sign} {check:<14}{}",
                if *tone == Tone::Bad { style.bad(seen) } else { seen.clone() }
            );
            if let Some(remedy) = remedy {
                let _ = writeln!(text, "  {:<14}{remedy}", "");
            }
        }
        let count = |tone: Tone| self.findings.iter().filter(|finding| finding.tone == tone).count();
        let (bad, warn, unknown) = (count(Tone::Bad), count(Tone::Warn), count(Tone::Unknown));
        let verdict = match (bad, warn) {
            (0, 0) => "Nothing is broken.".to_owned(),
            (0, warn) => format!("Nothing is broken; {warn} worth a look."),
            (bad, 0) => format!("Broken: {bad}."),
            (bad, warn) => format!("Broken: {bad}; worth a look: {warn}."),
        };
        let _ = match unknown {
            0 => writeln!(text, "\n{verdict}"),
            unknown => writeln!(text, "\n{verdict} Not known: {unknown}."),
        };
        text
    }
}
