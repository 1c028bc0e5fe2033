//! Imports for every transcript.

pub use axum::http::Method;
pub use insta::assert_snapshot;
pub use serde_json::{Value, json};

pub use crate::{
    fake_api::{FakeApi, Fault, packed},
    person::Person,
    samples::*,
};

/// Asserts that the output of a line, or of several, is as in the snapshot.
macro_rules! transcript {
    ($name:expr => $person:expr, $line:expr) => {
        insta::assert_snapshot!($name, $person.types($line).await)
    };
    ($person:expr, $line:expr $(,)?) => {
        insta::assert_snapshot!($person.types($line).await)
    };
    ($person:expr, $($line:expr),+ $(,)?) => {
        insta::assert_snapshot!($person.types_all([$($line),+]).await)
    };
}
pub(crate) use transcript;
