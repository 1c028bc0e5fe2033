//! One part of the archive: the text that was read within the limits of time and size, or why there
//! is none.

use std::{
    cell::RefCell,
    io::{self, Write},
    rc::Rc,
};

use clap::Parser as _;
use futures::FutureExt as _;

use super::PART_TIMEOUT;
use crate::{
    cli::Cli,
    commands::{self, prelude::*},
};

/// Maximum size of a part (bytes): the last bytes are kept.
const MAX_PART_BYTES: usize = 10 << 20;
/// Bytes by which a part may exceed [`MAX_PART_BYTES`] before its first bytes are dropped.
const MAX_EXCESS_BYTES: usize = 1 << 20;

pub(super) struct Part {
    /// Its path in the archive.
    pub(super) name: String,
    /// `None`: nothing was read.
    pub(super) text: Option<String>,
    /// Why the text is missing or incomplete.
    pub(super) note: Option<String>,
}

impl Part {
    pub(super) fn missing(name: &str, why: &str) -> Self {
        Self {
            name: name.to_owned(),
            text: None,
            note: Some(why.to_owned()),
        }
    }
}

/// Reads a part. Text that arrived before an error or the timeout is kept.
pub(super) async fn gather(
    name: impl Into<String>,
    read: impl AsyncFnOnce(PartBuffer) -> Result<(), Problem>,
) -> Part {
    let kept = PartBuffer::default();
    let ended = tokio::time::timeout(PART_TIMEOUT, Box::pin(read(kept.clone()))).await;
    let why = match ended {
        Ok(Ok(())) => None,
        Ok(Err(problem)) => Some(plain(&problem.to_string())),
        Err(_) => Some(format!("no more within {PART_TIMEOUT:?}")),
    };
    let LastBytes { bytes, is_cut } = kept.0.take();
    let text = String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    let text = (why.is_none() || !text.is_empty()).then_some(text);
    let cut = is_cut.then(|| "only its end".to_owned());
    Part {
        name: name.into(),
        text,
        note: why.or(cut),
    }
}

/// The output of `kubectl backup` with these arguments.
pub(super) async fn command(
    session: &Session,
    terminal: &Terminal,
    words: &[&str],
    kept: PartBuffer,
) -> Result<(), Problem> {
    let cli = Cli::try_parse_from(["kubectl-backup"].iter().chain(words));
    let cli = cli.map_err(|error| Problem::other(error.to_string()))?;
    let mut screen = terminal.captured(session, Box::new(kept.clone()), Box::new(kept));
    // The exit code is for programs; the text says why.
    commands::dispatch(cli.command, &mut screen)
        .boxed_local()
        .await
        .map(drop)
}

/// A writer that keeps the last bytes written to it.
#[derive(Clone, Default)]
pub(super) struct PartBuffer(Rc<RefCell<LastBytes>>);

impl Write for PartBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().push(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Default)]
struct LastBytes {
    bytes: Vec<u8>,
    is_cut: bool,
}

impl LastBytes {
    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() > MAX_PART_BYTES + MAX_EXCESS_BYTES {
            self.cut();
        }
    }

    /// Cuts at the beginning of a line: no pattern matches half of a secret.
    fn cut(&mut self) {
        let from = self.bytes.len().saturating_sub(MAX_PART_BYTES);
        let line = self.bytes[from..].iter().position(|byte| *byte == b'\n');
        let gone = line.map_or(self.bytes.len(), |line| from + line + 1);
        self.bytes.drain(..gone);
        self.is_cut = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn written(lines: usize, fails: bool) -> Part {
        gather("x", async |mut kept: PartBuffer| {
            for line in 0..lines {
                writeln!(kept, "{line:>99}")?;
            }
            if fails {
                Err(Problem::other("it broke"))
            } else {
                Ok(())
            }
        })
        .await
    }

    #[tokio::test]
    async fn the_last_lines_are_kept_and_the_size_is_bounded() {
        let part = written(3, false).await;
        assert_eq!((part.text.unwrap().lines().count(), part.note), (3, None));
        let part = written(200_000, false).await;
        let text = part.text.unwrap();
        assert!(
            text.len() <= MAX_PART_BYTES + MAX_EXCESS_BYTES && text.len() > MAX_PART_BYTES - 100,
            "{}",
            text.len()
        );
        assert!(
            text.starts_with("     ")
                && text.ends_with(" 199999\n")
                && text.len().is_multiple_of(100)
        );
        assert_eq!(part.note.as_deref(), Some("only its end"));
    }

    #[tokio::test]
    async fn what_came_before_a_failure_is_kept_with_the_reason() {
        let part = written(1, true).await;
        assert_eq!(
            (part.text.unwrap().len(), part.note.as_deref()),
            (100, Some("it broke"))
        );
        let part = written(0, true).await;
        assert_eq!((part.text, part.note.as_deref()), (None, Some("it broke")));
        // A log may be empty.
        let part = written(0, false).await;
        assert_eq!((part.text.as_deref(), part.note), (Some(""), None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_that_does_not_come_ends_with_its_time() {
        let part = gather("x", async |_: PartBuffer| std::future::pending().await).await;
        assert_eq!(
            (part.text, part.note.as_deref()),
            (None, Some("no more within 30s"))
        );
    }
}
