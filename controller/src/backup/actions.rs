//! The actions of one backup.

use backup_actions::{
    ActionSet,
    backup::{BackupItemAction, ItemBlockAction},
};

use backup_plugins::PluginLog;

/// The actions of one backup, in the order in which an item passes them.
#[derive(Default)]
pub(crate) struct BackupActions {
    /// Those on items.
    pub(crate) items: ActionSet<dyn BackupItemAction>,
    /// Those that say which items belong together.
    pub(crate) blocks: ActionSet<dyn ItemBlockAction>,
    /// Problems of plugins, as sentences for people.
    pub(crate) problems: Vec<String>,
    /// What plugins log while they are executed.
    pub(crate) log: PluginLog,
}

impl BackupActions {
    /// Why some of them are missing, as sentences for people.
    pub(crate) fn unusable(&self) -> impl Iterator<Item = &String> {
        self.items.unusable.iter().chain(&self.blocks.unusable).chain(&self.problems)
    }
}
