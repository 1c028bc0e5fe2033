//! Many clients at once: all on the single scope of Velero, or each on separate scopes, as with
//! clusters of a database operator.

use std::time::{Duration, Instant};

use anyhow::ensure;
use backup_tests::{
    binaries::root,
    proxy::Proxy,
    wait::{eventually, when},
};
use kube::Client;

use super::{
    load::{Burst, Creation, burst},
    plane::{ALLOWED, GUARDED, Plane, UPDATED},
};
use crate::bench::{
    stats::{Sample, median, paired_ratio},
    table::{Row, Table, Target},
};

const PROFILE: &str = "percona-ps";
/// Number of scopes per client, used in turn, so that no two clients share one.
const SCOPES_EACH: usize = 2;
const ROUNDS: usize = 5;
/// Pause after a clean-up, so that its remaining work is not measured.
const SETTLE_PAUSE: Duration = Duration::from_millis(200);

/// One replica, compared with the allowing webhook.
pub async fn one_replica(plane: &mut Plane<'_>, table: &mut Table) -> anyhow::Result<()> {
    plane.start_guard(1, &[]).await?;
    plane
        .register_control(ALLOWED, plane.allowing.address(), "/validate")
        .await?;
    let outcome = ONE_SCOPE.measure(plane).await?;
    let guard = &outcome.guard;
    let allowing = &outcome.control;
    outcome.tell(table, "16 clients, one scope, 1 replica", "allowing", None);
    let writes = outcome.writes;
    table.row(&Row {
        what: "… writes of the ledger for each creation".to_owned(),
        found: format!("{writes:.2}"),
        beside: String::new(),
        target: Target::at_most(writes, 0.3, " at most"),
    });
    let with = guard.took.p99();
    let without = allowing.took.p99();
    table.row(&Row {
        what: "… 99th percentile".to_owned(),
        found: format!("{with:.1} ms, {:.2}x", with / without),
        beside: format!("allowing {without:.1} ms"),
        target: Target::at_most(with / without, 2.0, "x at most"),
    });
    table.row(&Row {
        what: "… creations refused".to_owned(),
        found: guard.refusals(),
        beside: format!("allowing {}", allowing.refused.len()),
        target: Target::zero(guard.refused.len()),
    });
    Ok(())
}

/// Three replicas behind one address; the allowing webhook also has a proxy in front of it.
pub async fn three_replicas(plane: &mut Plane<'_>, table: &mut Table) -> anyhow::Result<()> {
    plane.start_guard(3, &[]).await?;
    let front = Proxy::start(vec![plane.allowing.address()]).await?;
    plane
        .register_control(ALLOWED, front.address(), "/validate")
        .await?;
    let outcome = ONE_SCOPE.measure(plane).await?;
    outcome.tell(
        table,
        "16 clients, one scope, 3 replicas",
        "allowing",
        Some(0.6),
    );
    Ok(())
}

/// Two replicas, compared with a webhook that updates the Lease of the scope once per creation.
pub async fn many_scopes(plane: &mut Plane<'_>, table: &mut Table) -> anyhow::Result<()> {
    plane.install_profile(PROFILE).await?;
    plane
        .start_guard(2, &[&format!("--guard={PROFILE}")])
        .await?;
    let folder = root().join("deploy/profiles").join(PROFILE);
    let guard = plane.guard()?.address();
    plane.register(GUARDED, &folder, guard, None).await?;
    let front = Proxy::start(vec![plane.updating.address()]).await?;
    plane
        .register(UPDATED, &folder, front.address(), Some("/own"))
        .await?;
    wait_until_asked(plane).await?;
    let outcome = MANY_SCOPES.measure(plane).await?;
    let control = "allowing with an update for each";
    outcome.tell(
        table,
        "32 clients, 64 scopes, 2 replicas",
        control,
        Some(0.85),
    );
    Ok(())
}

/// Waits until the API server calls both for the kind of the profile.
async fn wait_until_asked(plane: &Plane<'_>) -> anyhow::Result<()> {
    let deadline = Duration::from_secs(30);
    let client = plane.client();
    let calls = plane.updating.calls();
    eventually("the control is asked", deadline, async || {
        let sent = Creation::cluster_backup(UPDATED, "c0").send(client).await;
        anyhow::Ok(when(plane.updating.calls() > calls, format!("{sent:?}")))
    })
    .await?;
    let guard = plane.guard()?;
    let decided = guard.metric("_seconds_count").await?;
    eventually("the guard is asked", deadline, async || {
        let sent = Creation::cluster_backup(GUARDED, "c0").send(client).await;
        anyhow::Ok(when(
            guard.metric("_seconds_count").await? > decided,
            format!("{sent:?}"),
        ))
    })
    .await
}

