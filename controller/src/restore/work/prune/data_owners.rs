//! Objects with which data would be removed: the owners of claims and snapshots, their owners, and
//! so on. The cluster deletes a claim when its last owner is deleted.

use std::collections::HashSet;

use backup_actions::restore::json::{self, Object};
use backup_client::path;
use backup_core::resources::{DATA_TYPES, ResourceType, group_resource};
use serde_json::Value;

use crate::{
    discovery::ServedTypes,
    restore::{
        calls::{CallError, Calls, MetadataPages},
        work::item::group_of,
    },
};

/// An owner reference.
struct Owner {
    api_version: String,
    kind: String,
    name: String,
    uid: String,
}

/// The uids of all objects in a namespace with which a claim or a snapshot would be removed.
pub(super) async fn data_owners(
    calls: &Calls,
    served: &ServedTypes,
    namespace: &str,
) -> Result<HashSet<String>, CallError> {
    let mut known = HashSet::new();
    for resource in DATA_TYPES
        .iter()
        .filter_map(|name| served.by_group_resource(name))
    {
        let collection =
            path::collection(&resource.api_version(), &resource.plural, Some(namespace));
        let mut pages = MetadataPages::new(calls, &collection);
        while let Some(objects) = pages.next_page().await? {
            let mut owners: Vec<Owner> = objects.iter().flat_map(owners_of).collect();
            while let Some(owner) = owners.pop() {
                if known.contains(&owner.uid) {
                    continue;
                }
                if let Some(object) = read(calls, served, namespace, &owner).await? {
                    owners.extend(owners_of(&object));
                }
                known.insert(owner.uid);
            }
        }
    }
    Ok(known)
}

fn owners_of(object: &Object) -> Vec<Owner> {
    let references = json::object(object, &["metadata"])
        .and_then(|metadata| metadata.get("ownerReferences"))
        .and_then(Value::as_array);
    let references = references
        .into_iter()
        .flatten()
        .filter_map(Value::as_object);
    references
        .filter_map(|reference| {
            let text = |field| json::text(reference, &[], field).map(str::to_owned);
            Some(Owner {
                api_version: text("apiVersion")?,
                kind: text("kind")?,
                name: text("name")?,
                uid: text("uid")?,
            })
        })
        .collect()
}

/// Reads an owner; `None` if it is gone, or of a type of which nothing is removed.
async fn read(
    calls: &Calls,
    served: &ServedTypes,
    namespace: &str,
    owner: &Owner,
) -> Result<Option<Object>, CallError> {
    let Some(resource) = type_of(served, owner) else {
        return Ok(None);
    };
    let collection = path::collection(&resource.api_version(), &resource.plural, Some(namespace));
    calls.get(&collection, &owner.name).await
}

fn type_of<'a>(served: &'a ServedTypes, owner: &Owner) -> Option<&'a ResourceType> {
    let group = group_of(&owner.api_version);
    let full = served.resolve(&group_resource(&owner.kind, group))?;
    let resource = served.by_group_resource(&full)?;
    (resource.namespaced && resource.kind == owner.kind && resource.group == group)
        .then_some(resource)
}
