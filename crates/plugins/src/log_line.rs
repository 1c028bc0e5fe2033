//! Parses the lines on a plugin's standard error. Pure.
//!
//! Plugins write JSON there, with the fields of hclog (`@level`, `@message`); Velero's framework
//! has logrus do that (`pkg/plugin/framework/logger.go`, v1.18). The Go runtime writes plain text
//! there when a program panics.

use serde_json::{Map, Value};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// For debugging. Not shown, as in Velero unless its log level is changed.
    Debug,
    Info,
    Warning,
    Error,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    pub level: Level,
    pub text: String,
}

/// Reads lines in order: plain lines after a panic are its stack.
#[derive(Debug, Default)]
pub struct Reader {
    panicked: bool,
}

impl Reader {
    pub fn read(&mut self, line: &str) -> LogLine {
        if let Ok(fields) = serde_json::from_str::<Map<String, Value>>(line)
            && let Some(said) = structured(&fields)
        {
            return said;
        }
        let prefixes = [
            ("[TRACE]", Level::Debug),
            ("[DEBUG]", Level::Debug),
            ("[INFO]", Level::Info),
            ("[WARN]", Level::Warning),
            ("[ERROR]", Level::Error),
            ("panic: ", Level::Error),
            ("fatal error: ", Level::Error),
        ];
        let found = prefixes.iter().find(|(prefix, _)| line.starts_with(prefix));
        self.panicked |= found.is_some_and(|(prefix, _)| !prefix.starts_with('['));
        let plain = if self.panicked {
            Level::Info
        } else {
            Level::Debug
        };
        LogLine {
            level: found.map_or(plain, |(_, level)| *level),
            text: line.to_owned(),
        }
    }
}

fn structured(fields: &Map<String, Value>) -> Option<LogLine> {
    let mut message = first_text(fields, &["@message", "msg", "message"])?.to_owned();
    if let Some(error) = first_text(fields, &["error"]) {
        message = format!("{message}: {error}");
    }
    let level = match first_text(fields, &["@level", "level"]).unwrap_or_default() {
        "trace" | "debug" => Level::Debug,
        "warn" | "warning" => Level::Warning,
        "error" | "fatal" | "panic" => Level::Error,
        _ => Level::Info,
    };
    Some(LogLine {
        level,
        text: message,
    })
}

fn first_text<'a>(fields: &'a Map<String, Value>, names: &[&str]) -> Option<&'a str> {
    names.iter().find_map(|name| fields.get(*name)?.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case(
        r#"{"@level":"info","@message":"m","level":"info","logSource":"a.go:1"}"#,
        Level::Info,
        "m"
    )]
    #[case(
        r#"{"@level":"warn","@message":"m","level":"warning"}"#,
        Level::Warning,
        "m"
    )]
    #[case(
        r#"{"@level":"error","@message":"m","error":"no space"}"#,
        Level::Error,
        "m: no space"
    )]
    #[case(r#"{"@level":"trace","@message":"m"}"#, Level::Debug, "m")]
    #[case(r#"{"level":"warning","msg":"m"}"#, Level::Warning, "m")]
    #[case(r#"{"@message":7}"#, Level::Debug, r#"{"@message":7}"#)]
    #[case("[1,2]", Level::Debug, "[1,2]")]
    #[case("[WARN] careful", Level::Warning, "[WARN] careful")]
    #[case("just text", Level::Debug, "just text")]
    #[case("", Level::Debug, "")]
    fn lines_have_a_level_and_a_text(#[case] line: &str, #[case] level: Level, #[case] text: &str) {
        assert_eq!(
            Reader::default().read(line),
            LogLine {
                level,
                text: text.to_owned()
            }
        );
    }

    #[test]
    fn a_panic_is_one_error_and_its_stack_is_in_the_log() {
        let mut reader = Reader::default();
        let levels: Vec<_> = ["before", "panic: oh", "", "goroutine 1 [running]:"]
            .map(|line| reader.read(line).level)
            .into();
        assert_eq!(
            levels,
            [Level::Debug, Level::Error, Level::Info, Level::Info]
        );
    }
}
