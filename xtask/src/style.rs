//! Counts what makes Rust code dense, and fails above the bounds: `cargo xtask style` prints the
//! table.
//!
//! The bounds are twice the highest count of six well-kept code bases (object_store, kube-rs,
//! ripgrep, policy-server, linkerd2 and rustic_core).

use std::{
    fmt, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use backup_tests::binaries::root;
use regex::Regex;

/// Folders of product code.
const FOLDERS: [&str; 5] = ["controller", "webhook", "kubectl-backup", "crates", "xtask"];
/// Folders and files of test code, which is not counted.
const TEST_FOLDERS: [&str; 5] = ["target", "tests", "testkit", "benches", "fakes"];
const TEST_FILES: [&str; 3] = ["tests.rs", "testing.rs", "fake.rs"];

/// Maximum length of a file (lines), also of tests.
const MAX_FILE_LINES: usize = 700;
/// Maximum width of a line before it counts as long (columns).
const MAX_WIDTH: usize = 100;

/// Bounds per 1,000 lines of code.
const MAX_TUPLE_LETS: f64 = 1.2;
const MAX_CLOSURES: f64 = 1.6;
const MAX_GUARDS: f64 = 2.4;
const MAX_LONG_LINES: f64 = 18.0;
/// Bound on all product code.
const MAX_PARTICIPLE_TYPES: f64 = 4.0;
/// Maximum length of a function (lines), with its signature.
const MAX_FUNCTION_LINES: f64 = 132.0;
/// Bound on comment blocks that begin with a pronoun (percent).
const MAX_PRONOUNS: f64 = 14.0;

/// What is looked for in a line without its indentation, except `test_module`.
struct Patterns {
    test_module: Regex,
    tuple_let: Regex,
    closure: Regex,
    guard: Regex,
    participle_type: Regex,
    pronoun: Regex,
    /// In a line with its indentation.
    function: Regex,
}

impl Patterns {
    fn new() -> Result<Self, regex::Error> {
        let adverbs = "Seen|Found|Known|Told|Made|Given|Taken|Kept|Left|Read|Sent|Shown|Lost|There|Held|Chosen|Written";
        let pronouns = "It|They|This|That|These|Those|What|Which|Who|Whose|None|Nothing|Nobody|Such|All|The same|So";
        Ok(Self {
            test_module: Regex::new(r"#\[cfg\(test\)\]\s*(?:pub(?:\([a-z]+\))? )?mod \w+ \{")?,
            tuple_let: Regex::new(
                r"^(let )?\((mut )?[\w.\[\]*]+(, (mut )?[\w.\[\]*&]+)+\)( = \(|$)",
            )?,
            closure: Regex::new(r"let \w+ = (?:async )?(?:move )?\|")?,
            guard: Regex::new(r"^(_ if |[A-Z]\w*.* if .*=>)")?,
            participle_type: Regex::new(&format!(
                r"\b(?:struct|enum) (?:[A-Z][a-z]+ed|{adverbs})\b"
            ))?,
            pronoun: Regex::new(&format!(r"^//[/!]?\s*(?:{pronouns})\b"))?,
            function: Regex::new(
                r"^( *)(?:pub(?:\([a-z: ]+\))? )?(?:async |const |unsafe )*fn (\w+)",
            )?,
        })
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    code_lines: u32,
    long_lines: u32,
    tuple_lets: u32,
    closures: u32,
    guards: u32,
    participle_types: u32,
    comment_blocks: u32,
    pronouns: u32,
    longest_function: Function,
}

/// A function, with its first and its last line.
#[derive(Debug, Default, PartialEq, Eq)]
struct Function {
    name: String,
    lines: u32,
}

impl Function {
    /// The function that begins in the first of these lines. It ends with the next line at its
    /// indentation that closes a block or a declaration.
    fn beginning(lines: &[&str], patterns: &Patterns) -> Option<Self> {
        let found = patterns.function.captures(lines.first()?)?;
        let end = lines.iter().position(|line| {
            let rest = line.strip_prefix(&found[1]).unwrap_or_default();
            !rest.starts_with(' ') && rest.ends_with(['}', ';'])
        })?;
        Some(Self {
            name: found[2].to_owned(),
            lines: u32::try_from(end + 1).unwrap_or(u32::MAX),
        })
    }
}

impl Counts {
    /// Counts the product code of a file: everything before its first test module.
    fn add(&mut self, text: &str, patterns: &Patterns) {
        let test_module = patterns.test_module.find(text);
        let end = test_module.map_or(text.len(), |found| found.start());
        let lines: Vec<_> = text[..end].lines().collect();
        let mut is_in_comment = false;
        for (index, line) in lines.iter().enumerate() {
            if let Some(function) = Function::beginning(&lines[index..], patterns)
                && function.lines > self.longest_function.lines
            {
                self.longest_function = function;
            }
            let trimmed = line.trim();
            let is_comment = trimmed.starts_with("//");
            if is_comment && !is_in_comment {
                self.comment_blocks += 1;
                self.pronouns += u32::from(patterns.pronoun.is_match(trimmed));
            }
            is_in_comment = is_comment;
            if !is_comment && !trimmed.is_empty() {
                self.add_code(line, trimmed, patterns);
            }
        }
    }

    fn add_code(&mut self, line: &str, trimmed: &str, patterns: &Patterns) {
        let is_tuple_let = trimmed.contains("= (") && patterns.tuple_let.is_match(trimmed);
        self.code_lines += 1;
        self.long_lines += u32::from(line.chars().count() > MAX_WIDTH);
        self.tuple_lets += u32::from(is_tuple_let);
        self.closures += u32::from(patterns.closure.is_match(trimmed));
        self.guards += u32::from(patterns.guard.is_match(trimmed));
        self.participle_types += u32::from(patterns.participle_type.is_match(trimmed));
    }

    fn per_thousand(&self, count: u32) -> f64 {
        f64::from(count) * 1000.0 / f64::from(self.code_lines.max(1))
    }

    /// What is counted, how much there is, and the bound.
    fn rows(&self) -> [(&'static str, f64, f64); 7] {
        let percent = f64::from(self.pronouns) * 100.0 / f64::from(self.comment_blocks.max(1));
        [
            (
                "tuple-lets per 1,000 lines",
                self.per_thousand(self.tuple_lets),
                MAX_TUPLE_LETS,
            ),
            (
                "named closures per 1,000 lines",
                self.per_thousand(self.closures),
                MAX_CLOSURES,
            ),
            (
                "guards in match arms per 1,000 lines",
                self.per_thousand(self.guards),
                MAX_GUARDS,
            ),
            (
                "lines over 100 columns per 1,000",
                self.per_thousand(self.long_lines),
                MAX_LONG_LINES,
            ),
            (
                "types named by a participle",
                f64::from(self.participle_types),
                MAX_PARTICIPLE_TYPES,
            ),
            (
                "comment blocks that begin with a pronoun (%)",
                percent,
                MAX_PRONOUNS,
            ),
            (
                "lines of the longest function",
                f64::from(self.longest_function.lines),
                MAX_FUNCTION_LINES,
            ),
        ]
    }

    fn problems(&self) -> Vec<String> {
        let above = self
            .rows()
            .into_iter()
            .filter(|(_, count, bound)| count > bound);
        above
            .map(|(what, count, bound)| format!("{what}: {count:.1}, at most {bound:.1}"))
            .collect()
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "    {} lines of product code", self.code_lines)?;
        for (what, count, bound) in self.rows() {
            writeln!(f, "    {what}: {count:.1} (bound {bound:.1})")?;
        }
        writeln!(f, "    longest function: {}", self.longest_function.name)
    }
}

/// Prints the counts. Fails if one is above its bound, or a file is too long.
pub fn check() -> anyhow::Result<()> {
    let patterns = Patterns::new()?;
    let mut counts = Counts::default();
    let mut problems = Vec::new();
    for folder in FOLDERS.iter().chain(&["tests"]) {
        for path in sources(&root().join(folder))? {
            let text =
                fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
            let lines = text.lines().count();
            if lines > MAX_FILE_LINES {
                problems.push(format!(
                    "{} has {lines} lines, at most {MAX_FILE_LINES}",
                    path.display()
                ));
            }
            if *folder != "tests" && is_product(&path) {
                counts.add(&text, &patterns);
            }
        }
    }
    print!("{counts}");
    problems.extend(counts.problems());
    if !problems.is_empty() {
        bail!(
            "the code is too dense or a file too long:\n  {}",
            problems.join("\n  ")
        );
    }
    Ok(())
}

fn is_product(path: &Path) -> bool {
    let below = path.strip_prefix(root()).unwrap_or(path);
    let mut names = below.iter().filter_map(|name| name.to_str());
    names.all(|name| !TEST_FOLDERS.contains(&name) && !TEST_FILES.contains(&name))
}

fn sources(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let entries = fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            found.extend(sources(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dense_code_is_counted_and_tests_are_not() {
        let mut counts = Counts::default();
        counts.add(
            "/// It does.\nstruct Looked;\n\n// A reason.\n// It stays.\nlet (a, b) = (1, 2);\nlet (c, d) = both();\n\
             let f = |x| x;\nSome(x) if x > 1 => y,\n_ if z => y,\n\
             #[cfg(test)]\nmod tests {\nlet g = |x| x;\nfn g() {\n}\n}\n",
            &Patterns::new().unwrap(),
        );
        let expected = Counts {
            code_lines: 6,
            long_lines: 0,
            tuple_lets: 1,
            closures: 1,
            guards: 2,
            participle_types: 1,
            comment_blocks: 2,
            pronouns: 1,
            longest_function: Function::default(),
        };
        assert_eq!(counts, expected);
        assert!(
            counts
                .problems()
                .iter()
                .any(|problem| problem.starts_with("tuple-lets"))
        );
    }

    #[test]
    fn the_longest_function_is_found_with_its_length() {
        let patterns = Patterns::new().unwrap();
        let long = "x();\n        ".repeat(129);
        for (text, name, lines) in [
            ("fn a() {}\n\nfn b() {\n    x();\n}\n", "b", 3),
            (
                "pub(crate) async fn a(\n    x: u8,\n) -> u8\nwhere\n    u8: Copy,\n{\n    if x {\n    }\n}\n",
                "a",
                9,
            ),
            (
                "trait T {\n    fn a();\n    const fn b() {\n        x();\n    }\n}\nfn c() {}\n",
                "b",
                3,
            ),
        ] {
            let mut counts = Counts::default();
            counts.add(text, &patterns);
            let name = name.to_owned();
            assert_eq!(counts.longest_function, Function { name, lines });
            assert_eq!(counts.problems(), Vec::<String>::new());
        }
        let mut counts = Counts::default();
        counts.add(
            &format!("impl A {{\n    fn a() {{\n        {long}y();\n        z();\n    }}\n}}\n"),
            &patterns,
        );
        assert_eq!(counts.longest_function.lines, 133);
        assert_eq!(
            counts.problems(),
            ["lines of the longest function: 133.0, at most 132.0"]
        );
    }

    #[test]
    fn product_code_is_known_by_its_path() {
        let product = |path: &str| is_product(&root().join(path));
        assert!(product("controller/src/restore.rs"));
        for path in [
            "controller/src/restore/tests.rs",
            "crates/testkit/src/lib.rs",
            "webhook/src/tests/names.rs",
        ] {
            assert!(!product(path), "{path}");
        }
    }
}
