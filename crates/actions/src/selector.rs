//! Selects the actions for an item, and their order.

use std::{collections::BTreeMap, sync::Arc};

use backup_core::{
    resources::full_names,
    selection::{IncludesExcludes, LabelFilter, parse_selector},
};

use crate::{AppliesTo, ItemAction};

/// The items that an action applies to, with names resolved by discovery.
#[derive(Clone, Debug)]
struct ActionSelector {
    resources: IncludesExcludes,
    namespaces: IncludesExcludes,
    labels: LabelFilter,
}

impl ActionSelector {
    fn new(
        applies_to: &AppliesTo,
        resolve: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, String> {
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
}

#[derive(Debug)]
pub struct SelectedAction<A: ?Sized> {
    pub action: Arc<A>,
    selector: ActionSelector,
}

impl<A: ?Sized> SelectedAction<A> {
    /// Whether the action applies to an item whose type it applies to. `labels` is called only if
    /// needed.
    pub fn applies_to(
        &self,
        namespace: Option<&str>,
        labels: impl FnOnce() -> BTreeMap<String, String>,
    ) -> bool {
        let ActionSelector {
            namespaces,
            labels: filter,
            ..
        } = &self.selector;
        namespace.is_none_or(|namespace| namespaces.includes(namespace))
            && (filter.everything() || filter.matches(&labels()))
    }
}

impl<A: ?Sized> Clone for SelectedAction<A> {
    fn clone(&self) -> Self {
        Self {
            action: Arc::clone(&self.action),
            selector: self.selector.clone(),
        }
    }
}

/// Actions in the order in which they process an item: first built-in ones, then plugins', as with
/// Velero, which lists its own binary first.
#[derive(Debug)]
pub struct ActionSet<A: ?Sized> {
    actions: Vec<SelectedAction<A>>,
    /// Actions that cannot be used, with reasons, as sentences for users.
    pub unusable: Vec<String>,
}

impl<A: ?Sized> Default for ActionSet<A> {
    fn default() -> Self {
        Self {
            actions: Vec::new(),
            unusable: Vec::new(),
        }
    }
}

impl<A: ItemAction + ?Sized> ActionSet<A> {
    /// From actions in their order; `resolve` completes the name of a resource as users write it,
    /// and `kind` names the actions in sentences.
    pub fn new(
        kind: &str,
        actions: impl IntoIterator<Item = Arc<A>>,
        resolve: &dyn Fn(&str) -> Option<String>,
    ) -> Self {
        let mut set = Self::default();
        for action in actions {
            match ActionSelector::new(&action.applies_to(), resolve) {
                Ok(selector) => set.actions.push(SelectedAction { action, selector }),
                Err(reason) => {
                    set.unusable
                        .push(format!("the {kind} {} is not run: {reason}", action.name()));
                }
            }
        }
        set
    }

    pub fn for_type<'a>(
        &'a self,
        group_resource: &'a str,
    ) -> impl Iterator<Item = &'a SelectedAction<A>> {
        self.actions
            .iter()
            .filter(move |one| one.selector.resources.includes(group_resource))
    }

    pub fn is_empty(&self) -> bool {
        self.actions.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &A> {
        self.actions.iter().map(|one| &*one.action)
    }
}

pub(crate) fn sort_by_name<A: ItemAction + ?Sized>(actions: &mut [Arc<A>]) {
    actions.sort_by_cached_key(|action| action.name().to_owned());
}

#[cfg(test)]
mod tests;
