//! The items of a backup that is deleted, which plugins may want to see first: they remove what they have made outside of
//! the cluster (Velero `internal/delete/delete_item_action_handler.go`, v1.18).

use std::{collections::BTreeMap, sync::Arc};

use backup_actions::{ActionSet, ItemAction as _};
use backup_core::api::Backup;
use backup_store::Contents;
use serde_json::Value;

use super::act::Error;
use crate::{context::Context, discovery::ServedTypes};
use backup_plugins::PluginAction;

/// The plugins. What cannot be run goes to `errors`: nothing is deleted then, as what such a plugin has made would stay.
pub(super) async fn actions(
    ctx: &Context,
    errors: &mut Vec<String>,
) -> Result<ActionSet<PluginAction>, Error> {
    let found = ctx.plugins.delete_item_actions().await;
    errors.extend(found.problems);
    if found.usable.is_empty() {
        return Ok(ActionSet::default());
    }
    let served = ServedTypes::load(&ctx.cluster.client).await?;
    let usable = found.usable.into_iter().map(Arc::new);
    let actions = ActionSet::new("action", usable, &|name| served.resolve(name));
    errors.extend(actions.unusable.iter().cloned());
    Ok(actions)
}

/// Shows every item to the actions that apply to it. Ends with the first that fails; done again, it begins again.
pub(super) async fn execute(
    ctx: &Context,
    backup: &Backup,
    contents: &Contents,
    actions: &ActionSet<PluginAction>,
    errors: &mut Vec<String>,
) -> Result<(), Error> {
    for group_resource in contents.types() {
        let of_type: Vec<_> = actions.for_type(&group_resource).collect();
        if of_type.is_empty() {
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
            for one in of_type.iter().filter(|one| one.applies_to(namespace, || labels(&object))) {
                ctx.cluster.leadership.check()?;
                if let Err(error) = one.action.delete_item(&object, backup).await {
                    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
                    let place = namespace.map(|namespace| format!("{namespace}/")).unwrap_or_default();
                    let action = one.action.name();
                    errors.push(format!("{action} on {group_resource} {place}{name}: {error}"));
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
