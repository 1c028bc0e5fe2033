//! Metrics are right, also after a restart.

use backup_core::labels::SCHEDULE_NAME;
use kube::api::ListParams;

use crate::prelude::*;

crate::tests! {
    metrics_are_right_across_a_restart_of_the_controller,
}

async fn of_schedule(world: &World, name: &str) -> anyhow::Result<Option<f64>> {
    world
        .metric(&format!("velero_{name}{{schedule=\"measured\"}}"))
        .await
}

async fn is(world: &World, name: &str, expected: Option<f64>) -> anyhow::Result<()> {
    // The watch behind the gauges may lag behind the test.
    eventually(
        &format!("{name} is {expected:?}"),
        Duration::from_secs(10),
        async || {
            let found = of_schedule(world, name).await?;
            anyhow::Ok(when(found == expected, format!("{found:?}")))
        },
    )
    .await
}

async fn scheduled(world: &World, name: &str, spec: BackupSpec) -> anyhow::Result<Backup> {
    let mut backup = Backup::new(name, spec);
    backup.metadata.labels = Some([(SCHEDULE_NAME.to_owned(), "measured".to_owned())].into());
    world.backups().create_object(&backup).await?;
    world.backup_ended(name).await
}

async fn metrics_are_right_across_a_restart_of_the_controller(world: &mut World) -> TestResult {
    world.config_maps("measured", 3).await?;
    let good = scheduled(world, "measured-good", of_namespaces(&["measured"])).await?;
    scheduled(
        world,
        "measured-less",
        of_namespaces(&["measured", "measured-gone"]),
    )
    .await?;
    let items = good.status.progress.context("no progress")?.items_backed_up;
    let success = good
        .status
        .completion_timestamp
        .context("no end")?
        .0
        .as_second();
    #[allow(clippy::cast_precision_loss)] // far below 2^52
    let (items, success) = (Some(items as f64), Some(success as f64));
    for (name, expected) in [
        ("backup_attempt_total", Some(2.0)),
        ("backup_success_total", Some(1.0)),
        ("backup_partial_failure_total", Some(1.0)),
        ("backup_failure_total", None),
        ("backup_duration_seconds_count", Some(2.0)),
    ] {
        is(world, name, expected).await?;
    }
    ensure!(
        of_schedule(world, "backup_tarball_size_bytes")
            .await?
            .is_some_and(|bytes| bytes > 100.0)
    );
    let stored = [
        ("backup_last_status", Some(0.0)),
        ("backup_items_total", items),
        ("backup_items_errors", Some(1.0)),
        ("backup_last_successful_timestamp", success),
    ];
    for (name, expected) in stored {
        is(world, name, expected).await?;
    }

    world.renew_controller(0).await?;
    for (name, expected) in stored {
        is(world, name, expected).await?;
    }
    // Counters start at zero in each process.
    is(world, "backup_success_total", None).await?;
    let there = world
        .backups()
        .list_metadata(&ListParams::default())
        .await?
        .items
        .len();
    #[allow(clippy::cast_precision_loss)]
    let there = there as f64;
    let total = world.metric("velero_backup_total").await?;
    ensure!(total == Some(there), "{total:?} of {there}");

    scheduled(world, "measured-again", of_namespaces(&["measured"])).await?;
    is(world, "backup_last_status", Some(1.0)).await?;
    is(world, "backup_attempt_total", Some(1.0)).await?;
    is(world, "backup_success_total", Some(1.0)).await
}
