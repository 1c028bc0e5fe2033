//! How things are shown: columns, the describe screen, ages, JSON and YAML, colour.

mod age;
pub(crate) mod describe;
pub(crate) mod json;
mod style;
mod table;

pub(crate) use age::{ago, human, seconds, since, took, until};
pub(crate) use style::{Style, Tone};
pub(crate) use table::{plain, table};
