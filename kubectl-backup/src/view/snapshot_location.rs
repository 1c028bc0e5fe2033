//! Rows of `locations snapshots`. Pure.

use backup_core::api::VolumeSnapshotLocation;
use jiff::Timestamp;
use kube::ResourceExt as _;

use crate::print::{
    age::{human, seconds},
    table::plain,
};

/// Headers; the first [`NARROW`] unless wide.
pub const HEADERS: [&str; 5] = ["NAME", "PROVIDER", "AGE", "CREDENTIAL", "CONFIG"];
/// Columns unless wide.
pub const NARROW: usize = 3;

/// A row, all columns. Of the credential only where it lies.
pub fn row(location: &VolumeSnapshotLocation, now: Timestamp) -> Vec<String> {
    let spec = &location.spec;
    let created = location.metadata.creation_timestamp.as_ref();
    let credential = spec.credential.as_ref().map(|secret| format!("{}/{}", secret.name, secret.key));
    let config: Vec<String> = spec.config.iter().map(|(name, value)| format!("{name}={value}")).collect();
    vec![
        location.name_any(),
        plain(&spec.provider),
        created.map_or_else(|| "-".to_owned(), |at| human(seconds(at.0, now).max(0))),
        credential.map_or_else(|| "-".to_owned(), |place| plain(&place)),
        plain(&config.join(",")),
    ]
}
