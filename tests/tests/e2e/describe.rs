//! The view of a backup or restore for a user who can reach only the API server: from the files in
//! the store.

use backup_tests::kubectl_backup::KubectlBackup;
use jiff::Timestamp;

use crate::prelude::*;

crate::tests! {
    operations_that_go_on_are_seen_as_they_are_now,
    operations_of_a_restore_are_seen_as_they_are_now,
    describe_shows_what_went_wrong_and_what_is_in_a_backup,
    an_edit_of_a_stored_backup_changes_nothing_of_what_is_shown,
    an_edit_of_a_restore_that_has_ended_changes_nothing_of_what_is_shown,
    a_log_is_followed_until_its_backup_has_ended,
    the_log_of_a_backup_grows_while_items_are_collected,
    the_log_of_a_restore_grows_while_items_are_restored,
    a_followed_log_shows_that_the_work_began_again_after_a_crash,
}

async fn an_edit_of_a_stored_backup_changes_nothing_of_what_is_shown(
    world: &mut World,
) -> TestResult {
    let (name, other) = ("edited", "edited-later");
    for namespace in [name, other] {
        world.config_maps(namespace, 1).await?;
    }
    world.back_up(name, of_namespaces(&[name])).await?;
    let person = world.kubectl_backup();
    let shown = person.stdout(&["describe", name]).await?;
    ensure!(
        shown.contains("namespace edited\n") && !shown.contains("Edited"),
        "{shown}"
    );
    world
        .backups()
        .merge_patch(name, json!({ "spec": { "includedNamespaces": [other] } }))
        .await?;
    let shown = person.stdout(&["describe", name]).await?;
    says(
        &shown,
        &[
            "namespace edited\n",
            "Edited",
            "now the object asks for namespace edited-later",
        ],
    )?;
    // The protection of a namespace that is not in the backup.
    let status = person.run(&["status", "-o", "json"]).await?.stdout;
    let status: Value = serde_json::from_str(&status)?;
    let all = status["namespaces"].as_array().context("no namespaces")?;
    let last_good = |namespace: &str| {
        let found = all.iter().find(|one| one["name"] == namespace);
        found
            .map(|one| one["lastGood"]["name"].clone())
            .unwrap_or_default()
    };
    ensure!(
        last_good(name) == name && last_good(other) != name,
        "{} {}",
        last_good(name),
        last_good(other)
    );
    // A tool that applies its manifest again changes nothing either.
    world
        .backups()
        .merge_patch(name, json!({ "spec": { "includedNamespaces": [name] } }))
        .await?;
    let shown = person.stdout(&["describe", name]).await?;
    ensure!(!shown.contains("Edited"), "{shown}");
    Ok(())
}

async fn an_edit_of_a_restore_that_has_ended_changes_nothing_of_what_is_shown(
    world: &mut World,
) -> TestResult {
    let name = "edited-restore";
    world.backed_up(name, 1).await?;
    world
        .restore(name, into_namespace(name, "edited-copy"))
        .await?;
    let person = world.kubectl_backup();
    let shown = person.stdout(&["restore", "describe", name]).await?;
    ensure!(
        shown.contains("edited-restore → edited-copy") && !shown.contains("Edited"),
        "{shown}"
    );
    let edit = json!({ "spec": { "backupName": "another", "namespaceMapping": { "edited-restore": "elsewhere" },
        "existingResourcePolicy": "update" } });
    world.restores().merge_patch(name, edit).await?;
    let shown = person.stdout(&["restore", "describe", name]).await?;
    let asked = "now the object asks for backup another; all namespaces; mapped edited-restore → elsewhere; policy update";
    says(
        &shown,
        &[
            "backup edited-restore  Completed",
            "edited-restore → edited-copy",
            "Edited",
            asked,
        ],
    )?;
    // A tool that applies its manifest again removes fields that the controller has filled in.
    let manifest = json!({ "spec": { "backupName": name, "namespaceMapping": { "edited-restore": "edited-copy" },
        "existingResourcePolicy": null, "excludedResources": null, "itemOperationTimeout": null } });
    world.restores().merge_patch(name, manifest).await?;
    let shown = person.stdout(&["restore", "describe", name]).await?;
    ensure!(!shown.contains("Edited"), "{shown}");
    Ok(())
}

/// Items that one plugin processes one after another: its message at their beginning, and how long
/// they take.
const SAYING: [(&str, &str); 3] = [
    ("a", "say=info:said-1 slow=5s"),
    ("b", "say=info:said-2 slow=5s"),
    ("c", "say=info:said-3 slow=5s"),
];

fn saying(plugin: &'static str) -> [(&'static str, &'static str, &'static str); 3] {
    SAYING.map(|(item, script)| (item, plugin, script))
}

