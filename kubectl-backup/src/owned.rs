//! Objects that the user may not read directly. The controller gives namespace owners (ClusterRole
//! `backup-owner`) those that are about their namespaces.

use backup_core::{
    api::NamespacedKind,
    reading::{ObjectQuery, QueriedKind, QueriedObjects},
};
use kube::api::{ApiResource, DynamicObject};
use serde::Deserialize;

use crate::{
    error::{Problem, ProblemKind},
    session::Session,
    stored::{self, StoredFile},
};

/// The answer to a query.
#[derive(Deserialize)]
struct ObjectAnswer {
    items: Vec<DynamicObject>,
}

/// The object of this name; `None` if the user is no namespace owner.
pub(crate) async fn get<K: NamespacedKind>(
    session: &Session,
    name: &str,
) -> Option<Result<K, Problem>> {
    let found = named(session, &ApiResource::erase::<K>(&()), name).await?;
    Some(found.and_then(|object| {
        serde_json::to_value(object)
            .and_then(serde_json::from_value)
            .map_err(|error| Problem::other(format!("{name:?} cannot be read: {error}")))
    }))
}

/// The same, undecoded.
pub(crate) async fn named(
    session: &Session,
    resource: &ApiResource,
    name: &str,
) -> Option<Result<DynamicObject, Problem>> {
    let of = QueriedObjects::Name(name.to_owned());
    let found = objects(session, resource, of).await?;
    Some(found.and_then(|all| {
        all.into_iter().next().ok_or_else(|| {
            let kind = resource.kind.to_lowercase();
            let message = format!(
                "{kind} {name:?} was not found in namespace {}",
                session.namespace
            );
            Problem::new(ProblemKind::NotFound, message)
        })
    }))
}

/// All objects of a kind that are about no other namespace than that of the kubeconfig's context;
/// `None` if the user is no namespace owner.
pub(crate) async fn list(
    session: &Session,
    resource: &ApiResource,
) -> Option<Result<Vec<DynamicObject>, Problem>> {
    let of = QueriedObjects::Namespaces(vec![session.own_namespace.clone()]);
    objects(session, resource, of).await
}

/// The same, decoded. Objects that cannot be decoded are left out.
pub(crate) async fn list_readable<K: NamespacedKind>(
    session: &Session,
) -> Option<Result<Vec<K>, Problem>> {
    let all = list(session, &ApiResource::erase::<K>(&())).await?;
    Some(all.map(|all| {
        all.into_iter()
            .filter_map(|object| {
                let object = serde_json::to_value(object).ok()?;
                serde_json::from_value(object).ok()
            })
            .collect()
    }))
}

async fn objects(
    session: &Session,
    resource: &ApiResource,
    of: QueriedObjects,
) -> Option<Result<Vec<DynamicObject>, Problem>> {
    let kind = match resource.kind.as_str() {
        "Backup" => QueriedKind::Backup,
        "Restore" => QueriedKind::Restore,
        "Schedule" => QueriedKind::Schedule,
        _ => return None,
    };
    let target = match &of {
        QueriedObjects::Name(name) => name.clone(),
        QueriedObjects::Namespaces(names) => names.join(","),
    };
    let query = serde_json::to_string(&ObjectQuery { kind, of }).ok()?;
    let file = StoredFile::objects(&target, &query);
    match Box::pin(stored::answer::<ObjectAnswer>(session, &file)).await {
        Ok(answer) => Some(Ok(answer.items)),
        // The user may not ask, or another server answers.
        Err(problem) if matches!(problem.kind, ProblemKind::Forbidden | ProblemKind::NoFile) => {
            None
        }
        Err(problem) => Some(Err(problem)),
    }
}
