//! The named points at which faults happen, which component is due for one, and how often each
//! point was reached.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::fleet::Fleet;

/// Longer than a leader's lease.
const PAST_ITS_LEASE: Duration = Duration::from_secs(20);

/// A point between two steps of the system, and the fault there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Point {
    /// The webhook has written its claim and answers; the API server never receives the answer.
    WebhookReplyCut,
    /// The API server has stored the object and answers; the client never receives the answer.
    ClientReplyCut,
    /// The client disconnects when the webhook has just answered.
    ClientGone,
    /// The webhook's write of the ledger is done; the webhook never receives the answer.
    LedgerReplyLost,
    /// Another webhook denies after ours has claimed.
    SiblingDenies,
    /// The operator's write of the ledger is done; the operator never receives the answer.
    OperatorReplyLost,
    /// A stored object is created again, by a client that has not seen it.
    SecondCreation,
    /// An object is deleted before its work begins; where real controllers work, while it is
    /// queued.
    DeletedUnbegun,
    /// A webhook replica is killed between its write of the ledger and its answer, and restarted.
    WebhookKilled,
    /// A webhook replica is stopped there for longer than every timeout, and continued.
    WebhookStopped,
    /// An API server is killed when the webhook has just answered it, and restarted.
    ApiServerKilled,
    /// An API server is stopped when the webhook has just answered it, and continued.
    ApiServerStopped,
    /// The operator is stopped in the middle of its work, and continued.
    OperatorStopped,
    /// The operator crashes in the middle of its work; another one begins.
    OperatorCrashed,
    /// The Lease of the working leader is deleted. Only with real controllers.
    LeaderLeaseDeleted,
    /// The store refuses connections, and open ones break.
    StoreRefused,
    /// The store accepts data, and answers nothing.
    StoreStalled,
    StoreSlow,
    /// Requests of our programs to the API servers are slow.
    NetworkSlow,
    /// Every second request of our programs to the API servers, or its answer, is lost.
    NetworkLossy,
    CertificateReplaced,
    /// Webhooks, and then controllers, are replaced one after another, by another version and back
    /// if there is one.
    RolledOut,
}

/// The network between our programs and the API servers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Link {
    #[default]
    Good,
    Slow(Duration),
    Lossy,
}

/// What happens to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passage {
    Whole,
    RequestLost,
    AnswerLost,
}

impl Point {
    /// Faults that hit a single request only.
    pub(crate) const OF_ONE_REQUEST: [Self; 8] = [
        Self::WebhookReplyCut,
        Self::ClientReplyCut,
        Self::ClientGone,
        Self::LedgerReplyLost,
        Self::SiblingDenies,
        Self::OperatorReplyLost,
        Self::SecondCreation,
        Self::DeletedUnbegun,
    ];
    /// Faults that hit a process, one after another.
    const OF_A_PROCESS: [Self; 7] = [
        Self::ApiServerStopped,
        Self::WebhookKilled,
        Self::OperatorCrashed,
        Self::WebhookStopped,
        Self::ApiServerKilled,
        Self::OperatorStopped,
        Self::LeaderLeaseDeleted,
    ];

    /// The faults of a process, without those that only real controllers have.
    pub(crate) fn of_a_process(controllers: bool) -> &'static [Self] {
        let [played @ .., _] = &Self::OF_A_PROCESS;
        if controllers {
            &Self::OF_A_PROCESS
        } else {
            played
        }
    }

    /// Faults around the programs in a soak.
    pub(crate) const OF_A_SOAK: [Self; 7] = [
        Self::StoreRefused,
        Self::StoreStalled,
        Self::StoreSlow,
        Self::NetworkSlow,
        Self::NetworkLossy,
        Self::CertificateReplaced,
        Self::RolledOut,
    ];

    fn describe(self) -> &'static str {
        match self {
            Self::WebhookReplyCut => "webhook's answer cut after its claim",
            Self::ClientReplyCut => "API server's answer to the client cut",
            Self::ClientGone => "client gone at the webhook's answer",
            Self::LedgerReplyLost => "answer to the webhook's ledger write lost",
            Self::SiblingDenies => "second webhook denied after our claim",
            Self::OperatorReplyLost => "answer to the operator's ledger write lost",
            Self::SecondCreation => "second creation of a stored name",
            Self::DeletedUnbegun => "deleted before it has begun",
            Self::WebhookKilled => "webhook killed after its ledger write",
            Self::WebhookStopped => "webhook stopped 11 s after its ledger write",
            Self::ApiServerKilled => "API server killed at the webhook's answer",
            Self::ApiServerStopped => "API server stopped 6 s at the webhook's answer",
            Self::OperatorStopped => "operator stopped at work",
            Self::OperatorCrashed => "operator lost at work",
            Self::LeaderLeaseDeleted => "Lease of the leader deleted at work",
            Self::StoreRefused => "store refuses connections",
            Self::StoreStalled => "store stands still",
            Self::StoreSlow => "store is slow",
            Self::NetworkSlow => "network to the API servers is slow",
            Self::NetworkLossy => "network to the API servers loses messages",
            Self::CertificateReplaced => "certificate of the webhook replaced",
            Self::RolledOut => "programs rolled out",
        }
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.describe())
    }
}

