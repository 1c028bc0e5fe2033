//! Operations that only the clients of a soak have.

use std::time::Duration;

use backup_core::labels::{CANCEL_ANNOTATION, SYNC_REQUEST_ANNOTATION};
use backup_lock::{Footprint, Ledger, ObjectKey, ObjectKind, VELERO_SCOPE};
use http::Method;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{
    check::OPERATIONS,
    clients::{Clients, PATIENCE, Request},
    plan::{Area, Kind, NAMESPACES, Plan, Step, namespace},
    random::Random,
    record::Life,
    whose::{ATTEMPT, installation},
};
use crate::wait::until;

const MERGE: &str = "application/merge-patch+json";
const JSON: &str = "application/json";
/// The interval of schedules (seconds), and the time until one is deleted: it runs once or twice.
const INTERVAL: u64 = 2;
const RUNS: Duration = Duration::from_secs(5);
/// Duration of a hold.
const HOLD_TIME: Duration = Duration::from_millis(800);
/// How long a client that wants to delete a backup waits for its end.
const ENDS: Duration = Duration::from_secs(5);

/// A namespace with a claim whose snapshots become ready, and one with a claim whose snapshots
/// never do.
pub(crate) const VOLUMES: [&str; 2] = ["soak-ready", "soak-never-ready"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SoakOp {
    /// Requests the early end of the work on this name.
    Cancel(Kind, String),
    /// Holds these namespaces for a while.
    Hold(Area),
    /// Has a schedule make backups of these namespaces for a while.
    Schedule { name: String, area: Area },
    /// Requests the deletion of a backup with its files.
    RequestDeletion(String),
    /// Puts a backup of another cluster, in this phase, into the bucket of its installation, and
    /// requests synchronisation.
    Import { name: String, phase: &'static str },
    /// Requests synchronisation of a bucket: that of the installation to which this name belongs.
    Synchronise(String),
    /// Backs up volumes, whose snapshots are ready soon, or never.
    Volumes { name: String, ready: bool },
}

/// Names are few, so that these operations meet objects of one another and of other operations.
pub(super) fn draw(random: &mut Random, prefix: &str) -> SoakOp {
    let which = random.below(2);
    let name = |letter: char| format!("{prefix}{letter}{which}");
    match random.below(12) {
        0 => SoakOp::Cancel(Kind::Backup, name('b')),
        1 => SoakOp::Cancel(Kind::Restore, name('r')),
        2 => SoakOp::Hold(Area(random.area())),
        3 => SoakOp::Schedule {
            name: name('s'),
            area: Area(random.area()),
        },
        4 => SoakOp::RequestDeletion(name('b')),
        5 => SoakOp::RequestDeletion(name('x')),
        6 | 7 => {
            let phase = random.pick(&["Completed", "Completed", "PartiallyFailed", "InProgress"]);
            SoakOp::Import {
                name: name('x'),
                phase,
            }
        }
        8 | 9 => SoakOp::Synchronise(name('b')),
        _ => SoakOp::Volumes {
            name: name('v'),
            ready: random.one_in(2),
        },
    }
}

impl SoakOp {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Cancel(..) => "cancelled",
            Self::Hold(_) => "holds",
            Self::Schedule { .. } => "schedules",
            Self::RequestDeletion(_) => "deletions requested",
            Self::Import { .. } => "imports",
            Self::Synchronise(_) => "synchronisations",
            Self::Volumes { .. } => "backups of volumes",
        }
    }
}

impl Clients {
    pub(super) async fn soak(&self, plan: &Plan, step: &Step, op: &SoakOp) {
        self.timeline
            .record(plan.number, |record| record.did(op.name()));
        let server = step.server;
        match op {
            SoakOp::Cancel(kind, name) => {
                self.timeline.record(plan.number, |record| {
                    record.cancellations.insert(name.clone())
                });
                let path = format!("{}/{name}", plan.whose.path(*kind, name));
                let change = json!({ "metadata": { "annotations": { CANCEL_ANNOTATION: "now" } } });
                self.write(Method::PATCH, path, MERGE, change, server).await;
            }
            SoakOp::Hold(area) => self.hold(&plan.prefix, *area).await,
            SoakOp::Schedule { name, area } => {
                let path = collection(name, "schedules");
                let spec = json!({ "schedule": format!("@every {INTERVAL}s"), "template": {
                    "includedNamespaces": namespaces(&plan.prefix, *area), "includedResources": ["configmaps"] } });
                self.write(
                    Method::POST,
                    path.clone(),
                    JSON,
                    object("Schedule", name, &spec),
                    server,
                )
                .await;
                sleep(RUNS).await;
                self.write(
                    Method::DELETE,
                    format!("{path}/{name}"),
                    JSON,
                    json!({}),
                    server,
                )
                .await;
            }
            SoakOp::RequestDeletion(name) => {
                self.ended(plan, name).await;
                self.timeline
                    .record(plan.number, |record| record.deletions.insert(name.clone()));
                let request = object("DeleteBackupRequest", name, &json!({ "backupName": name }));
                self.write(
                    Method::POST,
                    collection(name, "deletebackuprequests"),
                    JSON,
                    request,
                    server,
                )
                .await;
            }
            // A backup that was deleted is not imported again: that could not be told from a wrong
            // return.
            SoakOp::Import { name, .. }
                if self
                    .timeline
                    .record(plan.number, |record| record.deletions.contains(name)) => {}
            SoakOp::Import { name, phase } => {
                let imported = self
                    .buckets
                    .as_ref()
                    .map(|buckets| buckets.import(name, phase));
                if let Some(Err(error)) = imported {
                    self.timeline.broke(&format!("{error:#}"));
                }
                self.synchronise(name, server).await;
            }
            SoakOp::Synchronise(name) => self.synchronise(name, server).await,
            SoakOp::Volumes { name, ready } => {
                let seconds = OPERATIONS.as_secs();
                let spec = json!({ "includedNamespaces": [VOLUMES[usize::from(!ready)]],
                    "itemOperationTimeout": format!("{seconds}s") });
                let backup = object("Backup", name, &spec);
                self.write(
                    Method::POST,
                    collection(name, "backups"),
                    JSON,
                    backup,
                    server,
                )
                .await;
            }
        }
    }

