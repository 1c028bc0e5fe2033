//! What tests of hooks share.

pub(crate) mod fake;
