//! Names that select nothing: they are never reported as a success, and nothing is overwritten.

use k8s_openapi::api::core::v1::Namespace;

use crate::prelude::*;

crate::tests! {
    a_name_that_is_not_in_the_backup_writes_nothing,
    a_backup_of_nothing_is_no_success,
    an_exclude_that_leaves_nothing_out_is_named,
    items_are_found_by_every_name_of_their_type,
}

/// A namespace with a ConfigMap that has changed since it was backed up.
async fn changed(world: &World, name: &str) -> anyhow::Result<Api<ConfigMap>> {
    let map = |value: &str| {
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "settings", "namespace": name },
            "data": { "colour": value } })
    };
    ensure_namespace(&world.client, name).await?;
    create_all(&world.client, [map("old")]).await?;
    world.back_up(name, of_namespaces(&[name])).await?;
    let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), name);
    maps.merge_patch("settings", json!({ "data": { "colour": "new" } }))
        .await?;
    Ok(maps)
}

async fn a_name_that_is_not_in_the_backup_writes_nothing(world: &mut World) -> TestResult {
    let name = "named";
    let maps = changed(world, name).await?;
    let user = world.kubectl_backup();
    for (number, (flags, expected)) in [
        (
            [
                "--namespace-mappings=namedd:copy",
                "--existing-resource-policy=update",
            ],
            "spec.namespaceMapping.namedd",
        ),
        (
            ["--include-namespaces=namedd", "--include-resources=cm"],
            "\"namedd\" is not in backup \"named\"",
        ),
        (
            [
                "--include-resources=configmapz",
                "--existing-resource-policy=update",
            ],
            "no type is called \"configmapz\"",
        ),
        (
            [
                "--include-namespaces=x*",
                "--existing-resource-policy=update",
            ],
            "select no item",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let restore = format!("--name={name}-{number}");
        let create = [&["restore", name, restore.as_str()][..], &flags].concat();
        let plan = user.fails(3, &[&create[..], &["--plan"]].concat()).await?;
        says(&plan.stderr, &["would not start", expected])?;
        let run = user.fails(3, &[&create[..], &["--wait"]].concat()).await?;
        says(&run.stderr, &["Failed", "nothing was restored", expected])?;
        let settings = maps.get("settings").await?;
        ensure!(
            settings.data.unwrap_or_default()["colour"] == "new",
            "{flags:?} has overwritten it"
        );
    }
    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    ensure!(
        !namespaces.exists("copy").await?,
        "the target of the mapping was made"
    );
    // Short names, and a pattern without a match beside existing names.
    let create = [
        "restore",
        name,
        "--name=named-back",
        "--include-namespaces=named,x*",
        "--include-resources=cm",
    ];
    user.succeeds(
        &[
            &create[..],
            &["--existing-resource-policy=update", "--wait"],
        ]
        .concat(),
    )
    .await?;
    ensure!(
        maps.get("settings").await?.data.unwrap_or_default()["colour"] == "old",
        "it was not restored"
    );
    let warnings = world.restore_file("named-back", "results.gz").await?["warnings"].to_string();
    says(&warnings, &["matches no namespace of backup"])
}

async fn a_backup_of_nothing_is_no_success(world: &mut World) -> TestResult {
    let user = world.kubectl_backup();
    let create = |name, flag| {
        [
            "create",
            name,
            "--include-namespaces=default",
            flag,
            "--wait",
        ]
    };
    let typo = user
        .fails(3, &create("of-a-typo", "--include-resources=configmapz"))
        .await?;
    says(&typo.stderr, &["PartiallyFailed", "Nothing was saved"])?;
    says(
        &user.stdout(&["describe", "of-a-typo"]).await?,
        &["no, there is nothing in it"],
    )?;
    let errors = world.backup_file("of-a-typo", "results.gz").await?["errors"].to_string();
    says(
        &errors,
        &["no type that can be backed up is called", "configmapz"],
    )?;
    // Without the Namespace object, which a selector includes otherwise.
    let nothing = [
        "--include-resources=configmaps",
        "--selector=app=there-is-none",
        "--wait",
    ];
    let of_nothing = [
        &["create", "of-nothing", "--include-namespaces=default"][..],
        &nothing,
    ]
    .concat();
    let empty = user.fails(3, &of_nothing).await?;
    says(&empty.stderr, &["Completed", "Nothing was saved"])?;
    // With the Namespace object.
    let labelled = [
        "create",
        "of-a-label",
        "--include-namespaces=default",
        "-l",
        "app=there-is-none",
        "--wait",
    ];
    says(
        &user.succeeds(&labelled).await?.stderr,
        &["Everything was saved, with 1 warning"],
    )?;
    let warnings = world.backup_file("of-a-label", "results.gz").await?["warnings"].to_string();
    says(&warnings, &["the label selector selects no item"])?;
    // There is nothing to restore.
    user.fails(3, &["restore", "of-nothing", "--name=of-nothing", "--wait"])
        .await?;
    let restore = world.restores().get("of-nothing").await?;
    says(
        &restore.status.failure_reason.unwrap_or_default(),
        &["holds no items"],
    )
}

async fn an_exclude_that_leaves_nothing_out_is_named(world: &mut World) -> TestResult {
    let name = "idle-excludes";
    world.config_maps(name, 1).await?;
    let excluded = ["kube-system", "kube-sytsem", "idle-x*"]
        .map(str::to_owned)
        .to_vec();
    let spec = BackupSpec {
        excluded_namespaces: excluded,
        ..of_namespaces(&["idle-e*"])
    };
    let backup = world.back_up(name, spec).await?;
    ensure!(backup.status.warnings == 2, "{:?}", backup.status);
    let warnings = world.backup_file(name, "results.gz").await?["warnings"].to_string();
    for exclude in ["kube-sytsem", "idle-x*"] {
        says(
            &warnings,
            &[&format!(
                "no namespace is called \\\"{exclude}\\\": excluding it leaves nothing out"
            )],
        )?;
    }
    Ok(())
}

async fn items_are_found_by_every_name_of_their_type(world: &mut World) -> TestResult {
    changed(world, "called").await?;
    let user = world.kubectl_backup();
    for of_type in ["cm", "configmap", "ConfigMap", "configmaps"] {
        let item = format!("called/{of_type}/settings");
        // Backups of other tests whose location was removed are not searched.
        says(&user.run(&["search", &item]).await?.stdout, &["called"])?;
        says(
            &user.stdout(&["cat", "called", &item]).await?,
            &["colour: old"],
        )?;
        let place = format!("called/{of_type}");
        says(
            &user.stdout(&["ls", "called", &place]).await?,
            &["settings"],
        )?;
        let include = format!("--include-resources={of_type}");
        user.fails(1, &["diff", "called", &include]).await?;
    }
    let unknown = "called/configmapz/settings";
    for line in [&["search", unknown][..], &["cat", "called", unknown]] {
        says(
            &user.fails(1, line).await?.stderr,
            &["no type is called \"configmapz\""],
        )?;
    }
    says(
        &user
            .fails(1, &["search", "called/cm/nowhere"])
            .await?
            .stderr,
        &["none of", "has called/cm/nowhere"],
    )?;
    says(
        &user
            .fails(2, &["diff", "called", "--include-resources=deploy"])
            .await?
            .stderr,
        &["nothing can be compared"],
    )
}