    /// Waits a little for an ended backup of this name.
    async fn ended(&self, plan: &Plan, name: &str) {
        let _ = until("a backup has ended", ENDS, async || {
            let ended = |life: &Life| {
                life.object.name == name && life.ended.is_some() && life.gone.is_none()
            };
            anyhow::Ok(
                self.timeline
                    .record(plan.number, |record| record.lives.values().any(ended)),
            )
        })
        .await;
    }

    /// Requests synchronisation of the bucket of the installation to which this name belongs.
    async fn synchronise(&self, name: &str, server: usize) {
        let path = format!("{}/default", collection(name, "backupstoragelocations"));
        let id = json!({ "id": format!("{:?}", self.timeline.now()) }).to_string();
        let change = json!({ "metadata": { "annotations": { SYNC_REQUEST_ANNOTATION: id } } });
        self.write(Method::PATCH, path, MERGE, change, server).await;
    }

    /// Deletes the schedules of a history, whatever its clients have done.
    pub(super) async fn end_schedules(&self, prefix: &str) {
        for name in [0, 1].map(|which| format!("{prefix}s{which}")) {
            let path = format!("{}/{name}", collection(&name, "schedules"));
            self.write(Method::DELETE, path, JSON, json!({}), 0).await;
        }
    }

    /// Holds as `kubectl backup locks hold` does, and ends the hold.
    async fn hold(&self, prefix: &str, area: Area) {
        let Some(ledgers) = &self.ledgers else { return };
        let key = ObjectKey::new(
            ObjectKind::Hold,
            installation(prefix),
            &format!("{prefix}hold"),
        );
        let uid = format!("hold-{:?}", self.timeline.now());
        let footprint = Footprint::namespaces(namespaces(prefix, area));
        let taken = |ledger: &mut Ledger| {
            ledger.claim(&key).is_none() && ledger.hold(&key, &uid, &footprint, "", "soak").is_ok()
        };
        // Without an answer, it may have been written all the same.
        let _ = ledgers
            .change(VELERO_SCOPE, Instant::now() + PATIENCE, taken)
            .await;
        sleep(HOLD_TIME).await;
        self.end_hold(prefix).await;
    }

    /// Removes the hold of a history, if there is one.
    pub(super) async fn end_hold(&self, prefix: &str) {
        let Some(ledgers) = &self.ledgers else { return };
        let key = ObjectKey::new(
            ObjectKind::Hold,
            installation(prefix),
            &format!("{prefix}hold"),
        );
        let release = |ledger: &mut Ledger| {
            let uids = ledger.claim(&key).map(|claim| {
                claim
                    .entries
                    .iter()
                    .map(|entry| entry.uid.clone())
                    .collect()
            });
            let uids: Vec<String> = uids.unwrap_or_default();
            let mut done = false;
            for uid in &uids {
                done |= ledger.force_release(&key, uid, "soak: done");
            }
            done
        };
        // A failed change is retried when the history is cleaned up.
        let _ = ledgers
            .change(VELERO_SCOPE, Instant::now() + PATIENCE, release)
            .await;
    }

    async fn write(&self, method: Method, path: String, content: &str, body: Value, server: usize) {
        let path = format!("{path}?timeout=15s");
        let (body, patience) = (Some((content, body)), PATIENCE);
        self.send(Request {
            method,
            path,
            body,
            user: None,
            server,
            lose: false,
            patience,
        })
        .await;
    }
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    // Schedules copy the annotation to their backups, and reviews are assigned by it.
    json!({ "apiVersion": "velero.io/v1", "kind": kind, "spec": spec,
        "metadata": { "name": name, "annotations": { ATTEMPT: "0" } } })
}

fn collection(name: &str, plural: &str) -> String {
    format!(
        "/apis/velero.io/v1/namespaces/{}/{plural}",
        installation(name)
    )
}

fn namespaces(prefix: &str, area: Area) -> Vec<String> {
    (0..NAMESPACES)
        .filter(|index| area.0 & 1 << index != 0)
        .map(|index| namespace(prefix, index))
        .collect()
}
