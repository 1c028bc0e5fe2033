//! An API server in memory, for tests of restores.

pub(crate) mod backup;

use std::time::Duration;

use backup_actions::{csi::SnapshotApi, restore::DownloadApi};
use backup_runtime::leader::Leadership;
pub(crate) use backup_testkit::{FakeApi, Fault, Request};
use tokio_util::sync::CancellationToken;

use crate::{
    job::cancellation::Cancellation,
    restore::calls::{Calls, Pace, dry_client},
    testing::discovery,
};

/// A server that serves ConfigMaps, and one more group.
pub(crate) fn server() -> FakeApi {
    let api = FakeApi::new();
    api.put(
        "/api",
        discovery("", &[("configmaps", "ConfigMap", "Namespaced")]),
    );
    api.put(
        "/apis",
        discovery("apps", &[("deployments", "Deployment", "Namespaced")]),
    );
    api
}

pub(crate) fn faulty(fault: impl Fn(&Request) -> Option<Fault> + Send + Sync + 'static) -> FakeApi {
    server().with_fault(fault)
}

/// Calls to this server, with short pauses between retries.
pub(crate) fn calls(api: &FakeApi) -> Calls {
    calls_until(api, CancellationToken::new())
}

/// Calls to this server until `stop` is cancelled.
pub(crate) fn calls_until(api: &FakeApi, stop: CancellationToken) -> Calls {
    calls_of(api, Cancellation::new(Leadership::always(), stop))
}

pub(crate) fn calls_of(api: &FakeApi, cancellation: Cancellation) -> Calls {
    Calls::new(api.client(), cancellation, PACE)
}

/// Calls to this server as dry runs.
pub(crate) fn dry_calls(api: &FakeApi) -> Calls {
    let cancellation = Cancellation::new(Leadership::always(), CancellationToken::new());
    Calls::dry(dry_client(&api.client()), cancellation, PACE)
}

const PACE: Pace = Pace {
    request: Duration::from_secs(5),
    patience: Duration::from_secs(5),
    grace: Duration::from_secs(1),
    pause: (Duration::from_millis(1), Duration::from_millis(2)),
    tries: 3,
};

/// Requests about CSI snapshots to this server.
pub(crate) fn csi(api: &FakeApi) -> SnapshotApi {
    SnapshotApi::new(&api.client(), &Leadership::always())
}

/// Requests for DataDownloads to this server.
pub(crate) fn downloads(api: &FakeApi) -> DownloadApi {
    DownloadApi::new(&api.client(), "velero", &Leadership::always())
}
