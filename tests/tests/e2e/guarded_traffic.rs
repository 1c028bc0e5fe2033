//! Clients and live operators side by side, on two API servers: backups and restores of guarded
//! operators are created, deleted and created again under few names, while the operators advance
//! them, crash, and repeat earlier writes. Judged by every stored version.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
};

use backup_tests::history::random::Random;
use futures::{StreamExt as _, future::try_join_all};
use kube::{
    Client,
    api::{ListParams, PostParams, WatchEvent, WatchParams},
};
use parking_lot::Mutex;

use crate::{
    guarded_operators::{CNPG, Operator, PG, PSMDB, PXC},
    prelude::*,
};

crate::tests! {
    no_backup_meets_a_restore_in_the_traffic_of_live_operators,
}

/// Objects that are created and deleted at once keep their claims for a grace, and refused ones for
/// the time of their intent: both are short, so that many objects get their turn.
pub const WEBHOOK: &[&str] = &[
    "--guard=velero",
    "--guard=percona-pxc",
    "--guard=percona-psmdb",
    "--guard=percona-pg",
    "--guard=cloudnative-pg",
    "--orphan-grace=3s",
    "--intent=1s",
];
/// Shortest time of the traffic; it continues for up to `MORE_TRAFFIC` until each operator had
/// enough.
const TRAFFIC: Duration = Duration::from_secs(12);
const MORE_TRAFFIC: Duration = Duration::from_mins(1);
/// Number of clients of each operator, on each API server.
const CLIENTS: usize = 2;
/// Number of names of each kind and cluster.
const NAMES: u64 = 2;
/// Longest delay of a watch.
const SILENCE: Duration = Duration::from_secs(3);
const STEP: Duration = Duration::from_millis(15);

/// How an operator advances its objects.
struct Live {
    operator: Operator,
    clusters: u64,
    /// The states of a backup during its work, and one of these at the end.
    backup: (&'static [&'static str], &'static [&'static str]),
    restore: (&'static [&'static str], &'static [&'static str]),
}

/// A Velero server, which our webhook only guards.
const VELERO: Operator = Operator {
    profile: "velero",
    namespace: NAMESPACE,
    version: "velero.io/v1",
    backup: "Backup",
    restore: "Restore",
    // The policies of this world are for an engine.
    account: "backup-controller",
    state: "phase",
    spec: |cluster| json!({ "includedNamespaces": [cluster], "backupName": "not-read" }),
};

const LIVE: [Live; 5] = [
    Live {
        operator: VELERO,
        clusters: 2,
        backup: (
            &["InProgress", "Finalizing"],
            &["Completed", "PartiallyFailed", "Failed"],
        ),
        restore: (
            &["InProgress", "Finalizing"],
            &["Completed", "PartiallyFailed", "Failed"],
        ),
    },
    Live {
        operator: PXC,
        clusters: 2,
        backup: (
            &["Suspended", "Starting", "Running"],
            &["Succeeded", "Failed"],
        ),
        restore: (
            &[
                "Starting",
                "Stopping Cluster",
                "Restoring",
                "Starting Cluster",
            ],
            &["Succeeded", "Failed"],
        ),
    },
    Live {
        operator: PSMDB,
        // Ended objects keep their claims for 40 s.
        clusters: 12,
        backup: (&["waiting", "requested", "running"], &["ready", "error"]),
        restore: (
            &["waiting", "requested", "running"],
            &["ready", "error", "rejected"],
        ),
    },
    Live {
        operator: PG,
        clusters: 2,
        backup: (&["Starting", "Running"], &["Succeeded", "Failed"]),
        restore: (&["Starting", "Running"], &["Succeeded", "Failed"]),
    },
    Live {
        operator: CNPG,
        clusters: 6,
        backup: (
            &["pending", "started", "running", "finalizing"],
            &["completed", "failed"],
        ),
        // A Cluster reports its end in another field.
        restore: (&["Setting up primary"], &[]),
    },
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Backup,
    Restore,
}

/// One object from its creation to its end or its deletion, by etcd revisions.
#[derive(Clone, Debug)]
struct Life {
    kind: Kind,
    name: String,
    cluster: String,
    begin: u64,
    end: Option<u64>,
}

