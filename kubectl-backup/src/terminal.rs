//! What a command may see of the world beside the cluster: streams, environment, clock.

use std::{
    io::{BufRead, IsTerminal, Write},
    rc::Rc,
};

use anstream::AutoStream;
use jiff::Timestamp;

use crate::{
    api_warnings::ApiWarnings,
    cli::{Colour, GlobalArgs},
    client::Session,
    print::{Style, plain},
};

/// Gives an environment variable's value.
pub type Variables = Rc<dyn Fn(&str) -> Option<String>>;

/// Columns and rows of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Characters in a row.
    pub columns: usize,
    /// Rows in the window.
    pub rows: usize,
}

/// Streams, environment, clock and global flags of one run. Tests bring their own.
pub struct Terminal {
    /// Where data goes.
    pub out: Box<dyn Write>,
    /// Where talk goes: progress, hints, errors.
    pub err: Box<dyn Write>,
    /// Where answers to questions come from.
    pub input: Box<dyn BufRead>,
    /// Whether a person reads `out`.
    pub out_is_terminal: bool,
    /// Whether a person reads `err`.
    pub err_is_terminal: bool,
    /// Whether a person can answer.
    pub in_is_terminal: bool,
    /// Columns for help; unset: as the terminal has.
    pub width: Option<usize>,
    /// How large the terminal is now; nothing where that is not known.
    pub size: Box<dyn Fn() -> Option<Size>>,
    /// An environment variable's value.
    pub var: Variables,
    /// The time, for display and for names made from it.
    pub now: Box<dyn Fn() -> Timestamp>,
    /// The flags of every command.
    pub(crate) flags: GlobalArgs,
    /// A connection that is there already.
    pub(crate) session: Option<Session>,
    /// Warnings of the API server that are not shown yet.
    pub(crate) api_warnings: ApiWarnings,
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=,~".contains(c);
    if word.chars().all(is_plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

impl Terminal {
    /// Streams, environment and clock of the process.
    pub fn standard() -> Self {
        let size = || {
            let (columns, rows) = terminal_size::terminal_size()?;
            Some(Size { columns: columns.0.into(), rows: rows.0.into() })
        };
        Self {
            // A console of Windows is told to take colours, or they are translated for it.
            out: Box::new(AutoStream::always(std::io::stdout())),
            err: Box::new(AutoStream::always(std::io::stderr())),
            input: Box::new(std::io::BufReader::new(std::io::stdin())),
            out_is_terminal: std::io::stdout().is_terminal(),
            err_is_terminal: std::io::stderr().is_terminal(),
            in_is_terminal: std::io::stdin().is_terminal(),
            width: None,
            size: Box::new(size),
            // A path that is no UTF-8 is not found under its name, but the variable is not unset.
            var: Rc::new(|name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())),
            now: Box::new(Timestamp::now),
            flags: GlobalArgs::default(),
            session: None,
            api_warnings: ApiWarnings::default(),
        }
    }

    /// Streams without a terminal behind them, no environment, and a clock that stands.
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

    /// For a command whose output is kept: the same environment, time, flags and connection.
    pub(crate) fn captured(&self, session: &Session, out: Box<dyn Write>, err: Box<dyn Write>) -> Self {
        Self {
            var: self.var.clone(),
            flags: GlobalArgs { color: Colour::Never, ..self.flags.clone() },
            session: Some(session.clone()),
            ..Self::piped(out, err, self.now())
        }
    }

    /// Shows the warnings of the API server that were not shown yet.
    pub(crate) fn say_api_warnings(&mut self) {
        for warning in self.api_warnings.take() {
            self.say(&format!("Warning: {}", plain(&warning)));
        }
    }

    /// The time.
    pub(crate) fn now(&self) -> Timestamp {
        (self.now)()
    }

    /// An environment variable, unless it is unset or empty.
    pub(crate) fn var(&self, name: &str) -> Option<String> {
        (self.var)(name).filter(|value| !value.is_empty())
    }

    /// Whether a variable is set to something.
    pub(crate) fn has_var(&self, name: &str) -> bool {
        self.var(name).is_some()
    }

    /// How to paint data.
    pub(crate) fn out_style(&self) -> Style {
        self.style(self.out_is_terminal)
    }

    /// How to paint talk.
    pub(crate) fn err_style(&self) -> Style {
        self.style(self.err_is_terminal)
    }

    /// `--color` first, then `NO_COLOR` (any value but empty; no-color.org), then whether a person reads.
    fn style(&self, is_terminal: bool) -> Style {
        Style::new(match self.flags.color {
            Colour::Always => true,
            Colour::Never => false,
            Colour::Auto => {
                is_terminal && !self.has_var("NO_COLOR") && self.var("TERM").as_deref() != Some("dumb")
            }
        })
    }

    /// Writes data to stdout, as it is.
    pub(crate) fn data(&mut self, text: &str) -> std::io::Result<()> {
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }

    /// Writes a line of talk to stderr. A closed stderr is no reason to stop.
    pub(crate) fn say(&mut self, line: &str) {
        let line = self.pasteable(line);
        self.talk_raw(&format!("{line}\n"));
    }

    /// The commands in a text, with the flags by which a person has chosen cluster and installation.
    pub(crate) fn pasteable(&self, text: &str) -> String {
        let GlobalArgs { kubeconfig, context, cluster, user, namespace, .. } = &self.flags;
        let kubeconfig = kubeconfig.as_ref().map(|path| path.display().to_string());
        let given = [
            ("--kubeconfig", kubeconfig.as_ref()),
            ("--context", context.as_ref()),
            ("--cluster", cluster.as_ref()),
            ("--user", user.as_ref()),
        ];
        let flag = |(name, value): (&str, Option<&String>)| Some(format!(" {name}={}", quoted(value?)));
        let connection: String = given.into_iter().filter_map(flag).collect();
        let installation =
            namespace.as_ref().map_or_else(String::new, |name| format!(" -n {}", quoted(name)));
        // kubectl takes flags only behind the name of a plugin.
        text.replace("kubectl -n ", &format!("kubectl{connection} -n "))
            .replace("kubectl backup ", &format!("kubectl backup{connection}{installation} "))
    }

    /// Writes to stderr without a line end.
    pub(crate) fn talk_raw(&mut self, text: &str) {
        let _ = self.err.write_all(text.as_bytes());
        let _ = self.err.flush();
    }

    /// Whether a person can be asked.
    pub(crate) fn can_ask(&self) -> bool {
        self.in_is_terminal && self.err_is_terminal
    }

    /// Asks for a yes on the terminal; `None` where no person can answer.
    pub(crate) fn confirm(&mut self, question: &str) -> Option<bool> {
        if !self.can_ask() {
            return None;
        }
        self.talk_raw(&format!("{question} [y/N] "));
        let mut answer = String::new();
        self.input.read_line(&mut answer).ok()?;
        Some(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
    }
}
