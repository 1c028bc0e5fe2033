//! The model of the life of a backup, and the cluster that tests of whole backups share.

pub(crate) mod fake;
mod model;
