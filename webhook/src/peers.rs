//! Forwards the requests for one scope to one replica, so that replicas do not conflict on its
//! ledger. An optimisation: the replica that got a request may decide it, and does if the other
//! does not answer or fails.

use std::{collections::HashMap, net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Context as _;
use axum::{
    body::{Body, Bytes},
    http::StatusCode,
    response::Response,
};
use parking_lot::RwLock;
use sha2::{Digest, Sha256};
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

use crate::tls::Authority;

/// Query of a request that was forwarded already: it is not forwarded again.
const FORWARDED: &str = "handed=true";
const MAX_PEERS: usize = 64;
/// Timeout for another replica's answer; then this one decides by itself.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(4);
/// Time for which a replica that did not answer gets no requests.
const PEER_COOLDOWN: Duration = Duration::from_secs(5);
/// Interval between lookups of the addresses behind a name.
const LOOKUP_INTERVAL: Duration = Duration::from_secs(10);

pub(crate) fn is_forwarded(uri: &axum::http::Uri) -> bool {
    uri.query().is_some_and(|query| query.contains(FORWARDED))
}

/// Addresses of the other replicas, and how they authenticate.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The address under which the others know this replica.
    pub own: SocketAddr,
    pub peers: Vec<SocketAddr>,
    /// `name:port` that resolves to all replicas; looked up every [`LOOKUP_INTERVAL`].
    pub service: Option<String>,
    pub name: String,
    /// The CA of their certificates.
    pub authority: watch::Receiver<Authority>,
}

/// The other replicas.
pub(crate) struct Peers {
    settings: Settings,
    known: RwLock<HashMap<SocketAddr, Peer>>,
}

#[derive(Clone)]
struct Peer {
    client: reqwest::Client,
    shunned_until: Option<Instant>,
}

impl Peers {
    /// Starts with the replicas in the settings, and looks up those behind the service.
    pub(crate) fn start(settings: Settings) -> anyhow::Result<Arc<Self>> {
        let peers = Arc::new(Self {
            settings,
            known: RwLock::default(),
        });
        peers.update(&peers.settings.peers)?;
        if let Some(service) = peers.settings.service.clone() {
            tokio::spawn(Arc::clone(&peers).look_up(service));
        }
        tokio::spawn(Arc::clone(&peers).follow_authority());
        Ok(peers)
    }

    /// The replica that handles bursts on this scope, if it is another one that answers: the same
    /// for every replica that knows the same set (rendezvous hashing).
    pub(crate) fn owner(&self, scope: &str) -> Option<SocketAddr> {
        let known = self.known.read();
        let now = Instant::now();
        let answering = known
            .iter()
            .filter(|(_, peer)| peer.shunned_until.is_none_or(|until| until <= now));
        let owner = answering
            .map(|(address, _)| *address)
            .chain([self.settings.own])
            .max_by_key(|address| Sha256::digest(format!("{scope} {address}")).to_vec())?;
        (owner != self.settings.own).then_some(owner)
    }

    /// The other replica's answer to this review; `None` if it gave none in time. Its claim has the
    /// same uid, so that deciding again here is harmless. The path authorizes this replica to the
    /// other.
    pub(crate) async fn ask(
        &self,
        peer: SocketAddr,
        path: &str,
        review: Bytes,
        deadline: Instant,
    ) -> Option<Response> {
        let client = self.known.read().get(&peer)?.client.clone();
        let patience = ANSWER_TIMEOUT.min(deadline.saturating_duration_since(Instant::now()) / 2);
        let url = format!(
            "https://{}:{}{path}?{FORWARDED}&timeout={}ms",
            self.settings.name,
            peer.port(),
            patience.as_millis()
        );
        let request = client
            .post(url)
            .header("content-type", "application/json")
            .body(review)
            .timeout(patience);
        let answer = async {
            let answer = request.send().await?.error_for_status()?;
            answer.bytes().await
        };
        match answer.await {
            // It answers, but could not decide. This replica may be able to.
            Ok(body) if is_trouble(&body) => None,
            Ok(body) => Response::builder()
                .status(StatusCode::OK)
                .header("content-type", "application/json")
                .body(Body::from(body))
                .ok(),
            Err(error) => {
                tracing::warn!(%peer, %error, "another replica did not answer; deciding here");
                if let Some(peer) = self.known.write().get_mut(&peer) {
                    peer.shunned_until = Some(Instant::now() + PEER_COOLDOWN);
                }
                None
            }
        }
    }

