//! Plays the engine: activates claims as the controller does, works, publishes the end, and
//! releases the claim. Or plays a guarded operator: it starts every object that it sees, and may
//! fail. It can be stopped, and it can crash at any step and start again.

use std::{collections::HashSet, sync::Arc, time::Duration};

use backup_core::api::{Backup, Restore};
use backup_lock::{ActivateError, LedgerStore, ObjectKey, Token};
use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};
use tokio::{
    sync::{Semaphore, mpsc, watch},
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{
    faults::{Faults, Point},
    plan::{self, Area, Kind},
    record::{Life, Work},
    timeline::Timeline,
};
use crate::{install::NAMESPACE, percona};

/// Maximum number of claims that are activated or released at the same time.
const AT_THE_LEDGER: usize = 6;
const STOPPED: Duration = Duration::from_secs(3);
const LOST: Duration = Duration::from_millis(500);
const AGAIN: Duration = Duration::from_millis(50);
const REQUEST: Duration = Duration::from_secs(10);
/// The phase of an object whose work has begun.
const BEGUN: &str = "InProgress";

/// Shared by all workers.
#[derive(Clone)]
pub(crate) struct Operator {
    /// With the account of the operator that it plays.
    pub client: Client,
    /// `None`: the operator starts every object that it sees, without a lock.
    pub store: Option<LedgerStore>,
    pub timeline: Arc<Timeline>,
    pub faults: Arc<Faults>,
    /// Duration of the work in each history, and the names whose work is to end now.
    pub wishes: Arc<Wishes>,
    ledger: Arc<Semaphore>,
    gate: watch::Receiver<bool>,
    crash: mpsc::Sender<Point>,
}

/// Requests of the clients to the operator.
#[derive(Default)]
pub(crate) struct Wishes {
    work: parking_lot::Mutex<std::collections::HashMap<u64, Duration>>,
    finish: parking_lot::Mutex<HashSet<(Kind, String)>>,
}

impl Wishes {
    /// Sets how long the work on each object of a history takes; zero ends running work.
    pub(crate) fn work(&self, history: u64, time: Duration) {
        self.work.lock().insert(history, time);
    }

    /// Removes all requests for a history.
    pub(crate) fn forget(&self, history: u64) {
        self.work.lock().remove(&history);
        self.finish
            .lock()
            .retain(|(_, name)| plan::number_of(name) != Some(history));
    }

    /// Requests the end of the work on this name.
    pub(crate) fn finish(&self, kind: Kind, name: &str) {
        self.finish.lock().insert((kind, name.to_owned()));
    }

    fn time(&self, history: u64) -> Duration {
        self.work.lock().get(&history).copied().unwrap_or_default()
    }

    fn finished(&self, kind: Kind, name: &str) -> bool {
        self.finish.lock().remove(&(kind, name.to_owned()))
    }
}

/// Runs for ever, with a task for each object that is not over. After a crash all tasks end at
/// once, and it starts again from what is stored. `guarded`: plays the guarded operator.
pub(crate) async fn run(
    client: Client,
    guarded: bool,
    store: Option<LedgerStore>,
    timeline: Arc<Timeline>,
    faults: Arc<Faults>,
    wishes: Arc<Wishes>,
    mut changes: mpsc::UnboundedReceiver<String>,
) {
    let (gate, closed) = watch::channel(true);
    let (crash, mut crashes) = mpsc::channel(1);
    let ledger = Arc::new(Semaphore::new(AT_THE_LEDGER));
    let operator = Operator {
        client,
        store,
        timeline,
        faults: faults.clone(),
        wishes,
        ledger,
        gate: closed,
        crash,
    };
    let mut tasks: JoinSet<String> = JoinSet::new();
    let mut busy = HashSet::new();
    loop {
        let uid = tokio::select! {
            Some(uid) = changes.recv() => uid,
            Some(ended) = tasks.join_next() => {
                // Changes that came while the task was ending are processed again.
                match ended {
                    Ok(uid) => { busy.remove(&uid); uid }
                    Err(_) => continue,
                }
            }
            Some(point) = crashes.recv() => {
                if point == Point::OperatorStopped {
                    gate.send_replace(false);
                    let (gate, faults) = (gate.clone(), faults.clone());
                    tokio::spawn(async move {
                        sleep(STOPPED).await;
                        gate.send_replace(true);
                        faults.end();
                    });
                    continue;
                }
                tasks.abort_all();
                while tasks.join_next().await.is_some() {}
                busy.clear();
                sleep(LOST).await;
                faults.end();
                for uid in operator.timeline.unfinished(guarded) {
                    if busy.insert(uid.clone()) {
                        tasks.spawn(operator.clone().work(uid));
                    }
                }
                continue;
            }
        };
        let unfinished = operator
            .timeline
            .life(&uid)
            .is_some_and(|(_, life)| life.over().is_none());
        if unfinished && busy.insert(uid.clone()) {
            tasks.spawn(operator.clone().work(uid));
        }
    }
}

/// Records the end of work also when its task is aborted.
struct Working<'a> {
    timeline: &'a Timeline,
    history: u64,
    uid: &'a str,
    index: usize,
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        // An object that is gone is not worked on, although the kit sees that a little later.
        let gone = self
            .timeline
            .life(self.uid)
            .and_then(|(_, life)| Some(life.gone?.time));
        let end = gone.unwrap_or_else(|| self.timeline.now());
        self.timeline.record(self.history, |record| {
            if let Some(work) = record.work.get_mut(self.index) {
                work.end = Some(end);
            }
        });
    }
}

