//! Colour, where a person reads. Signs carry the meaning without it.

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Tone {
    Good,
    Busy,
    /// It went well in part.
    Warn,
    Bad,
    /// We don't know what it means.
    Unknown,
}

impl Tone {
    pub(crate) const fn sign(self) -> &'static str {
        match self {
            Self::Good => "✓",
            Self::Busy => "…",
            Self::Warn => "!",
            Self::Bad => "✗",
            Self::Unknown => "?",
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    colour: bool,
}

impl Style {
    pub(crate) const fn new(colour: bool) -> Self {
        Self { colour }
    }

    pub(crate) fn title(self, text: &str) -> String {
        self.paint("1", text)
    }

    pub(crate) fn bad(self, text: &str) -> String {
        self.paint("31", text)
    }

    pub(crate) fn tone(self, tone: Tone, text: &str) -> String {
        match tone {
            Tone::Good => self.paint("32", text),
            Tone::Warn => self.paint("33", text),
            Tone::Bad => self.bad(text),
            Tone::Busy => self.paint("36", text),
            Tone::Unknown => text.to_owned(),
        }
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.colour && !text.is_empty() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}
