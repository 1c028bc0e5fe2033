//! Tests that cannot run here.

use std::fmt;

/// The error of a test that cannot run here, with the missing condition.
#[derive(Debug)]
pub struct Skip(pub &'static str);

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Skip {}
