//! The manual commands for the lock: who may list, release and hold, and their effects.

use backup_tests::people::{BARE_OPERATOR, EDITOR, People, VIEWER};
use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;

use crate::prelude::*;

crate::tests! {
    locks_show_the_restore_that_holds_a_claim,
    locks_hold_keeps_backups_out_and_says_who_and_why,
    locks_hold_waits_for_claims_of_others,
    locks_release_lets_the_other_kind_in_and_leaves_an_event,
    locks_are_seen_by_viewers_and_released_by_operators_only,
}

async fn locks_show_the_restore_that_holds_a_claim(world: &mut World) -> TestResult {
    let world = &*world.pause_controllers()?;
    world.create_claiming_restore("shown", "locks-a").await?;
    let plugin = world.kubectl_backup();
    let table = plugin.succeeds(&["locks"]).await?;
    let row = table
        .stdout
        .lines()
        .find(|line| line.contains("velero/shown"))
        .context("not listed")?;
    says(row, &["Restore", "Reserved", "namespace locks-a"])?;
    ensure!(
        !table.stdout.contains("no claim") && table.stderr.is_empty(),
        "{table:?}"
    );
    let names = plugin.stdout(&["locks", "-o", "name"]).await?;
    ensure!(
        names.lines().any(|line| line == "restore/velero/shown"),
        "{names}"
    );
    let json = plugin.stdout(&["locks", "velero.io", "-o", "json"]).await?;
    let list: Value = serde_json::from_str(&json)?;
    ensure!(
        list["scopes"][0]["status"] == "Open" && list["unchecked"] == serde_json::json!([]),
        "{list}"
    );
    world.delete_unfinished().await
}

async fn locks_hold_keeps_backups_out_and_says_who_and_why(world: &mut World) -> TestResult {
    let plugin = world.kubectl_backup();
    let hold = [
        "locks",
        "hold",
        "disks",
        "--namespaces=locks-b",
        "--reason=moving disks",
    ];
    let ran = plugin.succeeds(&hold).await?;
    ensure!(ran.stdout == "hold/disks holds\n", "{ran:?}");
    let again = plugin.fails(1, &hold).await?;
    ensure!(
        again.stderr.contains("exists already") && again.stderr.contains("moving disks"),
        "{again:?}"
    );
    let shown = plugin.stdout(&["locks"]).await?;
    let row = shown
        .lines()
        .find(|line| line.contains("velero/disks"))
        .context("not listed")?;
    let who = row
        .split("   ")
        .find_map(|cell| cell.trim().strip_suffix(": moving disks"));
    let who = who.context("the list does not say who and why")?.to_owned();
    for error in [
        world.refused_backup("locks-held", "locks-b").await?,
        refusal(world.create_claiming_restore("locks-held", "locks-b").await)?,
    ] {
        for needle in [who.as_str(), "moving disks", "kubectl backup locks"] {
            ensure!(
                error.code == 403 && error.message.contains(needle),
                "{needle:?} is not in {error:?}"
            );
        }
    }
    world
        .back_up("locks-beside", of_namespaces(&["default"]))
        .await
        .context("not held")?;
    let release = ["locks", "release", "hold/disks", "--reason=done", "--yes"];
    plugin.succeeds(&release).await?;
    world
        .back_up("locks-held", of_namespaces(&["default"]))
        .await
        .context("the hold is over")
        .map(drop)
}

async fn locks_hold_waits_for_claims_of_others(world: &mut World) -> TestResult {
    let world = &*world.pause_controllers()?;
    world
        .create_claiming_restore("locks-there", "locks-c")
        .await?;
    let plugin = world.kubectl_backup();
    let reason = "--reason=moving disks";
    let hold = [
        "locks",
        "hold",
        "later",
        "--namespaces=locks-c",
        reason,
        "--wait=1s",
    ];
    let ran = plugin.fails(124, &hold).await?;
    ensure!(
        ran.stderr.contains("waits for Restore velero/locks-there"),
        "{ran:?}"
    );
    let hold = [
        "locks",
        "hold",
        "also",
        "--namespaces=locks-c",
        reason,
        "--wait=2m",
    ];
    let free = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let release = [
            "locks",
            "release",
            "restore/locks-there",
            "--reason=a test",
            "--yes",
        ];
        plugin.run(&release).await
    };
    let (standing, freed) = tokio::join!(plugin.run(&hold), free);
    ensure!(
        freed?.expect_code(0)?.stderr.contains("Hold velero/later"),
        "it does not say whose turn it is"
    );
    ensure!(
        standing?.expect_code(0)?.stdout == "hold/also holds\n",
        "no hold"
    );
    for name in ["hold/later", "hold/also"] {
        plugin
            .succeeds(&["locks", "release", name, "--reason=done", "--yes"])
            .await?;
    }
    world.delete_unfinished().await
}

