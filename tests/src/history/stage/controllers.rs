//! Real controllers, of two installations that share one ledger, and the items that their restores
//! restore.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Context as _;
use backup_core::api::{Backup, BackupPhase, BackupSpec, BackupStorageLocation, LocationPhase};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client, api::DeleteParams};
use serde_json::json;
use tokio::sync::mpsc;

use crate::{
    World,
    api::{ApiExt as _, objects_in},
    history::{
        faults::{Faults, Point},
        plan::{self, NAMESPACES},
        soak_op::VOLUMES,
        timeline::Timeline,
        whose::{SECOND, Whose, installation},
    },
    install::{NAMESPACE, ensure_namespace},
    process::Process,
    replica::answers,
    skip::Skip,
    snapshots::{self, Behaviour, SnapshotController},
    wait::TIMEOUT,
    world::controllers::{is_of, lease_holder},
};

/// The namespaces of the controllers: the first installation has two controllers, one of which
/// leads.
pub(super) const HOMES: [&str; 3] = [NAMESPACE, NAMESPACE, SECOND];
/// Items in each namespace of a source: enough for a slow restore to take a while.
const ITEMS: [(bool, usize); 2] = [(false, 6), (true, 60)];

/// Starts the controllers behind a tap, and makes the backups for restores.
pub(super) async fn start(
    world: &World,
    tap: SocketAddr,
    faults: &Faults,
    addresses: &[SocketAddr],
    soak: bool,
) -> anyhow::Result<Option<SnapshotController>> {
    let client = &world.client;
    let volumes = if soak { volumes(client).await? } else { None };
    ensure_namespace(client, SECOND).await?;
    world.second_installation(SECOND).await?;
    world.name_installation(SECOND).await?;
    world.second_location(SECOND).await?;
    for (number, (home, address)) in HOMES.into_iter().zip(addresses).enumerate() {
        let kubeconfig = world
            .plane
            .service_account_kubeconfig_by(tap, home, "backup-controller")
            .await?;
        let mut flags = vec![
            format!("--namespace={home}"),
            format!("--metrics-address={address}"),
        ];
        flags.extend(["--backup-sync-period=0", "--concurrent-backups=8"].map(str::to_owned));
        if volumes.is_some() {
            flags.extend(
                ["--features=EnableCSI", "--item-operation-sync-frequency=1s"].map(str::to_owned),
            );
        }
        let (name, program) = (
            format!("history-controller-{number}"),
            &world.programs().controller,
        );
        let mut process =
            Process::start_program(&name, program, flags, &kubeconfig, world.folder())?;
        answers(&mut process, *address, "/livez").await?;
        faults.controllers.put(number, process);
    }
    for (slow, items) in ITEMS {
        for namespace in namespaces(slow) {
            ensure_namespace(client, &namespace).await?;
            for item in 0..items {
                let name = format!("item-{item}");
                let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name } });
                objects_in(client, &namespace, "v1", "ConfigMap")
                    .apply_object(&name, &object)
                    .await?;
            }
        }
    }
    for home in [NAMESPACE, SECOND] {
        let locations: Api<BackupStorageLocation> = Api::namespaced(client.clone(), home);
        let available =
            |one: &BackupStorageLocation| one.status.phase == Some(LocationPhase::Available);
        locations
            .wait_until("default", "is available", TIMEOUT, available)
            .await?;
        let backups: Api<Backup> = Api::namespaced(client.clone(), home);
        for (slow, _) in ITEMS {
            let spec = BackupSpec {
                included_namespaces: namespaces(slow),
                included_resources: vec!["configmaps".to_owned()],
                ..BackupSpec::default()
            };
            let name = Whose::source(slow);
            backups.create_object(&Backup::new(name, spec)).await?;
            let completed = |one: &Backup| one.phase() == BackupPhase::Completed;
            backups
                .wait_until(name, "is Completed", TIMEOUT, completed)
                .await?;
        }
    }
    Ok(volumes)
}

/// Plays a storage driver, and makes a claim whose snapshots become ready and one whose snapshots
/// never do. `None` where the definitions of snapshots are unavailable.
async fn volumes(client: &Client) -> anyhow::Result<Option<SnapshotController>> {
    let driver = match SnapshotController::start(client).await {
        Err(error) if error.is::<Skip>() => return Ok(None),
        driver => driver?,
    };
    let behaviours = [
        Behaviour::Ready(Duration::from_secs(2)),
        Behaviour::NeverReady,
    ];
    for (namespace, behaviour) in VOLUMES.into_iter().zip(behaviours) {
        snapshots::class(client, namespace, behaviour, false).await?;
        snapshots::claim(client, namespace, "data", namespace).await?;
    }
    Ok(Some(driver))
}

/// The namespaces whose items are restored into the namespaces of a history.
fn namespaces(slow: bool) -> Vec<String> {
    (0..NAMESPACES)
        .map(|index| plan::namespace(&format!("{}-", Whose::source(slow)), index))
        .collect()
}

/// Stops or kills the leader that works on an object whose history is to trigger that.
pub(super) async fn hit(
    client: Client,
    timeline: Arc<Timeline>,
    faults: Arc<Faults>,
    mut changes: mpsc::UnboundedReceiver<String>,
) {
    while let Some(uid) = changes.recv().await {
        let Some((history, life)) = timeline
            .life(&uid)
            .filter(|(_, life)| life.phase == "InProgress")
        else {
            continue;
        };
        let Some(point) = faults.at_work(history) else {
            continue;
        };
        let home = installation(&life.object.name);
        match leader(&client, &faults, home).await {
            Ok(_) if point == Point::LeaderLeaseDeleted => {
                let leases: Api<Lease> = Api::namespaced(client.clone(), home);
                if let Err(error) = leases
                    .delete("backup-controller", &DeleteParams::default())
                    .await
                {
                    timeline.broke(&format!("{point}: {error:#}"));
                }
                faults.lease_deleted();
            }
            Ok(index) => faults.hit_controller(point, index),
            Err(error) => {
                timeline.broke(&format!("{point}: {error:#}"));
                faults.end();
            }
        }
    }
}

async fn leader(client: &Client, faults: &Faults, home: &str) -> anyhow::Result<usize> {
    let holder = lease_holder(&Api::namespaced(client.clone(), home)).await?;
    let leads = faults.controllers.position(|log| is_of(log, &holder));
    leads.with_context(|| format!("the leader ({holder:?}) is none of ours"))
}
