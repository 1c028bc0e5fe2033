//! JSON as Go's `encoding/json` writes it. The API server keeps the bytes of fields without a schema,
//! and its controllers compare them: with a `>` that is not escaped in `data` of a restored
//! ControllerRevision, its StatefulSet or DaemonSet makes no pod any more.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Serializer, ser::Formatter};

/// Writes a value without spaces, and with Go's escapes in strings.
pub(super) fn to_vec(value: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(1024);
    value.serialize(&mut Serializer::with_formatter(&mut bytes, GoStrings))?;
    Ok(bytes)
}

struct GoStrings;

impl Formatter for GoStrings {
    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        for part in fragment.split_inclusive(is_escaped) {
            let plain = part.strip_suffix(is_escaped).unwrap_or(part);
            writer.write_all(plain.as_bytes())?;
            let last = part.chars().next_back();
            if let Some(escaped) = last.filter(|last| is_escaped(*last)) {
                write!(writer, "\\u{:04x}", u32::from(escaped))?;
            }
        }
        Ok(())
    }
}

/// Whether Go escapes it beside what JSON demands (Go's encoding/json, `htmlSafeSet`).
fn is_escaped(c: char) -> bool {
    matches!(c, '<' | '>' | '&' | '\u{2028}' | '\u{2029}')
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn strings_and_keys_are_escaped_as_go_escapes_them() {
        let value =
            json!({ "a>b": ["echo 1 > /x && cat < /y", "\u{2028}\u{2029}", "\"\\\n\u{1}é"] });
        let written = String::from_utf8(to_vec(&value).unwrap()).unwrap();
        assert_eq!(
            written,
            r#"{"a\u003eb":["echo 1 \u003e /x \u0026\u0026 cat \u003c /y","\u2028\u2029","\"\\\n\u0001é"]}"#
        );
        assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), value);
    }
}
