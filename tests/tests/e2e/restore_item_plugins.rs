//! Plugins of Velero's kind for items of a restore (`tests/plugins`). Each item says what they do
//! with it.

use backup_core::labels::CANCEL_ANNOTATION;
use backup_store::crash;

use crate::prelude::*;

crate::tests! {
    a_plugin_changes_items_of_a_restore_and_leaves_one_out,
    related_items_of_a_plugin_are_restored_first_and_awaited,
    related_items_that_never_get_ready_are_reported,
    an_operation_of_a_restore_keeps_its_claim_until_it_ends,
    a_crash_around_restore_operations_goes_on_with_the_same,
    operations_of_deleted_and_cancelled_restores_are_cancelled,
}

/// The restored ConfigMaps.
fn made(world: &World, backup: &str) -> Api<ConfigMap> {
    Api::namespaced(world.client.clone(), &format!("{backup}-back"))
}

fn marked(object: &ConfigMap) -> Option<&str> {
    object
        .metadata
        .annotations
        .as_ref()?
        .get("example.io/marked-by")
        .map(String::as_str)
}

async fn a_plugin_changes_items_of_a_restore_and_leaves_one_out(world: &mut World) -> TestResult {
    let plugins = world.plugins()?;
    let name = "ria-alter";
    let items = [
        ("a", "alter", "mark say=info:hello"),
        ("b", "alter", "skip mark"),
        ("c", "nobody", "mark"),
        ("d", "alter", "rename=other"),
        ("e", "alter", ""),
    ];
    world.scripted_backup(name, &items).await?;
    let restore = world.restore(name, into_back(name)).await?;
    ensure!(
        (restore.status.errors, restore.status.warnings) == (0, 0),
        "{:?}",
        restore.status
    );
    let made = made(world, name);
    ensure!(
        marked(&made.get("a").await?) == Some("alter"),
        "it was not changed"
    );
    ensure!(made.get_opt("b").await?.is_none(), "it was to be left out");
    ensure!(marked(&made.get("c").await?).is_none(), "not its business");
    ensure!(
        made.get_opt("d").await?.is_none() && made.get_opt("other").await?.is_some(),
        "not renamed"
    );
    ensure!(
        made.get("e")
            .await?
            .data
            .is_some_and(|data| data["of"] == "e"),
        "not as it was"
    );
    let calls: Vec<_> = plugins
        .calls()
        .into_iter()
        .filter(|called| called.item.starts_with(name))
        .collect();
    ensure!(calls.len() == 4, "each once: {calls:?}");
    let log = world.restore_log(name).await?;
    says(&log, &["plugin plugins: hello", "example.io/alter"])?;
    let list = world.restore_file(name, "resource-list.json.gz").await?;
    ensure!(
        list["v1/ConfigMap"]
            .to_string()
            .contains("ria-alter-back/b(skipped)"),
        "{list}"
    );
    Ok(())
}

async fn related_items_of_a_plugin_are_restored_first_and_awaited(world: &mut World) -> TestResult {
    let plugins = world.plugins()?;
    let name = "ria-along";
    let items = [
        ("a", "move", "bring=configmaps/ria-along/later-3 wait"),
        ("later-3", "", ""),
        // Each requests the other.
        ("x", "alter", "bring=cm/ria-along/y"),
        ("y", "alter", "bring=cm/ria-along/x mark"),
        // Items excluded by filters of types or namespaces are not added.
        (
            "z",
            "alter",
            "bring=secrets/ria-along/none bring=cm/ria-along/plain",
        ),
        ("plain", "", ""),
    ];
    world.scripted_backup(name, &items).await?;
    let spec = RestoreSpec {
        included_resources: vec!["configmaps".to_owned()],
        ..into_back(name)
    };
    let restore = world.restore(name, spec).await?;
    ensure!(
        restore.status.warnings == 1,
        "the Secret is not in the backup: {:?}",
        restore.status
    );
    let made = made(world, name);
    let at = async |item: &str| {
        anyhow::Ok(
            made.get(item)
                .await?
                .metadata
                .creation_timestamp
                .map(|at| at.0),
        )
    };
    ensure!(at("later-3").await? < at("a").await?, "not before its item");
    plugins.have_seen(name, &[("ready", "later-3", 3)])?;
    ensure!(marked(&made.get("y").await?) == Some("alter") && made.get_opt("x").await?.is_some());
    made.get("plain")
        .await
        .context("labels do not count for what comes along")?;
    plugins.have_seen(name, &[("alter", "x", 1), ("alter", "y", 1)])?;
    let progress = restore.status.progress.unwrap_or_default();
    ensure!(
        progress.total_items == progress.items_restored,
        "{progress:?}"
    );
    Ok(())
}

