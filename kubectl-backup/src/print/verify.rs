//! What was found in the stored files of a backup: a verdict, a row for each file, and what is wrong.

use std::fmt::Write as _;

use super::{
    style::{Style, Tone},
    table::table,
};
use crate::view::verify::Verification;

const HEADERS: [&str; 3] = ["FILE", "BYTES", "FOUND"];

/// The screen.
pub fn text(verification: &Verification, style: Style) -> std::io::Result<String> {
    let Verification { of, phase, files, findings, .. } = verification;
    let (tone, verdict) = if verification.good {
        (Tone::Good, "its files are complete, agree with one another and can be read".to_owned())
    } else {
        (Tone::Bad, "its files are not all that they should be".to_owned())
    };
    let sign = style.tone(tone, tone.sign());
    let mut text = format!("{sign} {}   {phase}: {verdict}\n\n", style.title(of));
    let rows: Vec<Vec<String>> = files
        .iter()
        .map(|file| {
            let size = file.size.map_or_else(|| "-".to_owned(), |size| size.to_string());
            vec![file.file.clone(), size, file.found.clone()]
        })
        .collect();
    for line in table(Some(&HEADERS), &rows)?.lines() {
        let _ = writeln!(text, "  {line}");
    }
    for (at, finding) in findings.iter().enumerate() {
        if at == 0 {
            let _ = writeln!(text, "\n{}", style.title("WRONG"));
        }
        let sign = style.bad(Tone::Bad.sign());
        let _ = writeln!(text, "  {sign} {}: {}\n    {}", finding.file, finding.message, finding.remedy);
    }
    Ok(text)
}
