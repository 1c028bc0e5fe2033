//! Messages of actions on items of a restore (Velero `pkg/plugin/proto/restoreitemaction/v2`, v1.18; of v1 they are the first
//! fields).

use prost::Message;

use super::ResourceIdentifier;

pub(crate) mod method {
    pub(crate) const PROGRESS: &str = "/v2.RestoreItemAction/Progress";
    pub(crate) const CANCEL: &str = "/v2.RestoreItemAction/Cancel";
    /// Whether objects that came along can be used.
    pub(crate) const READY: &str = "/v2.RestoreItemAction/AreAdditionalItemsReady";
}

/// Has an action look at an item of a restore.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ExecuteRequest {
    #[prost(string, tag = "1")]
    pub plugin: String,
    /// JSON: the item as it would be created.
    #[prost(bytes = "vec", tag = "2")]
    pub item: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    pub restore: Vec<u8>,
    /// JSON: the item as the backup has it.
    #[prost(bytes = "vec", tag = "4")]
    pub item_from_backup: Vec<u8>,
}

/// What an action has done. v1 has only the first three.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ExecuteResponse {
    #[prost(bytes = "vec", tag = "1")]
    pub item: Vec<u8>,
    #[prost(message, repeated, tag = "2")]
    pub additional_items: Vec<ResourceIdentifier>,
    #[prost(bool, tag = "3")]
    pub skip_restore: bool,
    /// Empty if nothing was started.
    #[prost(string, tag = "4")]
    pub operation_id: String,
    /// Whether the item is to be restored only once those objects are ready.
    #[prost(bool, tag = "5")]
    pub wait_for_additional_items: bool,
    /// How long that is waited for; nothing or none is the server's own time.
    #[prost(message, optional, tag = "6")]
    pub additional_items_ready_timeout: Option<Duration>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Duration {
    /// Whole ones.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    /// Of a second.
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

/// Asks whether objects that came along can be used.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ReadyRequest {
    #[prost(string, tag = "1")]
    pub plugin: String,
    #[prost(bytes = "vec", tag = "2")]
    pub restore: Vec<u8>,
    #[prost(message, repeated, tag = "3")]
    pub additional_items: Vec<ResourceIdentifier>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct ReadyResponse {
    #[prost(bool, tag = "1")]
    pub ready: bool,
}
