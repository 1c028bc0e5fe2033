//! The named points at which something goes wrong, who is due to be hit, and how often each was reached.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::oneshot;

use super::{fleet::Fleet, locked};

/// Longer than a leader's lease.
const PAST_ITS_LEASE: Duration = Duration::from_secs(20);

/// A point between two steps of the system, and what happens there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Point {
    /// The webhook has written its claim and answers; the API server never gets the answer.
    WebhookReplyCut,
    /// The API server has stored the object and answers; the client never gets the answer.
    ClientReplyCut,
    /// The client goes away when the webhook has just answered.
    ClientGone,
    /// The webhook's write of the ledger is done; the webhook never gets the answer.
    LedgerReplyLost,
    /// Another webhook denies after ours has claimed.
    SiblingDenies,
    /// The operator's write of the ledger is done; the operator never gets the answer.
    OperatorReplyLost,
    /// What is stored is created once more, by a client that has not seen it.
    SecondCreation,
    /// What is stored is deleted before its work begins; where real controllers work, while it is queued.
    DeletedUnbegun,
    /// A webhook replica is killed between its write of the ledger and its answer, and started again.
    WebhookKilled,
    /// A webhook replica stands still there, for longer than every time-out, and goes on.
    WebhookStopped,
    /// An API server is killed when the webhook has just answered it, and started again.
    ApiServerKilled,
    /// An API server stands still when the webhook has just answered it, and goes on.
    ApiServerStopped,
    /// The operator stands still in the middle of its work, and goes on.
    OperatorStopped,
    /// The operator is lost in the middle of its work; another one begins.
    OperatorCrashed,
    /// Somebody deletes the Lease of the leader that works. Only with real controllers.
    LeaderLeaseDeleted,
    /// The store refuses connections, and those that there are break.
    StoreRefused,
    /// The store takes what is sent, and answers nothing.
    StoreStalled,
    StoreSlow,
    /// What our programs ask the API servers takes long.
    NetworkSlow,
    /// Of what our programs ask the API servers, every second request or answer is lost.
    NetworkLossy,
    CertificateReplaced,
    /// Webhooks, and then controllers, are replaced one after another, by another version and back if there is one.
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

/// What becomes of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passage {
    Whole,
    RequestLost,
    AnswerLost,
}

impl Point {
    /// What hits one request, and nobody else.
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
    /// What hits a process, one after another.
    const OF_A_PROCESS: [Self; 7] = [
        Self::ApiServerStopped,
        Self::WebhookKilled,
        Self::OperatorCrashed,
        Self::WebhookStopped,
        Self::ApiServerKilled,
        Self::OperatorStopped,
        Self::LeaderLeaseDeleted,
    ];

    /// The same, without what only real controllers have.
    pub(crate) fn of_a_process(controllers: bool) -> &'static [Self] {
        let [played @ .., _] = &Self::OF_A_PROCESS;
        if controllers { &Self::OF_A_PROCESS } else { played }
    }

    /// What is done around the programs in a soak.
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

/// What a creation that is under way is due for.
#[derive(Clone, Copy, Debug)]
struct Due {
    point: Point,
    server: usize,
    history: u64,
}

