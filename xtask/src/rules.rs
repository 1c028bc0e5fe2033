//! Checks the page of rules, docs/evidence/rules.md: each rule has a test, and each named test
//! exists.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use backup_tests::binaries::root;

const PAGE: &str = "docs/evidence/rules.md";

/// Fails if a rule has no test, or names a test that is not in the source.
pub fn check() -> anyhow::Result<()> {
    let page = fs::read_to_string(root().join(PAGE)).with_context(|| format!("read {PAGE}"))?;
    let sources = Sources::read(&root())?;
    let problems = problems(&page, &sources);
    if !problems.is_empty() {
        bail!(
            "{PAGE}: write the test of each rule, or correct its name:\n  {}",
            problems.join("\n  ")
        );
    }
    Ok(())
}

/// Problems in the tables of the page: `| rule | where ours differs | test |`, and in tables of
/// cases: `| link | other end | Velero | ours | test |`.
fn problems(page: &str, sources: &Sources) -> Vec<String> {
    let mut problems = Vec::new();
    let mut seen = BTreeSet::new();
    let mut subject_above = String::new();
    for (number, line) in (1..).zip(page.lines()) {
        let Some(cells) = row(line) else { continue };
        let [given @ .., tests] = cells.as_slice() else {
            continue;
        };
        let rule = match given {
            [rule, _] => rule.clone(),
            // In a table of cases an empty first cell repeats the one above it.
            [_, case, _, _] => format!("{} / {case}", subject(given, &mut subject_above)),
            _ => {
                problems.push(format!(
                    "line {number}: expected 3 or 5 columns, found {}",
                    cells.len()
                ));
                continue;
            }
        };
        if rule.is_empty() {
            problems.push(format!("line {number}: no rule is given"));
        } else if !seen.insert(rule.clone()) {
            problems.push(format!("line {number}: {rule:?} is there twice"));
        }
        let tests = tests_in(tests);
        if tests.is_empty() {
            problems.push(format!("line {number}: {rule:?} has no test"));
        }
        let missing = tests.into_iter().filter(|test| !sources.have(test));
        problems.extend(missing.map(|test| format!("line {number}: there is no test {test}")));
    }
    if seen.is_empty() {
        problems.push("no rule was found".to_owned());
    }
    problems
}

/// The subject of a row in a table of cases: its first cell, or that of a row above it.
fn subject(cells: &[String], above: &mut String) -> String {
    if let Some(first) = cells.first().filter(|first| !first.is_empty()) {
        above.clone_from(first);
    }
    above.clone()
}

/// The cells of a line, if it is a row of a table other than the head.
fn row(line: &str) -> Option<Vec<String>> {
    let inner = line.trim().strip_prefix('|')?;
    let inner = inner.strip_suffix('|').unwrap_or(inner);
    // A bar in a cell is escaped.
    let cells = inner.replace("\\|", "\0");
    let cells: Vec<String> = cells
        .split('|')
        .map(|cell| cell.replace('\0', "|").trim().to_owned())
        .collect();
    let is_head = cells
        .last()
        .is_some_and(|cell| cell == "test" || cell.starts_with("---"));
    (!is_head).then_some(cells)
}

/// The test paths between backticks.
fn tests_in(cell: &str) -> Vec<&str> {
    cell.split('`')
        .skip(1)
        .step_by(2)
        .filter(|code| code.contains("::"))
        .collect()
}

/// The texts of all source files, by module path in the form in which a crate's tests print it.
#[derive(Default)]
struct Sources(BTreeMap<String, Vec<String>>);

impl Sources {
    fn read(root: &Path) -> anyhow::Result<Self> {
        let mut sources = Self::default();
        for parent in [root.to_owned(), root.join("crates")] {
            for package in entries(&parent)?
                .into_iter()
                .filter(|path| path.join("Cargo.toml").exists())
            {
                for folder in ["src", "tests"]
                    .map(|name| package.join(name))
                    .iter()
                    .filter(|dir| dir.is_dir())
                {
                    sources.add_folder(folder, folder)?;
                }
            }
        }
        Ok(sources)
    }

