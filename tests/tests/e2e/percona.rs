//! The race between backups and restores of Percona's operator for MySQL, step by step, on
//! definitions of the same shape: without us, and with us.
//!
//! The operator is simulated by its steps: a backup checks whether a restore holds the Lease of the
//! cluster, and then starts; a restore takes the Lease, checks whether a backup has started, and
//! then starts.

use backup_tests::{
    percona::{self, BACKUP, RESTORE},
    sibling::{ANNOTATION, Sibling},
};
use k8s_openapi::api::coordination::v1::Lease;

use crate::{guarded_operators::PS, prelude::*};

crate::tests! {
    in_no_order_do_perconas_backup_and_restore_run_together,
    a_restore_that_comes_back_from_error_claims_again,
    a_revival_on_its_way_keeps_backups_out,
    only_the_operator_ends_its_work,
    perconas_own_lease_is_honoured_while_its_holder_runs,
    perconas_claims_are_shown_by_locks,
}

/// The side that makes the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Backup,
    Restore,
}

async fn in_no_order_do_perconas_backup_and_restore_run_together(world: &mut World) -> TestResult {
    percona::ensure(world).await?;
    let (mut alone, mut refused) = (0, 0);
    for (number, order) in orders().into_iter().enumerate() {
        let (both, _) = play(world, &format!("alone-{number}"), &order).await?;
        alone += usize::from(both);
    }
    ensure!(
        alone > 0,
        "the race as it was reported was not seen without us: this proves nothing"
    );
    guard(world).await?;
    for (number, order) in orders().into_iter().enumerate() {
        let (both, turned_away) = play(world, &format!("guarded-{number}"), &order).await?;
        ensure!(!both, "both worked in {order:?}");
        ensure!(
            turned_away,
            "nobody was refused in {order:?}, although both were there"
        );
        refused += 1;
    }
    println!(
        "    without us both worked in {alone} of 20 orders, with us in none; {refused} creations were refused"
    );
    Ok(())
}

async fn a_restore_that_comes_back_from_error_claims_again(world: &mut World) -> TestResult {
    guard(world).await?;
    PS.create(world, RESTORE, "erring", "revived").await?;
    PS.set_state(world, RESTORE, "erring", "Error").await?;
    PS.create(world, BACKUP, "meanwhile", "revived")
        .await
        .context("the restore has ended, for now")?;
    let error = refusal(PS.set_state(world, RESTORE, "erring", "New").await)?;
    ensure!(error.message.contains("meanwhile"), "{error:?}");
    PS.set_state(world, BACKUP, "meanwhile", "Succeeded")
        .await?;
    PS.set_state(world, RESTORE, "erring", "New")
        .await
        .context("nothing is in its way")?;
    let error = refusal(PS.create(world, BACKUP, "later", "revived").await)?;
    ensure!(error.message.contains("erring"), "{error:?}");
    PS.set_state(world, RESTORE, "erring", "Failed").await?;
    let error = refusal(PS.set_state(world, RESTORE, "erring", "New").await)?;
    ensure!(error.message.contains("has ended"), "{error:?}");
    Ok(())
}

/// A webhook beside ours is slow: the revival is admitted, while the stored object still has the
/// restore's final state.
async fn a_revival_on_its_way_keeps_backups_out(world: &mut World) -> TestResult {
    guard(world).await?;
    PS.create(world, RESTORE, "reviving", "reviving").await?;
    PS.set_state(world, RESTORE, "reviving", "Error").await?;
    let slow = json!({ "metadata": { "annotations": { ANNOTATION: "delay-3000" } } });
    PS.api(world, RESTORE).merge_patch("reviving", slow).await?;
    let sibling = Sibling::start(&world.client, world.folder()).await?;
    let before = sibling.calls();
    let meanwhile = async {
        eventually("the revival is on its way", TIMEOUT, async || {
            anyhow::Ok(when(sibling.calls() > before, "it was not asked"))
        })
        .await?;
        tokio::time::sleep(Duration::from_millis(500)).await;
        let error = refusal(PS.create(world, BACKUP, "reviving", "reviving").await)?;
        let stored = PS.api(world, RESTORE).get("reviving").await?;
        ensure!(
            stored.data["status"]["state"] == "Error",
            "it was written before the backup was refused"
        );
        ensure!(
            error
                .message
                .contains("Restore db/reviving was requested at"),
            "{error:?}"
        );
        Ok(())
    };
    let (revived, refused) =
        tokio::join!(PS.set_state(world, RESTORE, "reviving", "New"), meanwhile);
    revived.context("nothing was in its way")?;
    refused?;
    sibling.remove().await?;
    PS.set_state(world, RESTORE, "reviving", "Failed").await?;
    PS.create(world, BACKUP, "reviving", "reviving")
        .await
        .context("what it was revived for has ended")
}