/// All faults of a run. The places where they happen ask whether somebody is due.
pub(crate) struct Faults {
    reached: Mutex<BTreeMap<Point, u64>>,
    /// By attempt.
    due: Mutex<HashMap<u64, Due>>,
    /// By attempt: clients that are to go away.
    leaving: Mutex<HashMap<u64, oneshot::Sender<()>>>,
    /// By uid, of those whose point is at a write of the ledger.
    at_ledger: Mutex<HashMap<String, (Point, u64)>>,
    /// By history: the fault of a process that it is to bring about.
    of_history: Mutex<HashMap<u64, Point>>,
    /// Process faults that were planned and whose history did not get to the point.
    owed: Mutex<VecDeque<Point>>,
    /// One process at a time.
    busy: AtomicBool,
    link: Mutex<Link>,
    /// Requests that came to a lossy network.
    passing: AtomicU64,
    pub servers: Fleet,
    pub webhooks: Fleet,
    /// Real ones; empty where the kit plays the operator.
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
        locked(&self.reached).clone()
    }

    pub(crate) fn count(&self, point: Point) {
        *locked(&self.reached).entry(point).or_default() += 1;
    }

    /// An attempt of a history, through this API server, is due for a fault of its own or else for that of its history.
    /// What it is due for.
    pub(crate) fn arm(&self, attempt: u64, history: u64, own: Option<Point>, server: usize) -> Option<Point> {
        let point = own.or_else(|| locked(&self.of_history).get(&history).copied())?;
        locked(&self.due).insert(attempt, Due { point, server, history });
        Some(point)
    }

    /// Hears when the client of an attempt is to go away.
    pub(crate) fn leave(&self, attempt: u64) -> oneshot::Receiver<()> {
        let (tell, told) = oneshot::channel();
        locked(&self.leaving).insert(attempt, tell);
        told
    }

    /// The attempt has come to its end. What happens to its operator may still happen.
    pub(crate) fn disarm(&self, attempt: u64) {
        locked(&self.due).remove(&attempt);
        locked(&self.leaving).remove(&attempt);
        locked(&self.at_ledger).retain(|_, (point, of)| *of != attempt || *point == Point::OperatorReplyLost);
    }

    /// A history is to bring about the fault of a process.
    pub(crate) fn begin_history(&self, history: u64, point: Point) {
        locked(&self.of_history).insert(history, point);
    }

    /// A history has ended. A fault that it did not bring about goes to another one.
    pub(crate) fn end_history(&self, history: u64) {
        if let Some(point) = locked(&self.of_history).remove(&history) {
            locked(&self.owed).push_back(point);
        }
    }

    /// A fault that is still owed.
    pub(crate) fn take_owed(&self) -> Option<Point> {
        locked(&self.owed).pop_front()
    }

    pub(crate) fn set_link(&self, link: Link) {
        *locked(&self.link) = link;
    }

    /// What becomes of a request of our programs to the API servers, after what it takes on its way.
    pub(crate) async fn passage(&self) -> Passage {
        let link = *locked(&self.link);
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

    /// Whether some process stands still or is down.
    pub(crate) fn busy(&self) -> bool {
        self.busy.load(Ordering::SeqCst)
    }

    /// A review of this attempt and uid has come: what happens at a write of the ledger is known by the uid from now on.
    pub(crate) fn reviewed(&self, attempt: u64, uid: &str) {
        use Point::{LedgerReplyLost, OperatorReplyLost, WebhookKilled, WebhookStopped};
        let due = locked(&self.due).get(&attempt).copied();
        if let Some(Due {
            point: point @ (LedgerReplyLost | OperatorReplyLost | WebhookKilled | WebhookStopped),
            ..
        }) = due
        {
            locked(&self.at_ledger).insert(uid.to_owned(), (point, attempt));
        }
    }

    /// What happens now that our webhook has admitted this attempt.
    pub(crate) fn admitted(self: &Arc<Self>, attempt: u64) -> Option<Point> {
        let due = locked(&self.due).get(&attempt).copied()?;
        match due.point {
            Point::WebhookReplyCut | Point::ClientGone | Point::SiblingDenies => {
                if let Some(tell) = locked(&self.leaving).remove(&attempt) {
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
                let stopped = (due.point == Point::ApiServerStopped).then_some(Duration::from_secs(6));
                self.hit(|faults| &faults.servers, due.server, stopped);
            }
            _ => return None,
        }
        Some(due.point)
    }

    /// What happens now that this text is the ledger, written by the webhook replica of this number.
    pub(crate) fn ledger_written(self: &Arc<Self>, replica: usize, text: &str) -> Option<Point> {
        let (point, attempt) = self.take_at_ledger(text, |point| point != Point::OperatorReplyLost)?;
        let history = locked(&self.due).get(&attempt).map(|due| due.history).unwrap_or_default();
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

    /// Stops a process for so long, or kills it and starts it again; the fault is over then.
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

    /// Whether the operator's write of this ledger shall be answered by nothing.
    pub(crate) fn operator_wrote(&self, text: &str) -> bool {
        let point = self.take_at_ledger(text, |point| point == Point::OperatorReplyLost);
        point.inspect(|(point, _)| self.count(*point)).is_some()
    }

    /// Whether the operator shall stop or be lost, now that it works on an object of this history.
    pub(crate) fn at_work(&self, history: u64) -> Option<Point> {
        let point = *locked(&self.of_history).get(&history)?;
        let ours =
            matches!(point, Point::OperatorStopped | Point::OperatorCrashed | Point::LeaderLeaseDeleted);
        (ours && self.begin(point, history)).then_some(point)
    }

    /// The Lease of a real controller was deleted: it ends, as is looked after elsewhere, and the next leader begins.
    pub(crate) fn lease_deleted(self: &Arc<Self>) {
        let faults = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(PAST_ITS_LEASE).await;
            faults.end();
        });
    }

    /// The same, done to a real controller: it is killed, or stands still for longer than its lease.
    pub(crate) fn hit_controller(self: &Arc<Self>, point: Point, index: usize) {
        let stopped = (point == Point::OperatorStopped).then_some(PAST_ITS_LEASE);
        self.hit(|faults| &faults.controllers, index, stopped);
    }

    /// The fault of a process begins, if none is under way.
    fn begin(&self, point: Point, history: u64) -> bool {
        let free = !self.busy.swap(true, Ordering::SeqCst);
        if free {
            self.count(point);
            locked(&self.of_history).remove(&history);
        }
        free
    }

    pub(crate) fn end(&self) {
        self.busy.store(false, Ordering::SeqCst);
    }

    fn take_at_ledger(&self, text: &str, wanted: impl Fn(Point) -> bool) -> Option<(Point, u64)> {
        let mut at_ledger = locked(&self.at_ledger);
        let stands =
            |(uid, (point, _)): &(&String, &(Point, u64))| wanted(*point) && text.contains(uid.as_str());
        let uid = at_ledger.iter().find(stands)?.0.clone();
        at_ledger.remove(&uid)
    }
}
