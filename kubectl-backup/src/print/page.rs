//! Pages and lines that the next one overwrites. They must fit into the terminal: text that has
//! wrapped or scrolled out of sight cannot be overwritten.

use anstream::adapter::strip_str;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr};

/// Columns and rows of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Number of columns (characters in a row).
    pub columns: usize,
    /// Number of rows in the window.
    pub rows: usize,
}

/// Clears the screen and moves the cursor to the upper left corner.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// The lines of the text for which there is room above the foot; all lines if the size is unknown.
pub(crate) fn page(text: &str, foot: &str, size: Option<Size>) -> String {
    let Some(Size { columns, rows }) = size else {
        return [CLEAR, text, foot].concat();
    };
    // The cursor is in the row below the page.
    let room = rows.saturating_sub(text_rows(foot, columns) + 1);
    if text_rows(text, columns) <= room {
        return [CLEAR, text, foot].concat();
    }
    // One row says how many lines are missing.
    let mut left = room.saturating_sub(1);
    let mut shown = Vec::new();
    for line in text.lines() {
        let Some(rest) = left.checked_sub(line_rows(line, columns)) else {
            break;
        };
        left = rest;
        shown.push(line);
    }
    let missing = text.lines().count() - shown.len();
    let shown: String = shown.iter().map(|line| format!("{line}\n")).collect();
    format!("{CLEAR}{shown}  and {missing} more lines, for which the window is too small\n{foot}")
}

/// The number of rows that a text takes.
fn text_rows(text: &str, columns: usize) -> usize {
    text.lines().map(|line| line_rows(line, columns)).sum()
}

/// The number of rows that a line takes: at least one.
fn line_rows(line: &str, columns: usize) -> usize {
    width(line).div_ceil(columns.max(1)).max(1)
}

/// The part of an uncoloured line that fits into one row. The last column stays free: terminals
/// differ in where the cursor is after it.
pub(crate) fn row(line: &str, size: Option<Size>) -> String {
    let Some(Size { columns, .. }) = size.filter(|size| line.width() >= size.columns) else {
        return line.to_owned();
    };
    let mut left = columns.saturating_sub(2);
    let mut shown = String::new();
    for c in line.chars() {
        let Some(rest) = left.checked_sub(c.width().unwrap_or_default()) else {
            break;
        };
        left = rest;
        shown.push(c);
    }
    shown.push('…');
    shown
}

/// Width of a line (columns), without its colours.
fn width(line: &str) -> usize {
    strip_str(line).map(UnicodeWidthStr::width).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_written_over_takes_one_row() {
        for (line, columns, expected) in [
            ("backup shop: InProgress", 80, "backup shop: InProgress"),
            ("backup shop", 12, "backup shop"),
            ("backup shop", 11, "backup sh…"),
            ("备份备份", 9, "备份备份"),
            ("备份备份", 8, "备份备…"),
            ("备份备份", 7, "备份…"),
            ("backup", 1, "…"),
            ("", 1, ""),
        ] {
            let shown = row(line, Some(Size { columns, rows: 24 }));
            assert_eq!(shown, expected, "{line} in {columns}");
            assert!(
                columns < 2 || shown.width() < columns,
                "{shown} in {columns}"
            );
        }
        assert_eq!(row("backup", None), "backup");
    }

    #[test]
    fn a_page_takes_no_more_rows_than_there_are() {
        let too_small = |shown: &str, missing: usize| {
            format!(
                "{CLEAR}{shown}  and {missing} more lines, for which the window is too small\n\nbar\n"
            )
        };
        let whole = format!("{CLEAR}a\nb\nc\n\nbar\n");
        for (text, columns, rows, expected) in [
            ("a\nb\nc\n", 80, 6, whole.clone()),
            ("a\nb\nc\n", 80, 5, too_small("a\n", 2)),
            ("a\nb\nc\n", 80, 2, too_small("", 3)),
            // Escape sequences take no column; a long line takes two rows.
            (
                "\x1b[31maaaa\x1b[0m\nb\nc\n",
                4,
                6,
                format!("{CLEAR}\x1b[31maaaa\x1b[0m\nb\nc\n\nbar\n"),
            ),
            ("aaaaa\nb\nc\n", 4, 6, too_small("aaaaa\n", 2)),
            (
                "aaaaa\nb\nc\n",
                4,
                7,
                format!("{CLEAR}aaaaa\nb\nc\n\nbar\n"),
            ),
        ] {
            let shown = page(text, "\nbar\n", Some(Size { columns, rows }));
            assert_eq!(shown, expected, "{text:?} in {columns}x{rows}");
        }
        assert_eq!(page("a\nb\nc\n", "\nbar\n", None), whole);
    }
}
