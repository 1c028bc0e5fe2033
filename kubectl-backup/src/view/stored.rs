//! What is told of a backup or restore in files in the store.

pub mod contents;
pub mod messages;
pub mod operations;
pub mod volumes;

use serde::Serialize;

use super::part::Part;
use contents::Contents;
use messages::Messages;
use operations::OperationView;
use volumes::VolumeView;

/// The files, each as people want to see it; nothing where there is nothing to be read.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Stored {
    /// Errors and warnings.
    pub messages: Part<Option<Messages>>,
    /// Asynchronous operations, those first that a person should look at.
    pub item_operations: Part<Option<Vec<OperationView>>>,
    /// Items by type.
    pub contents: Part<Option<Contents>>,
    /// What became of the data of volumes.
    pub volumes: Part<Option<Vec<VolumeView>>>,
}