/// The history of one operator's objects.
#[derive(Default)]
struct Seen {
    lives: Mutex<BTreeMap<String, Life>>,
    admitted: AtomicUsize,
    refused: AtomicUsize,
    revivals: AtomicUsize,
}

async fn no_backup_meets_a_restore_in_the_traffic_of_live_operators(
    world: &mut World,
) -> TestResult {
    world.needs_own_plane()?;
    for live in LIVE.iter().filter(|live| live.operator.profile != "velero") {
        live.operator.define(world).await?;
        live.operator.guard(world).await?;
    }
    let seen: Vec<Seen> = LIVE.iter().map(|_| Seen::default()).collect();
    let stop = AtomicBool::new(false);
    let traffic = try_join_all(
        LIVE.iter()
            .zip(&seen)
            .map(|(live, seen)| live.traffic(world, seen, &stop)),
    );
    let (ended, ()) = tokio::join!(traffic, async {
        tokio::time::sleep(TRAFFIC).await;
        let enough = async || anyhow::Ok(seen.iter().all(Seen::had_traffic));
        // The judgement names operators with too little traffic.
        let _ = until("there was traffic", MORE_TRAFFIC, enough).await;
        stop.store(true, SeqCst);
    });
    ended?;
    for (live, seen) in LIVE.iter().zip(&seen) {
        seen.judge(live).with_context(|| live.operator.profile)?;
    }
    Ok(())
}

impl Live {
    fn api(&self, client: &Client, kind: Kind) -> Api<DynamicObject> {
        let Operator {
            version,
            backup,
            restore,
            ..
        } = self.operator;
        let kind = if kind == Kind::Backup {
            backup
        } else {
            restore
        };
        objects_in(client, self.operator.namespace, version, kind)
    }

    /// Runs all clients and the operator until they are to stop.
    async fn traffic(&self, world: &World, seen: &Seen, stop: &AtomicBool) -> anyhow::Result<()> {
        let account = self.operator.account;
        let user = format!(
            "system:serviceaccount:{}:{account}",
            self.operator.namespace
        );
        let user = (!account.is_empty()).then_some(user.as_str());
        for server in 0..2 {
            let client = world.plane.client_of(server, user).await?;
            eventually("each API server serves its kinds", TIMEOUT, async || {
                for kind in [Kind::Backup, Kind::Restore] {
                    self.api(&client, kind).list_all().await?;
                }
                Ok::<_, kube::Error>(Probe::Ready(()))
            })
            .await?;
        }
        let mut clients = Vec::new();
        for number in 0..2 * CLIENTS {
            clients.push(self.client(
                world.plane.client_of(number % 2, None).await?,
                number,
                seen,
                stop,
            ));
        }
        let operator = self.operator(world.plane.client_of(1, user).await?, seen, stop);
        let (first, second) = (
            world.plane.client_of(0, None).await?,
            world.plane.client_of(1, None).await?,
        );
        let over = AtomicBool::new(false);
        let watch = |client, kind| self.watch(client, kind, seen, &over);
        let writers = async {
            tokio::try_join!(try_join_all(clients), operator)?;
            over.store(true, SeqCst);
            Ok(())
        };
        tokio::try_join!(
            writers,
            watch(first, Kind::Backup),
            watch(second, Kind::Restore)
        )?;
        Ok(())
    }

