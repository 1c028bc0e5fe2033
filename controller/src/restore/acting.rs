//! Which actions see an item of a restore, and in which order: by name, first those that are built in, then those of plugins.
//! (Velero has its own first, too, and then goes binary by binary.)

use std::{collections::BTreeMap, sync::Arc};

use super::{
    action::RestoreItemAction,
    json::{self, Object},
};
use crate::backup::actions::Wish;

/// The actions of one restore.
pub struct Actions {
    all: Vec<Resolved>,
    /// Actions that can not be used, and why, as sentences for people.
    pub unusable: Vec<String>,
}

/// An action, with what it wants to see.
pub struct Resolved {
    /// The action.
    pub action: Arc<dyn RestoreItemAction>,
    wish: Wish,
}

impl Resolved {
    /// Whether it wants to see an item, as it is now, of a type that it applies to, on its way into a namespace.
    pub fn wants(&self, item: &Object, namespace: Option<&str>) -> bool {
        let labels = || -> BTreeMap<String, String> {
            let labels = json::object(item, &["metadata", "labels"]).into_iter().flatten();
            labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
        };
        self.wish.wants(namespace, labels)
    }
}

impl Actions {
    /// From all actions there are: built in, and of plugins; `resolve` completes the name of a resource as people write it.
    pub fn of(
        mut built_in: Vec<Arc<dyn RestoreItemAction>>,
        plugins: &[Arc<dyn RestoreItemAction>],
        resolve: &dyn Fn(&str) -> Option<String>,
    ) -> Self {
        let mut plugins = plugins.to_vec();
        for actions in [&mut built_in, &mut plugins] {
            actions.sort_by_cached_key(|action| action.name().to_owned());
        }
        let (mut all, mut unusable) = (Vec::new(), Vec::new());
        for action in built_in.into_iter().chain(plugins) {
            match Wish::of(action.applies_to(), resolve) {
                Ok(wish) => all.push(Resolved { action, wish }),
                Err(reason) => {
                    unusable.push(format!("the action {} is not run: {reason}", action.name()));
                }
            }
        }
        Self { all, unusable }
    }

    /// Those that apply to a type.
    pub fn for_type<'a>(&'a self, group_resource: &'a str) -> impl Iterator<Item = &'a Resolved> {
        self.all.iter().filter(move |one| one.wish.is_for(group_resource))
    }

    /// Whether any may ask for other objects.
    pub fn may_bring(&self) -> bool {
        self.all.iter().any(|one| one.action.may_bring())
    }
}
