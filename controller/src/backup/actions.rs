//! Actions on items: those that are built in, and which of all actions want to see an item.

use std::{collections::BTreeMap, sync::Arc};

use backup_core::{
    resources::full_names,
    selection::{IncludesExcludes, LabelFilter, parse_selector},
};

use super::action::BackupItemAction;
use crate::{context::Context, plugins::PluginLog};

mod claim;
pub mod csi;
pub mod json;
mod pod;
pub mod service_account;

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

/// An action, with what it wants to see resolved against what the cluster serves.
#[derive(Clone)]
pub struct Resolved {
    /// The action.
    pub action: Arc<dyn BackupItemAction>,
    resources: IncludesExcludes,
    namespaces: IncludesExcludes,
    labels: LabelFilter,
}

impl Resolved {
    /// Whether it wants to see an item of a type that it applies to.
    pub fn wants(&self, namespace: Option<&str>, labels: impl FnOnce() -> BTreeMap<String, String>) -> bool {
        namespace.is_none_or(|namespace| self.namespaces.includes(namespace))
            && (self.labels.everything() || self.labels.matches(&labels()))
    }
}

/// The actions of one backup, in the order in which an item passes them: by name, first those that are built in, then those
/// of plugins, as with Velero, which lists its own binary first. Of those that are built in, those around CSI come last: they
/// put marks on claims that `velero.io/pv` takes for leftovers (Velero runs its older kind of actions first, to the same effect).
#[derive(Clone, Default)]
pub struct Actions {
    all: Vec<Resolved>,
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
            let wish = action.applies_to();
            let labels = match parse_selector(&wish.label_selector) {
                Ok(selector) => LabelFilter::of(&Some(selector), &None),
                Err(reason) => {
                    let name = action.name();
                    resolved.unusable.push(format!("the action {name} is not run: {reason}"));
                    continue;
                }
            };
            let resources = IncludesExcludes::new(
                &full_names(&wish.included_resources, resolve),
                &full_names(&wish.excluded_resources, resolve),
            );
            let namespaces = IncludesExcludes::new(&wish.included_namespaces, &wish.excluded_namespaces);
            resolved.all.push(Resolved { action, resources, namespaces, labels });
        }
        resolved
    }

    /// Those that apply to a type.
    pub fn for_type(&self, group_resource: &str) -> Vec<Resolved> {
        self.all.iter().filter(|one| one.resources.includes(group_resource)).cloned().collect()
    }
}

#[cfg(test)]
mod tests;