async fn locks_release_lets_the_other_kind_in_and_leaves_an_event(world: &mut World) -> TestResult {
    let world = &*world.pause_controllers()?;
    let restore = world
        .create_claiming_restore("locks-stuck", "locks-d")
        .await?;
    world.refused_backup("locks-free", "locks-d").await?;
    let epoch = async || {
        let spec = world.ledger().await?.spec.context("no spec")?;
        anyhow::Ok(spec.lease_transitions.unwrap_or_default())
    };
    let before = epoch().await?;
    let plugin = world.kubectl_backup();
    let release = [
        "locks",
        "release",
        "restore/locks-stuck",
        "--reason=the node is gone",
    ];
    plugin.fails(2, &release).await?;
    ensure!(epoch().await? == before, "released without a yes");
    plugin
        .succeeds(&[&release[..], &["--yes"]].concat())
        .await?;
    ensure!(epoch().await? > before, "the epoch is {before} still");
    world
        .create_backup("locks-free", of_namespaces(&["locks-d"]))
        .await
        .context("not freed")?;

    let events: Api<Event> = world.api();
    let of_it = format!(
        "involvedObject.uid={}",
        restore.metadata.uid.unwrap_or_default()
    );
    let events = events
        .list(&ListParams::default().fields(&of_it))
        .await?
        .items;
    let event = events
        .iter()
        .find(|event| event.reason.as_deref() == Some("ForcedRelease"));
    let note = event
        .context("no Event")?
        .message
        .clone()
        .unwrap_or_default();
    says(&note, &["the node is gone", "Reserved"])?;
    let described = plugin
        .stdout(&["restore", "describe", "locks-stuck"])
        .await?;
    says(&described, &["ForcedRelease"])?;
    // It is listed as what it is: stored, and without a claim until it is deleted.
    let shown = plugin.stdout(&["locks"]).await?;
    let row = shown
        .lines()
        .find(|line| line.contains("velero/locks-stuck"))
        .context("not listed")?;
    says(row, &["Released", "the node is gone"])?;
    world.delete_unfinished().await
}

async fn locks_are_seen_by_viewers_and_released_by_operators_only(world: &mut World) -> TestResult {
    People::of(world).await?;
    let world = &*world.pause_controllers()?;
    world
        .create_claiming_restore("locks-roles", "locks-e")
        .await?;
    let plugin = world.kubectl_backup();
    let release = [
        "locks",
        "release",
        "restore/locks-roles",
        "--reason=a test",
        "--yes",
        "--as",
    ];
    let hold = [
        "locks",
        "hold",
        "roles",
        "--namespaces=locks-f",
        "--reason=a test",
        "--as",
    ];

    let seen = plugin.succeeds(&["locks", "--as", VIEWER]).await?;
    ensure!(seen.stdout.contains("velero/locks-roles"), "{seen:?}");
    let nobody = plugin.fails(1, &["locks", "--as", "nobody"]).await?;
    ensure!(
        nobody.stderr.contains("ClusterRole backup-lock-view"),
        "{nobody:?}"
    );
    for command in [release, hold] {
        // RBAC refuses one of them; the policy refuses the other, who may write Leases.
        for (person, needle) in [(VIEWER, "cannot update"), (EDITOR, "belongs to the lock")] {
            let ran = plugin.fails(1, &[&command[..], &[person]].concat()).await?;
            let told = ran.stderr.contains(needle)
                && ran.stderr.contains("ClusterRole backup-lock-operator");
            ensure!(told && ran.stdout.is_empty(), "{person}: {ran:?}");
        }
        let ran = plugin
            .succeeds(&[&command[..], &[BARE_OPERATOR]].concat())
            .await?;
        ensure!(!ran.stderr.contains("warning"), "{ran:?}");
    }
    let error = world.refused_backup("locks-roles", "locks-f").await?;
    ensure!(
        error.message.contains(&format!("{BARE_OPERATOR}: a test")),
        "{error:?}"
    );
    ensure!(
        world.backups().get_opt("locks-roles").await?.is_none(),
        "a refused creation was stored"
    );
    let release = [
        "locks",
        "release",
        "hold/roles",
        "--reason=done",
        "--yes",
        "--as",
        BARE_OPERATOR,
    ];
    plugin.succeeds(&release).await?;
    world.delete_unfinished().await
}
