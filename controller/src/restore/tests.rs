//! What tests of restores share.

pub(super) mod fake;
