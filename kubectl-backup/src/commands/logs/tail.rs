//! Finds the new part of a log that is read repeatedly while it grows. Pure.

/// Number of bytes at the beginning of a log that identify it: the first line contains the start
/// time.
const HEAD_BYTES: usize = 128;

#[derive(Debug, Default)]
pub(crate) struct Tail {
    head: Vec<u8>,
    shown: u64,
}

/// One reading of the log, from its first byte.
#[derive(Debug)]
pub(crate) struct LogReading<'a> {
    tail: &'a mut Tail,
    /// Number of already shown bytes still to be skipped; `None` until the beginning of the log was
    /// read.
    skip: Option<u64>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    New,
    /// New text of another log: the work was started again.
    Restarted,
    /// Too few bytes to decide; the text is to be kept for the next piece.
    Unknown,
}

impl Tail {
    pub(crate) fn read(&mut self) -> LogReading<'_> {
        LogReading {
            tail: self,
            skip: None,
        }
    }
}

impl LogReading<'_> {
    /// Removes bytes that were shown before from a piece of the log.
    pub(crate) fn take(&mut self, text: &mut Vec<u8>, is_last: bool) -> Piece {
        let mut piece = Piece::New;
        if self.skip.is_none() {
            if text.len() < HEAD_BYTES && !is_last {
                return Piece::Unknown;
            }
            let both = self.tail.head.len().min(text.len());
            if self.tail.head[..both] != text[..both] {
                piece = Piece::Restarted;
                self.tail.shown = 0;
            }
            self.tail.head = text[..text.len().min(HEAD_BYTES)].to_vec();
        }
        let skip = self.skip.unwrap_or(self.tail.shown);
        let known = usize::try_from(skip).unwrap_or(usize::MAX).min(text.len());
        text.drain(..known);
        self.skip = Some(skip - known as u64);
        piece
    }

    pub(crate) fn shown(&mut self, bytes: usize) {
        self.tail.shown += bytes as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a log in pieces of this size. Returns the shown text, and whether it is another log.
    fn reads(tail: &mut Tail, log: &str, size: usize) -> (String, bool) {
        let (mut shown, mut restarted, mut text, mut reading) =
            (Vec::new(), false, Vec::new(), tail.read());
        let mut pieces: Vec<&[u8]> = log.as_bytes().chunks(size).collect();
        pieces.push(&[]);
        let last = pieces.len() - 1;
        for (at, piece) in pieces.into_iter().enumerate() {
            text.extend_from_slice(piece);
            match reading.take(&mut text, at == last) {
                Piece::Unknown => continue,
                Piece::Restarted => restarted = true,
                Piece::New => {}
            }
            reading.shown(text.len());
            shown.append(&mut text);
        }
        (String::from_utf8(shown).unwrap(), restarted)
    }

    #[test]
    fn each_byte_of_a_growing_log_is_shown_once() {
        let line = |n: usize| format!("time={n} {}\n", "working on something ".repeat(3));
        let log = |from: usize, lines: usize| (from..from + lines).map(line).collect::<String>();
        for size in [1, 7, 100, 100_000] {
            let mut tail = Tail::default();
            assert_eq!(reads(&mut tail, "", size), (String::new(), false));
            assert_eq!(reads(&mut tail, &log(0, 1), size), (log(0, 1), false));
            assert_eq!(reads(&mut tail, &log(0, 1), size), (String::new(), false));
            assert_eq!(reads(&mut tail, &log(0, 50), size), (log(1, 49), false));
            for (from, lines) in [(100, 60), (200, 2)] {
                assert_eq!(
                    reads(&mut tail, &log(from, lines), size),
                    (log(from, lines), true)
                );
            }
            assert_eq!(reads(&mut tail, &log(200, 3), size), (line(202), false));
        }
    }
}
