//! Messages of actions on items of a restore (Velero `pkg/plugin/proto/restoreitemaction/v2`,
//! v1.18; of v1 they are the first fields).

use super::{ResourceIdentifier, Time, messages};

pub(crate) mod method {
    pub(crate) const PROGRESS: &str = "/v2.RestoreItemAction/Progress";
    pub(crate) const CANCEL: &str = "/v2.RestoreItemAction/Cancel";
    /// Whether additional items are ready.
    pub(crate) const READY: &str = "/v2.RestoreItemAction/AreAdditionalItemsReady";
}

messages! {
    /// Has an action look at an item of a restore.
    pub(crate) ExecuteRequest {
        plugin: String = 1 [string],
        /// JSON: the item as it would be created.
        item: Vec<u8> = 2 [bytes = "vec"],
        restore: Vec<u8> = 3 [bytes = "vec"],
        /// JSON: the item as the backup has it.
        item_from_backup: Vec<u8> = 4 [bytes = "vec"],
    }

    /// What an action has done. v1 has only the first three.
    pub(crate) ExecuteResponse {
        item: Vec<u8> = 1 [bytes = "vec"],
        additional_items: Vec<ResourceIdentifier> = 2 [message, repeated],
        skip_restore: bool = 3 [bool],
        /// Empty if nothing was started.
        operation_id: String = 4 [string],
        /// Whether the item is to be restored only once those objects are ready.
        wait_for_additional_items: bool = 5 [bool],
        /// How long that is waited for; nothing or none is the server's own time.
        additional_items_ready_timeout: Option<Time> = 6 [message, optional],
    }

    /// Asks whether objects that came along can be used.
    pub(crate) ReadyRequest {
        plugin: String = 1 [string],
        restore: Vec<u8> = 2 [bytes = "vec"],
        additional_items: Vec<ResourceIdentifier> = 3 [message, repeated],
    }

    #[derive(Copy)]
    pub(crate) ReadyResponse {
        ready: bool = 1 [bool],
    }
}
