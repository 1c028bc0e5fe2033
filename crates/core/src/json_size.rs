//! Upper bound of the memory of decoded JSON, without decoding it: a small text can become large.

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_json::Value;

const VALUE_BYTES: u64 = size_of::<Value>() as u64;
/// Size of a map's tree node (bytes): eleven keys and values, and its overhead.
const NODE_BYTES: u64 = 11 * (size_of::<String>() as u64 + VALUE_BYTES) + 16;
/// Number of map entries that share one node.
const ENTRIES_PER_NODE: u64 = 11;
/// Additional size once a map has more entries than that (bytes): two nodes, and one above them.
const SPLIT_BYTES: u64 = 3 * NODE_BYTES + 128;
/// Size of each further entry (bytes): nodes of a growing map are half full, and there are some
/// above them.
const ENTRY_BYTES: u64 = NODE_BYTES / 5;
/// Maximum overhead of an allocation (bytes).
const ALLOCATION_BYTES: u64 = 32;

/// Upper bound of the memory that a [`Value`] of this JSON takes (bytes). Errors: invalid JSON, or
/// nested deeper than 127 levels.
pub fn decoded(json: &[u8]) -> Result<u64, serde_json::Error> {
    serde_json::from_slice::<Size>(json).map(|size| size.0)
}

struct Size(u64);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SizeVisitor).map(Self)
    }
}

struct SizeVisitor;

impl<'de> Visitor<'de> for SizeVisitor {
    type Value = u64;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<u64, E> {
        Ok(VALUE_BYTES)
    }

    fn visit_bool<E>(self, _: bool) -> Result<u64, E> {
        Ok(VALUE_BYTES)
    }

    fn visit_i64<E>(self, _: i64) -> Result<u64, E> {
        Ok(VALUE_BYTES)
    }

    fn visit_u64<E>(self, _: u64) -> Result<u64, E> {
        Ok(VALUE_BYTES)
    }

    fn visit_f64<E>(self, _: f64) -> Result<u64, E> {
        Ok(VALUE_BYTES)
    }

    fn visit_str<E>(self, text: &str) -> Result<u64, E> {
        Ok(VALUE_BYTES + string(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<u64, A::Error> {
        let mut size = VALUE_BYTES;
        let mut first = true;
        while let Some(Size(element)) = list.next_element()? {
            // A growing list reserves twice its length, and at least four elements.
            size += element
                + VALUE_BYTES
                + if first {
                    4 * VALUE_BYTES + ALLOCATION_BYTES
                } else {
                    0
                };
            first = false;
        }
        Ok(size)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<u64, A::Error> {
        let mut size = VALUE_BYTES;
        let mut entries = 0;
        while let Some((Key(key), Size(value))) = map.next_entry()? {
            size += key + (value - VALUE_BYTES);
            entries += 1;
        }
        size += match entries {
            0 => 0,
            1..=ENTRIES_PER_NODE => NODE_BYTES + ALLOCATION_BYTES,
            more => SPLIT_BYTES + ENTRY_BYTES * (more - ENTRIES_PER_NODE),
        };
        Ok(size)
    }
}

/// Memory of a key's text.
struct Key(u64);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;
        impl Visitor<'_> for KeyVisitor {
            type Value = Key;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a key")
            }

            fn visit_str<E>(self, text: &str) -> Result<Key, E> {
                Ok(Key(string(text)))
            }
        }
        deserializer.deserialize_str(KeyVisitor)
    }
}

fn string(text: &str) -> u64 {
    if text.is_empty() {
        0
    } else {
        text.len() as u64 + ALLOCATION_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_text_that_becomes_large_is_known_before_it_is_decoded() {
        let list = |element: &str, times: usize| format!("[{}]", vec![element; times].join(","));
        for (json, at_least, at_most) in [
            ("null".to_owned(), 1, 1),
            (r#""text""#.to_owned(), 1, 3),
            ("{}".to_owned(), 1, 1),
            (list("0", 1000), 1000, 2100),
            (list("[]", 1000), 1000, 2100),
            // 632 bytes are allocated for each map of one entry.
            (list(r#"{"":0}"#, 1000), 20_000, 24_000),
            (
                format!(r#"{{"metadata": {}}}"#, list(r#"{"a":"b"}"#, 1000)),
                20_000,
                30_000,
            ),
        ] {
            let values = decoded(json.as_bytes()).unwrap() / VALUE_BYTES;
            assert!(
                (at_least..=at_most).contains(&values),
                "{values} values: {json:.40}"
            );
        }
    }

    #[test]
    fn what_is_no_json_or_too_deep_is_an_error() {
        let deep = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        for (json, is_good) in [
            (deep(127), true),
            (deep(128), false),
            (r#"{"a":1"#.to_owned(), false),
            ("{} {}".to_owned(), false),
            (String::new(), false),
        ] {
            assert_eq!(decoded(json.as_bytes()).is_ok(), is_good, "{json}");
            assert_eq!(
                serde_json::from_slice::<Value>(json.as_bytes()).is_ok(),
                is_good,
                "{json}"
            );
        }
    }
}
