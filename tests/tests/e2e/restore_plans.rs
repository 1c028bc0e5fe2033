//! `restore --plan`, and `--dry-run=server`: the effects of a restore, item by item, before
//! anything is written.

use std::collections::BTreeSet;

use backup_tests::app::App;
use k8s_openapi::api::core::v1::{Namespace, ResourceQuota};
use kube::api::{ListParams, Patch, PatchParams, PostParams};

use crate::prelude::*;

crate::tests! {
    a_plan_says_what_the_restore_does_then_and_nothing_stays_behind,
    what_the_cluster_would_refuse_is_named_before_anything_is_written,
    a_restore_that_would_not_start_has_no_plan,
    one_object_is_restored_and_nothing_else,
}

/// The list of items of a plan, and of a restore: the lines under the title, up to the next
/// section.
fn items(screen: &str) -> BTreeSet<String> {
    let list = screen.split("ITEMS\n").nth(1).unwrap_or_default();
    let list = list.lines().take_while(|line| line.starts_with("  "));
    list.map(|line| line.trim().to_owned()).collect()
}

/// An application of which some objects were changed and some deleted, and in a second namespace
/// all of them.
async fn a_plan_says_what_the_restore_does_then_and_nothing_stays_behind(
    world: &mut World,
) -> TestResult {
    let app = App::new("planned", 10);
    app.create(&world.client).await?;
    let namespaces = app.namespaces();
    world
        .back_up(
            "planned",
            of_namespaces(&namespaces.each_ref().map(String::as_str)),
        )
        .await?;
    let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), &namespaces[0]);
    maps.merge_patch("config-0003", json!({ "data": { "number": "changed" } }))
        .await?;
    maps.delete_object("config-0004").await?;
    world.delete_namespace(&namespaces[1]).await?;

    let person = world.kubectl_backup();
    let create = [
        "restore",
        "create",
        "planned",
        "--from-backup=planned",
        "--existing-resource-policy=update",
    ];
    let dry = [&create[..], &["--dry-run=server"]].concat();
    let plan = person.stdout(&dry).await?;
    says(
        &plan,
        &[
            "It would be Completed",
            "nothing was written",
            &format!("{}/config-0003(updated)", namespaces[0]),
            &format!("{}/config-0004(created)", namespaces[0]),
            &format!("{}/config-0005(skipped)", namespaces[0]),
            &format!("namespace {:?} is only made by the restore", namespaces[1]),
        ],
    )?;
    let there: Api<Namespace> = Api::all(world.client.clone());
    ensure!(
        there.get_opt(&namespaces[1]).await?.is_none(),
        "the plan has made a namespace"
    );
    ensure!(
        maps.get_opt("config-0004").await?.is_none(),
        "the plan has made an item"
    );
    let data = maps.get("config-0003").await?.data.unwrap_or_default();
    ensure!(data["number"] == "changed", "the plan has changed an item");
    let restores: Api<Restore> = world.api();
    ensure!(
        restores.get_opt("planned").await?.is_none(),
        "the plan has left a Restore"
    );

    person
        .succeeds(&[&create[..], &["--wait"]].concat())
        .await?;
    let done = person
        .stdout(&["restore", "describe", "planned", "--details"])
        .await?;
    let (planned, done) = (items(&plan), items(&done));
    // The service account that each namespace gets may exist before the one of the backup is
    // restored.
    let default = format!("{}/default(", namespaces[1]);
    let differ: Vec<_> = planned
        .symmetric_difference(&done)
        .filter(|one| !one.starts_with(&default))
        .collect();
    ensure!(
        !planned.is_empty() && differ.is_empty(),
        "the plan and the restore differ: {differ:?}"
    );
    app.destroy(&world.client).await
}

async fn what_the_cluster_would_refuse_is_named_before_anything_is_written(
    world: &mut World,
) -> TestResult {
    let name = "plan-refused";
    world.backed_up(name, 3).await?;
    let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), name);
    let mine = maps.list(&ListParams::default()).await?;
    for map in mine
        .items
        .iter()
        .filter(|map| map.name_any() != "kube-root-ca.crt")
    {
        maps.delete_object(&map.name_any()).await?;
    }
    let quotas: Api<ResourceQuota> = Api::namespaced(world.client.clone(), name);
    let full = json!({ "hard": { "count/configmaps": "1" }, "used": { "count/configmaps": "1" } });
    let quota = json!({ "metadata": { "name": "full" }, "spec": { "hard": full["hard"] } });
    quotas
        .create(&PostParams::default(), &serde_json::from_value(quota)?)
        .await?;
    // As its controller would, which does not run here.
    let status = Patch::Merge(json!({ "status": full }));
    quotas
        .patch_status("full", &PatchParams::default(), &status)
        .await?;
    let from = format!("--from-backup={name}");
    let seen = world
        .kubectl_backup()
        .fails(3, &["restore", &from, "--plan"])
        .await?;
    says(
        &seen.stdout,
        &[
            "It would be PartiallyFailed, with 3 errors",
            "exceeded quota: full",
            "(failed)",
        ],
    )?;
    world.delete_namespace(name).await
}

async fn a_restore_that_would_not_start_has_no_plan(world: &mut World) -> TestResult {
    let name = "plan-not-started";
    world.backed_up(name, 1).await?;
    let from = format!("--from-backup={name}");
    let modifiers = "--resource-modifier-configmap=not-there";
    let args = [
        "restore",
        "create",
        name,
        &from,
        "--dry-run=server",
        modifiers,
    ];
    let seen = world.kubectl_backup().fails(3, &args).await?;
    says(
        &seen.stderr,
        &["would not start", "there is no ConfigMap \"not-there\""],
    )?;
    world.delete_namespace(name).await
}

async fn one_object_is_restored_and_nothing_else(world: &mut World) -> TestResult {
    world.config_maps("one-object", 3).await?;
    world
        .back_up("one-object", of_namespaces(&["one-object"]))
        .await?;
    let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), "one-object");
    let all: Vec<String> = maps
        .list(&ListParams::default())
        .await?
        .iter()
        .map(ResourceExt::name_any)
        .collect();
    let names: Vec<&String> = all
        .iter()
        .filter(|name| *name != "kube-root-ca.crt")
        .collect();
    for name in &names {
        maps.delete_object(name).await?;
    }
    let person = world.kubectl_backup();
    let object = format!("--object=one-object/configmap/{}", names[1]);
    let create = ["restore", "one-object", "--name=one-object", &object];
    let plan = person
        .stdout(&[&create[..], &["--dry-run=server"]].concat())
        .await?;
    says(&plan, &[&format!("one-object/{}(created)", names[1])])?;
    ensure!(!plan.contains(names[0].as_str()), "{plan}");

    person
        .succeeds(&[&create[..], &["--wait"]].concat())
        .await?;
    ensure!(
        maps.get_opt(names[1]).await?.is_some(),
        "it was not restored"
    );
    for name in [names[0], names[2]] {
        ensure!(
            maps.get_opt(name).await?.is_none(),
            "{name} was restored, too"
        );
    }
    let screen = person
        .stdout(&["restore", "describe", "one-object"])
        .await?;
    says(
        &screen,
        &[&format!("only one-object/configmap/{}", names[1])],
    )?;

    let missing = [
        "restore",
        "one-object",
        "--name=one-object-missing",
        "--object=one-object/configmap/no",
        "--wait",
    ];
    person.fails(3, &missing).await?;
    let restore = world.restores().get("one-object-missing").await?;
    ensure!(
        restore.phase() == RestorePhase::Failed,
        "{:?}",
        restore.status
    );
    Ok(())
}