impl Operator {
    /// All work on one object, until it is over.
    async fn work(self, uid: String) -> String {
        loop {
            let Some((history, life)) = self.timeline.life(&uid) else {
                return uid;
            };
            if life.over().is_some() {
                return uid;
            }
            let key = plan::key_of(life.object.kind, NAMESPACE, &life.object.name);
            match self.step(history, &life, &key).await {
                Ok(true) => return uid,
                Ok(false) => {}
                Err(error) => {
                    self.timeline.record(history, |record| {
                        record.operator_errors.push(error.to_string());
                    });
                    sleep(AGAIN).await;
                }
            }
        }
    }

    /// From activation to the end of the work. True: the object is over.
    async fn step(&self, history: u64, life: &Life, key: &ObjectKey) -> anyhow::Result<bool> {
        self.pass().await;
        let token = match &self.store {
            None => None,
            Some(store) => match self.activate(store, key, &life.uid).await {
                Ok(token) => Some(token),
                Err(ActivateError::Gone { .. } | ActivateError::Over { .. }) => {
                    self.release(key, &life.uid).await?;
                    sleep(AGAIN).await;
                    return Ok(self
                        .timeline
                        .life(&life.uid)
                        .is_none_or(|(_, life)| life.over().is_some()));
                }
                // The claim waits in the queue for its turn.
                Err(error) if error.category() == "waiting" => {
                    sleep(AGAIN).await;
                    return Ok(false);
                }
                Err(ActivateError::Conflict(_)) => {
                    self.pass().await;
                    let ended = self.write(life, "Failed").await?;
                    self.release(key, &life.uid).await?;
                    return Ok(ended);
                }
                Err(error) => return Err(error.into()),
            },
        };
        self.pass().await;
        if !self.write(life, BEGUN).await? {
            self.release(key, &life.uid).await?;
            return Ok(false);
        }
        self.at_work(history, life, token.as_ref()).await;
        self.pass().await;
        // As good as random. Failed restores can be revived.
        let fails = life.object.kind == Kind::Restore && !life.version.is_multiple_of(4);
        let end = match life.guarded {
            false => "Completed",
            true if fails => "Error",
            true => "Succeeded",
        };
        while !self.write(life, end).await? {
            if self
                .timeline
                .life(&life.uid)
                .is_none_or(|(_, life)| life.over().is_some())
            {
                break;
            }
            sleep(AGAIN).await;
        }
        self.pass().await;
        self.release(key, &life.uid).await?;
        Ok(true)
    }