/// The fault for which a running creation is due.
#[derive(Clone, Copy, Debug)]
struct Due {
    point: Point,
    server: usize,
    history: u64,
}

/// All faults of a run. The places where they happen ask whether one is due.
pub(crate) struct Faults {
    reached: Mutex<BTreeMap<Point, u64>>,
    /// By attempt.
    due: Mutex<HashMap<u64, Due>>,
    /// By attempt: clients that are to disconnect.
    leaving: Mutex<HashMap<u64, oneshot::Sender<()>>>,
    /// By uid: objects whose fault is at a write of the ledger.
    at_ledger: Mutex<HashMap<String, (Point, u64)>>,
    /// By history: the fault of a process that it is to trigger.
    of_history: Mutex<HashMap<u64, Point>>,
    /// Planned process faults whose history did not reach the point.
    owed: Mutex<VecDeque<Point>>,
    /// One process at a time.
    busy: AtomicBool,
    link: Mutex<Link>,
    /// Number of requests that came to a lossy network.
    passing: AtomicU64,
    pub servers: Fleet,
    pub webhooks: Fleet,
    /// Real controllers; empty where the kit plays the operator.
    pub controllers: Fleet,
}

impl Faults {
    pub(crate) fn new(servers: Fleet, webhooks: Fleet, controllers: Fleet) -> Self {
        Self {
            reached: Mutex::default(),
            due: Mutex::default(),
            leaving: Mutex::default(),
            at_ledger: Mutex::default(),
            of_history: Mutex::default(),
            owed: Mutex::default(),
            busy: AtomicBool::new(false),
            link: Mutex::default(),
            passing: AtomicU64::new(0),
            servers,
            webhooks,
            controllers,
        }
    }

    pub(crate) fn reached(&self) -> BTreeMap<Point, u64> {
        self.reached.lock().clone()
    }

    pub(crate) fn count(&self, point: Point) {
        *self.reached.lock().entry(point).or_default() += 1;
    }

    /// Registers an attempt of a history, through this API server, for its own fault or else that
    /// of its history. Returns the fault.
    pub(crate) fn arm(
        &self,
        attempt: u64,
        history: u64,
        own: Option<Point>,
        server: usize,
    ) -> Option<Point> {
        let point = own.or_else(|| self.of_history.lock().get(&history).copied())?;
        self.due.lock().insert(
            attempt,
            Due {
                point,
                server,
                history,
            },
        );
        Some(point)
    }

    /// Completes when the client of an attempt is to disconnect.
    pub(crate) fn leave(&self, attempt: u64) -> oneshot::Receiver<()> {
        let (tell, told) = oneshot::channel();
        self.leaving.lock().insert(attempt, tell);
        told
    }

    /// Ends an attempt. Faults of its operator may still happen.
    pub(crate) fn disarm(&self, attempt: u64) {
        self.due.lock().remove(&attempt);
        self.leaving.lock().remove(&attempt);
        self.at_ledger
            .lock()
            .retain(|_, (point, of)| *of != attempt || *point == Point::OperatorReplyLost);
    }

    /// Registers a history that is to trigger the fault of a process.
    pub(crate) fn begin_history(&self, history: u64, point: Point) {
        self.of_history.lock().insert(history, point);
    }

    /// Ends a history. A fault that it did not trigger is left to another one.
    pub(crate) fn end_history(&self, history: u64) {
        if let Some(point) = self.of_history.lock().remove(&history) {
            self.owed.lock().push_back(point);
        }
    }

    /// A fault that was planned and has not happened yet.
    pub(crate) fn take_owed(&self) -> Option<Point> {
        self.owed.lock().pop_front()
    }

    pub(crate) fn set_link(&self, link: Link) {
        *self.link.lock() = link;
    }

    /// Delays a request of our programs to the API servers as the network does, and says what is
    /// lost of it.
    pub(crate) async fn passage(&self) -> Passage {
        let link = *self.link.lock();
        match link {
            Link::Good => Passage::Whole,
            Link::Slow(time) => {
                tokio::time::sleep(time).await;
                Passage::Whole
            }
            Link::Lossy => match self.passing.fetch_add(1, Ordering::Relaxed) % 4 {
                0 => Passage::RequestLost,
                2 => Passage::AnswerLost,
                _ => Passage::Whole,
            },
        }
    }

    /// Whether a process is stopped or down.
    pub(crate) fn busy(&self) -> bool {
        self.busy.load(Ordering::SeqCst)
    }

