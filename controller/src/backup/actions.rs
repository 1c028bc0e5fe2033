//! Actions on items: those that are built in, and which of all actions want to see an item.

use std::{collections::BTreeMap, sync::Arc};

use backup_core::{
    resources::full_names,
    selection::{IncludesExcludes, LabelFilter, parse_selector},
};

use super::{
    action::{AppliesTo, BackupItemAction},
    block_action::ItemBlockAction,
};
use crate::{context::Context, plugins::PluginLog};

pub mod blocks;
mod claim;
pub mod csi;
pub mod json;
mod pod;
pub mod service_account;

use blocks::ResolvedBlock;

/// The actions that backups run here, of Velero's names (`pkg/cmd/server/plugin`, v1.18). Made for one use: they may
/// remember what they have read, and those on CSI volumes note in `volumes` what they do.
///
/// Velero's `velero.io/crd-remap-version` is not among them: it reads a definition again in a version of the API that no
/// cluster serves any more since Kubernetes 1.22.
pub fn all(ctx: &Context, volumes: &Arc<csi::Volumes>) -> Vec<Arc<dyn BackupItemAction>> {
    let mut all: Vec<Arc<dyn BackupItemAction>> = vec![
        Arc::new(claim::ClaimAction::default()),
        Arc::new(pod::PodAction::default()),
        Arc::new(service_account::ServiceAccountAction::new(ctx.client.clone())),
    ];
    if ctx.args.csi() {
        all.append(&mut csi::actions(&csi::SnapshotApi::new(&ctx.client, &ctx.leadership), volumes));
    }
    all
}

/// What an action wants to see, resolved against what the cluster serves.
#[derive(Clone, Debug)]
pub struct Wish {
    resources: IncludesExcludes,
    namespaces: IncludesExcludes,
    labels: LabelFilter,
}

impl Wish {
    /// `resolve` completes the name of a resource as people write it. The error says what is wrong with the label selector.
    pub fn of(applies_to: &AppliesTo, resolve: &dyn Fn(&str) -> Option<String>) -> Result<Self, String> {
        let selector = parse_selector(&applies_to.label_selector)?;
        Ok(Self {
            resources: IncludesExcludes::new(
                &full_names(&applies_to.included_resources, resolve),
                &full_names(&applies_to.excluded_resources, resolve),
            ),
            namespaces: IncludesExcludes::new(
                &applies_to.included_namespaces,
                &applies_to.excluded_namespaces,
            ),
            labels: LabelFilter::of(&Some(selector), &None),
        })
    }

    /// Whether it applies to a type.
    pub fn is_for(&self, group_resource: &str) -> bool {
        self.resources.includes(group_resource)
    }

    /// Whether it wants to see an item of a type that it applies to.
    pub fn wants(&self, namespace: Option<&str>, labels: impl FnOnce() -> BTreeMap<String, String>) -> bool {
        namespace.is_none_or(|namespace| self.namespaces.includes(namespace))
            && (self.labels.everything() || self.labels.matches(&labels()))
    }
}

/// An action, with what it wants to see.
#[derive(Clone)]
pub struct Resolved {
    /// The action.
    pub action: Arc<dyn BackupItemAction>,
    wish: Wish,
}

impl Resolved {
    /// Whether it wants to see an item of a type that it applies to.
    pub fn wants(&self, namespace: Option<&str>, labels: impl FnOnce() -> BTreeMap<String, String>) -> bool {
        self.wish.wants(namespace, labels)
    }
}

/// The actions of one backup, in the order in which an item passes them: by name, first those that are built in, then those
/// of plugins, as with Velero, which lists its own binary first. Of those that are built in, those around CSI come last: they
/// put marks on claims that `velero.io/pv` takes for leftovers (Velero runs its older kind of actions first, to the same effect).
#[derive(Clone, Default)]
pub struct Actions {
    all: Vec<Resolved>,
    blocks: Vec<ResolvedBlock>,
    /// Actions that can not be used, and why, as sentences for people.
    pub unusable: Vec<String>,
    /// What plugins say while they are executed.
    pub log: PluginLog,
}

impl Actions {
    /// From all actions there are: built in, and of plugins; `resolve` completes the name of a resource as people write it.
    pub fn of(
        mut built_in: Vec<Arc<dyn BackupItemAction>>,
        mut plugins: Vec<Arc<dyn BackupItemAction>>,
        resolve: &dyn Fn(&str) -> Option<String>,
    ) -> Self {
        built_in
            .sort_by_cached_key(|action| (action.name().starts_with(csi::PREFIX), action.name().to_owned()));
        plugins.sort_by_cached_key(|action| action.name().to_owned());
        let mut resolved = Self::default();
        for action in built_in.into_iter().chain(plugins) {
            match Wish::of(action.applies_to(), resolve) {
                Ok(wish) => resolved.all.push(Resolved { action, wish }),
                Err(reason) => {
                    resolved.unusable.push(format!("the action {} is not run: {reason}", action.name()));
                }
            }
        }
        resolved
    }

    /// With actions that say which items belong together, built-in ones first.
    #[must_use]
    pub fn with_blocks(
        mut self,
        built_in: Vec<Arc<dyn ItemBlockAction>>,
        plugins: Vec<Arc<dyn ItemBlockAction>>,
        resolve: &dyn Fn(&str) -> Option<String>,
    ) -> Self {
        for action in built_in.into_iter().chain(plugins) {
            match Wish::of(action.applies_to(), resolve) {
                Ok(wish) => self.blocks.push(ResolvedBlock { action, wish }),
                Err(reason) => {
                    self.unusable.push(format!("the block action {} is not run: {reason}", action.name()));
                }
            }
        }
        self
    }

    /// Those that apply to a type.
    pub fn for_type(&self, group_resource: &str) -> Vec<Resolved> {
        self.all.iter().filter(|one| one.wish.is_for(group_resource)).cloned().collect()
    }

    /// Those that say what belongs to items of a type.
    pub fn blocks_for_type(&self, group_resource: &str) -> Vec<ResolvedBlock> {
        self.blocks.iter().filter(|one| one.wish.is_for(group_resource)).cloned().collect()
    }
}

#[cfg(test)]
mod tests;
