//! The environment of a command besides the cluster: streams, variables, clock.

use std::{
    io::{BufRead, IsTerminal, Write},
    rc::Rc,
};

use anstream::AutoStream;
use jiff::Timestamp;

use crate::{
    api_warnings::ApiWarnings,
    cli::{Colour, GlobalArgs},
    print::{Size, Style, plain},
    session::Session,
};

/// Returns the value of an environment variable.
pub type Variables = Rc<dyn Fn(&str) -> Option<String>>;

/// Streams, environment, clock and global flags of one run. Tests use their own.
pub struct Terminal {
    /// Stream for data.
    pub out: Box<dyn Write>,
    /// Stream for messages: progress, hints, errors.
    pub err: Box<dyn Write>,
    /// Stream for answers to questions.
    pub input: Box<dyn BufRead>,
    /// Whether `out` is a terminal.
    pub out_is_terminal: bool,
    /// Whether `err` is a terminal.
    pub err_is_terminal: bool,
    /// Whether `input` is a terminal.
    pub in_is_terminal: bool,
    /// Width of help texts (columns); `None`: the width of the terminal.
    pub width: Option<usize>,
    /// Current size of the terminal; `None` if unknown.
    pub size: Box<dyn Fn() -> Option<Size>>,
    /// Returns the value of an environment variable.
    pub var: Variables,
    /// Returns the time, for display and for names made from it.
    pub now: Box<dyn Fn() -> Timestamp>,
    /// The global flags.
    pub(crate) flags: GlobalArgs,
    /// An existing connection.
    pub(crate) session: Option<Session>,
    /// Warnings of the API server that have not been shown yet.
    pub(crate) api_warnings: ApiWarnings,
}

