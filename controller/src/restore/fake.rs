//! The API server in memory, as restores use it.

pub(crate) mod backup;

use std::time::Duration;

use backup_actions::csi::SnapshotApi;
use backup_runtime::leader::Leadership;
pub(crate) use backup_testkit::{FakeApi, Fault, Request};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::calls::{Calls, Pace};
use crate::job::cancellation::Cancellation;

/// A server that serves ConfigMaps, and one more group.
pub(crate) fn server() -> FakeApi {
    let api = FakeApi::new();
    api.put("/api", discovery("", "configmaps", "ConfigMap"));
    api.put("/apis", discovery("apps", "deployments", "Deployment"));
    api
}

pub(crate) fn faulty(fault: impl Fn(&Request) -> Option<Fault> + Send + Sync + 'static) -> FakeApi {
    server().with_fault(fault)
}

/// Requests to this server, quick to try again.
pub(crate) fn calls(api: &FakeApi) -> Calls {
    calls_until(api, CancellationToken::new())
}

/// Requests to this server until `stop`.
pub(crate) fn calls_until(api: &FakeApi, stop: CancellationToken) -> Calls {
    let pace = Pace {
        request: Duration::from_secs(5),
        patience: Duration::from_secs(5),
        pause: (Duration::from_millis(1), Duration::from_millis(2)),
        tries: 3,
    };
    Calls::new(api.client(), Cancellation::new(Leadership::always(), stop), pace)
}

/// Requests about CSI snapshots to this server.
pub(crate) fn csi(api: &FakeApi) -> SnapshotApi {
    SnapshotApi::new(&api.client(), &Leadership::always())
}

/// Aggregated discovery of one type.
fn discovery(group: &str, plural: &str, kind: &str) -> Value {
    let resource = json!({
        "resource": plural, "responseKind": {"group": "", "version": "", "kind": kind}, "scope": "Namespaced",
        "singularResource": kind.to_lowercase(), "verbs": ["list", "create", "get", "delete"],
    });
    json!({
        "apiVersion": "apidiscovery.k8s.io/v2", "kind": "APIGroupDiscoveryList", "metadata": {},
        "items": [{
            "metadata": {"name": group},
            "versions": [{"version": "v1", "freshness": "Current", "resources": [resource]}],
        }],
    })
}
