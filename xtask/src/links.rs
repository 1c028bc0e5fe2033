//! Checks the relative links of the Markdown pages, and the pages that programs name in messages:
//! file and heading must exist.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Component, Path, PathBuf},
};

use anyhow::{Context as _, bail};
use backup_tests::binaries::root;

/// Folders with files of other origin.
const SKIPPED: [&str; 3] = ["target", ".git", "node_modules"];
/// Contains broken links in its tests.
const OWN: &str = "xtask/src/links.rs";
/// Folder of the pages that messages, alerts and help name.
const PAGES: &str = "docs/";

/// Fails if a link has no target.
pub fn check() -> anyhow::Result<()> {
    let mut files = BTreeMap::new();
    read(&root(), Path::new(""), &mut files)?;
    files.remove(Path::new(OWN));
    let problems = problems(&files, &|path| root().join(path).exists());
    if !problems.is_empty() {
        bail!("links that lead nowhere:\n  {}", problems.join("\n  "));
    }
    Ok(())
}

/// Reads the files that may contain links, by path.
fn read(root: &Path, folder: &Path, files: &mut BTreeMap<PathBuf, String>) -> anyhow::Result<()> {
    let entries =
        fs::read_dir(root.join(folder)).with_context(|| format!("read {}", folder.display()))?;
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let path = folder.join(&name);
        if entry.file_type()?.is_dir() {
            if !SKIPPED.iter().any(|skipped| name == *skipped) {
                read(root, &path, files)?;
            }
        } else if path
            .extension()
            .is_some_and(|ending| ["md", "rs", "yaml", "txt"].iter().any(|one| ending == *one))
        {
            let text =
                fs::read(root.join(&path)).with_context(|| format!("read {}", path.display()))?;
            files.insert(path, String::from_utf8_lossy(&text).into_owned());
        }
    }
    Ok(())
}

fn problems(files: &BTreeMap<PathBuf, String>, exists: &dyn Fn(&Path) -> bool) -> Vec<String> {
    let mut problems = Vec::new();
    for (path, text) in files {
        let is_page = path.extension().is_some_and(|ending| ending == "md");
        let folder = path.parent().unwrap_or(Path::new(""));
        for (number, line) in (1..).zip(text.lines()) {
            let links = if is_page { linked(line) } else { named(line) };
            for link in links {
                let (file, heading) = link.split_once('#').unwrap_or((link, ""));
                let target = if file.is_empty() {
                    path.clone()
                } else if is_page {
                    resolved(&folder.join(file))
                } else {
                    PathBuf::from(file)
                };
                let why = if !exists(&target) {
                    "there is no such file"
                } else if heading.is_empty()
                    || files
                        .get(&target)
                        .is_none_or(|text| headings(text).contains(heading))
                {
                    continue;
                } else {
                    "the page has no such heading"
                };
                problems.push(format!("{}:{number}: {link}: {why}", path.display()));
            }
        }
    }
    problems
}

/// The relative targets of the links in a line of a page.
fn linked(line: &str) -> Vec<&str> {
    let targets = line
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split([')', ' ']).next());
    targets
        .filter(|target| {
            !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:")
        })
        .collect()
}

/// The pages that a line of a source names, such as `docs/operate/install.md#memory-and-disk`.
fn named(line: &str) -> Vec<&str> {
    let starts = line.match_indices(PAGES).map(|(at, _)| at).filter(|at| {
        // It is a part of a longer path or address.
        !line[..*at].ends_with(|c: char| c.is_ascii_alphanumeric() || "/_-.".contains(c))
    });
    let named = starts.filter_map(|at| {
        let rest = &line[at..];
        let end = rest
            .find(|c: char| !(c.is_ascii_alphanumeric() || "/_-.#".contains(c)))
            .unwrap_or(rest.len());
        let page = rest[..end].trim_end_matches('.');
        page.split('#')
            .next()
            .and_then(|file| file.strip_suffix(".md"))
            .map(|_| page)
    });
    named.collect()
}

/// Resolves `..` in a path.
fn resolved(path: &Path) -> PathBuf {
    let mut resolved = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                resolved.pop();
            }
            Component::CurDir => {}
            part => resolved.push(part),
        }
    }
    resolved
}

/// The anchors of a page's headings, as GitHub makes them.
fn headings(page: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut is_code = false;
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        let Some(title) = line.strip_prefix('#').filter(|_| !is_code) else {
            continue;
        };
        let title = title.trim_start_matches('#').trim().to_lowercase();
        let kept = title
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let mut unique = anchor.clone();
        for number in 1.. {
            if found.insert(unique) {
                break;
            }
            unique = format!("{anchor}-{number}");
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[(&str, &str)]) -> Vec<String> {
        let all: BTreeMap<PathBuf, String> = files
            .iter()
            .map(|(path, text)| (PathBuf::from(path), (*text).to_owned()))
            .collect();
        problems(&all, &|path| all.contains_key(path))
    }

    #[test]
    fn links_to_files_and_headings_that_exist_are_good() {
        let files = [
            (
                "README.md",
                "[a](docs/use/a.md#two-words) and [b](#top), [web](https://example.com/x.md#y)\n# Top",
            ),
            (
                "docs/use/a.md",
                "# A `code`, (and more)\n## Two words\n## Two words\n[c](../../README.md) [d](#two-words-1) [e](#a-code-and-more)",
            ),
            (
                "src/x.rs",
                "\"see docs/use/a.md#two-words.\" // https://example.com/docs/use/none.md",
            ),
        ];
        assert_eq!(of(&files), [""; 0]);
    }

    #[test]
    fn links_that_lead_nowhere_are_named() {
        let files = [
            (
                "README.md",
                "\n[a](docs/b.md) [b](docs/a.md#none) [c](#none)",
            ),
            ("docs/a.md", "```\n# none\n```\n"),
            ("src/x.yaml", "url: docs/c.md"),
        ];
        assert_eq!(
            of(&files),
            [
                "README.md:2: docs/b.md: there is no such file",
                "README.md:2: docs/a.md#none: the page has no such heading",
                "README.md:2: #none: the page has no such heading",
                "src/x.yaml:1: docs/c.md: there is no such file",
            ]
        );
    }
}
