//! What plugins of Velero's kind (`tests/plugins`) do with items of backups and of restores alike:
//! they misbehave, start operations that fail or never end, and are cut off by crashes and by
//! users. Each item says what they do with it.

mod cancelled;

use backup_core::api::GoDuration;
use backup_store::crash;
use backup_tests::world::scripted::ScriptedJob;

use crate::prelude::*;
use cancelled::{
    a_cancelled_job_ends_early_and_honestly_wherever_it_is,
    a_crash_of_a_cancelled_job_forgets_no_operation,
};

crate::tests! {
    a_plugin_that_misbehaves_is_named_and_harms_nothing_else,
    failing_and_endless_operations_of_a_plugin_end_by_their_deadline,
    a_crash_around_an_action_starts_nothing_twice,
    a_cancelled_job_ends_early_and_honestly_wherever_it_is,
    a_crash_of_a_cancelled_job_forgets_no_operation,
}

async fn a_plugin_that_misbehaves_is_named_and_harms_nothing_else(world: &mut World) -> TestResult {
    world.plugins()?;
    for job in ScriptedJob::BOTH {
        misbehaves(world, job)
            .await
            .with_context(|| format!("{job:?}"))?;
    }
    Ok(())
}

/// An item, its plugin, what that does with it, and words of the error.
type Misbehaviour<'a> = (&'a str, &'a str, &'a str, [&'a str; 2]);

async fn misbehaves(world: &World, job: ScriptedJob) -> anyhow::Result<()> {
    let name = job.name("bad");
    let plugin = job.plugin();
    let operator = job.operator();
    let silence = format!("has not answered Execute of example.io/{plugin} within 15s");
    let error = format!("answers Execute of example.io/{plugin} with an error");
    let panic = format!("answers Execute of example.io/{operator} with an error");
    let nonsense = format!("answers Execute of example.io/{plugin} with nonsense");
    let exit = format!("in the middle of Execute of example.io/{operator}");
    let mut bad: Vec<Misbehaviour<'_>> = vec![
        (
            "a-hangs",
            plugin,
            "hang",
            [silence.as_str(), "is not known"],
        ),
        (
            "b-fails",
            plugin,
            "fail=out-of-luck",
            [error.as_str(), "out-of-luck"],
        ),
        (
            "c-panics",
            operator,
            "panic=oh-no",
            [panic.as_str(), "oh-no"],
        ),
        (
            "d-nonsense",
            plugin,
            "nonsense",
            [nonsense.as_str(), "without a name"],
        ),
    ];
    let mut good = vec![
        ("g-good", operator, "mark"),
        ("h-good", plugin, "mark"),
        ("i-good", "nobody", ""),
    ];
    match job {
        ScriptedJob::Backup => good.push(("e-floods", plugin, "flood mark")),
        ScriptedJob::Restore => bad.extend([
            (
                "e-ends",
                operator,
                "exit",
                [exit.as_str(), "exit status: 7"],
            ),
            (
                "f-kind",
                plugin,
                "kind=Gadget",
                ["v1 Gadget", "does not serve"],
            ),
        ]),
    }
    let items: Vec<_> = bad
        .iter()
        .map(|(item, plugin, script, _)| (*item, *plugin, *script))
        .chain(good.iter().copied())
        .collect();
    job.prepare(world, &name, &items).await?;
    job.start(world, &name).await?;
    if job == ScriptedJob::Backup {
        let beside = "plugin-beside";
        let items = [("good", plugin, "mark")];
        world.scripted(beside, &items).await?;
        world.back_up(beside, of_scripted(beside)).await?;
    }
    let end = job.ended(world, &name).await?;
    let errors = job.errors(world, &name).await?;
    for &(item, _, _, words) in &bad {
        says(&errors, &words)?;
        says(&errors, &[item, "plugins/plugins"])?;
        ensure!(
            job.item(world, &name, item).await?.is_none(),
            "{item} is there"
        );
    }
    ensure!(end.phase == "PartiallyFailed", "{end:?}");
    ensure!(end.errors == i64::try_from(bad.len())?, "{errors}");
    for (item, plugin, script) in good {
        let marked = job.marked_by(world, &name, item).await?;
        let expected = script.contains("mark").then_some(plugin);
        ensure!(
            job.item(world, &name, item).await?.is_some() && marked.as_deref() == expected,
            "{item}: {marked:?}"
        );
    }
    if job == ScriptedJob::Backup {
        let warnings = world.backup_warnings(&name).await?;
        says(&warnings, &["lines more than are kept"])?;
    }
    Ok(())
}

