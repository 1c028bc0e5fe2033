//! Lines from other programs: of any length, without an end, of any bytes.

use std::io;

use tokio::io::{AsyncBufRead, AsyncBufReadExt as _};

/// Maximum length that is kept of a line (bytes).
pub(crate) const MAX_LINE_BYTES: usize = 8 * 1024;

/// The next line, without its end; lines that are too long are cut. `None` at the end of the input.
pub(crate) async fn next<R: AsyncBufRead + Unpin>(reader: &mut R) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    let mut begun = false;
    loop {
        let chunk = reader.fill_buf().await?;
        if chunk.is_empty() {
            return Ok(begun.then(|| text(&line)));
        }
        begun = true;
        let (part, used, ended) = match chunk.iter().position(|byte| *byte == b'\n') {
            Some(at) => (&chunk[..at], at + 1, true),
            None => (chunk, chunk.len(), false),
        };
        let room = MAX_LINE_BYTES.saturating_sub(line.len());
        line.extend_from_slice(&part[..part.len().min(room)]);
        reader.consume(used);
        if ended {
            return Ok(Some(text(&line)));
        }
    }
}

fn text(line: &[u8]) -> String {
    String::from_utf8_lossy(line)
        .trim_end_matches('\r')
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_cut_and_the_last_one_needs_no_end() {
        let long = "x".repeat(3 * MAX_LINE_BYTES);
        let input = format!("one\r\n\n{long}\nlast");
        // A small buffer, so that lines do not fit.
        let mut reader = tokio::io::BufReader::with_capacity(7, input.as_bytes());
        let mut lines = Vec::new();
        while let Some(line) = next(&mut reader).await.unwrap() {
            lines.push(line);
        }
        assert_eq!(lines, ["one", "", &long[..MAX_LINE_BYTES], "last"]);
    }

    #[tokio::test]
    async fn bytes_that_are_no_text_do_not_matter() {
        let mut reader = &b"\xff\xfe\n"[..];
        assert_eq!(
            next(&mut reader).await.unwrap().as_deref(),
            Some("\u{fffd}\u{fffd}")
        );
        assert_eq!(next(&mut reader).await.unwrap(), None);
    }
}