    /// The work itself, and the faults of the operator meanwhile.
    async fn at_work(&self, history: u64, life: &Life, token: Option<&Token>) {
        let mut object = life.object.clone();
        if let Some(token) = token {
            object.area = Area::of(&plan::prefix(history), |namespace| {
                token.footprint.includes(namespace)
            });
        }
        let begin = self.timeline.now();
        let index = self.timeline.record(history, |record| {
            record.work.push(Work {
                uid: life.uid.clone(),
                object,
                token: token.map(|token| (token.lease_uid.clone(), token.epoch)),
                begin,
                end: None,
            });
            record.work.len() - 1
        });
        let _working = Working {
            timeline: &self.timeline,
            history,
            uid: &life.uid,
            index,
        };
        if let Some(point) = self.faults.at_work(history) {
            let _ = self.crash.send(point).await;
            if point == Point::OperatorCrashed {
                // A crash: no more steps.
                std::future::pending::<()>().await;
            }
            sleep(AGAIN).await;
        }
        loop {
            self.pass().await;
            let over = self.timeline.now() >= begin + self.wishes.time(history)
                || self.wishes.finished(life.object.kind, &life.object.name)
                || self
                    .timeline
                    .life(&life.uid)
                    .is_none_or(|(_, life)| life.deleted.is_some() || life.over().is_some());
            if over {
                return;
            }
            sleep(Duration::from_millis(5)).await;
        }
    }

    async fn activate(
        &self,
        store: &LedgerStore,
        key: &ObjectKey,
        uid: &str,
    ) -> Result<Token, ActivateError> {
        let _turn = self.ledger.acquire().await;
        backup_lock::activate(store, key, uid).await
    }

    async fn release(&self, key: &ObjectKey, uid: &str) -> anyhow::Result<()> {
        let Some(store) = &self.store else {
            return Ok(());
        };
        let _turn = self.ledger.acquire().await;
        backup_lock::release(store, key, uid).await?;
        Ok(())
    }

    /// Waits while the operator is stopped.
    async fn pass(&self) {
        let _ = self.gate.clone().wait_for(|open| *open).await;
    }

    /// Writes phase or state, and sets or removes our finalizer, over the version that etcd
    /// reported last. False: the object is gone or over, or it is being deleted and cannot begin.
    async fn write(&self, life: &Life, phase: &str) -> anyhow::Result<bool> {
        let (home, resource) = place_of(life);
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), home, &resource);
        let begins = phase == BEGUN && !life.guarded;
        for _ in 0..50 {
            let Some((_, now)) = self.timeline.life(&life.uid) else {
                return Ok(false);
            };
            if now.over().is_some() || begins && now.deleted.is_some() && !now.finalizer {
                return Ok(false);
            }
            if begins && now.finalizer {
                return Ok(true);
            }
            // With resourceVersion and uid: never overwrites another client's change.
            let mut patch = json!({ "metadata": { "resourceVersion": now.version.to_string(), "uid": life.uid } });
            let name = &life.object.name;
            let params = PatchParams::default();
            let written = if life.guarded {
                let state = if phase == BEGUN { "Running" } else { phase };
                patch["status"] = json!({ "state": state });
                timeout(
                    REQUEST,
                    api.patch_status(name, &params, &Patch::Merge(patch)),
                )
                .await?
            } else {
                patch["status"] = json!({ "phase": phase });
                let finalizer = life.object.kind.work_finalizer();
                patch["metadata"]["finalizers"] = if begins {
                    json!([finalizer])
                } else {
                    Value::Null
                };
                timeout(REQUEST, api.patch(name, &params, &Patch::Merge(patch))).await?
            };
            match written {
                Ok(_) => return Ok(true),
                // Etcd will report the newer version.
                Err(kube::Error::Api(status)) if status.code == 409 => sleep(AGAIN).await,
                Err(kube::Error::Api(status)) if status.code == 404 => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        anyhow::bail!(
            "{} {} is changed all the time",
            life.object.kind,
            life.object.name
        )
    }
}

/// The namespace of an object, and its kind.
fn place_of(life: &Life) -> (&'static str, ApiResource) {
    let kind = life.object.kind;
    if life.guarded {
        let kind = if kind == Kind::Backup {
            percona::BACKUP
        } else {
            percona::RESTORE
        };
        return (
            percona::NAMESPACE,
            ApiResource::from_gvk(&GroupVersionKind::gvk("ps.percona.com", "v1", kind)),
        );
    }
    let resource = if kind == Kind::Backup {
        ApiResource::erase::<Backup>(&())
    } else {
        ApiResource::erase::<Restore>(&())
    };
    (NAMESPACE, resource)
}
