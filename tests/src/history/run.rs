//! Plays histories side by side, cleans up after each, and judges it.

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{StreamExt as _, future::join_all, stream};
use parking_lot::Mutex;
use tokio::{
    sync::{Mutex as Turn, Semaphore},
    time::sleep,
};

use super::{
    check::Rules,
    disturbances::disturb,
    faults::Point,
    plan::{self, Plan, Setting},
    record::Record,
    report::Report,
    stage::{GRACE, Stage},
    whose::{CLUSTERS, Whose},
};
use crate::{
    World,
    binaries::{Programs, target},
    wait,
};

/// Maximum number of histories whose clients are active.
const MAX_CONCURRENT_HISTORIES: usize = 12;
/// Maximum number of histories that are not over yet: their claims are waited for.
const OPEN: usize = 120;
/// The same with real controllers, whose slots are few: more histories would only wait for a slot.
const OPEN_WITH_CONTROLLERS: usize = 40;
/// The same in a soak, which ends when they are over.
const OPEN_IN_A_SOAK: usize = 30;
/// One history in this many has the fault of a process: in a short run, in a long one, and in a
/// soak.
const PROCESS_FAULT_EVERY: [u64; 3] = [32, 60, 12];
/// Number of histories from which a run is long.
const MIN_LONG_RUN: u64 = 1000;
/// Maximum number of histories that are added to reach missed points.
const EXTRA: u64 = 60;
/// Longest time to the end of an object or a claim: the longest fault, the grace, and time to
/// notice.
const ENDS_WITHIN: Duration = Duration::from_secs(45);
/// The same with real controllers: includes the next leader's election, and its retries while an
/// API server refuses requests after its start.
const LEADS_WITHIN: Duration = Duration::from_secs(90);
/// Extra time for the disturbances of a soak: each ends within 30 s, and the backoff of retries
/// grows.
const DISTURBED: Duration = Duration::from_mins(1);
const HOLD_ENDED_EVERY: Duration = Duration::from_secs(15);
const TOLD_EVERY: Duration = Duration::from_secs(30);

#[derive(Clone, Debug, Default)]
pub struct Options {
    pub count: u64,
    pub seed: u64,
    pub faults: bool,
    /// The webhook that only looks replaces ours, and the operator starts every object that it
    /// sees.
    pub naive: bool,
    /// Real controllers of two installations work, instead of the operator that the kit plays.
    pub controllers: bool,
    /// A soak: histories begin for this long, `count` is ignored, and clients have more operations
    /// and faults.
    pub soak: Option<Duration>,
    /// Programs of another version, which alternate with ours in a soak.
    pub other: Option<Programs>,
    pub progress: bool,
}

/// Plays the histories in a world without webhooks and controllers.
pub async fn run(world: &mut World, options: &Options) -> anyhow::Result<Report> {
    let folder = target().join(if options.soak.is_some() {
        "soak"
    } else {
        "histories"
    });
    std::fs::create_dir_all(&folder)?;
    let stage = Arc::new(Stage::start(world, options).await?);
    let start = Instant::now();
    let run = Run {
        stage: stage.clone(),
        options: options.clone(),
        slots: Semaphore::new(MAX_CONCURRENT_HISTORIES),
        process_fault: Turn::new(()),
        wanted: Mutex::default(),
        clusters: (0..CLUSTERS).map(|_| Turn::default()).collect(),
        doing: Mutex::default(),
        report: Mutex::new(Report {
            seed: options.seed,
            folder: folder.clone(),
            ..Report::default()
        }),
        rules: Rules {
            freed_within: ends_within(options),
            grace: GRACE,
            claims: !options.naive,
            controllers: options.controllers,
        },
    };
    tokio::select! {
        () = run.all() => {}
        () = run.tell(), if options.progress => {}
        Err(error) = disturb(world, &stage.faults, options.seed, options.other.as_ref()), if options.soak.is_some() => {
            run.trouble(&format!("disturbances: {error:#}"));
        }
    }
    // A soak adds no histories for missed points.
    let missed = if options.faults && options.soak.is_none() {
        run.missed()
    } else {
        Vec::new()
    };
    let Run {
        stage: of_the_run,
        report,
        ..
    } = run;
    drop(of_the_run);
    let mut report = report.into_inner();
    report.elapsed = start.elapsed();
    report.missed = missed;
    report.reached = stage.faults.reached();
    for history in stage.timeline.open() {
        report.strays += stage.timeline.close(history).lives.len() as u64;
    }
    let (versions, largest, trouble) = stage.timeline.ledger_seen();
    report.ledger = (versions, largest);
    report.trouble.extend(trouble);
    keep_logs(&stage, &folder)?;
    let stage = Arc::try_unwrap(stage).map_err(|_| anyhow::anyhow!("a history is still at it"))?;
    stage.end(world).await?;
    Ok(report)
}

/// Keeps the logs of the tested programs after the run, to investigate findings.
fn keep_logs(stage: &Stage, folder: &Path) -> anyhow::Result<()> {
    std::fs::write(
        folder.join("webhooks.log"),
        stage.faults.webhooks.logs(usize::MAX),
    )?;
    std::fs::write(
        folder.join("controllers.log"),
        stage.faults.controllers.logs(usize::MAX),
    )?;
    Ok(())
}

