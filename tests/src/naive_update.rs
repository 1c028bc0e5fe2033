//! Controls that write for every request on its own: one reads and updates what all requests share, as everyone does
//! first, the other updates one remembered Lease for each scope, which is the least that a write can cost.

use std::{
    collections::{BTreeMap, HashMap},
    net::SocketAddr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use axum::{Json, Router, extract::State, routing::post};
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{Api, Client, api::PostParams, core::ObjectMeta};
use serde_json::Value;
use tokio::sync::Mutex;

use crate::{
    allowing::{Review, allowed, refused},
    control_plane::client_from,
    install::NAMESPACE,
    pki::Identity,
    served::Served,
};

/// The Lease that all requests share.
pub const SHARED: &str = "naive-update";
const LINES: &str = "naive-update/lines";
/// How often one request tries to write.
const TRIES: u32 = 50;

/// A running control: `/validate` reads, adds a line and writes, again and again until it is first; `/own` updates a
/// Lease for each namespace and `spec.clusterName`, from memory. It ends when dropped.
#[derive(Debug)]
pub struct NaiveUpdate {
    served: Served,
    calls: Arc<AtomicU64>,
    tries: Arc<AtomicU64>,
}

/// What the last write of a Lease gave; held while the next one is under way.
type Remembered = Arc<Mutex<Option<Lease>>>;

#[derive(Clone)]
struct Writer {
    leases: Api<Lease>,
    remembered: Arc<Mutex<HashMap<String, Remembered>>>,
    calls: Arc<AtomicU64>,
    tries: Arc<AtomicU64>,
}

impl NaiveUpdate {
    /// Starts it with this serving certificate; it writes as the account of this kubeconfig.
    pub async fn start(kubeconfig: &Path, identity: &Identity) -> anyhow::Result<Self> {
        let (calls, tries) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (kubeconfig, counters) = (kubeconfig.to_owned(), (Arc::clone(&calls), Arc::clone(&tries)));
        let served = Served::apart(identity, async move || {
            let client: Client = client_from(&kubeconfig).await?;
            let writer = Writer {
                leases: Api::namespaced(client, NAMESPACE),
                remembered: Arc::default(),
                calls: counters.0,
                tries: counters.1,
            };
            Ok(Router::new()
                .route("/validate", post(read_and_update))
                .route("/own", post(own_update))
                .with_state(writer))
        })
        .await?;
        Ok(Self { served, calls, tries })
    }

    pub fn address(&self) -> SocketAddr {
        self.served.address()
    }

    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    pub fn tries(&self) -> u64 {
        self.tries.load(Ordering::Relaxed)
    }
}

async fn read_and_update(State(writer): State<Writer>, Json(review): Json<Review>) -> Json<Value> {
    writer.calls.fetch_add(1, Ordering::Relaxed);
    match writer.add_line(&review.request.name).await {
        Ok(()) => allowed(&review),
        Err(error) => refused(&review, &error.to_string()),
    }
}

async fn own_update(State(writer): State<Writer>, Json(review): Json<Review>) -> Json<Value> {
    writer.calls.fetch_add(1, Ordering::Relaxed);
    let cluster = review.request.object.spec["clusterName"].as_str().unwrap_or_default();
    match writer.touch(&format!("own-{}-{cluster}", review.request.namespace)).await {
        Ok(()) => allowed(&review),
        Err(error) => refused(&review, &error.to_string()),
    }
}

impl Writer {
    /// Every write carries the resourceVersion of its read; one that comes second reads again at once.
    async fn add_line(&self, line: &str) -> kube::Result<()> {
        let mut tries = 0;
        loop {
            self.tries.fetch_add(1, Ordering::Relaxed);
            let Some(mut lease) = self.leases.get_opt(SHARED).await? else {
                match self.leases.create(&PostParams::default(), &lease(SHARED)).await {
                    Err(error) if !is_conflict(&error) => return Err(error),
                    _ => continue,
                }
            };
            let lines =
                lease.metadata.annotations.get_or_insert_default().entry(LINES.to_owned()).or_default();
            lines.push_str(line);
            lines.push('\n');
            tries += 1;
            match self.leases.replace(SHARED, &PostParams::default(), &lease).await {
                Err(error) if is_conflict(&error) && tries < TRIES => {}
                Err(error) => return Err(error),
                Ok(_) => return Ok(()),
            }
        }
    }

    /// One update, on the object that the last one gave.
    async fn touch(&self, name: &str) -> kube::Result<()> {
        let slot = Arc::clone(self.remembered.lock().await.entry(name.to_owned()).or_default());
        let mut slot = slot.lock().await;
        let mut last = match slot.take() {
            Some(last) => last,
            None => match self.leases.get_opt(name).await? {
                Some(found) => found,
                None => self.leases.create(&PostParams::default(), &lease(name)).await?,
            },
        };
        self.tries.fetch_add(1, Ordering::Relaxed);
        last.spec.get_or_insert_default().renew_time = Some(MicroTime(k8s_openapi::jiff::Timestamp::now()));
        *slot = Some(self.leases.replace(name, &PostParams::default(), &last).await?);
        Ok(())
    }
}

fn lease(name: &str) -> Lease {
    Lease {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            annotations: Some(BTreeMap::new()),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec::default()),
    }
}

/// Somebody else was first, at a write or at a creation.
fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}