/// A repeated look shows more each time, and a follower sees everything once.
async fn grows(person: &KubectlBackup, logs: &[&str], lines: [&str; 3]) -> anyhow::Result<()> {
    for pair in lines.windows(2) {
        let (there, not_yet) = (pair[0], pair[1]);
        eventually(
            "the log comes so far",
            Duration::from_secs(20),
            async || {
                let ran = person.run(logs).await?;
                ensure!(
                    !ran.stdout.contains(not_yet),
                    "{not_yet} came before anybody saw {there}: {ran:?}"
                );
                Ok::<_, anyhow::Error>(when(ran.stdout.contains(there), format!("{ran:?}")))
            },
        )
        .await?;
    }
    let followed = person.succeeds(&[logs, &["-f"]].concat()).await?;
    ensure!(followed.stderr.is_empty(), "{followed:?}");
    ensure!(
        lines
            .iter()
            .all(|line| followed.stdout.matches(line).count() == 1),
        "{followed:?}"
    );
    let whole = person.succeeds(logs).await?;
    ensure!(followed.stdout == whole.stdout, "{followed:?}\n{whole:?}");
    // A plugin's message has the time at which it was logged, and not that of the item's end five
    // seconds later.
    let at = |line: Option<&str>| {
        Some(
            line?
                .split('"')
                .nth(1)?
                .parse::<Timestamp>()
                .ok()?
                .as_second(),
        )
    };
    let said = at(whole.stdout.lines().find(|line| line.contains("said-3")))
        .context("said-3 has no time")?;
    let ended = at(whole.stdout.lines().last()).context("the last line has no time")?;
    ensure!(said + 2 <= ended, "{whole:?}");
    Ok(())
}

async fn document(person: &KubectlBackup, line: &[&str]) -> anyhow::Result<Value> {
    let ran = person.succeeds(&[line, &["-o", "json"]].concat()).await?;
    Ok(serde_json::from_str(&ran.stdout)?)
}

/// Looks several times, three seconds apart: the progress is never older than the interval of
/// requests to the action, plus a moment.
async fn moves(person: &KubectlBackup, line: &[&str]) -> anyhow::Result<()> {
    let done = async || {
        let all = document(person, line).await?;
        let operation = &all["items"][0];
        let known = operation["total"] == 12_000 && operation["units"] == "ms";
        Ok::<_, anyhow::Error>(operation["done"].as_i64().filter(|_| known))
    };
    let first = eventually(
        "an operation is seen",
        Duration::from_secs(20),
        async || {
            Ok::<_, anyhow::Error>(
                done()
                    .await?
                    .map_or_else(|| Probe::NotYet(String::new()), Probe::Ready),
            )
        },
    );
    let mut seen = vec![first.await?];
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_secs(3)).await;
        seen.push(done().await?.context("it is not seen any more")?);
    }
    ensure!(
        seen.windows(2).all(|pair| pair[0] + 1000 < pair[1]),
        "{seen:?}"
    );
    Ok(())
}

async fn operations_that_go_on_are_seen_as_they_are_now(world: &mut World) -> TestResult {
    world.plugins()?;
    let name = "describe-operations";
    world
        .scripted(
            name,
            &[("a", "operate", "start=12s"), ("b", "operate", "start=12s")],
        )
        .await?;
    world.create_backup(name, of_scripted(name)).await?;
    world.backup_waits(name).await?;
    let person = world.reader().await?;
    moves(&person, &["operations", name]).await?;
    let screen = person.stdout(&["describe", name]).await?;
    says(
        &screen,
        &["configmaps describe-operations/a  example.io/operate"],
    )?;
    ensure!(
        screen.contains(" of 12000 ms") && !screen.contains("unavailable"),
        "{screen}"
    );
    let watched = person.succeeds(&["operations", name, "-w"]).await?;
    let completed = watched
        .stdout
        .lines()
        .filter(|line| line.contains("Completed"))
        .count();
    ensure!(completed == 2 && watched.stderr.is_empty(), "{watched:?}");
    world.backup_ends(name, BackupPhase::Completed).await?;
    Ok(())
}

async fn operations_of_a_restore_are_seen_as_they_are_now(world: &mut World) -> TestResult {
    world.plugins()?;
    let name = "describe-restore";
    world
        .scripted_backup(name, &[("a", "move", "start=12s")])
        .await?;
    world.create_restore(name, into_back(name)).await?;
    let person = world.reader().await?;
    moves(&person, &["restore", "operations", name]).await?;
    let watched = person
        .succeeds(&["restore", "describe", name, "-w"])
        .await?;
    ensure!(
        watched.stdout.contains("Operations  1 of 1 completed"),
        "{watched:?}"
    );
    ensure!(
        watched.stdout.contains("created)") && !watched.stdout.contains("unavailable"),
        "{watched:?}"
    );
    world
        .restore_ends(name, RestorePhase::Completed)
        .await
        .map(drop)
}