    /// Creates and deletes objects.
    async fn client(
        &self,
        client: Client,
        number: usize,
        seen: &Seen,
        stop: &AtomicBool,
    ) -> anyhow::Result<()> {
        let mut random = Random::of(42, number as u64);
        while !stop.load(SeqCst) {
            let kind = random.pick(&[Kind::Backup, Kind::Restore]);
            let cluster = format!("traffic-{}", random.below(self.clusters));
            let api = self.api(&client, kind);
            // A Cluster is a scope by itself.
            let is_cluster = self.operator.profile == "cloudnative-pg" && kind == Kind::Restore;
            let name = if is_cluster {
                cluster.clone()
            } else {
                format!("{cluster}-{}", random.below(NAMES))
            };
            if random.one_in(if is_cluster { 2 } else { 4 }) {
                match api.delete_object(&name).await {
                    Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404 | 409) => {}
                    deleted => deleted.with_context(|| format!("delete {kind:?} {name}"))?,
                }
            } else {
                self.create(&api, kind, &name, &cluster, seen).await?;
            }
            tokio::time::sleep(Duration::from_millis(random.below(20))).await;
        }
        Ok(())
    }

    async fn create(
        &self,
        api: &Api<DynamicObject>,
        kind: Kind,
        name: &str,
        cluster: &str,
        seen: &Seen,
    ) -> anyhow::Result<()> {
        let mut spec = (self.operator.spec)(cluster);
        if self.operator.profile == "velero" && kind == Kind::Backup {
            spec = json!({ "includedNamespaces": [cluster] });
        }
        let kind_name = if kind == Kind::Backup {
            self.operator.backup
        } else {
            self.operator.restore
        };
        let object = serde_json::from_value(self.operator.object(kind_name, name, &spec))?;
        match api.create(&PostParams::default(), &object).await {
            Ok(_) => seen.admitted.fetch_add(1, SeqCst),
            Err(kube::Error::Api(status)) if status.code == 409 => 0,
            Err(kube::Error::Api(status)) if status.code == 403 => {
                says(&status.message, &["admission webhook", "kubectl backup"])?;
                seen.refused.fetch_add(1, SeqCst)
            }
            Err(error) => return Err(error).with_context(|| format!("create {kind:?} {name}")),
        };
        Ok(())
    }

    /// Advances each object step by step. Now and then it crashes, and starts again from what is
    /// stored: it repeats its first writes, also to ended objects.
    async fn operator(&self, client: Client, seen: &Seen, stop: &AtomicBool) -> anyhow::Result<()> {
        let mut random = Random::of(43, self.clusters);
        while !stop.load(SeqCst) {
            let restarted = random.one_in(40);
            for kind in [Kind::Backup, Kind::Restore] {
                let api = self.api(&client, kind);
                for object in api.list(&ListParams::default()).await?.items {
                    self.step(&api, kind, &object, restarted, &mut random, seen)
                        .await?;
                }
            }
            tokio::time::sleep(STEP).await;
        }
        Ok(())
    }

    async fn step(
        &self,
        api: &Api<DynamicObject>,
        kind: Kind,
        object: &DynamicObject,
        restarted: bool,
        random: &mut Random,
        seen: &Seen,
    ) -> anyhow::Result<()> {
        let (active, ends) = if kind == Kind::Backup {
            self.backup
        } else {
            self.restore
        };
        let state = object.data["status"][self.operator.state]
            .as_str()
            .unwrap_or_default();
        let is_over = self.is_over(kind, object);
        let at = active.iter().position(|one| *one == state);
        let mut status = match at {
            _ if restarted => json!({ self.operator.state: active[0] }),
            _ if is_over || random.one_in(2) => return Ok(()),
            None => json!({ self.operator.state: active[0] }),
            Some(at) if at + 1 < active.len() => json!({ self.operator.state: active[at + 1] }),
            Some(_) if ends.is_empty() => {
                json!({ "currentPrimary": format!("{}-1", object.name_any()) })
            }
            Some(_) => json!({ self.operator.state: random.pick(ends) }),
        };
        // Over exactly this version, as an operator's client does; its cache may hold any version.
        let over = json!({ "resourceVersion": object.metadata.resource_version, "uid": object.metadata.uid });
        if is_over && ends.is_empty() {
            status["currentPrimary"] = object.data["status"]["currentPrimary"].clone();
        }
        let patch = json!({ "metadata": over, "status": status });
        let name = object.name_any();
        let written = match self.operator.profile {
            "velero" => api.merge_patch(&name, patch).await,
            _ => {
                api.patch_status(
                    &name,
                    &kube::api::PatchParams::default(),
                    &kube::api::Patch::Merge(patch),
                )
                .await
            }
        };
        match written {
            Ok(_) if is_over && !ends.is_empty() => {
                bail!("{kind:?} {name} came back to life from {state}")
            }
            Ok(_) => {}
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            Err(kube::Error::Api(status)) if is_over && status.code == 403 => {
                says(&status.message, &["has ended"])?;
                seen.revivals.fetch_add(1, SeqCst);
            }
            Err(error) => {
                return Err(error).with_context(|| format!("{kind:?} {name} from {state:?}"));
            }
        }
        Ok(())
    }

    fn is_over(&self, kind: Kind, object: &DynamicObject) -> bool {
        let (_, ends) = if kind == Kind::Backup {
            self.backup
        } else {
            self.restore
        };
        let text = |field: &str| object.data["status"][field].as_str().unwrap_or_default();
        if ends.is_empty() {
            !text("currentPrimary").is_empty()
        } else {
            ends.contains(&text(self.operator.state))
        }
    }

    /// Records each version of one kind, until nothing is written and no event comes.
    async fn watch(
        &self,
        client: Client,
        kind: Kind,
        seen: &Seen,
        over: &AtomicBool,
    ) -> anyhow::Result<()> {
        let api = self.api(&client, kind);
        let from = api
            .list(&ListParams::default())
            .await?
            .metadata
            .resource_version
            .unwrap_or_default();
        let mut versions = api.watch(&WatchParams::default(), &from).await?.boxed();
        loop {
            match tokio::time::timeout(SILENCE, versions.next()).await {
                Ok(Some(event)) => seen.note(self, kind, event?)?,
                Ok(None) => bail!("the watch has ended"),
                Err(_) if over.load(SeqCst) => return Ok(()),
                Err(_) => {}
            }
        }
    }
}