/// The work of clients in each round, for the guard and for a control.
struct Load {
    control: &'static str,
    clients: usize,
    /// Creations of a round. These backups never end, so a round stops before the ledger contains
    /// more claims than that of a busy cluster.
    round: usize,
    creation: fn(&'static str, usize, usize) -> Creation,
}

const ONE_SCOPE: Load = Load {
    control: ALLOWED,
    clients: 16,
    round: 160,
    creation: |namespace, _, _| Creation::backup(namespace),
};
const MANY_SCOPES: Load = Load {
    control: UPDATED,
    clients: 32,
    round: 320,
    creation: |namespace, client, made| {
        Creation::cluster_backup(
            namespace,
            &format!("c{}", client * SCOPES_EACH + made % SCOPES_EACH),
        )
    },
};

struct Outcome {
    guard: Measurements,
    control: Measurements,
    /// Writes of the ledger per creation.
    writes: f64,
}

impl Outcome {
    /// Adds a row with the throughput of both. The guard needs at least the share `least` of the
    /// control's, without refusals.
    fn tell(&self, table: &mut Table, what: &str, control: &str, least: Option<f64>) {
        let guard = &self.guard;
        let share = guard.share_of(&self.control);
        table.row(&Row {
            what: format!("{what}: throughput"),
            found: format!(
                "{:.0}/s, {:.0}%, {:.2} writes each",
                guard.rate(),
                share * 100.0,
                self.writes
            ),
            beside: format!("{control} {:.0}/s", self.control.rate()),
            target: least.map_or_else(Target::none, |least| {
                let is_met = share >= least && guard.refused.is_empty();
                Target::new(format!("{:.0}% at least", least * 100.0), is_met)
            }),
        });
    }
}

impl Load {
    /// Runs rounds of guard and control in turn.
    async fn measure(&self, plane: &Plane<'_>) -> anyhow::Result<Outcome> {
        let mut guarded = Measurements::default();
        let mut controlled = Measurements::default();
        let mut writes = 0.0;
        let start = Instant::now();
        let mut number = 0;
        while start.elapsed() < plane.budget * 2 || number < ROUNDS {
            plane.sweep().await?;
            for namespace in [GUARDED, self.control] {
                // Before the measurement, connections are opened, and a ledger or Lease is created
                // for each scope.
                self.burst(&plane.clients, namespace, self.clients * SCOPES_EACH)
                    .await?;
            }
            tokio::time::sleep(SETTLE_PAUSE).await;
            let mut guard = Burst::default();
            let mut control = Burst::default();
            let before = ledger_writes(plane).await?;
            for is_control in quarters(number) {
                let namespace = if is_control { self.control } else { GUARDED };
                let quarter = self
                    .burst(&plane.clients, namespace, self.round / 2)
                    .await?;
                if is_control { &mut control } else { &mut guard }.then(quarter);
            }
            writes += ledger_writes(plane).await? - before;
            guarded.add(guard);
            controlled.add(control);
            number += 1;
        }
        plane.sweep().await?;
        ensure!(
            guarded.took.len() > 0,
            "every creation was refused: {:?}",
            guarded.refused.first()
        );
        #[allow(clippy::cast_precision_loss)]
        let writes = writes / guarded.took.len() as f64;
        Ok(Outcome {
            guard: guarded,
            control: controlled,
            writes,
        })
    }

    async fn burst(
        &self,
        clients: &[Client],
        namespace: &'static str,
        count: usize,
    ) -> anyhow::Result<Burst> {
        let creation = self.creation;
        burst(&clients[..self.clients], count, move |client, made| {
            creation(namespace, client, made)
        })
        .await
    }
}

async fn ledger_writes(plane: &Plane<'_>) -> anyhow::Result<f64> {
    plane.guard()?.metric("ledger_writes_total").await
}

/// Measurements of one webhook over all rounds.
#[derive(Default)]
struct Measurements {
    rates: Vec<f64>,
    took: Sample,
    /// Messages of refusals.
    refused: Vec<String>,
}

impl Measurements {
    fn add(&mut self, burst: Burst) {
        self.rates.push(burst.rate());
        self.took.extend(burst.took);
        self.refused.extend(burst.refused);
    }

    /// The number of refusals, and the first message.
    fn refusals(&self) -> String {
        let why = self
            .refused
            .first()
            .map_or_else(String::new, |why| format!(": {}", why.replace('|', "/")));
        format!("{}{why}", self.refused.len())
    }

    /// Creations per second in the median round.
    fn rate(&self) -> f64 {
        median(self.rates.iter().copied())
    }

    /// The median ratio between this throughput and another's, over pairs of rounds.
    fn share_of(&self, other: &Self) -> f64 {
        paired_ratio(&self.rates, &other.rates)
    }
}

/// The order of a round's quarters, by the number of the round (`false`: guard, `true`: control):
/// each has one early and one late quarter, or both in the middle. A drift of the machine affects
/// both equally.
fn quarters(round: usize) -> [bool; 4] {
    if round.is_multiple_of(2) {
        [false, true, true, false]
    } else {
        [true, false, false, true]
    }
}
