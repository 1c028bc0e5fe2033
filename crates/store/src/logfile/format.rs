//! One line of logrus' `TextFormatter`.

use std::io::Write;

/// Appends `time="…" level=… msg="…" key=value…` and a newline. Writing to a `Vec` does not fail.
pub(super) fn line(
    out: &mut Vec<u8>,
    level: &str,
    message: &str,
    fields: &[(&str, &str)],
    at: jiff::Timestamp,
) {
    let _ = write!(
        out,
        "time=\"{}\" level={level} msg=",
        at.strftime("%Y-%m-%dT%H:%M:%SZ")
    );
    value(out, message);
    let mut fields = fields.to_vec();
    fields.sort_unstable();
    for (key, text) in fields {
        let _ = write!(out, " {key}=");
        value(out, text);
    }
    out.push(b'\n');
}

/// A value, quoted unless it consists of logrus' plain characters only.
fn value(out: &mut Vec<u8>, text: &str) {
    if text.chars().all(is_plain) {
        out.extend_from_slice(text.as_bytes());
    } else {
        quote(out, text);
    }
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-._/@^+".contains(c)
}

/// Go's `%q`.
fn quote(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    for c in text.chars() {
        let _ = match c {
            '"' => write!(out, "\\\""),
            '\\' => write!(out, "\\\\"),
            '\u{7}' => write!(out, "\\a"),
            '\u{8}' => write!(out, "\\b"),
            '\u{c}' => write!(out, "\\f"),
            '\n' => write!(out, "\\n"),
            '\r' => write!(out, "\\r"),
            '\t' => write!(out, "\\t"),
            '\u{b}' => write!(out, "\\v"),
            ' '..='~' => write!(out, "{c}"),
            c if c.is_ascii() => write!(out, "\\x{:02x}", c as u32),
            c if printable(c) => write!(out, "{c}"),
            c if (c as u32) < 0x1_0000 => write!(out, "\\u{:04x}", c as u32),
            c => write!(out, "\\U{:08x}", c as u32),
        };
    }
    out.push(b'"');
}

/// Rust's definition of a printable character; it escapes a few more than Go, and every reader
/// unescapes them.
fn printable(c: char) -> bool {
    !c.is_whitespace() && c.escape_debug().len() == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_what_logrus_writes() {
        type Row<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a str);
        let at: jiff::Timestamp = "2026-01-02T03:04:05.678Z".parse().unwrap();
        let table: [Row<'_>; 7] = [
            ("done", &[], "msg=done"),
            ("two words", &[], r#"msg="two words""#),
            ("", &[("empty", "")], "msg= empty="),
            ("x", &[("b", "2"), ("a", "1:2")], r#"msg=x a="1:2" b=2"#),
            ("say \"hi\"\n\tC:\\", &[], r#"msg="say \"hi\"\n\tC:\\""#),
            (
                "bell\u{7} esc\u{1b} nbsp\u{a0} é 日",
                &[],
                r#"msg="bell\a esc\x1b nbsp\u00a0 é 日""#,
            ),
            (
                "tag\u{e0001}",
                &[("path", "a/b.c@d^e+f-g_h")],
                r#"msg="tag\U000e0001" path=a/b.c@d^e+f-g_h"#,
            ),
        ];
        for (message, fields, expected) in table {
            let mut out = Vec::new();
            line(&mut out, "info", message, fields, at);
            assert_eq!(
                String::from_utf8(out).unwrap(),
                format!("time=\"2026-01-02T03:04:05Z\" level=info {expected}\n")
            );
        }
    }
}