async fn failing_and_endless_operations_of_a_plugin_end_by_their_deadline(
    world: &mut World,
) -> TestResult {
    let plugins = world.plugins()?;
    for job in ScriptedJob::BOTH {
        let name = job.name("bad-end");
        let items = [
            ("a", job.operator(), "start=1s:no-space"),
            ("b", job.operator(), "start=never"),
            ("c", job.operator(), "start=1s"),
        ];
        job.prepare(world, &name, &items).await?;
        let timeout = Some(GoDuration::from_secs(4));
        job.create(world, &name, &name, timeout).await?;
        let end = job.ended(world, &name).await?;
        let errors = job.errors(world, &name).await?;
        ensure!(
            end.phase == "PartiallyFailed" && end.operations == [3, 1, 2] && end.errors == 2,
            "{end:?}, {errors}"
        );
        plugins.have_seen(&name, &[("cancel", "b", 1)])?;
        let [a, b] = ["a", "b"].map(|item| format!("{}/{item}", job.target(&name)));
        let words = ["no-space", "timed out", "told to stop", &a, &b];
        says(&errors, &words)?;
        says(&job.log(world, &name).await?, &words)?;
    }
    Ok(())
}

/// If it is unknown whether the action ran, an error says so.
async fn a_crash_around_an_action_starts_nothing_twice(world: &mut World) -> TestResult {
    world.needs_debug_build()?;
    for job in ScriptedJob::BOTH {
        for (point, executed, is_known) in [
            ("before-execution", 0, false),
            ("after-execution", 1, false),
            ("after-execution-recorded", 1, true),
        ] {
            ensure!(crash::EXECUTION_POINTS.contains(&point), "{point}");
            killed_at(world, job, point, executed, is_known)
                .await
                .with_context(|| format!("{job:?} killed at {point}"))?;
        }
    }
    Ok(())
}

/// `executed`: how often the first item was executed; `is_known`: whether its outcome is known.
async fn killed_at(
    world: &mut World,
    job: ScriptedJob,
    point: &str,
    executed: usize,
    is_known: bool,
) -> anyhow::Result<()> {
    let plugins = world.plugins()?;
    let name = job.name(point);
    let items = ["a", "b"].map(|item| (item, job.operator(), "mark start=2s"));
    job.prepare(world, &name, &items).await?;
    world.crash_at(point).await?;
    job.start(world, &name).await?;
    world.crashed(point).await?;
    let end = job.ended(world, &name).await?;
    let mut calls = ["a", "b"].map(|item| {
        let calls = plugins.processes(job.operator(), &format!("{name}/{item}"));
        calls.len()
    });
    if job == ScriptedJob::Restore {
        // The order of the two calls is undefined.
        calls.sort_unstable();
    }
    ensure!(calls == [executed, 1], "{:?}", plugins.calls());
    let errors = job.errors(world, &name).await?;
    let (phase, completed, failures) = if is_known {
        ("Completed", 2, 0)
    } else {
        ("PartiallyFailed", 1, 1)
    };
    ensure!(
        (end.phase.as_str(), end.operations[1], end.errors) == (phase, completed, failures),
        "{end:?}, {errors}"
    );
    let marked: &[&str] = if is_known {
        &["a", "b"]
    } else {
        job.of(&["b"], &[])
    };
    for item in marked {
        let by = job.marked_by(world, &name, item).await?;
        ensure!(by.as_deref() == Some(job.operator()), "{item}: {by:?}");
    }
    if !is_known {
        let item = format!("{name}/a");
        says(&errors, &["is not known", "earlier try"])?;
        says(&errors, job.of(&[item.as_str()], &[]))?;
    }
    Ok(())
}
