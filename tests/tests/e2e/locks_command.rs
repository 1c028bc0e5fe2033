//! The hand tools on the lock: who sees it, who may release and hold, and what that does.

use anyhow::{Context as _, ensure};
use backup_tests::{
    World,
    people::{BARE_OPERATOR, EDITOR, People, VIEWER},
    world::{backups::of_namespaces, lock::refusal},
};
use k8s_openapi::api::core::v1::Event;
use kube::{Api, api::ListParams};
use serde_json::Value;

crate::tests! {
    locks_show_the_restore_that_holds_a_claim,
    locks_hold_keeps_backups_out_and_says_who_and_why,
    locks_hold_waits_for_claims_of_others,
    locks_release_lets_the_other_kind_in_and_leaves_an_event,
    locks_are_seen_by_viewers_and_released_by_operators_only,
}

async fn locks_show_the_restore_that_holds_a_claim(world: &mut World) -> anyhow::Result<()> {
    let paused = world.pause_controllers()?;
    let world = &*paused;
    world.create_claiming_restore("shown", "locks-a").await?;
    let plugin = world.plugin();
    let table = plugin.run(&["locks"]).await?.expect_code(0)?;
    let row = table.stdout.lines().find(|line| line.contains("velero/shown")).context("not listed")?;
    ensure!(
        row.contains("Restore") && row.contains("Reserved") && row.contains("namespace locks-a"),
        "{row}"
    );
    ensure!(!table.stdout.contains("no claim") && table.stderr.is_empty(), "{table:?}");
    let names = plugin.run(&["locks", "-o", "name"]).await?.expect_code(0)?.stdout;
    ensure!(names.lines().any(|line| line == "restore/velero/shown"), "{names}");
    let json = plugin.run(&["locks", "velero.io", "-o", "json"]).await?.expect_code(0)?.stdout;
    let list: Value = serde_json::from_str(&json)?;
    ensure!(list["scopes"][0]["status"] == "Open" && list["unchecked"] == serde_json::json!([]), "{list}");
    world.delete_unfinished().await
}

async fn locks_hold_keeps_backups_out_and_says_who_and_why(world: &mut World) -> anyhow::Result<()> {
    let plugin = world.plugin();
    let hold = ["locks", "hold", "disks", "--namespaces=locks-b", "--reason=moving disks"];
    let ran = plugin.run(&hold).await?.expect_code(0)?;
    ensure!(ran.stdout == "hold/disks holds\n", "{ran:?}");
    let again = plugin.run(&hold).await?.expect_code(1)?;
    ensure!(again.stderr.contains("exists already") && again.stderr.contains("moving disks"), "{again:?}");
    let shown = plugin.run(&["locks"]).await?.expect_code(0)?.stdout;
    let row = shown.lines().find(|line| line.contains("velero/disks")).context("not listed")?;
    let who = row.split("   ").find_map(|cell| cell.trim().strip_suffix(": moving disks"));
    let who = who.context("the list does not say who and why")?.to_owned();
    for error in [
        refusal(world.create_backup("locks-held", of_namespaces(&["locks-b"])).await)?,
        refusal(world.create_claiming_restore("locks-held", "locks-b").await)?,
    ] {
        for needle in [who.as_str(), "moving disks", "kubectl backup locks"] {
            ensure!(error.code == 403 && error.message.contains(needle), "{needle:?} is not in {error:?}");
        }
    }
    world.create_backup("locks-beside", of_namespaces(&["default"])).await.context("not held")?;
    world.backup_ended("locks-beside").await?;
    let release = ["locks", "release", "hold/disks", "--reason=done", "--yes"];
    plugin.run(&release).await?.expect_code(0)?;
    world.create_backup("locks-held", of_namespaces(&["default"])).await.context("the hold is over")?;
    world.backup_ended("locks-held").await?;
    Ok(())
}

async fn locks_hold_waits_for_claims_of_others(world: &mut World) -> anyhow::Result<()> {
    let paused = world.pause_controllers()?;
    let world = &*paused;
    world.create_claiming_restore("locks-there", "locks-c").await?;
    let plugin = world.plugin();
    let reason = "--reason=moving disks";
    let hold = ["locks", "hold", "later", "--namespaces=locks-c", reason, "--wait=1s"];
    let ran = plugin.run(&hold).await?.expect_code(124)?;
    ensure!(ran.stderr.contains("waits for Restore velero/locks-there"), "{ran:?}");
    let hold = ["locks", "hold", "also", "--namespaces=locks-c", reason, "--wait=2m"];
    let free = async {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        let release = ["locks", "release", "restore/locks-there", "--reason=a test", "--yes"];
        plugin.run(&release).await
    };
    let (standing, freed) = tokio::join!(plugin.run(&hold), free);
    ensure!(freed?.expect_code(0)?.stderr.contains("Hold velero/later"), "it does not say whose turn it is");
    ensure!(standing?.expect_code(0)?.stdout == "hold/also holds\n", "no hold");
    for name in ["hold/later", "hold/also"] {
        plugin.run(&["locks", "release", name, "--reason=done", "--yes"]).await?.expect_code(0)?;
    }
    world.delete_unfinished().await
}

