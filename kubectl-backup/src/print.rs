//! Output formats: columns, the describe screen, ages, JSON and YAML, colours.

mod age;
pub(crate) mod describe;
pub(crate) mod json;
mod page;
mod size;

use std::io::Write;

pub(crate) use backup_core::text::plain;

pub(crate) use age::{ago, ago_or_never, day, human, minute, moment, seconds, since, took, until};
pub use page::Size;
pub(crate) use page::{page, row};
pub(crate) use size::size;

/// How good or bad a state is. Signs carry the meaning if there are no colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Tone {
    Good,
    Busy,
    /// Partial success.
    Warn,
    Bad,
    /// The meaning is unknown.
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
        if self.colour && !text.is_empty() {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

/// A table of these columns, with or without headers. Cells of further columns are left out.
pub(crate) fn table(
    headers: &[&str],
    with_headers: bool,
    rows: impl IntoIterator<Item = Vec<String>>,
) -> std::io::Result<String> {
    let header = with_headers.then(|| headers.iter().map(|header| (*header).to_owned()).collect());
    let rows = rows
        .into_iter()
        .map(|row| row.into_iter().take(headers.len()).collect::<Vec<String>>());
    aligned(header.into_iter().chain(rows))
}

/// Rows with aligned columns. Cells must not contain line ends or tabs.
pub(crate) fn aligned(rows: impl IntoIterator<Item = Vec<String>>) -> std::io::Result<String> {
    let mut writer = tabwriter::TabWriter::new(Vec::new())
        .minwidth(0)
        .padding(3)
        .ansi(true);
    for row in rows {
        writeln!(
            writer,
            "{}",
            row.iter()
                .map(|cell| one_line(cell))
                .collect::<Vec<_>>()
                .join("\t")
        )?;
    }
    writer.flush()?;
    let bytes = writer
        .into_inner()
        .map_err(|error| std::io::Error::other(error.to_string()))?;
    let text = String::from_utf8(bytes).map_err(std::io::Error::other)?;
    Ok(text
        .lines()
        .fold(String::new(), |all, line| all + line.trim_end() + "\n"))
}

/// A screen that is built line by line.
pub(crate) struct Screen {
    pub(crate) text: String,
    pub(crate) style: Style,
}

impl Screen {
    /// Starts a screen; its first line has the sign and the name of the object, and `rest`.
    pub(crate) fn of(style: Style, tone: Tone, name: &str, rest: &[&str]) -> Self {
        let mut screen = Self {
            text: String::new(),
            style,
        };
        let sign = style.tone(tone, tone.sign());
        screen.line(&format!(
            "{sign} {}   {}",
            style.title(name),
            rest.join("   ")
        ));
        screen
    }

    pub(crate) fn line(&mut self, line: &str) {
        self.text = std::mem::take(&mut self.text) + line.trim_end() + "\n";
    }

    /// Adds indented lines.
    pub(crate) fn lines(&mut self, lines: impl IntoIterator<Item = impl std::fmt::Display>) {
        lines
            .into_iter()
            .for_each(|line| self.line(&format!("  {line}")));
    }

    /// Adds titles and texts in two columns.
    pub(crate) fn facts<'a>(
        &mut self,
        width: usize,
        facts: impl IntoIterator<Item = (&'a str, String)>,
    ) {
        for (title, text) in facts {
            self.line(&format!("  {title:<width$}{text}"));
        }
    }

    /// Adds an empty line and a title.
    pub(crate) fn section(&mut self, title: &str) {
        self.line("");
        self.line(&self.style.title(title));
    }
}

/// A text on one line, without characters that control the terminal.
pub(crate) fn one_line(text: &str) -> String {
    // ESC is kept only for our own colours: texts from data fields pass `plain` first.
    text.chars()
        .map(|c| {
            if c.is_control() && c != '\x1b' {
                ' '
            } else {
                c
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_whatever_the_width_of_characters_and_colours() {
        let rows = [
            vec!["\u{1b}[32mnächtlich\u{1b}[0m".to_owned(), "1".to_owned()],
            vec!["备份".to_owned(), "2".to_owned()],
            vec!["b".to_owned(), String::new()],
        ];
        let text = table(&["NAME", "N"], true, rows).unwrap();
        assert_eq!(
            text,
            "NAME        N\n\u{1b}[32mnächtlich\u{1b}[0m   1\n备份        2\nb\n"
        );
    }

    #[test]
    fn texts_from_the_cluster_cannot_move_the_cursor() {
        assert_eq!(plain("a\n\tb\u{1b}[2J\rc\u{7}"), "a b [2J c");
    }
}
