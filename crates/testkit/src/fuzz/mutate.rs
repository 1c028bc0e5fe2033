//! Creates one input from others: changes bytes, and values in JSON.

use serde_json::{Value, json};

/// Maximum size of an input (bytes).
const LARGEST: usize = 64 * 1024;
/// Maximum size of the few inputs that are intentionally large (bytes).
const HUGE: usize = 4 * 1024 * 1024;
/// One in this many inputs is large.
const HUGE_EVERY: u32 = 500;
/// Bytes and words that readers treat specially.
const TOKENS: [&[u8]; 16] = [
    b"\0",
    b"\xff",
    b"\n",
    b"\"",
    b"{",
    b"[",
    b"null",
    b"-1",
    b"18446744073709551615",
    b"1e999",
    b"..",
    b"/",
    b"\\ud800",
    b"=",
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
    b"0001-01-01T00:00:00Z",
];

pub(super) struct Mutator(fastrand::Rng);

impl Mutator {
    pub(super) fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// A mutation of one of these, which may include parts of another.
    pub(super) fn mutate(&mut self, pool: &[Vec<u8>]) -> Vec<u8> {
        let mut input = self.any_of(pool);
        if self.0.u32(..HUGE_EVERY) == 0 {
            return self.inflate(input);
        }
        for _ in 0..self.0.usize(1..=3) {
            let value = if self.0.bool() {
                serde_json::from_slice(&input).ok()
            } else {
                None
            };
            input = match value {
                Some(value) => self.json(value, pool),
                None => self.bytes(input, pool),
            };
        }
        input.truncate(LARGEST);
        input
    }

    fn any_of(&mut self, pool: &[Vec<u8>]) -> Vec<u8> {
        self.0.choice(pool).cloned().unwrap_or_default()
    }

    fn bytes(&mut self, mut input: Vec<u8>, pool: &[Vec<u8>]) -> Vec<u8> {
        let (from, to) = self.range(input.len());
        match self.0.u32(..8) {
            0 if from < input.len() => input[from] ^= 1 << self.0.u32(..8),
            1 if from < input.len() => input[from] = self.0.u8(..),
            2 => drop(input.drain(from..to)),
            3 => input.truncate(from),
            4 => drop(input.splice(
                from..to,
                self.0.choice(TOKENS).unwrap_or_default().iter().copied(),
            )),
            5 => {
                let part = input[from..to].to_vec();
                let at = self.0.usize(..=input.len());
                drop(input.splice(at..at, part));
            }
            6 => {
                let other = self.any_of(pool);
                let (begin, end) = self.range(other.len());
                drop(input.splice(from..to, other[begin..end].iter().copied()));
            }
            _ => {
                let at = self.0.usize(..=input.len());
                drop(input.splice(
                    at..at,
                    self.0.choice(TOKENS).unwrap_or_default().iter().copied(),
                ));
            }
        }
        input
    }

    /// Repeats a part of the input many times.
    fn inflate(&mut self, mut input: Vec<u8>) -> Vec<u8> {
        let (from, to) = self.range(input.len());
        if from < to {
            let times = HUGE / (to - from).max(1);
            let part = input[from..to].repeat(self.0.usize(..=times));
            drop(input.splice(from..from, part));
        }
        input
    }

    /// A random range, usually a short one.
    fn range(&mut self, length: usize) -> (usize, usize) {
        let from = self.0.usize(..=length);
        let longest = if self.0.bool() { 8 } else { length };
        (from, length.min(from + self.0.usize(..=longest)))
    }

    fn json(&mut self, mut value: Value, pool: &[Vec<u8>]) -> Vec<u8> {
        let mut place = self.0.usize(..size(&value));
        let new = self.value(&value, pool);
        change(&mut value, &mut place, new);
        value.to_string().into_bytes()
    }

    /// A value to insert; `None`: the existing value is removed.
    fn value(&mut self, own: &Value, pool: &[Vec<u8>]) -> Option<Value> {
        Some(match self.0.u32(..12) {
            0 | 1 => return None,
            2 => Value::Null,
            3 => json!(""),
            4 => json!("x".repeat(self.0.usize(..300))),
            5 => json!(
                *self
                    .0
                    .choice(&[-1, 0, 1, i64::MAX, i64::MIN, 4_294_967_296])
                    .unwrap_or(&0)
            ),
            6 => json!(
                *self
                    .0
                    .choice(&[u64::MAX, u64::MAX - 1, 1 << 63])
                    .unwrap_or(&0)
            ),
            7 => json!(
                *self
                    .0
                    .choice(&["*", "a*", "**", "../x", "a/b", "-", "0s", "!", "1h", "𝔘"])
                    .unwrap_or(&"")
            ),
            8 => (0..self.0.usize(..200)).fold(Value::Null, |value, _| json!([value])),
            9 => json!({}),
            10 => part(own, &mut self.0.usize(..size(own)))
                .cloned()
                .unwrap_or_default(),
            _ => {
                let other = serde_json::from_slice(&self.any_of(pool)).unwrap_or(Value::Null);
                part(&other, &mut self.0.usize(..size(&other)))
                    .cloned()
                    .unwrap_or_default()
            }
        })
    }
}

/// Number of values in a value, including itself.
fn size(value: &Value) -> usize {
    1 + match value {
        Value::Array(all) => all.iter().map(size).sum(),
        Value::Object(all) => all.values().map(size).sum(),
        _ => 0,
    }
}

/// The value at this position, in the order of [`size`].
fn part<'v>(value: &'v Value, place: &mut usize) -> Option<&'v Value> {
    if *place == 0 {
        return Some(value);
    }
    *place -= 1;
    match value {
        Value::Array(all) => all.iter().find_map(|one| part(one, place)),
        Value::Object(all) => all.values().find_map(|one| part(one, place)),
        _ => None,
    }
}

/// Replaces the value at this position, or removes it. Returns whether that was done.
fn change(value: &mut Value, place: &mut usize, new: Option<Value>) -> bool {
    if *place == 0 {
        *value = new.unwrap_or_default();
        return true;
    }
    *place -= 1;
    match value {
        Value::Array(all) => {
            for index in 0..all.len() {
                if *place == 0 && new.is_none() {
                    all.remove(index);
                    return true;
                }
                if change(&mut all[index], place, new.clone()) {
                    return true;
                }
            }
        }
        Value::Object(all) => {
            let keys: Vec<String> = all.keys().cloned().collect();
            for key in keys {
                if *place == 0 && new.is_none() {
                    all.remove(&key);
                    return true;
                }
                if all
                    .get_mut(&key)
                    .is_some_and(|one| change(one, place, new.clone()))
                {
                    return true;
                }
            }
        }
        _ => {}
    }
    false
}