/// The item itself is restored.
async fn related_items_that_never_get_ready_are_reported(world: &mut World) -> TestResult {
    world.plugins()?;
    let name = "ria-unready";
    let items = [
        ("a", "move", "bring=configmaps/ria-unready/late-99 wait=2s"),
        ("late-99", "", ""),
        ("b", "move", "bring=configmaps/ria-unready/it-fails wait"),
        ("it-fails", "", ""),
        ("c", "alter", "bring=configmaps/ria-unready/missing"),
    ];
    world.scripted_backup(name, &items).await?;
    let restore = world
        .run_restore(name, into_back(name), RestorePhase::PartiallyFailed)
        .await?;
    ensure!(
        (restore.status.errors, restore.status.warnings) == (2, 1),
        "{:?}",
        restore.status
    );
    let results = world.restore_file(name, "results.gz").await?;
    let (errors, warnings) = (
        results["errors"].to_string(),
        results["warnings"].to_string(),
    );
    says(
        &errors,
        &["waited for 2s", "\\\"a\\\"", "it is broken", "\\\"b\\\""],
    )?;
    says(&warnings, &["ria-unready/missing", "example.io/alter"])?;
    for item in ["a", "b", "c"] {
        made(world, name)
            .get(item)
            .await
            .context("as with Velero it is restored all the same")?;
    }
    Ok(())
}

async fn an_operation_of_a_restore_keeps_its_claim_until_it_ends(world: &mut World) -> TestResult {
    let plugins = world.plugins()?;
    let name = "ria-operation";
    world
        .scripted_backup(name, &[("a", "move", "mark start=6s"), ("b", "alter", "")])
        .await?;
    world.create_restore(name, into_back(name)).await?;
    let restore = world
        .restore_reaches(name, RestorePhase::WaitingForPluginOperations)
        .await?;
    ensure!(
        restore.status.restore_item_operations_attempted == 1,
        "{:?}",
        restore.status
    );
    // No backup may read items of an unfinished restore.
    let collides = world
        .create_backup("ria-collides", of_namespaces(&["ria-operation-back"]))
        .await;
    ensure!(collides.is_err(), "the restore has lost its claim");
    // Other restores get a slot meanwhile.
    for other in ["ria-beside-1", "ria-beside-2"] {
        world.scripted_backup(other, &[("a", "alter", "")]).await?;
        world.restore(other, into_back(other)).await?;
    }
    let restore = world.restore_ends(name, RestorePhase::Completed).await?;
    ensure!(
        restore.status.operations()[..2] == [1, 1],
        "{:?}",
        restore.status
    );
    let operations = world.restore_file(name, "itemoperations.json.gz").await?;
    let (spec, state) = (&operations[0]["spec"], &operations[0]["status"]);
    ensure!(
        spec["restoreItemAction"] == "example.io/move" && spec["restoreName"] == name,
        "{operations}"
    );
    ensure!(
        spec["restoreUID"].as_str() == restore.metadata.uid.as_deref(),
        "{operations}"
    );
    let item = json!({ "Group": "", "Resource": "configmaps", "Namespace": "ria-operation-back", "Name": "a" });
    ensure!(spec["resourceIdentifier"] == item, "{operations}");
    ensure!(
        state["phase"] == "Completed" && state["nCompleted"] == 6000,
        "{operations}"
    );
    plugins.have_seen(name, &[("move", "a", 1)])?;
    ensure!(
        marked(&made(world, name).get("a").await?) == Some("move"),
        "it was not changed"
    );
    let keys = world.s3()?.keys(BUCKET).await?;
    // The marker with the folder's owner is kept.
    let folder = "restores/ria-operation/.private/";
    let private: Vec<_> = keys
        .iter()
        .filter_map(|key| key.split_once(folder))
        .map(|(_, key)| key)
        .collect();
    ensure!(private == ["owner"], "{private:?} is left");
    // Its claim is free.
    world
        .back_up("ria-collides", of_namespaces(&["ria-operation-back"]))
        .await
        .map(drop)
}