/// Quotes a word for a shell, if necessary.
pub(crate) fn quoted(word: &str) -> String {
    if word
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "-_./:@%+=,~".contains(c))
    {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

fn window_size() -> Option<Size> {
    let (columns, rows) = terminal_size::terminal_size()?;
    Some(Size {
        columns: columns.0.into(),
        rows: rows.0.into(),
    })
}

impl Terminal {
    /// Streams, environment and clock of the process.
    pub fn standard() -> Self {
        Self {
            // A Windows console is switched to colours, or they are translated for it.
            out: Box::new(AutoStream::always(std::io::stdout())),
            err: Box::new(AutoStream::always(std::io::stderr())),
            input: Box::new(std::io::BufReader::new(std::io::stdin())),
            out_is_terminal: std::io::stdout().is_terminal(),
            err_is_terminal: std::io::stderr().is_terminal(),
            in_is_terminal: std::io::stdin().is_terminal(),
            width: None,
            size: Box::new(window_size),
            // A path that is not UTF-8 does not work, but the variable counts as set.
            var: Rc::new(|name| {
                std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
            }),
            now: Box::new(Timestamp::now),
            flags: GlobalArgs::default(),
            session: None,
            api_warnings: ApiWarnings::default(),
        }
    }

    /// Streams without a terminal, no environment, and a fixed time.
    pub fn piped(out: Box<dyn Write>, err: Box<dyn Write>, now: Timestamp) -> Self {
        Self {
            out,
            err,
            input: Box::new(std::io::empty()),
            out_is_terminal: false,
            err_is_terminal: false,
            in_is_terminal: false,
            width: Some(100),
            size: Box::new(|| None),
            var: Rc::new(|_| None),
            now: Box::new(move || now),
            flags: GlobalArgs::default(),
            session: None,
            api_warnings: ApiWarnings::default(),
        }
    }

    /// For a command whose output is captured: the same environment, time, flags and connection.
    pub(crate) fn captured(
        &self,
        session: &Session,
        out: Box<dyn Write>,
        err: Box<dyn Write>,
    ) -> Self {
        Self {
            var: self.var.clone(),
            flags: GlobalArgs {
                color: Colour::Never,
                ..self.flags.clone()
            },
            session: Some(session.clone()),
            ..Self::piped(out, err, self.now())
        }
    }

    /// Prints new warnings of the API server.
    pub(crate) fn say_api_warnings(&mut self) {
        for warning in self.api_warnings.take() {
            self.say(&format!("Warning: {}", plain(&warning)));
        }
    }

    /// The current time.
    pub(crate) fn now(&self) -> Timestamp {
        (self.now)()
    }

    /// An environment variable, unless it is unset or empty.
    pub(crate) fn var(&self, name: &str) -> Option<String> {
        (self.var)(name).filter(|value| !value.is_empty())
    }

    /// Whether a variable is set and not empty.
    pub(crate) fn has_var(&self, name: &str) -> bool {
        self.var(name).is_some()
    }

    /// Style for data.
    pub(crate) fn out_style(&self) -> Style {
        self.style(self.out_is_terminal)
    }

    /// Style for messages.
    pub(crate) fn err_style(&self) -> Style {
        self.style(self.err_is_terminal)
    }

    /// `--color` first, then `NO_COLOR` (unless empty; no-color.org), then whether the stream is a
    /// terminal.
    fn style(&self, is_terminal: bool) -> Style {
        Style::new(match self.flags.color {
            Colour::Always => true,
            Colour::Never => false,
            Colour::Auto => {
                is_terminal
                    && !self.has_var("NO_COLOR")
                    && self.var("TERM").as_deref() != Some("dumb")
            }
        })
    }

    /// Writes data to stdout unchanged.
    pub(crate) fn data(&mut self, text: &str) -> std::io::Result<()> {
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }

    /// Writes a line to stderr. A closed stderr is not an error.
    pub(crate) fn say(&mut self, line: &str) {
        let line = self.pasteable(line);
        self.talk_raw(&format!("{line}\n"));
    }

    /// Adds the flags by which the user has chosen cluster and installation to the commands in a
    /// text.
    pub(crate) fn pasteable(&self, text: &str) -> String {
        let GlobalArgs {
            kubeconfig,
            context,
            cluster,
            user,
            namespace,
            ..
        } = &self.flags;
        let kubeconfig = kubeconfig.as_ref().map(|path| path.display().to_string());
        let given = [
            ("--kubeconfig", kubeconfig.as_ref()),
            ("--context", context.as_ref()),
            ("--cluster", cluster.as_ref()),
            ("--user", user.as_ref()),
        ];
        let connection: String = given
            .into_iter()
            .filter_map(|(name, value)| Some(format!(" {name}={}", quoted(value?))))
            .collect();
        let installation = namespace
            .as_ref()
            .map_or_else(String::new, |name| format!(" -n {}", quoted(name)));
        // kubectl accepts flags only after the name of a plugin.
        text.replace("kubectl -n ", &format!("kubectl{connection} -n "))
            .replace(
                "kubectl backup ",
                &format!("kubectl backup{connection}{installation} "),
            )
    }

    /// Writes a message to stderr without a line end.
    pub(crate) fn talk_raw(&mut self, text: &str) {
        let _ = self.err.write_all(text.as_bytes());
        let _ = self.err.flush();
    }

    /// Whether the user can be asked.
    pub(crate) fn can_ask(&self) -> bool {
        self.in_is_terminal && self.err_is_terminal
    }

    /// Asks for confirmation on the terminal; `None` if the user cannot answer.
    pub(crate) fn confirm(&mut self, question: &str) -> Option<bool> {
        let answer = self.ask(&format!("{question} [y/N] "))?;
        Some(matches!(answer.to_ascii_lowercase().as_str(), "y" | "yes"))
    }

    /// Asks on the terminal, and returns the answer without spaces around it; `None` if the user
    /// cannot answer.
    pub(crate) fn ask(&mut self, question: &str) -> Option<String> {
        if !self.can_ask() {
            return None;
        }
        self.talk_raw(question);
        let mut answer = String::new();
        self.input.read_line(&mut answer).ok()?;
        Some(answer.trim().to_owned())
    }
}
