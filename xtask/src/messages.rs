//! Checks the page of symptoms, docs/operate/troubleshooting.md: its quotes must be messages of the
//! programs.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use backup_tests::binaries::root;

const PAGE: &str = "docs/operate/troubleshooting.md";
/// Folders with messages: our sources, the transcripts of the command, and tests that contain
/// messages of the API server.
const FOLDERS: [&str; 5] = [
    "controller",
    "webhook",
    "crates",
    "kubectl-backup",
    "tests/tests",
];
/// Placeholder for a variable part.
const GAP: char = '…';

/// Fails if the page quotes a message that no program writes.
pub fn check() -> anyhow::Result<()> {
    let page = fs::read_to_string(root().join(PAGE)).with_context(|| format!("read {PAGE}"))?;
    let mut text = String::new();
    for folder in FOLDERS {
        add_folder(&root().join(folder), &mut text)?;
    }
    let problems = problems(&page, &joined(&text));
    if !problems.is_empty() {
        bail!(
            "{PAGE}: quote what the programs write:\n  {}",
            problems.join("\n  ")
        );
    }
    Ok(())
}

/// Quotes in the first column of the tables that are not in the text.
fn problems(page: &str, text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let mut seen = 0;
    for (number, line) in (1..).zip(page.lines()) {
        let Some(cell) = line
            .strip_prefix("| ")
            .and_then(|rest| rest.split(" | ").next())
        else {
            continue;
        };
        for quoted in cell.split('`').skip(1).step_by(2) {
            seen += 1;
            let missing = quoted
                .split(GAP)
                .map(str::trim)
                .filter(|part| !part.is_empty() && !text.contains(part));
            problems.extend(missing.map(|part| format!("line {number}: nothing writes {part:?}")));
        }
    }
    if seen == 0 {
        problems.push("no message was found".to_owned());
    }
    problems
}

/// A source with each text joined into one line: a backslash at the end of a line skips the line
/// break and the indentation.
fn joined(source: &str) -> String {
    let mut joined = String::with_capacity(source.len());
    let mut rest = source;
    while let Some((before, after)) = rest.split_once("\\\n") {
        joined += before;
        rest = after.trim_start();
    }
    joined + rest
}

fn add_folder(folder: &Path, text: &mut String) -> anyhow::Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))?;
    let paths: Vec<PathBuf> = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<_>>()?;
    for path in paths {
        if path.is_dir() {
            add_folder(&path, text)?;
        } else if path
            .extension()
            .is_some_and(|extension| extension == "rs" || extension == "snap")
        {
            *text +=
                &fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str =
        "format!(\"the ledger has format {format}, \\\n         this version knows {known}\")";

    #[test]
    fn a_message_is_found_in_pieces_and_over_lines() {
        let page = "| symptom | what to do |\n| --- | --- |\n| `the ledger has format …, this version knows …` | `wait` |\n";
        assert_eq!(problems(page, &joined(SOURCE)), [""; 0]);
    }

    #[test]
    fn a_message_that_nothing_writes_is_named() {
        assert_eq!(
            problems("| `the ledger has gone` | x |\n", SOURCE),
            ["line 1: nothing writes \"the ledger has gone\""]
        );
        assert_eq!(
            problems("text with `the ledger`\n", SOURCE),
            ["no message was found"]
        );
    }
}
