//! The items of a backup that is deleted, which plugins may want to see first: they remove what they have made outside of
//! the cluster (Velero `internal/delete/delete_item_action_handler.go`, v1.18).

use std::collections::BTreeMap;

use backup_core::api::Backup;
use backup_store::Contents;
use serde_json::Value;

use super::act::Error;
use crate::{
    backup::actions::Wish, context::Context, discovery::ServedTypes, plugins::delete_item::DeleteAction,
};

/// The plugins, each with what it wants to see. What can't be run goes to `errors`: nothing is deleted then, as nobody
/// else would remove what such a plugin has made.
pub(super) async fn actions(
    ctx: &Context,
    errors: &mut Vec<String>,
) -> Result<Vec<(DeleteAction, Wish)>, Error> {
    let found = ctx.plugins.delete_item_actions().await;
    errors.extend(found.problems);
    if found.usable.is_empty() {
        return Ok(Vec::new());
    }
    let served = ServedTypes::load(&ctx.client).await?;
    let mut actions = Vec::new();
    for action in found.usable {
        match Wish::of(action.applies_to(), &|name| served.resolve(name)) {
            Ok(wish) => actions.push((action, wish)),
            Err(reason) => errors.push(format!("the action {} is not run: {reason}", action.name())),
        }
    }
    Ok(actions)
}

/// Shows every item to those that want to see it. Ends with the first that fails; done again, it begins anew.
pub(super) async fn execute(
    ctx: &Context,
    backup: &Backup,
    contents: &Contents,
    actions: &[(DeleteAction, Wish)],
    errors: &mut Vec<String>,
) -> Result<(), Error> {
    for group_resource in contents.types() {
        let wanted: Vec<_> = actions.iter().filter(|(_, wish)| wish.is_for(&group_resource)).collect();
        if wanted.is_empty() {
            continue;
        }
        for item in contents.items(&group_resource) {
            let object: Value = match contents.read(item).map(|json| serde_json::from_slice(&json)) {
                Ok(Ok(object)) => object,
                Ok(Err(error)) => {
                    errors.push(format!("an item of {group_resource} in the backup can't be read: {error}"));
                    return Ok(());
                }
                Err(error) => return Err(Error::Store(error)),
            };
            let namespace = contents.namespace_of(item);
            for (action, _) in wanted.iter().filter(|(_, wish)| wish.wants(namespace, || labels(&object))) {
                ctx.leadership.check()?;
                if let Err(error) = action.execute(&object, backup).await {
                    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
                    let place = namespace.map(|namespace| format!("{namespace}/")).unwrap_or_default();
                    errors.push(format!("{} on {group_resource} {place}{name}: {error}", action.name()));
                    return Ok(());
                }
            }
        }
    }
    Ok(())
}

fn labels(object: &Value) -> BTreeMap<String, String> {
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object).into_iter().flatten();
    labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}
