//! Objects from the API server, without values that may be secret.

use std::io::Write as _;

use k8s_openapi::NamespaceResourceScope;
use kube::{Resource, core::TypeMeta};

use super::part::PartBuffer;
use crate::{cli::Output, commands::prelude::*, print::json, redact::redact};

/// Maximum number of objects of a list; a cluster keeps an hour of events.
const MAX_OBJECTS: usize = 5_000;

pub(super) struct ObjectListing {
    pub(super) objects: Vec<Value>,
    /// Number of objects in the cluster.
    found: usize,
}

/// Lists the objects of the installation's namespace.
pub(super) async fn list<K>(session: &Session, params: ListParams) -> Result<ObjectListing, Problem>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    let kind = ApiResource::erase::<K>(&());
    let api: Api<DynamicObject> =
        Api::namespaced_with(session.client.clone(), &session.namespace, &kind);
    let mut found = 0;
    let about = About::of::<K>("list", "");
    let objects = session
        .list(about, &api, params, |object: DynamicObject| {
            found += 1;
            (found <= MAX_OBJECTS).then(|| plain_value(object, &kind))
        })
        .await?;
    Ok(ObjectListing { objects, found })
}

/// Reads a cluster-scoped object.
pub(super) async fn get<K: Resource<DynamicType = ()>>(
    session: &Session,
    name: &str,
) -> Result<ObjectListing, Problem> {
    let kind = ApiResource::erase::<K>(&());
    let api: Api<DynamicObject> = Api::all_with(session.client.clone(), &kind);
    let object = session
        .call(About::of::<K>("get", name), api.get(name))
        .await?;
    Ok(ObjectListing {
        objects: vec![plain_value(object, &kind)],
        found: 1,
    })
}

fn plain_value(mut object: DynamicObject, kind: &ApiResource) -> Value {
    // Objects of a list have no type.
    object.types = Some(TypeMeta {
        api_version: kind.api_version.clone(),
        kind: kind.kind.clone(),
    });
    let mut value = serde_json::to_value(object).unwrap_or_default();
    redact(&mut value);
    value
}

pub(super) fn write(
    ObjectListing { objects, found }: ObjectListing,
    mut kept: PartBuffer,
) -> Result<(), Problem> {
    let count = objects.len();
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
    kept.write_all(json::object(&list, Output::Yaml)?.as_bytes())?;
    if count < found {
        Err(Problem::other(format!("{count} of {found} objects")))
    } else {
        Ok(())
    }
}