fn ends_within(options: &Options) -> Duration {
    let soak = if options.soak.is_some() {
        DISTURBED
    } else {
        Duration::ZERO
    };
    soak + ENDS_WITHIN
        + if options.controllers {
            LEADS_WITHIN
        } else {
            Duration::ZERO
        }
}

struct Run {
    stage: Arc<Stage>,
    options: Options,
    slots: Semaphore,
    process_fault: Turn<()>,
    /// The points that the added histories are to reach.
    wanted: Mutex<HashMap<u64, Point>>,
    /// Locks for histories that are about the same database cluster.
    clusters: Vec<Turn<()>>,
    /// The current step of each history.
    doing: Mutex<BTreeMap<u64, &'static str>>,
    report: Mutex<Report>,
    rules: Rules,
}

impl Run {
    /// Plays all histories, and then those added for missed points.
    async fn all(&self) {
        let Options {
            count,
            faults,
            soak,
            ..
        } = self.options;
        if let Some(time) = soak {
            let end = Instant::now() + time;
            self.play((0..).take_while(|_| Instant::now() < end)).await;
            return;
        }
        self.play(0..count).await;
        let mut extra = count;
        while faults && !self.missed().is_empty() && extra < count + EXTRA {
            let missed = self.missed();
            let end = extra + missed.len() as u64;
            *self.wanted.lock() = (extra..end).zip(missed).collect();
            self.play(extra..end).await;
            extra = end;
        }
    }

    async fn play(&self, numbers: impl Iterator<Item = u64>) {
        let open = match self.options {
            Options { soak: Some(_), .. } => OPEN_IN_A_SOAK,
            Options {
                controllers: true, ..
            } => OPEN_WITH_CONTROLLERS,
            _ => OPEN,
        };
        let histories = stream::iter(numbers).map(|number| self.history(number));
        histories
            .buffer_unordered(open)
            .for_each(async |()| {})
            .await;
    }

    fn missed(&self) -> Vec<Point> {
        let reached = self.stage.faults.reached();
        let all = Point::OF_ONE_REQUEST
            .into_iter()
            .chain(self.process_faults().iter().copied());
        all.filter(|point| !reached.contains_key(point)).collect()
    }

    /// The fault of a process that is planned for a history.
    fn planned(&self, number: u64) -> Option<Point> {
        let Options { count, soak, .. } = self.options;
        let every = PROCESS_FAULT_EVERY[if soak.is_some() {
            2
        } else {
            usize::from(count >= MIN_LONG_RUN)
        }];
        let due = self.options.faults && number % every == every / 4;
        let turn = usize::try_from(number / every).unwrap_or_default();
        let points = self.process_faults();
        due.then(|| points[turn % points.len()])
    }

