//! Items, one by one: read, rewritten by the actions, created.

use std::sync::{Mutex, PoisonError};

use backup_actions::{
    ActionSet, ItemId,
    restore::{
        RestoreActionOutput, RestoreItemAction,
        json::{self, Object},
        transform,
    },
};
use backup_core::resources::{ResourceType, group_resource};
use backup_runtime::path;
use backup_store::ItemRef;
use futures::{StreamExt as _, future::BoxFuture, stream};

use super::{
    Discover, IN_FLIGHT, Work, WorkError, act::Acted, misplaced, turns::Begun, turns::Turns, volumes,
};
use crate::{
    job::action_journal::{Done, Execution},
    restore::{
        apply::{self, Applied, Outcome, Target},
        guard,
        namespaces::Namespaces,
        report::About,
        select::{self, Selection, Served as _},
    },
};

/// What an action has done with an item, if it has started something.
pub type Started = (Execution, Done<RestoreActionOutput>);

/// What items have in common.
pub(super) struct Pass<'a, D: Discover> {
    pub work: &'a Work<'a, D>,
    pub served: &'a D::Found,
    pub selection: &'a Selection,
    pub actions: ActionSet<dyn RestoreItemAction>,
    pub namespaces: &'a Namespaces,
    /// Where one item may bring another.
    pub turns: Option<&'a Turns>,
    pub started: &'a Mutex<Vec<Started>>,
}

/// A type of items, by the name that the backup has for it.
#[derive(Clone, Copy)]
pub(super) struct Kind<'a> {
    pub group_resource: &'a str,
    pub resource: &'a ResourceType,
}

/// How an item comes up.
#[derive(Clone, Copy)]
pub(super) enum Way {
    /// It is selected.
    Selected,
    /// An action on another item asks for it, which is so far from one that is selected.
    Along(ItemRef, u8),
}

