//! How things are shown: columns, the describe screen, ages, JSON and YAML, colour.

pub mod age;
pub mod describe;
pub mod form;
pub mod guarded;
pub mod json;
pub mod locks;
pub mod operations;
pub mod profiles;
pub mod progress;
pub mod schedule;
pub mod style;
pub mod sync;
pub mod table;
pub mod verify;