async fn perconas_own_lease_is_honoured_while_its_holder_runs(world: &mut World) -> TestResult {
    guard(world).await?;
    PS.create(world, RESTORE, "leased", "leased").await?;
    let uid = PS
        .api(world, RESTORE)
        .get("leased")
        .await?
        .metadata
        .uid
        .context("no uid")?;
    let leases: Api<Lease> = world.api();
    take_lease(world, "leased", &format!("leased|{uid}")).await?;
    let before = leases.get("restore-lock-leased").await?;
    ensure!(
        refusal(PS.create(world, BACKUP, "leased", "leased").await)?
            .message
            .contains("leased"),
        "admitted"
    );
    PS.set_state(world, RESTORE, "leased", "Succeeded").await?;
    PS.create(world, BACKUP, "leased", "leased")
        .await
        .context("whoever holds it has ended")?;
    ensure!(
        leases.get("restore-lock-leased").await? == before,
        "the operator's Lease was written"
    );
    Ok(())
}

async fn perconas_claims_are_shown_by_locks(world: &mut World) -> TestResult {
    guard(world).await?;
    PS.create(world, BACKUP, "shown", "shown").await?;
    PS.set_state(world, BACKUP, "shown", "Running").await?;
    let plugin = world.kubectl_backup();
    let text = plugin
        .stdout(&["locks", "percona-ps/db/shown", "-o", "json"])
        .await?;
    let list: serde_json::Value = serde_json::from_str(&text)?;
    let scope = &list["scopes"][0];
    ensure!(
        scope["scope"] == "percona-ps/db/shown" && scope["profile"] == "percona-ps",
        "{list}"
    );
    let entries = scope["entries"].as_array().context("no entries")?;
    ensure!(
        entries.len() == 1 && entries[0]["namespace"] == "db" && entries[0]["name"] == "shown",
        "{list}"
    );
    ensure!(
        entries[0]["state"] == "Reserved" || entries[0]["state"] == "Active",
        "{list}"
    );
    PS.set_state(world, BACKUP, "shown", "Succeeded").await?;
    Ok(())
}

/// Every order of three steps of each side.
fn orders() -> Vec<Vec<Turn>> {
    let of = |bits: u32| {
        (0..6)
            .map(|n| {
                if bits >> n & 1 == 1 {
                    Turn::Backup
                } else {
                    Turn::Restore
                }
            })
            .collect()
    };
    (0..64_u32)
        .filter(|bits| bits.count_ones() == 3)
        .map(of)
        .collect()
}

/// Plays one order of steps on a separate database cluster. Returns whether both worked at the same
/// time, and whether one was refused.
async fn play(world: &World, cluster: &str, order: &[Turn]) -> anyhow::Result<(bool, bool)> {
    let mut backup = Actor::default();
    let mut restore = Actor::default();
    let mut turned_away = false;
    for turn in order {
        match turn {
            Turn::Backup => match backup.step() {
                Some(1) => backup.go(
                    PS.create(world, BACKUP, cluster, cluster).await,
                    &mut turned_away,
                )?,
                Some(2) => backup.stands = !lease_is_held(world, cluster).await?,
                Some(_) => backup.start(PS.set_state(world, BACKUP, cluster, "Running").await)?,
                None => {}
            },
            Turn::Restore => match restore.step() {
                Some(1) => restore.go(
                    PS.create(world, RESTORE, cluster, cluster).await,
                    &mut turned_away,
                )?,
                Some(2) => {
                    let uid = PS
                        .api(world, RESTORE)
                        .get(cluster)
                        .await?
                        .metadata
                        .uid
                        .unwrap_or_default();
                    take_lease(world, cluster, &format!("{cluster}|{uid}")).await?;
                    restore.stands = !backup_has_started(world, cluster).await?;
                }
                Some(_) => restore.start(PS.set_state(world, RESTORE, cluster, "Running").await)?,
                None => {}
            },
        }
    }
    Ok((backup.works && restore.works, turned_away))
}