impl<D: Discover> Pass<'_, D> {
    /// Restores items of one type, several at a time. When work has to stop, those that are on their way come to their own end:
    /// a request, or an action, that is under way is not left without an answer.
    pub async fn items(&self, of: Kind<'_>, items: &[ItemRef]) -> Result<(), WorkError> {
        let failed = Mutex::new(None);
        let seen = &|| failed.lock().unwrap_or_else(PoisonError::into_inner);
        stream::iter(items)
            .for_each_concurrent(IN_FLIGHT, |item| async move {
                if seen().is_some() {
                    return;
                }
                let done = async {
                    self.work.calls.cancellation().check_new_work()?;
                    self.item(of, *item, Way::Selected).await
                };
                if let Err(error) = done.await {
                    seen().get_or_insert(error);
                }
            })
            .await;
        let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
        failed.map_or(Ok(()), Err)
    }

    /// Restores an item, unless that is done already. Whether it is in the cluster then.
    pub fn item<'s>(
        &'s self,
        of: Kind<'s>,
        item: ItemRef,
        way: Way,
    ) -> BoxFuture<'s, Result<bool, WorkError>> {
        Box::pin(async move {
            let Some(turns) = self.turns else { return self.restore(of, item, 0).await };
            let (begun, by, depth) = match way {
                Way::Selected => (turns.begin(item), None, 0),
                Way::Along(by, depth) => (turns.begin_for(item, by).await, Some(by), depth),
            };
            match (begun, way) {
                (Begun::Mine, Way::Selected) => {}
                (Begun::Mine, Way::Along(..)) => self.work.report.expect(1),
                (Begun::Others(there), Way::Along(..)) => return Ok(there),
                (Begun::Others(there), Way::Selected) => {
                    // It was brought along, and counted then.
                    self.work.report.expected_twice();
                    return Ok(there);
                }
            }
            let restored = self.restore(of, item, depth).await;
            // Also when work has to stop: nobody waits for it any more.
            turns.end(item, *restored.as_ref().unwrap_or(&false), by);
            restored
        })
    }

    async fn restore(&self, of: Kind<'_>, item: ItemRef, depth: u8) -> Result<bool, WorkError> {
        let Work { contents, report, rules, calls, own, .. } = self.work;
        let Kind { group_resource, resource } = of;
        calls.cancellation().check()?;
        let source = contents.namespace_of(&item);
        let namespace = source.map(|source| rules.target(source));
        let from_backup = match select::read(contents, &item) {
            Ok(object) => object,
            Err(error) => {
                let api_version = resource.api_version();
                let about = About { api_version: &api_version, kind: &resource.kind, namespace, name: "?" };
                report.item(about, Applied::failed(error));
                return Ok(false);
            }
        };
        let name = json::text(&from_backup, &["metadata"], "name").unwrap_or_default();
        let api_version = json::text(&from_backup, &[], "apiVersion").unwrap_or_default();
        let about = About { api_version, kind: &resource.kind, namespace, name };
        if let Some(why) = misplaced::why(&from_backup, resource, namespace, api_version, name) {
            report.item(about, not_restored(about, &why));
            return Ok(false);
        }
        if let Some(why) = guard::keeps(group_resource, namespace, name, own) {
            report.left_out(about, why);
            return Ok(false);
        }
        if namespace.is_some_and(|namespace| self.namespaces.has_failed(namespace)) {
            // The namespace itself is the error; its items are only listed.
            report.item(about, Applied::quiet(Outcome::Failed));
            return Ok(false);
        }
        let id = ItemId {
            group_resource: group_resource.to_owned(),
            namespace: source.map(str::to_owned),
            name: name.to_owned(),
        };
        let mut object = from_backup.clone();
        if group_resource == volumes::VOLUMES {
            let collection = path::collection(api_version, &resource.plural, namespace);
            match self.work.volume(&collection, object).await? {
                Ok(volume) => object = volume,
                Err(why) => {
                    report.item(about, not_restored(about, &why));
                    return Ok(false);
                }
            }
        }
        transform::strip(&mut object);
        let mut object = match self.act(of, about, (item, &id), &from_backup, object, depth).await? {
            Acted::Dropped => return Ok(false),
            Acted::Made(object) => object,
        };
        if group_resource == volumes::CLAIMS {
            self.work.snapshots.follow(&mut object);
        }
        let applied = self.create(of, about, object).await?;
        let there = applied.outcome != Outcome::Failed;
        report.item(about, applied);
        Ok(there)
    }

    /// Creates what actions have made of an item: it may be of another name and type by now.
    async fn create(&self, of: Kind<'_>, about: About<'_>, mut object: Object) -> Result<Applied, WorkError> {
        let Work { calls, rules, own, .. } = self.work;
        let namespace = about.namespace;
        transform::place(&mut object, namespace, rules);
        let text = |path: &[&str], key| json::text(&object, path, key).unwrap_or_default().to_owned();
        let (api_version, kind, name) =
            (text(&[], "apiVersion"), text(&[], "kind"), text(&["metadata"], "name"));
        let found;
        let (mut plural, mut resource) = (of.group_resource, of.resource);
        if (kind.as_str(), group_of(&api_version)) != (&resource.kind, &resource.group) {
            let Some(served) = self.of_kind(&kind, group_of(&api_version)) else {
                let why =
                    format!("actions made a {api_version} {kind} of it, which the cluster does not serve");
                return Ok(not_restored(about, &why));
            };
            found = (served.group_resource(), served);
            (plural, resource) = (&found.0, &found.1);
        }
        if let Some(why) = misplaced::why(&object, resource, namespace, &api_version, &name) {
            return Ok(not_restored(about, &why));
        }
        if let Some(why) = guard::keeps(plural, namespace, &name, own) {
            return Ok(not_restored(about, &format!("actions renamed it to {name:?}, and {why}")));
        }
        let collection = path::collection(&api_version, &resource.plural, namespace);
        let target = Target {
            group_resource: plural,
            kind: &resource.kind,
            collection: &collection,
            namespace,
            name: &name,
        };
        Ok(apply::item(calls, target, &object, self.work.policy()).await?)
    }

    fn of_kind(&self, kind: &str, group: &str) -> Option<ResourceType> {
        let served = self.served.find(&self.served.complete(&group_resource(kind, group))?)?;
        (served.kind == kind && served.group == group).then_some(served)
    }
}

fn group_of(api_version: &str) -> &str {
    api_version.rsplit_once('/').map_or("", |(group, _)| group)
}

pub(super) fn not_restored(about: About<'_>, why: &str) -> Applied {
    Applied::failed(format!("{} {:?} was not restored: {why}", about.kind, about.name))
}
