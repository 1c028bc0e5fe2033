//! Columns, as kubectl aligns them.

use std::io::Write;

/// A header and rows of the same width, aligned. Cells hold no line ends or tabs of their own.
pub(crate) fn table(header: Option<&[&str]>, rows: &[Vec<String>]) -> std::io::Result<String> {
    let mut writer = tabwriter::TabWriter::new(Vec::new()).minwidth(0).padding(3).ansi(true);
    if let Some(header) = header {
        writeln!(writer, "{}", header.join("\t"))?;
    }
    for row in rows {
        writeln!(writer, "{}", row.iter().map(|cell| one_line(cell)).collect::<Vec<_>>().join("\t"))?;
    }
    writer.flush()?;
    let bytes = writer.into_inner().map_err(|error| std::io::Error::other(error.to_string()))?;
    let text = String::from_utf8(bytes).map_err(std::io::Error::other)?;
    Ok(text.lines().fold(String::new(), |all, line| all + line.trim_end() + "\n"))
}

/// A text on one line, without characters that would move a terminal's cursor.
pub(crate) fn one_line(text: &str) -> String {
    // ESC stays only as part of our own colours, which never reach data fields: those pass `plain` first.
    text.chars().map(|c| if c.is_control() && c != '\x1b' { ' ' } else { c }).collect()
}

/// A text from the cluster, harmless to a terminal: control characters (escape sequences too) become spaces, line
/// ends one space.
pub(crate) fn plain(text: &str) -> String {
    text.split(char::is_control).map(str::trim).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_whatever_the_width_of_characters_and_colours() {
        let rows = vec![
            vec!["\u{1b}[32mnächtlich\u{1b}[0m".to_owned(), "1".to_owned()],
            vec!["备份".to_owned(), "2".to_owned()],
            vec!["b".to_owned(), String::new()],
        ];
        let text = table(Some(&["NAME", "N"]), &rows).unwrap();
        assert_eq!(text, "NAME        N\n\u{1b}[32mnächtlich\u{1b}[0m   1\n备份        2\nb\n");
    }

    #[test]
    fn texts_from_the_cluster_cannot_move_the_cursor() {
        assert_eq!(plain("a\n\tb\u{1b}[2J\rc\u{7}"), "a b [2J c");
    }
}
