//! Colour, where a person reads. Signs carry the meaning without it.

/// How something stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Tone {
    /// It went well.
    Good,
    /// It is under way.
    Busy,
    /// It went well in part.
    Warn,
    /// It went wrong.
    Bad,
    /// We don't know what it means.
    Unknown,
}

impl Tone {
    /// A sign for it.
    pub const fn sign(self) -> &'static str {
        match self {
            Self::Good => "✓",
            Self::Busy => "…",
            Self::Warn => "!",
            Self::Bad => "✗",
            Self::Unknown => "?",
        }
    }
}

/// Paints, or not.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    colour: bool,
}

impl Style {
    /// With colour or without.
    pub const fn new(colour: bool) -> Self {
        Self { colour }
    }

    /// Bold, for titles.
    pub fn title(self, text: &str) -> String {
        self.paint("1", text)
    }

    /// Red, for what went wrong.
    pub fn bad(self, text: &str) -> String {
        self.paint("31", text)
    }

    /// Faint, for what matters less.
    pub fn faint(self, text: &str) -> String {
        self.paint("2", text)
    }

    /// As a tone asks.
    pub fn tone(self, tone: Tone, text: &str) -> String {
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
