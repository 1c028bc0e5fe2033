//! Whether JSON text contains all requested fields, in one pass without a copy.

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};

use super::{Object, same_number};

/// Whether the text contains every field of `asked`, in lists at the same positions. `false` may be
/// too strict: other forms of values and other orders of lists are not recognized. Errors: the text
/// is no JSON object.
pub(super) fn contains(text: &[u8], asked: &Object) -> Result<bool, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let held = Fields(asked).deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(held)
}

/// Deserializes to whether an object contains all these fields.
struct Fields<'a>(&'a Object);

/// Deserializes to whether a value contains this one.
struct ValueCheck<'a>(&'a Value);

/// Looks a key up.
struct Key<'a>(&'a Object);

impl<'de> DeserializeSeed<'de> for Fields<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Fields<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<bool, A::Error> {
        let mut all = true;
        let mut found = 0;
        while let Some(asked) = map.next_key_seed(Key(self.0))? {
            match asked {
                Some(asked) => {
                    found += usize::from(!asked.is_null());
                    all &= map.next_value_seed(ValueCheck(asked))?;
                }
                None => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        Ok(all && found == self.0.values().filter(|asked| !asked.is_null()).count())
    }
}

impl<'de, 'a> DeserializeSeed<'de> for Key<'a> {
    type Value = Option<&'a Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'a> Visitor<'_> for Key<'a> {
    type Value = Option<&'a Value>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<Self::Value, E> {
        Ok(self.0.get(key))
    }
}

impl<'de> DeserializeSeed<'de> for ValueCheck<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueCheck<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<bool, E> {
        Ok(self.0.is_null())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<bool, E> {
        Ok(*self.0 == Value::Bool(value) || self.0.is_null())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<bool, E> {
        Ok(self.is_number(&value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<bool, E> {
        Ok(self.is_number(&value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<bool, E> {
        Ok(Number::from_f64(value).is_some_and(|value| self.is_number(&value)))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<bool, E> {
        Ok(self.0.as_str() == Some(value) || self.0.is_null())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<bool, A::Error> {
        let (mut all, mut asked) = match self.0 {
            Value::Array(asked) => (true, asked.iter()),
            other => (other.is_null(), [].iter()),
        };
        for element in asked.by_ref() {
            match list.next_element_seed(ValueCheck(element))? {
                Some(held) => all &= held,
                None => return Ok(false),
            }
        }
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(all)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<bool, A::Error> {
        if let Value::Object(asked) = self.0 {
            return Fields(asked).visit_map(map);
        }
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(self.0.is_null())
    }
}

impl ValueCheck<'_> {
    fn is_number(&self, value: &Number) -> bool {
        self.0.is_null()
            || self
                .0
                .as_number()
                .is_some_and(|asked| same_number(asked, value))
    }
}
