//! Races reported by users of other operators, on definitions of the same shape: without us, and
//! with us. The operators are simulated by writing their states.

use kube::api::{Patch, PatchParams};

use crate::{
    guarded_operators::{CNPG, Operator, PG, PSMDB, PXC},
    prelude::*,
};

crate::tests! {
    of_two_restores_of_one_xtradb_cluster_one_begins,
    of_a_backup_and_a_restore_of_one_mongodb_one_begins,
    a_backup_of_percona_postgresql_waits_for_the_end_of_a_restore,
    a_completed_backup_of_cloudnative_pg_stays_so,
    a_cluster_of_cloudnative_pg_is_not_backed_up_while_it_is_restored,
}

/// Creates two objects of one cluster at once. Returns which of them were refused.
async fn at_once(
    world: &World,
    operator: &Operator,
    kinds: [&str; 2],
    cluster: &str,
) -> anyhow::Result<Vec<String>> {
    let names = [format!("{cluster}-one"), format!("{cluster}-two")];
    let (one, two) = tokio::join!(
        operator.create(world, kinds[0], &names[0], cluster),
        operator.create(world, kinds[1], &names[1], cluster),
    );
    let mut refused = Vec::new();
    for created in [one, two].into_iter().filter(Result::is_err) {
        let error = refusal(created)?;
        ensure!(error.code == 403, "{error:?}");
        refused.push(error.message);
    }
    Ok(refused)
}

/// Without us, each saw the other, and both failed.
async fn of_two_restores_of_one_xtradb_cluster_one_begins(world: &mut World) -> TestResult {
    PXC.define(world).await?;
    let refused = at_once(world, &PXC, [PXC.restore; 2], "alone").await?;
    ensure!(
        refused.is_empty(),
        "the race as it was reported was not seen without us: {refused:?}"
    );
    PXC.guard(world).await?;
    for n in 0..10 {
        let refused = at_once(world, &PXC, [PXC.restore; 2], &format!("guarded-{n}")).await?;
        ensure!(refused.len() == 1, "round {n}: {refused:?}");
        says(&refused[0], &["Restore", "databases/guarded-"])?;
    }
    PXC.create(world, PXC.restore, "first", "states").await?;
    for state in ["Stopping Cluster", "Restoring", "Point-in-time recovering"] {
        PXC.set_state(world, PXC.restore, "first", state).await?;
        refusal(PXC.create(world, PXC.backup, "meanwhile", "states").await)?;
    }
    PXC.set_state(world, PXC.restore, "first", "Succeeded")
        .await?;
    PXC.create(world, PXC.backup, "after", "states").await
}

/// Without us, each waited for the other for ever (PSMDB #2317).
async fn of_a_backup_and_a_restore_of_one_mongodb_one_begins(world: &mut World) -> TestResult {
    PSMDB.define(world).await?;
    let refused = at_once(world, &PSMDB, [PSMDB.backup, PSMDB.restore], "alone").await?;
    ensure!(
        refused.is_empty(),
        "the race as it was reported was not seen without us: {refused:?}"
    );
    PSMDB.guard(world).await?;
    for n in 0..10 {
        let refused = at_once(
            world,
            &PSMDB,
            [PSMDB.backup, PSMDB.restore],
            &format!("guarded-{n}"),
        )
        .await?;
        ensure!(refused.len() == 1, "round {n}: {refused:?}");
    }
    // The operator's tool keeps its own lock a little longer than the object says.
    PSMDB
        .create(world, PSMDB.restore, "settles", "settles")
        .await?;
    PSMDB
        .set_state(world, PSMDB.restore, "settles", "running")
        .await?;
    PSMDB
        .set_state(world, PSMDB.restore, "settles", "ready")
        .await?;
    let error = refusal(
        PSMDB
            .create(world, PSMDB.backup, "too-early", "settles")
            .await,
    )?;
    says(&error.message, &["databases/settles"])
}

async fn a_backup_of_percona_postgresql_waits_for_the_end_of_a_restore(
    world: &mut World,
) -> TestResult {
    PG.define(world).await?;
    PG.create(world, PG.restore, "alone", "alone").await?;
    PG.create(world, PG.backup, "alone", "alone")
        .await
        .context("the race was not seen without us")?;
    PG.guard(world).await?;
    PG.create(world, PG.restore, "first", "guarded").await?;
    PG.set_state(world, PG.restore, "first", "Running").await?;
    let error = refusal(PG.create(world, PG.backup, "meanwhile", "guarded").await)?;
    says(&error.message, &["databases/first"])?;
    let (dry_run, failed) = (
        PatchParams {
            dry_run: true,
            ..PatchParams::default()
        },
        json!({ "state": "Failed" }),
    );
    eventually("only the operator ends it", TIMEOUT, async || {
        let patch = Patch::Merge(json!({ "status": failed }));
        let forged = PG
            .api(world, PG.restore)
            .patch_status("first", &dry_run, &patch)
            .await;
        let said = forged.map_or_else(|error| error.to_string(), |_| "admitted".to_owned());
        anyhow::Ok(when(said.contains("percona-postgresql-operator"), said))
    })
    .await?;
    PG.set_state(world, PG.restore, "first", "Failed").await?;
    PG.create(world, PG.backup, "after", "guarded").await
}

/// A gate that ran at every check turned `completed` back into `pending` (CNPG #11010).
async fn a_completed_backup_of_cloudnative_pg_stays_so(world: &mut World) -> TestResult {
    CNPG.define(world).await?;
    CNPG.create(world, CNPG.backup, "alone", "alone").await?;
    CNPG.set_state(world, CNPG.backup, "alone", "completed")
        .await?;
    CNPG.set_state(world, CNPG.backup, "alone", "pending")
        .await
        .context("not seen without us")?;
    CNPG.guard(world).await?;
    CNPG.create(world, CNPG.backup, "nightly", "guarded")
        .await?;
    CNPG.set_state(world, CNPG.backup, "nightly", "running")
        .await?;
    CNPG.set_state(world, CNPG.backup, "nightly", "completed")
        .await?;
    let error = refusal(
        CNPG.set_state(world, CNPG.backup, "nightly", "pending")
            .await,
    )?;
    says(&error.message, &["has ended"])
}

async fn a_cluster_of_cloudnative_pg_is_not_backed_up_while_it_is_restored(
    world: &mut World,
) -> TestResult {
    CNPG.define(world).await?;
    CNPG.guard(world).await?;
    let recovery = json!({ "bootstrap": { "recovery": { "source": "origin" } } });
    let clusters = CNPG.api(world, CNPG.restore);
    clusters
        .create_json(CNPG.object(CNPG.restore, "back", &recovery))
        .await?;
    let error = refusal(CNPG.create(world, CNPG.backup, "too-early", "back").await)?;
    says(&error.message, &["Restore", "databases/back"])?;
    clusters
        .merge_patch_status("back", json!({ "currentPrimary": "back-1" }))
        .await?;
    CNPG.create(world, CNPG.backup, "in-time", "back").await?;
    // It continues to live: with another primary and another spec, while a backup of it runs.
    clusters
        .merge_patch_status("back", json!({ "currentPrimary": "back-2" }))
        .await?;
    clusters
        .merge_patch("back", json!({ "spec": { "instances": 3 } }))
        .await?;
    Ok(())
}
