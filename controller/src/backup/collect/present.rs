//! A type whose items are being written: its names, and the actions that apply to it.

use backup_actions::{
    ItemId, SelectedAction,
    backup::{BackupItemAction, ItemBlockAction},
};
use backup_core::resources::ResourceType;

use crate::backup::{
    actions::BackupActions,
    items::{Item, TypeMeta},
};

/// What is the same for all items of a type.
pub struct Present {
    /// The type.
    pub resource: ResourceType,
    /// Its name without the version.
    pub group_resource: String,
    /// `apiVersion` of its items.
    pub api_version: String,
    /// What lists leave out of its items.
    pub meta: TypeMeta,
    /// Actions that may want to see them.
    pub actions: Vec<SelectedAction<dyn BackupItemAction>>,
    /// Actions that may say what belongs to them.
    pub blocks: Vec<SelectedAction<dyn ItemBlockAction>>,
}

impl Present {
    /// Of a type.
    pub fn of(resource: &ResourceType, actions: &BackupActions) -> Self {
        let group_resource = resource.group_resource();
        Self {
            actions: actions.items.for_type(&group_resource).cloned().collect(),
            blocks: actions.blocks.for_type(&group_resource).cloned().collect(),
            group_resource,
            api_version: resource.api_version(),
            meta: TypeMeta::of(resource),
            resource: resource.clone(),
        }
    }

    /// An item of this type by its name.
    pub fn id(&self, item: &Item<'_>) -> ItemId {
        ItemId {
            group_resource: self.group_resource.clone(),
            namespace: item.namespace().map(str::to_owned),
            name: item.name().to_owned(),
        }
    }

    /// What somebody has named, as [`Self::id`] names it.
    pub fn known_as(&self, id: &ItemId) -> ItemId {
        ItemId {
            group_resource: self.group_resource.clone(),
            namespace: id.namespace.clone().filter(|_| self.resource.namespaced),
            name: id.name.clone(),
        }
    }
}