async fn locks_release_lets_the_other_kind_in_and_leaves_an_event(world: &mut World) -> anyhow::Result<()> {
    let paused = world.pause_controllers()?;
    let world = &*paused;
    let restore = world.create_claiming_restore("locks-stuck", "locks-d").await?;
    refusal(world.create_backup("locks-free", of_namespaces(&["locks-d"])).await)?;
    let epoch = async || {
        let spec = world.ledger().await?.spec.context("no spec")?;
        anyhow::Ok(spec.lease_transitions.unwrap_or_default())
    };
    let before = epoch().await?;
    let plugin = world.plugin();
    let release = ["locks", "release", "restore/locks-stuck", "--reason=the node is gone"];
    plugin.run(&release).await?.expect_code(2)?;
    ensure!(epoch().await? == before, "released without a yes");
    plugin.run(&[&release[..], &["--yes"]].concat()).await?.expect_code(0)?;
    ensure!(epoch().await? > before, "the epoch is {before} still");
    world.create_backup("locks-free", of_namespaces(&["locks-d"])).await.context("not freed")?;

    let events: Api<Event> = world.api();
    let of_it = format!("involvedObject.uid={}", restore.metadata.uid.unwrap_or_default());
    let events = events.list(&ListParams::default().fields(&of_it)).await?.items;
    let event = events.iter().find(|event| event.reason.as_deref() == Some("ForcedRelease"));
    let note = event.context("no Event")?.message.clone().unwrap_or_default();
    ensure!(note.contains("the node is gone") && note.contains("Reserved"), "{note}");
    let described = plugin.run(&["restore", "describe", "locks-stuck"]).await?.expect_code(0)?.stdout;
    ensure!(described.contains("ForcedRelease"), "{described}");
    // It stands in the list as what it is: stored, and without a claim.
    let shown = plugin.run(&["locks"]).await?.expect_code(0)?.stdout;
    let row = shown.lines().find(|line| line.contains("velero/locks-stuck")).context("not listed")?;
    ensure!(row.contains("no claim") && row.contains("beside Backup velero/locks-free"), "{row}");
    world.delete_unfinished().await
}

async fn locks_are_seen_by_viewers_and_released_by_operators_only(world: &mut World) -> anyhow::Result<()> {
    People::of(world).await?;
    let paused = world.pause_controllers()?;
    let world = &*paused;
    world.create_claiming_restore("locks-roles", "locks-e").await?;
    let plugin = world.plugin();
    let release = ["locks", "release", "restore/locks-roles", "--reason=a test", "--yes", "--as"];
    let hold = ["locks", "hold", "roles", "--namespaces=locks-f", "--reason=a test", "--as"];

    let seen = plugin.run(&["locks", "--as", VIEWER]).await?.expect_code(0)?;
    ensure!(seen.stdout.contains("velero/locks-roles"), "{seen:?}");
    let nobody = plugin.run(&["locks", "--as", "nobody"]).await?.expect_code(1)?;
    ensure!(nobody.stderr.contains("ClusterRole backup-lock-view"), "{nobody:?}");
    for command in [release, hold] {
        // RBAC is in the way of one, the policy of the other, who may write Leases.
        for (person, needle) in [(VIEWER, "cannot update"), (EDITOR, "belongs to the lock")] {
            let ran = plugin.run(&[&command[..], &[person]].concat()).await?.expect_code(1)?;
            let told = ran.stderr.contains(needle) && ran.stderr.contains("ClusterRole backup-lock-operator");
            ensure!(told && ran.stdout.is_empty(), "{person}: {ran:?}");
        }
        let ran = plugin.run(&[&command[..], &[BARE_OPERATOR]].concat()).await?.expect_code(0)?;
        ensure!(!ran.stderr.contains("warning"), "{ran:?}");
    }
    let error = refusal(world.create_backup("locks-roles", of_namespaces(&["locks-f"])).await)?;
    ensure!(error.message.contains(&format!("{BARE_OPERATOR}: a test")), "{error:?}");
    ensure!(world.backups().get_opt("locks-roles").await?.is_none(), "a refused creation was stored");
    let release = ["locks", "release", "hold/roles", "--reason=done", "--yes", "--as", BARE_OPERATOR];
    plugin.run(&release).await?.expect_code(0)?;
    world.delete_unfinished().await
}
