//! Findings of checks, each with its remedy: for `doctor` and `install`.

use serde::Serialize;

use crate::print::{Style, Tone};

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Finding {
    /// The subject of the check: a fixed word.
    pub(crate) check: &'static str,
    /// `good`, `warn` (worth a look), `bad` (broken) or `unknown` (could not be checked).
    pub(crate) tone: Tone,
    pub(crate) text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remedy: Option<String>,
}

impl Finding {
    /// The finding as a line, with its remedy below.
    pub(crate) fn lines(&self, style: Style) -> String {
        let Self {
            check,
            tone,
            text,
            remedy,
        } = self;
        let sign = style.tone(*tone, tone.sign());
        let text = if *tone == Tone::Bad {
            style.bad(text)
        } else {
            text.clone()
        };
        let remedy = remedy
            .as_ref()
            .map_or_else(String::new, |remedy| format!("  {:<23}{remedy}\n", ""));
        format!("{sign} {check:<23}{text}\n{remedy}")
    }
}

/// The subject of findings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Topic(pub(crate) &'static str);

impl Topic {
    pub(crate) fn good(self, text: impl Into<String>) -> Finding {
        Finding {
            check: self.0,
            tone: Tone::Good,
            text: text.into(),
            remedy: None,
        }
    }

    pub(crate) fn warn(self, text: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding {
            tone: Tone::Warn,
            remedy: Some(remedy.into()),
            ..self.good(text)
        }
    }

    pub(crate) fn bad(self, text: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding {
            tone: Tone::Bad,
            ..self.warn(text, remedy)
        }
    }

    pub(crate) fn unknown(self, why: &str, remedy: Option<String>) -> Finding {
        Finding {
            tone: Tone::Unknown,
            remedy,
            ..self.good(format!("not known: {why}"))
        }
    }
}