async fn a_crash_around_restore_operations_goes_on_with_the_same(world: &mut World) -> TestResult {
    world.needs_debug_build()?;
    let plugins = world.plugins()?;
    let points = crash::OPERATION_POINTS
        .iter()
        .filter(|point| **point != "after-renewal");
    for point in points {
        let name = format!("ria-{point}");
        let items = [
            ("a", "move", "mark start=2s"),
            ("b", "move", "start=2s:no-luck"),
            ("c", "move", ""),
        ];
        world.scripted_backup(&name, &items).await?;
        world.crash_at(point).await?;
        world.create_restore(&name, into_back(&name)).await?;
        world.crashed(point).await?;
        let ended = world
            .restore_ends(&name, RestorePhase::PartiallyFailed)
            .await;
        let restore = ended.with_context(|| format!("killed at {point}"))?;
        let status = &restore.status;
        ensure!(
            status.operations() == [2, 1, 1] && status.errors == 1,
            "killed at {point}: {status:?}"
        );
        plugins
            .have_seen(&name, &[("move", "a", 1), ("move", "b", 1)])
            .with_context(|| format!("killed at {point}"))?;
        let errors = world.restore_errors(&name).await?;
        ensure!(
            errors.matches("failed: no-luck").count() == 1,
            "killed at {point}: {errors}"
        );
        let operations = world.restore_file(&name, "itemoperations.json.gz").await?;
        ensure!(
            operations.as_array().is_some_and(|all| all.len() == 2),
            "{operations}"
        );
    }
    Ok(())
}

async fn operations_of_deleted_and_cancelled_restores_are_cancelled(
    world: &mut World,
) -> TestResult {
    let plugins = world.plugins()?;
    for name in ["ria-deleted", "ria-cancelled"] {
        world
            .scripted_backup(name, &[("a", "move", "start=never")])
            .await?;
        world.create_restore(name, into_back(name)).await?;
        world
            .restore_reaches(name, RestorePhase::WaitingForPluginOperations)
            .await?;
    }
    world.restores().delete_object("ria-deleted").await?;
    world.restores().wait_gone("ria-deleted", TIMEOUT).await?;
    let cancel = json!({ "metadata": { "annotations": { CANCEL_ANNOTATION: "true" } } });
    world
        .restores()
        .merge_patch("ria-cancelled", cancel)
        .await?;
    world
        .restore_ends("ria-cancelled", RestorePhase::PartiallyFailed)
        .await?;
    let errors = world.restore_errors("ria-cancelled").await?;
    says(&errors, &["cancelled: its backup or restore was cancelled"])?;
    for name in ["ria-deleted", "ria-cancelled"] {
        plugins.have_seen(name, &[("move", "a", 1), ("cancel", "a", 1)])?;
    }
    let keys = world.s3()?.keys(BUCKET).await?;
    let left = keys
        .iter()
        .find(|key| key.contains("restores/ria-deleted/"));
    ensure!(left.is_none(), "{left:?} is left");
    Ok(())
}
