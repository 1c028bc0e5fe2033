//! The control: a webhook with the usual approach. It looks for a running object that conflicts,
//! and allows when it sees none. Between the look and the creation the other object starts; tests
//! that cannot detect this prove nothing about our webhook.

use std::time::Duration;

use axum::{Json, Router, routing::post};
use backup_core::api::{Backup, Restore};
use backup_lock::Footprint;
use kube::{
    Api, Client, ResourceExt as _,
    core::{
        DynamicObject,
        admission::{AdmissionRequest, AdmissionResponse, Operation},
    },
};

use crate::{
    api::ApiExt as _,
    install::NAMESPACE,
    pki::Identity,
    served::{Served, deny, reviewed},
};

/// Starts a naive webhook at `/validate`.
pub async fn start(client: Client, identity: &Identity) -> anyhow::Result<Served> {
    let validate = move |Json(review)| {
        let client = client.clone();
        reviewed(review, |request, response| {
            decide(client, request, response)
        })
    };
    Served::start(identity, Router::new().route("/validate", post(validate))).await
}

async fn decide(
    client: Client,
    request: AdmissionRequest<DynamicObject>,
    response: AdmissionResponse,
) -> AdmissionResponse {
    match in_the_way(&client, &request).await {
        Ok(None) => {
            // Delay of a busy API server or a slow informer; without it the window exists, but is
            // smaller.
            tokio::time::sleep(Duration::from_millis(20)).await;
            response
        }
        // The same kind of refusal as ours.
        Ok(Some(running)) => deny(response, 403, "Forbidden", &format!("{running} is running")),
        Err(error) => response.deny(error),
    }
}

/// A running object that conflicts with a new one, by the same rules as ours.
async fn in_the_way(
    client: &Client,
    request: &AdmissionRequest<DynamicObject>,
) -> kube::Result<Option<String>> {
    let Some(object) = request
        .object
        .as_ref()
        .filter(|_| request.operation == Operation::Create)
    else {
        return Ok(None);
    };
    let spec = object.data.get("spec").cloned().unwrap_or_default();
    let wanted = footprint(&request.kind.kind, &spec);
    let restores: Api<Restore> = Api::namespaced(client.clone(), NAMESPACE);
    for restore in restores
        .list_all()
        .await?
        .iter()
        .filter(|restore| restore.phase().is_active())
    {
        if wanted.overlaps(&Footprint::of_restore(&restore.spec, None)) {
            return Ok(Some(format!("Restore {NAMESPACE}/{}", restore.name_any())));
        }
    }
    if request.kind.kind == "Restore" {
        let backups: Api<Backup> = Api::namespaced(client.clone(), NAMESPACE);
        for backup in backups
            .list_all()
            .await?
            .iter()
            .filter(|backup| backup.phase().is_active())
        {
            if wanted.overlaps(&Footprint::of_backup(&backup.spec)) {
                return Ok(Some(format!("Backup {NAMESPACE}/{}", backup.name_any())));
            }
        }
    }
    Ok(None)
}

fn footprint(kind: &str, spec: &serde_json::Value) -> Footprint {
    let footprint = if kind == "Backup" {
        serde_json::from_value(spec.clone()).map(|spec| Footprint::of_backup(&spec))
    } else {
        serde_json::from_value(spec.clone()).map(|spec| Footprint::of_restore(&spec, None))
    };
    footprint.unwrap_or_else(|_| Footprint::everything())
}