impl Seen {
    fn note(
        &self,
        live: &Live,
        kind: Kind,
        event: WatchEvent<DynamicObject>,
    ) -> anyhow::Result<()> {
        let (object, gone) = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, false),
            WatchEvent::Deleted(object) => (object, true),
            WatchEvent::Bookmark(_) => return Ok(()),
            WatchEvent::Error(error) => bail!("the watch broke: {error:?}"),
        };
        let revision = object
            .metadata
            .resource_version
            .as_deref()
            .unwrap_or_default()
            .parse()?;
        let name = object.name_any();
        let Some(cluster) = name.get(
            ..name
                .rfind('-')
                .filter(|_| name.matches('-').count() > 1)
                .unwrap_or(name.len()),
        ) else {
            return Ok(());
        };
        let mut lives = self.lives.lock();
        let seen = lives
            .entry(object.metadata.uid.clone().unwrap_or_default())
            .or_insert_with(|| Life {
                kind,
                cluster: cluster.to_owned(),
                name: name.clone(),
                begin: revision,
                end: None,
            });
        if gone || live.is_over(kind, &object) {
            seen.end.get_or_insert(revision);
        }
        Ok(())
    }

    fn ended(&self, kind: Kind) -> usize {
        let lives = self.lives.lock();
        lives
            .values()
            .filter(|life| life.kind == kind && life.end.is_some())
            .count()
    }

    fn had_traffic(&self) -> bool {
        self.ended(Kind::Backup) > 1
            && self.ended(Kind::Restore) > 1
            && self.refused.load(SeqCst) > 1
    }

    fn judge(&self, live: &Live) -> anyhow::Result<()> {
        let (backups, restores) = (self.ended(Kind::Backup), self.ended(Kind::Restore));
        let lives = self.lives.lock();
        let lives: Vec<&Life> = lives.values().collect();
        for (number, one) in lives.iter().enumerate() {
            for other in &lives[number + 1..] {
                let conflict = one.kind == Kind::Restore || other.kind == Kind::Restore;
                let apart = one.cluster != other.cluster
                    || one.kind == other.kind && one.name == other.name;
                let over = |life: &Life| life.end.unwrap_or(u64::MAX);
                ensure!(
                    !conflict || apart || over(one) <= other.begin || over(other) <= one.begin,
                    "both were at work: {one:?} and {other:?}"
                );
            }
        }
        let [admitted, refused, revivals] =
            [&self.admitted, &self.refused, &self.revivals].map(|number| number.load(SeqCst));
        println!(
            "    {}: {admitted} admitted, {refused} refused, {backups} backups and {restores} restores ended, {revivals} late words",
            live.operator.profile
        );
        ensure!(
            backups > 1 && restores > 1 && refused > 1,
            "there was too little traffic"
        );
        ensure!(
            lives.len() >= admitted,
            "{} were seen of {admitted}",
            lives.len()
        );
        Ok(())
    }
}
