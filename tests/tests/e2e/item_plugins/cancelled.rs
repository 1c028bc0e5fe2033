//! Backups and restores that are cancelled while a plugin works on an item.

use backup_core::labels::CANCEL_ANNOTATION;
use backup_tests::velero_plugins::VeleroPlugins;

use super::*;

/// A job that has started an operation on one item and hangs at the next one.
async fn hanging(
    world: &World,
    plugins: &VeleroPlugins,
    job: ScriptedJob,
    name: &str,
) -> anyhow::Result<()> {
    let items = [
        ("a", job.operator(), "mark start=never"),
        ("b", job.operator(), "hang"),
        ("c", job.plugin(), "mark"),
    ];
    job.prepare(world, name, &items).await?;
    job.start(world, name).await?;
    plugins
        .wait_for_call(job.operator(), &format!("{name}/b"), POINT_TIMEOUT)
        .await
}

/// The end of a cancelled job: its operation was cancelled once, the outcome of the hanging item is
/// unknown, and nothing else was begun. Returns the errors.
async fn cancelled(
    world: &World,
    plugins: &VeleroPlugins,
    job: ScriptedJob,
    name: &str,
) -> anyhow::Result<String> {
    let end = job.ended(world, name).await?;
    let [attempted, _, failed] = end.operations;
    ensure!(
        end.phase == "PartiallyFailed" && (attempted, failed) == (1, 1),
        "{end:?}"
    );
    let operator = job.operator();
    plugins.have_seen(
        name,
        &[
            (operator, "a", 1),
            ("cancel", "a", 1),
            (operator, "b", 1),
            (job.plugin(), "c", 0),
        ],
    )?;
    let operations = job.file(world, name, "itemoperations.json.gz").await?;
    let error = operations[0]["status"]["error"].to_string();
    ensure!(error.starts_with("\"cancelled"), "{operations}");
    says(&error, &["told to stop"])?;
    let errors = job.errors(world, name).await?;
    let who = job.of("cancelled, as the annotation", "cancelled by a user");
    let why = "cancelled: its backup or restore was cancelled";
    says(&errors, &[who, why, "is not known"])?;
    let item = format!("configmaps {name}/b");
    says(&errors, job.of(&[item.as_str()], &[]))?;
    for item in ["b", "c"] {
        ensure!(
            job.item(world, name, item).await?.is_none(),
            "{item} was begun"
        );
    }
    Ok(errors)
}

pub(super) async fn a_cancelled_job_ends_early_and_honestly_wherever_it_is(
    world: &mut World,
) -> TestResult {
    let plugins = world.plugins()?;
    let person = world.kubectl_backup();
    for job in ScriptedJob::BOTH {
        let name = job.name("cancel");
        hanging(world, &plugins, job, &name).await?;
        if job == ScriptedJob::Backup {
            cancelled_in_the_queue(world, &name).await?;
        }
        // Well before the plugin's timeout.
        let mut cancel = job.command("cancel", &name);
        cancel.extend(["--wait", "--timeout=12s"]);
        person.succeeds(&cancel).await?;
        let errors = cancelled(world, &plugins, job, &name).await?;
        says(&errors, &["cancelled while it was at this item"])?;
        let first = job.marked_by(world, &name, "a").await?;
        ensure!(
            first.as_deref() == Some(job.operator()),
            "what was on its way came to its end: {first:?}"
        );
        let described = person.succeeds(&job.command("describe", &name)).await?;
        says(&described.stdout, &["It was cancelled"])?;
        let again = person.fails(1, &job.command("cancel", &name)).await?;
        says(&again.stderr, &["it has ended (PartiallyFailed)"])?;
        if job == ScriptedJob::Restore {
            cancelled_from_the_start(world, &name).await?;
            // It was not restored once more.
            plugins.have_seen(&name, &[(job.operator(), "a", 1)])?;
        }
    }
    Ok(())
}

/// A backup that waits for the one with this name.
async fn cancelled_in_the_queue(world: &World, other: &str) -> anyhow::Result<()> {
    let name = "cancel-queued";
    world.create_backup(name, of_scripted(other)).await?;
    let cancel = ["cancel", name, "--wait", "--timeout=20s"];
    world.kubectl_backup().succeeds(&cancel).await?;
    let queued = world.backup_ends(name, BackupPhase::Failed).await?;
    let reason = queued.status.failure_reason.unwrap_or_default();
    says(&reason, &["never started", "cancelled"])
}

async fn cancelled_from_the_start(world: &World, backup: &str) -> anyhow::Result<()> {
    let name = "ria-cancelled-before";
    let restore = Restore::new(name, into_back(backup));
    let restore = annotated(restore, CANCEL_ANNOTATION, "at once");
    world.restores().create_object(&restore).await?;
    let early = world.restore_ends(name, RestorePhase::Failed).await?;
    let reason = early.status.failure_reason.unwrap_or_default();
    says(&reason, &["before anything"])
}

pub(super) async fn a_crash_of_a_cancelled_job_forgets_no_operation(
    world: &mut World,
) -> TestResult {
    let plugins = world.plugins()?;
    for job in ScriptedJob::BOTH {
        let name = job.name("cancel-killed");
        hanging(world, &plugins, job, &name).await?;
        world.controllers[0].kill().await?;
        let cancel = job.command("cancel", &name);
        world.kubectl_backup().succeeds(&cancel).await?;
        world.controllers[0].restart().await?;
        let errors = cancelled(world, &plugins, job, &name).await?;
        says(&errors, &["by an earlier try"])?;
        says(&errors, job.of(&[" 0 items"], &[]))?;
    }
    Ok(())
}