async fn describe_shows_what_went_wrong_and_what_is_in_a_backup(world: &mut World) -> TestResult {
    world.plugins()?;
    let name = "describe-failed";
    world
        .scripted(
            name,
            &[("a", "operate", "start=1s:no-room"), ("b", "none", "")],
        )
        .await?;
    world
        .run_backup(name, of_scripted(name), BackupPhase::PartiallyFailed)
        .await?;
    let person = world.reader().await?;
    let screen = person.succeeds(&["describe", name]).await?;
    println!("  described in {:?}", screen.elapsed);
    says(
        &screen.stdout,
        &[
            "ERRORS",
            "no-room",
            "OPERATIONS",
            "Items",
            "2 ConfigMap",
            "kubectl backup logs",
        ],
    )?;
    let screen = screen.stdout;
    ensure!(
        !screen.contains("unavailable") && !screen.contains("describe-failed/b"),
        "{screen}"
    );
    let details = person.stdout(&["describe", name, "--details"]).await?;
    says(&details, &["    describe-failed/b"])?;
    // A user who may not request files sees all the rest.
    let viewer = world
        .kubectl_backup_as("viewer", Some("backup-lock-view"))
        .await?;
    let screen = viewer.stdout(&["describe", name]).await?;
    says(&screen, &["Something was not saved (", "unavailable"])?;
    Ok(())
}

async fn a_log_is_followed_until_its_backup_has_ended(world: &mut World) -> TestResult {
    let name = "follow-log";
    world.config_maps(name, 3).await?;
    world.start_backup(name).await?;
    let person = world.reader().await?;
    let followed = person.succeeds(&["logs", name, "-f"]).await?;
    ensure!(
        world.backup_ended(name).await?.phase() == BackupPhase::Completed,
        "{followed:?}"
    );
    let whole = person.succeeds(&["logs", name]).await?;
    ensure!(
        !whole.stdout.is_empty() && followed.stdout == whole.stdout,
        "{followed:?}\n{whole:?}"
    );
    Ok(())
}

async fn the_log_of_a_backup_grows_while_items_are_collected(world: &mut World) -> TestResult {
    world.plugins()?;
    let name = "log-grows";
    world.scripted(name, &saying("mark")).await?;
    world.create_backup(name, of_scripted(name)).await?;
    let person = world.reader().await?;
    grows(&person, &["logs", name], ["said-1", "said-2", "said-3"]).await?;
    world.no_partial_files("backups/log-grows/").await
}

async fn the_log_of_a_restore_grows_while_items_are_restored(world: &mut World) -> TestResult {
    world.plugins()?;
    let name = "log-grows-back";
    world.scripted_backup(name, &saying("alter")).await?;
    world.create_restore(name, into_back(name)).await?;
    let person = world.reader().await?;
    grows(
        &person,
        &["restore", "logs", name],
        ["ConfigMap name=a", "ConfigMap name=b", "ConfigMap name=c"],
    )
    .await?;
    world.no_partial_files("restores/log-grows-back/").await
}

async fn a_followed_log_shows_that_the_work_began_again_after_a_crash(
    world: &mut World,
) -> TestResult {
    world.plugins()?;
    let name = "log-again";
    world.scripted(name, &saying("mark")).await?;
    world.create_backup(name, of_scripted(name)).await?;
    let person = world.reader().await?;
    let follow = async || person.run(&["logs", name, "-f"]).await;
    let mut kill = async || {
        eventually(
            "the log comes so far",
            Duration::from_secs(20),
            async || {
                let ran = person.run(&["logs", name]).await?;
                Ok::<_, anyhow::Error>(when(ran.stdout.contains("said-1"), format!("{ran:?}")))
            },
        )
        .await?;
        // The follower has seen it, too.
        tokio::time::sleep(Duration::from_secs(3)).await;
        world.controllers[0].restart().await
    };
    let (followed, killed) = tokio::join!(follow(), kill());
    killed?;
    let followed = followed?.expect_code(0)?;
    ensure!(followed.stderr.contains("has begun again"), "{followed:?}");
    for (line, times) in [
        ("collecting items", 2),
        ("said-1", 2),
        ("said-2", 1),
        ("said-3", 1),
    ] {
        ensure!(
            followed.stdout.matches(line).count() == times,
            "{line}: {followed:?}"
        );
    }
    Ok(())
}
