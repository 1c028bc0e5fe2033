//! The control: a webhook that does what everyone does. It looks for a running object that conflicts, and allows when it
//! sees none. Between the look and the creation the other one starts; tests that cannot catch this one prove
//! nothing about ours.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{Json, Router, extract::State, routing::post};
use backup_core::api::{Backup, Restore};
use backup_lock::Footprint;
use kube::{
    Api, Client, ResourceExt as _,
    api::ListParams,
    core::{
        DynamicObject, Status,
        admission::{AdmissionRequest, AdmissionResponse, AdmissionReview, Operation},
    },
};

use crate::{install::NAMESPACE, pki::Identity, served::Served};

/// A running naive webhook; ends when dropped.
#[derive(Debug)]
pub struct NaiveWebhook {
    served: Served,
    calls: Arc<AtomicU64>,
}

#[derive(Clone)]
struct Look {
    client: Client,
    calls: Arc<AtomicU64>,
}

impl NaiveWebhook {
    pub async fn start(client: Client, identity: &Identity) -> anyhow::Result<Self> {
        let calls = Arc::new(AtomicU64::new(0));
        let look = Look { client, calls: calls.clone() };
        let app = Router::new().route("/validate", post(validate)).with_state(look);
        Ok(Self { served: Served::start(identity, app).await?, calls })
    }

    pub fn address(&self) -> SocketAddr {
        self.served.address()
    }

    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }
}

async fn validate(
    State(look): State<Look>,
    Json(review): Json<AdmissionReview<DynamicObject>>,
) -> Json<serde_json::Value> {
    look.calls.fetch_add(1, Ordering::Relaxed);
    let answer = match TryInto::<AdmissionRequest<DynamicObject>>::try_into(review) {
        Err(error) => AdmissionResponse::invalid(error),
        Ok(request) => {
            let response = AdmissionResponse::from(&request);
            match look.in_the_way(&request).await {
                Ok(None) => {
                    // What a busy API server or a slow informer adds; without it the window is there, only smaller.
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    response
                }
                Ok(Some(running)) => forbid(response, &format!("{running} is running")),
                Err(error) => response.deny(error),
            }
        }
    };
    Json(serde_json::to_value(answer.into_review()).unwrap_or_default())
}

/// The same kind of refusal as ours.
fn forbid(mut response: AdmissionResponse, why: &str) -> AdmissionResponse {
    response.allowed = false;
    response.result = Status::failure(why, "Forbidden").with_code(403);
    response
}

impl Look {
    /// An object that runs and conflicts with a new one, by the same rules as ours.
    async fn in_the_way(&self, request: &AdmissionRequest<DynamicObject>) -> kube::Result<Option<String>> {
        let Some(object) = request.object.as_ref().filter(|_| request.operation == Operation::Create) else {
            return Ok(None);
        };
        let spec = object.data.get("spec").cloned().unwrap_or_default();
        let (wanted, all) = (footprint(&request.kind.kind, &spec), ListParams::default());
        let restores: Api<Restore> = Api::namespaced(self.client.clone(), NAMESPACE);
        for restore in restores.list(&all).await?.iter().filter(|restore| restore.phase().is_active()) {
            if wanted.overlaps(&Footprint::of_restore(&restore.spec, None)) {
                return Ok(Some(format!("Restore {NAMESPACE}/{}", restore.name_any())));
            }
        }
        if request.kind.kind == "Restore" {
            let backups: Api<Backup> = Api::namespaced(self.client.clone(), NAMESPACE);
            for backup in backups.list(&all).await?.iter().filter(|backup| backup.phase().is_active()) {
                if wanted.overlaps(&Footprint::of_backup(&backup.spec)) {
                    return Ok(Some(format!("Backup {NAMESPACE}/{}", backup.name_any())));
                }
            }
        }
        Ok(None)
    }
}

fn footprint(kind: &str, spec: &serde_json::Value) -> Footprint {
    let footprint = if kind == "Backup" {
        serde_json::from_value(spec.clone()).map(|spec| Footprint::of_backup(&spec))
    } else {
        serde_json::from_value(spec.clone()).map(|spec| Footprint::of_restore(&spec, None))
    };
    footprint.unwrap_or_else(|_| Footprint::everything())
}
