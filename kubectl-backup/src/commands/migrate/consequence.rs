//! Consequences of a move for each part of a Velero installation, as lines for users.

use std::fmt::Write as _;

use serde::Serialize;

use crate::{
    commands::finding::Finding,
    print::{Style, Tone},
};

/// Effect of a move on a part of the installation, in the order of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Effect {
    /// Works here as with Velero.
    Stays,
    /// Works in another way, or has to be set again.
    Changes,
    /// Could not be read, or is not known.
    Unknown,
    /// Does not work here: an operator has to decide what to do instead.
    Lost,
}

impl Effect {
    const ALL: [Self; 4] = [Self::Stays, Self::Changes, Self::Unknown, Self::Lost];

    const fn title(self) -> &'static str {
        match self {
            Self::Stays => "Stays",
            Self::Changes => "Changes",
            Self::Unknown => "Not known",
            Self::Lost => "Lost",
        }
    }

    const fn tone(self) -> Tone {
        match self {
            Self::Stays => Tone::Good,
            Self::Changes => Tone::Warn,
            Self::Unknown => Tone::Unknown,
            Self::Lost => Tone::Bad,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Consequence {
    pub(crate) effect: Effect,
    /// The part of the installation: a fixed word.
    pub(crate) subject: &'static str,
    pub(crate) text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remedy: Option<String>,
}

impl Consequence {
    pub(crate) fn with_remedy(self, remedy: impl Into<String>) -> Self {
        Self {
            remedy: Some(remedy.into()),
            ..self
        }
    }

    fn lines(&self, style: Style) -> String {
        let finding = Finding {
            check: self.subject,
            tone: self.effect.tone(),
            text: self.text.clone(),
            remedy: self.remedy.clone(),
        };
        finding.lines(style)
    }
}

/// A part of the installation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject(pub(super) &'static str);

impl Subject {
    fn has(self, effect: Effect, text: impl Into<String>) -> Consequence {
        Consequence {
            effect,
            subject: self.0,
            text: text.into(),
            remedy: None,
        }
    }

    pub(crate) fn stays(self, text: impl Into<String>) -> Consequence {
        self.has(Effect::Stays, text)
    }

    pub(crate) fn changes(self, text: impl Into<String>) -> Consequence {
        self.has(Effect::Changes, text)
    }

    pub(crate) fn unknown(self, text: impl Into<String>) -> Consequence {
        self.has(Effect::Unknown, text)
    }

    /// `remedy` is what to do instead.
    pub(crate) fn lost(self, text: impl Into<String>, remedy: impl Into<String>) -> Consequence {
        self.has(Effect::Lost, text).with_remedy(remedy)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MigrationReport {
    pub(crate) namespace: String,
    /// Version of the Velero server, such as `v1.18.2`; null if its image does not name it.
    pub(crate) velero_version: Option<String>,
    /// Whether nothing is lost, and everything is known.
    pub(crate) lossless: bool,
    pub(crate) consequences: Vec<Consequence>,
}

impl MigrationReport {
    pub(crate) fn of(
        namespace: &str,
        velero_version: Option<String>,
        consequences: Vec<Consequence>,
    ) -> Self {
        Self {
            namespace: namespace.to_owned(),
            velero_version,
            lossless: consequences
                .iter()
                .all(|one| matches!(one.effect, Effect::Stays | Effect::Changes)),
            consequences,
        }
    }

    /// A section for each effect, and the verdict.
    pub(crate) fn text(&self, style: Style) -> String {
        let version = self.velero_version.as_deref().unwrap_or("(no version)");
        let mut text = format!("Velero {version} in namespace {}\n", self.namespace);
        for effect in Effect::ALL {
            let mut all = self.of_effect(effect).peekable();
            if all.peek().is_some() {
                let _ = writeln!(text, "\n{}", style.title(effect.title()));
            }
            for one in all {
                text += &one.lines(style);
            }
        }
        text + "\n" + &self.verdict() + "\n"
    }

    /// One sentence or two.
    pub(crate) fn verdict(&self) -> String {
        let [stays, changes, unknown, lost] =
            Effect::ALL.map(|effect| self.of_effect(effect).count());
        let kept = format!("stays: {stays}, changes: {changes}");
        match (lost, unknown) {
            (0, 0) => format!("Nothing is lost ({kept})."),
            (0, _) => format!("Nothing that is known is lost ({kept}). Not known: {unknown}."),
            (_, 0) => format!("Lost: {lost} ({kept}). Decide on each before the move."),
            _ => format!(
                "Lost: {lost}, not known: {unknown} ({kept}). Decide on each before the move."
            ),
        }
    }

    fn of_effect(&self, effect: Effect) -> impl Iterator<Item = &Consequence> {
        self.consequences
            .iter()
            .filter(move |one| one.effect == effect)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_says_whether_anything_is_lost() {
        let on = Subject("flags");
        for (consequences, lossless, verdict) in [
            (
                vec![on.stays("a"), on.changes("b")],
                true,
                "Nothing is lost (stays: 1, changes: 1).",
            ),
            (
                vec![on.unknown("c")],
                false,
                "Nothing that is known is lost (stays: 0, changes: 0). Not known: 1.",
            ),
            (
                vec![on.lost("d", "e"), on.stays("a")],
                false,
                "Lost: 1 (stays: 1, changes: 0). Decide on each before the move.",
            ),
            (
                vec![on.lost("d", "e"), on.unknown("c")],
                false,
                "Lost: 1, not known: 1 (stays: 0, changes: 0). Decide on each before the move.",
            ),
        ] {
            let report = MigrationReport::of("velero", None, consequences);
            assert_eq!(
                (report.lossless, report.verdict().as_str()),
                (lossless, verdict)
            );
        }
    }
}