    /// A review of this attempt and uid was received: faults at a write of the ledger are found by
    /// the uid from now on.
    pub(crate) fn reviewed(&self, attempt: u64, uid: &str) {
        use Point::{LedgerReplyLost, OperatorReplyLost, WebhookKilled, WebhookStopped};
        let due = self.due.lock().get(&attempt).copied();
        if let Some(Due {
            point: point @ (LedgerReplyLost | OperatorReplyLost | WebhookKilled | WebhookStopped),
            ..
        }) = due
        {
            self.at_ledger
                .lock()
                .insert(uid.to_owned(), (point, attempt));
        }
    }

    /// The fault that is due now that our webhook has admitted this attempt.
    pub(crate) fn admitted(self: &Arc<Self>, attempt: u64) -> Option<Point> {
        let due = self.due.lock().get(&attempt).copied()?;
        match due.point {
            Point::WebhookReplyCut | Point::ClientGone | Point::SiblingDenies => {
                if let Some(tell) = self.leaving.lock().remove(&attempt) {
                    let _ = tell.send(());
                }
                self.disarm(attempt);
                self.count(due.point);
            }
            Point::ApiServerKilled | Point::ApiServerStopped => {
                if !self.begin(due.point, due.history) {
                    return None;
                }
                self.disarm(attempt);
                let stopped =
                    (due.point == Point::ApiServerStopped).then_some(Duration::from_secs(6));
                self.hit(|faults| &faults.servers, due.server, stopped);
            }
            _ => return None,
        }
        Some(due.point)
    }

    /// The fault that is due now that the webhook replica with this number has written this ledger
    /// text.
    pub(crate) fn ledger_written(self: &Arc<Self>, replica: usize, text: &str) -> Option<Point> {
        let (point, attempt) =
            self.take_at_ledger(text, |point| point != Point::OperatorReplyLost)?;
        let history = self
            .due
            .lock()
            .get(&attempt)
            .map(|due| due.history)
            .unwrap_or_default();
        match point {
            Point::WebhookKilled | Point::WebhookStopped => {
                if !self.begin(point, history) {
                    return None;
                }
                let stopped = (point == Point::WebhookStopped).then_some(Duration::from_secs(11));
                self.hit(|faults| &faults.webhooks, replica, stopped);
            }
            _ => self.count(point),
        }
        Some(point)
    }

    /// Stops a process for this time, or kills and restarts it; the fault ends then.
    fn hit(self: &Arc<Self>, fleet: fn(&Self) -> &Fleet, index: usize, stopped: Option<Duration>) {
        match stopped {
            Some(_) => fleet(self).stop(index),
            None => fleet(self).kill(index),
        }
        let faults = self.clone();
        tokio::spawn(async move {
            match stopped {
                Some(time) => fleet(&faults).take_out_and_continue(index, time).await,
                None => fleet(&faults).restart(index).await,
            }
            faults.end();
        });
    }

    /// Whether the answer to the operator's write of this ledger is to be lost.
    pub(crate) fn operator_wrote(&self, text: &str) -> bool {
        let point = self.take_at_ledger(text, |point| point == Point::OperatorReplyLost);
        point.inspect(|(point, _)| self.count(*point)).is_some()
    }

    /// Whether the operator is to be stopped or crashed, now that it works on an object of this
    /// history.
    pub(crate) fn at_work(&self, history: u64) -> Option<Point> {
        let point = *self.of_history.lock().get(&history)?;
        let ours = matches!(
            point,
            Point::OperatorStopped | Point::OperatorCrashed | Point::LeaderLeaseDeleted
        );
        (ours && self.begin(point, history)).then_some(point)
    }

    /// The Lease of a real controller was deleted: that controller ends, the supervisor restarts
    /// it, and the next leader begins.
    pub(crate) fn lease_deleted(self: &Arc<Self>) {
        let faults = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(PAST_ITS_LEASE).await;
            faults.end();
        });
    }

    /// Like `hit`, for a real controller: it is killed, or stopped for longer than its lease.
    pub(crate) fn hit_controller(self: &Arc<Self>, point: Point, index: usize) {
        let stopped = (point == Point::OperatorStopped).then_some(PAST_ITS_LEASE);
        self.hit(|faults| &faults.controllers, index, stopped);
    }

    /// Begins the fault of a process, unless another one is under way.
    fn begin(&self, point: Point, history: u64) -> bool {
        let free = !self.busy.swap(true, Ordering::SeqCst);
        if free {
            self.count(point);
            self.of_history.lock().remove(&history);
        }
        free
    }

    pub(crate) fn end(&self) {
        self.busy.store(false, Ordering::SeqCst);
    }

    fn take_at_ledger(&self, text: &str, wanted: impl Fn(Point) -> bool) -> Option<(Point, u64)> {
        let mut at_ledger = self.at_ledger.lock();
        let stands = |(uid, (point, _)): &(&String, &(Point, u64))| {
            wanted(*point) && text.contains(uid.as_str())
        };
        let uid = at_ledger.iter().find(stands)?.0.clone();
        at_ledger.remove(&uid)
    }
}