    fn process_faults(&self) -> &'static [Point] {
        Point::of_a_process(self.options.controllers)
    }

    /// Reports the progress from time to time.
    async fn tell(&self) {
        loop {
            sleep(TOLD_EVERY).await;
            let faults = &self.stage.faults;
            let report = self.report.lock();
            println!(
                "{} histories, {} conflicts, {} violations; open: {:?}; {} at a fault of a process{}",
                report.histories,
                report.conflicts,
                report.violations.len(),
                self.doing.lock().iter().take(20).collect::<Vec<_>>(),
                if faults.busy() { "now" } else { "not" },
                if report.trouble.is_empty() {
                    String::new()
                } else {
                    format!("; {} troubles", report.trouble.len())
                },
            );
        }
    }

    fn doing(&self, number: u64, what: &'static str) {
        self.doing.lock().insert(number, what);
    }

    async fn history(&self, number: u64) {
        let Stage {
            clients,
            timeline,
            faults,
            wishes,
            ..
        } = &*self.stage;
        let planned = self.planned(number);
        let Options {
            seed, controllers, ..
        } = self.options;
        let setting = Setting {
            servers: faults.servers.len(),
            faults: self.options.faults,
            controllers,
            guarded: !self.options.naive,
            soak: self.options.soak.is_some(),
        };
        let mut plan = Plan::new(seed, number, setting, planned);
        let cluster = match plan.whose {
            Whose::Operators { cluster } => Some(self.clusters[cluster].lock().await),
            Whose::Ours | Whose::Installations { .. } => None,
        };
        let wanted = self.wanted.lock().get(&number).copied();
        let of_a_process = wanted.filter(|point| self.process_faults().contains(point));
        if let Some(point) = wanted.filter(|_| of_a_process.is_none()) {
            plan.hit_all(point);
        }
        let point = planned.or(of_a_process).or_else(|| faults.take_owed());
        // One after another, or they would prevent each other.
        let turn = if point.is_some() {
            Some(self.process_fault.lock().await)
        } else {
            None
        };
        {
            // Holders of this lock do not wait for a slot as well, or the lock would be held idle.
            let _slot = if turn.is_none() {
                Some(self.slots.acquire().await)
            } else {
                None
            };
            self.doing(number, "its clients act");
            wishes.work(number, plan.work);
            if let Some(point) = point {
                faults.begin_history(number, point);
            }
            join_all(plan.clients.iter().map(|steps| clients.play(&plan, steps))).await;
        }
        if point.is_some() {
            self.doing(number, "a fault of a process");
            // The operator may not have reached its point yet.
            self.until(Duration::from_secs(3), || {
                faults.busy() || self.all_over(number)
            })
            .await;
            faults.end_history(number);
            self.until(self.rules.freed_within, || !faults.busy()).await;
        }
        drop(turn);
        if self.options.soak.is_some() {
            self.doing(number, "schedules and holds end");
            self.stage.clients.end_schedules(&plan.prefix).await;
            self.stage.clients.end_hold(&plan.prefix).await;
        }
        self.doing(number, "objects end");
        self.clean_up(number).await;
        drop(cluster);
        let mut record = timeline.close(number);
        if controllers {
            record.work_by_phases();
        }
        wishes.forget(number);
        self.judge(number, &record);
    }

    fn all_over(&self, number: u64) -> bool {
        self.stage.timeline.left(number).1 == 0
    }

    /// Ends what is left, waits until the ledger no longer names it, and deletes it.
    async fn clean_up(&self, number: u64) {
        let Stage {
            timeline,
            faults,
            wishes,
            ..
        } = &*self.stage;
        let prefix = plan::prefix(number);
        // Requests that went through a stopped process may still take effect.
        if faults.busy() && timeline.record(number, |record| record.is_unsure()) {
            self.until(self.rules.freed_within, || !faults.busy()).await;
            sleep(Duration::from_secs(1)).await;
        }
        wishes.work(number, Duration::ZERO);
        if !self
            .until(self.rules.freed_within, || self.all_over(number))
            .await
        {
            let (unended, record) =
                timeline.record(number, |record| (record.unended(), record.clone()));
            self.trouble(&format!(
                "history {number}: some objects never ended: {unended}"
            ));
            write_for_readers(
                &self.report.lock().folder,
                number,
                &format!("{unended}\n{record:#?}"),
            );
        }
        // As a user does who reads the message of such a backup.
        if timeline.record(number, |record| {
            record
                .lives
                .values()
                .any(|life| life.stuck && life.over().is_none())
        }) {
            self.sweep(number, &prefix).await;
        }
        // A claim whose client received no answer may be written while the rest is being deleted.
        loop {
            self.doing(number, "claims are freed");
            // The checker decides whether it was in time; here the text shows whether anything is
            // left at all.
            let freed = self.is_freed(&prefix).await;
            if !freed {
                self.trouble(&format!(
                    "history {number}: the ledger still names it: {}",
                    timeline.ledger_entries(&prefix)
                ));
            }
            self.sweep(number, &prefix).await;
            if !timeline.in_ledger(&prefix) {
                return;
            }
            if !freed {
                // Deleted objects keep their claims for a little longer.
                self.until(self.rules.freed_within, || !timeline.in_ledger(&prefix))
                    .await;
                return;
            }
        }
    }

    /// Waits until the ledger no longer names a history.
    async fn is_freed(&self, prefix: &str) -> bool {
        let deadline = Instant::now() + self.rules.freed_within;
        while Instant::now() < deadline {
            // Only its client ends a hold, and the write of a hold may take effect after that: a
            // stopped API server may have received it.
            if self.options.soak.is_some() {
                self.stage.clients.end_hold(prefix).await;
            }
            let freed = || !self.stage.timeline.in_ledger(prefix);
            if self.until(HOLD_ENDED_EVERY, freed).await {
                return true;
            }
        }
        false
    }

    async fn sweep(&self, number: u64, prefix: &str) {
        let timeline = &self.stage.timeline;
        let now = timeline.now();
        timeline.record(number, |record| *record.swept.get_or_insert(now));
        if let Err(error) = self.stage.sweep(prefix).await {
            self.trouble(&format!("history {number} is not swept away: {error:#}"));
        }
    }

    fn judge(&self, number: u64, record: &Record) {
        let mut report = self.report.lock();
        let before = report.violations.len();
        report.add(number, record, self.rules);
        if report.violations.len() > before {
            write_for_readers(
                &report.folder,
                number,
                &format!("{:#?}\n{record:#?}", &report.violations[before..]),
            );
        }
        for (_, violation) in &report.violations[before..] {
            if self.options.progress {
                println!("history {number}: {violation}");
            }
        }
        self.doing.lock().remove(&number);
    }

    fn trouble(&self, what: &str) {
        self.report.lock().trouble.push(what.to_owned());
    }

    /// Waits until a condition holds. False: timeout.
    async fn until(&self, time: Duration, so: impl Fn() -> bool) -> bool {
        wait::until("it is so", time, async || anyhow::Ok(so()))
            .await
            .is_ok()
    }
}

/// Writes a file for users who investigate a history.
fn write_for_readers(folder: &Path, number: u64, text: &str) {
    let _ = std::fs::write(folder.join(format!("history-{number}.txt")), text);
}
