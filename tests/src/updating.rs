//! A control that does a separate write for every request: it updates one remembered Lease for each
//! scope, the least that a write can cost.

use std::{collections::HashMap, path::Path, sync::Arc};

use axum::{Json, Router, extract::State, routing::post};
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{Api, api::PostParams, core::ObjectMeta};
use serde_json::Value;
use tokio::sync::Mutex;

use crate::{
    allowing::{Review, allowed, refused},
    control_plane::client_from,
    install::NAMESPACE,
    pki::Identity,
    served::Served,
};

/// Result of the last write of a Lease; locked during the next one.
type Remembered = Arc<Mutex<Option<Lease>>>;

#[derive(Clone)]
struct Writer {
    leases: Api<Lease>,
    remembered: Arc<Mutex<HashMap<String, Remembered>>>,
}

/// Starts a control: `/own` updates a Lease for each namespace and `spec.clusterName`, from memory,
/// with the account of this kubeconfig.
pub async fn start(kubeconfig: &Path, identity: &Identity) -> anyhow::Result<Served> {
    let kubeconfig = kubeconfig.to_owned();
    Served::apart(identity, async move || {
        let leases = Api::namespaced(client_from(&kubeconfig).await?, NAMESPACE);
        let writer = Writer {
            leases,
            remembered: Arc::default(),
        };
        Ok(Router::new()
            .route("/own", post(own_update))
            .with_state(writer))
    })
    .await
}

async fn own_update(State(writer): State<Writer>, Json(review): Json<Review>) -> Json<Value> {
    let cluster = review.request.object.spec["clusterName"]
        .as_str()
        .unwrap_or_default();
    match writer
        .touch(&format!("own-{}-{cluster}", review.request.namespace))
        .await
    {
        Ok(()) => allowed(&review),
        Err(error) => refused(&review, &error.to_string()),
    }
}

impl Writer {
    /// One update, based on the result of the last one.
    async fn touch(&self, name: &str) -> kube::Result<()> {
        let slot = Arc::clone(
            self.remembered
                .lock()
                .await
                .entry(name.to_owned())
                .or_default(),
        );
        let mut slot = slot.lock().await;
        let mut last = match slot.take() {
            Some(last) => last,
            None => match self.leases.get_opt(name).await? {
                Some(found) => found,
                None => {
                    self.leases
                        .create(&PostParams::default(), &lease(name))
                        .await?
                }
            },
        };
        last.spec.get_or_insert_default().renew_time =
            Some(MicroTime(k8s_openapi::jiff::Timestamp::now()));
        *slot = Some(
            self.leases
                .replace(name, &PostParams::default(), &last)
                .await?,
        );
        Ok(())
    }
}

fn lease(name: &str) -> Lease {
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        ..ObjectMeta::default()
    };
    Lease {
        metadata,
        spec: Some(LeaseSpec::default()),
    }
}
