//! What is found when the stored files of a backup are verified.

pub(crate) mod counts;
pub(crate) mod tarball;

use std::fmt::Write as _;

use serde::Serialize;

use super::API_VERSION;
use crate::print::{Style, Tone, table};

/// What to do about a file that is missing, or is not what it should be.
pub(crate) const PUT_BACK: &str = "Use another backup, or put the file back from a copy of the bucket.";

/// The document that `verify -o json` prints.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Verification {
    pub(crate) api_version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) of: String,
    pub(crate) phase: String,
    pub(crate) good: bool,
    pub(crate) files: Vec<FileView>,
    pub(crate) findings: Vec<FileFinding>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FileView {
    /// As DownloadRequests call it: `BackupContents`.
    pub(crate) file: String,
    /// Bytes, as it is stored; none if it could not be read to its end.
    pub(crate) size: Option<u64>,
    /// What is in it, or why that is not known.
    pub(crate) found: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct FileFinding {
    pub(crate) file: String,
    pub(crate) message: String,
    pub(crate) remedy: String,
}

impl Verification {
    pub(crate) fn new(of: &str, phase: String, files: Vec<FileView>, findings: Vec<FileFinding>) -> Self {
        let (api_version, kind) = (API_VERSION, "BackupVerification");
        Self { api_version, kind, of: of.to_owned(), phase, good: findings.is_empty(), files, findings }
    }

    /// A verdict, a row for each file, and what is wrong.
    pub(crate) fn text(&self, style: Style) -> std::io::Result<String> {
        let Verification { of, phase, files, findings, .. } = self;
        let (tone, verdict) = if self.good {
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
        for line in table(Some(&["FILE", "BYTES", "FOUND"]), &rows)?.lines() {
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
}