/// Progress of one side.
#[derive(Default)]
struct Actor {
    steps: usize,
    /// Refused by admission, or by its own check.
    stopped: bool,
    stands: bool,
    works: bool,
}

impl Actor {
    /// The number of the next step, unless this side has stopped.
    fn step(&mut self) -> Option<usize> {
        self.steps += 1;
        let looked_in_vain = self.steps == 3 && !self.stands;
        (!self.stopped && !looked_in_vain).then_some(self.steps)
    }

    fn go(&mut self, created: anyhow::Result<()>, turned_away: &mut bool) -> anyhow::Result<()> {
        if created.is_err() {
            let error = refusal(created)?;
            ensure!(error.code == 403, "{error:?}");
            (self.stopped, *turned_away) = (true, true);
        }
        Ok(())
    }

    fn start(&mut self, started: anyhow::Result<()>) -> anyhow::Result<()> {
        started?;
        self.works = true;
        Ok(())
    }
}

async fn only_the_operator_ends_its_work(world: &mut World) -> TestResult {
    guard(world).await?;
    PS.create(world, BACKUP, "worked-on", "ended").await?;
    PS.set_state(world, BACKUP, "worked-on", "Running").await?;
    let forged = async |state: &str| {
        let backups = PS.api(world, BACKUP);
        backups
            .merge_patch_status("worked-on", json!({ "state": state }))
            .await
            .map(drop)
            .err()
    };
    eventually("the policy refuses", TIMEOUT, async || {
        anyhow::Ok(match forged("Succeeded").await {
            Some(kube::Error::Api(status))
                if status.message.contains("percona-server-mysql-operator") =>
            {
                Probe::Ready(())
            }
            other => {
                PS.set_state(world, BACKUP, "worked-on", "Running").await?;
                Probe::NotYet(format!("{other:?}"))
            }
        })
    })
    .await?;
    ensure!(forged("Error").await.is_some() && forged("Failed").await.is_some());
    let refused = refusal(PS.create(world, RESTORE, "beside-it", "ended").await)?;
    ensure!(refused.message.contains("worked-on"), "{refused:?}");
    PS.set_state(world, BACKUP, "worked-on", "Succeeded")
        .await?;
    PS.create(world, RESTORE, "after-it", "ended").await?;
    PS.set_state(world, RESTORE, "after-it", "Succeeded").await
}

/// Registers our webhook for the operator's kinds, and waits until it is called.
pub(crate) async fn guard(world: &World) -> anyhow::Result<()> {
    percona::ensure(world).await?;
    PS.guard(world).await
}

async fn take_lease(world: &World, cluster: &str, holder: &str) -> anyhow::Result<()> {
    let leases: Api<Lease> = world.api();
    let name = format!("restore-lock-{cluster}");
    let _ = leases.delete_object(&name).await;
    let lease = json!({ "metadata": { "name": name }, "spec": { "holderIdentity": holder } });
    leases.create_json(lease).await?;
    Ok(())
}

async fn lease_is_held(world: &World, cluster: &str) -> anyhow::Result<bool> {
    Ok(world
        .api::<Lease>()
        .exists(&format!("restore-lock-{cluster}"))
        .await?)
}

async fn backup_has_started(world: &World, cluster: &str) -> anyhow::Result<bool> {
    let all = PS.api(world, BACKUP).list_all().await?;
    let runs = |backup: &DynamicObject| {
        backup.data["spec"]["clusterName"] == cluster && backup.data["status"]["state"] == "Running"
    };
    Ok(all.iter().any(runs))
}