    fn add_folder(&mut self, top: &Path, folder: &Path) -> anyhow::Result<()> {
        for path in entries(folder)? {
            if path.is_dir() {
                self.add_folder(top, &path)?;
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path)
                    .with_context(|| format!("read {}", path.display()))?;
                let module = path.strip_prefix(top)?.with_extension("");
                self.add(
                    &module
                        .to_string_lossy()
                        .replace(std::path::MAIN_SEPARATOR, "::"),
                    text,
                );
            }
        }
        Ok(())
    }

    fn add(&mut self, file: &str, text: String) {
        let module = if ["lib", "main"].contains(&file) {
            ""
        } else {
            file
        };
        self.0.entry(module.to_owned()).or_default().push(text);
    }

    /// Whether a function with this path exists, in the file of its module or in an inline module
    /// of the parent's file.
    fn have(&self, test: &str) -> bool {
        let Some((module, name)) = test.rsplit_once("::") else {
            return false;
        };
        let function = format!("fn {name}(");
        let has = |file: &str, also: &str| {
            let texts = self.0.get(file).into_iter().flatten();
            texts
                .into_iter()
                .any(|text| text.contains(&function) && text.contains(also))
        };
        let (parent, inner) = module.rsplit_once("::").unwrap_or(("", module));
        has(module, "") || has(parent, &format!("mod {inner} {{"))
    }
}

fn entries(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))?;
    Ok(entries
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<_>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "# Rules\n\n| rule | where ours differs | test |\n| --- | --- | --- |\n";

    fn sources() -> Sources {
        let mut sources = Sources::default();
        sources.add(
            "restore::work::tests",
            "#[test]\nfn it_works() {}".to_owned(),
        );
        sources.add(
            "restore::order",
            "mod tests {\n#[test]\nfn it_is_sorted() {}\n}".to_owned(),
        );
        sources.add(
            "lib",
            "mod tests {\n#[test]\nfn it_is_here() {}\n}".to_owned(),
        );
        sources.add(
            "e2e::main_job",
            "async fn it_runs(world: &mut World) {}".to_owned(),
        );
        sources
    }

    fn found(rows: &str) -> Vec<String> {
        problems(&format!("{HEAD}{rows}"), &sources())
    }

    #[test]
    fn each_rule_with_a_test_is_fine() {
        let rows = "| a | | `restore::work::tests::it_works` |\n\
             | b, or `x \\| y` | [no](x.md) | `restore::order::tests::it_is_sorted`, `e2e::main_job::it_runs` |\n\
             | c | | `tests::it_is_here` |\n\ntext with a `path::of_code`\n";
        assert_eq!(found(rows), [""; 0]);
    }

    #[test]
    fn a_rule_without_a_test_is_named() {
        for cell in ["", "a test", "`word`"] {
            assert_eq!(
                found(&format!("| a rule | | {cell} |\n")),
                ["line 5: \"a rule\" has no test"]
            );
        }
        let rows = "| a | | `tests::it_is_here` |\n| b | `e2e::main_job::it_runs` |\n";
        assert_eq!(found(rows), ["line 6: expected 3 or 5 columns, found 2"]);
    }

    #[test]
    fn a_table_of_cases_has_its_subject_from_the_row_above() {
        let rows = "| a link | none | x | y | `tests::it_is_here` |\n\
             | | ours | x | y | `tests::it_is_here` |\n\
             | | ours | x | y | `tests::it_is_gone` |\n";
        let problems = [
            "line 7: \"a link / ours\" is there twice",
            "line 7: there is no test tests::it_is_gone",
        ];
        assert_eq!(found(rows), problems);
    }

    #[test]
    fn a_test_that_is_gone_is_named() {
        let cases = [
            "restore::work::tests::it_work",
            "restore::work::it_works",
            "restore::order::it_is_sorted::x",
        ];
        for test in cases {
            let rows = format!("| a | | `tests::it_is_here`, `{test}` |\n");
            assert_eq!(found(&rows), [format!("line 5: there is no test {test}")]);
        }
    }

    #[test]
    fn a_page_without_rules_or_with_one_twice_is_refused() {
        assert_eq!(found(""), ["no rule was found"]);
        let rows = "| a | | `tests::it_is_here` |\n".repeat(2);
        assert_eq!(found(&rows), ["line 6: \"a\" is there twice"]);
    }
}