    /// Makes new clients when the CA changes.
    async fn follow_authority(self: Arc<Self>) {
        let mut authority = self.settings.authority.clone();
        while authority.changed().await.is_ok() {
            for (address, peer) in &mut *self.known.write() {
                match self.client(*address) {
                    Ok(client) => peer.client = client,
                    Err(error) => tracing::warn!(%address, "{error:#}; it is asked as before"),
                }
            }
        }
    }

    async fn look_up(self: Arc<Self>, service: String) {
        loop {
            match tokio::net::lookup_host(&service).await {
                Ok(found) => {
                    let found: Vec<SocketAddr> = found.collect();
                    if let Err(error) = self.update(&found) {
                        tracing::warn!(service, %error, "other replicas can't be reached");
                    }
                }
                Err(error) => tracing::debug!(service, %error, "no other replicas were found"),
            }
            sleep(LOOKUP_INTERVAL).await;
        }
    }

    /// Sets the known replicas, without this one.
    fn update(&self, addresses: &[SocketAddr]) -> anyhow::Result<()> {
        let own = self.settings.own;
        let wanted: Vec<SocketAddr> = addresses
            .iter()
            .copied()
            .filter(|address| *address != own)
            .take(MAX_PEERS)
            .collect();
        let mut known = self.known.write();
        known.retain(|address, _| wanted.contains(address));
        for address in wanted {
            if let std::collections::hash_map::Entry::Vacant(place) = known.entry(address) {
                place.insert(Peer {
                    client: self.client(address)?,
                    shunned_until: None,
                });
            }
        }
        Ok(())
    }

    fn client(&self, address: SocketAddr) -> anyhow::Result<reqwest::Client> {
        let authority = self.settings.authority.borrow().clone().unwrap_or_default();
        let authorities = reqwest::Certificate::from_pem_bundle(&authority)
            .context("the CA of the other replicas (--peer-ca) is no PEM certificate")?;
        reqwest::Client::builder()
            .tls_certs_only(authorities)
            .resolve(&self.settings.name, address)
            .no_proxy()
            .connect_timeout(Duration::from_millis(500))
            .build()
            .context("could not make a client for the other replicas")
    }
}

/// Whether an answer reports a failure of the replica itself.
fn is_trouble(review: &[u8]) -> bool {
    let review: Option<serde_json::Value> = serde_json::from_slice(review).ok();
    review.is_none_or(|review| review["response"]["status"]["code"] == 503)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peers(own: usize, of: usize) -> Peers {
        let address = |n: usize| SocketAddr::from(([10, 0, 0, u8::try_from(n).unwrap()], 9443));
        let all: Vec<SocketAddr> = (0..of).map(address).collect();
        let settings = Settings {
            own: address(own),
            peers: Vec::new(),
            service: None,
            name: "w".into(),
            authority: watch::channel(None).1,
        };
        let others = all.iter().copied().filter(|other| *other != address(own));
        let peer = Peer {
            client: reqwest::Client::new(),
            shunned_until: None,
        };
        let known = others.map(|other| (other, peer.clone())).collect();
        Peers {
            settings,
            known: RwLock::new(known),
        }
    }

    #[tokio::test]
    async fn all_replicas_agree_on_one_for_a_scope_and_the_scopes_are_spread() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let replicas: Vec<Peers> = (0..3).map(|own| peers(own, 3)).collect();
        let mut owned = [0; 3];
        for n in 0..60 {
            let scope = format!("percona-ps/db/{n}");
            let owners: Vec<usize> = (0..3)
                .filter(|own| replicas[*own].owner(&scope).is_none())
                .collect();
            assert_eq!(owners.len(), 1, "{scope}");
            owned[owners[0]] += 1;
        }
        assert!(owned.iter().all(|scopes| *scopes > 5), "{owned:?}");
    }

    #[tokio::test]
    async fn a_replica_that_does_not_answer_is_left_alone_for_a_while() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let one = peers(0, 2);
        let scope = (0..1000)
            .map(|n| n.to_string())
            .find(|scope| one.owner(scope).is_some())
            .unwrap();
        for peer in one.known.write().values_mut() {
            peer.shunned_until = Some(Instant::now() + PEER_COOLDOWN);
        }
        assert_eq!(one.owner(&scope), None);
    }
}
