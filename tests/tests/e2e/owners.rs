//! Namespace owners back up, restore and read their namespaces without an operator, and nothing of
//! others.

use std::path::Path;

use backup_tests::kubectl_backup::KubectlBackup;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};

use crate::prelude::*;

crate::tests! {
    an_owner_backs_up_reads_and_restores_what_is_the_owners,
    a_reader_of_some_types_backs_up_these_and_no_secrets,
    a_schedule_of_an_owner_is_about_the_owners_namespaces,
}

const ROLE: &str = "backup-owner";
const NO_CLUSTER: &str = "--include-cluster-resources=false";

/// A line, with the flags of a backup or restore of this namespace alone.
fn of_namespace<'a>(line: &[&'a str], flag: &'a str) -> Vec<&'a str> {
    [line, &[flag, NO_CLUSTER][..]].concat()
}

async fn bind(world: &World, namespace: &str, kind: &str, role: &str, account: &str) -> TestResult {
    let binding = serde_json::from_value(json!({
        "metadata": { "name": format!("{role}-{account}") },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role },
        "subjects": [{ "kind": "ServiceAccount", "name": account, "namespace": NAMESPACE }],
    }))?;
    Api::<RoleBinding>::namespaced(world.client.clone(), namespace)
        .create_object(&binding)
        .await?;
    Ok(())
}

/// Sets the namespace of the contexts of a kubeconfig.
fn work_in(kubeconfig: &Path, namespace: &str) -> TestResult {
    let mut config: Value = serde_saphyr::from_str(&std::fs::read_to_string(kubeconfig)?)?;
    for context in config["contexts"].as_array_mut().into_iter().flatten() {
        context["context"]["namespace"] = json!(namespace);
    }
    Ok(std::fs::write(kubeconfig, config.to_string())?)
}

/// Waits until a line succeeds: the API servers see rights a little later.
async fn succeeds_soon(person: &KubectlBackup, args: &[&str]) -> anyhow::Result<String> {
    eventually("the rights are in force", TIMEOUT, async || {
        let ran = person.run(args).await?;
        anyhow::Ok(if ran.code == 0 {
            Probe::Ready(ran.stdout)
        } else {
            Probe::NotYet(ran.stderr)
        })
    })
    .await
}

async fn is_refused(person: &KubectlBackup, args: &[&str], words: &[&str]) -> TestResult {
    let ran = person.fails(1, args).await?;
    says(&ran.stderr, words).with_context(|| format!("{args:?}"))
}

async fn an_owner_backs_up_reads_and_restores_what_is_the_owners(world: &mut World) -> TestResult {
    let (shop, prod) = ("owned-shop", "owned-prod");
    let of_shop = "--include-namespaces=owned-shop";
    world.config_maps(shop, 3).await?;
    world.config_maps(prod, 3).await?;
    world
        .back_up("owned-theirs", of_namespaces(&[prod]))
        .await?;
    world
        .back_up("owned-both", of_namespaces(&[shop, prod]))
        .await?;
    let owner = world.kubectl_backup_as("shop-owner", Some(ROLE)).await?;
    work_in(&world.person("shop-owner", Some(ROLE)).await?, shop)?;
    bind(world, shop, "ClusterRole", "cluster-admin", "shop-owner").await?;
    let attempt = of_namespace(&["create", "owned-try", "--dry-run=server"], of_shop);
    succeeds_soon(&owner, &attempt).await?;

    // Backs up, and reads that.
    owner
        .succeeds(&of_namespace(&["create", "owned"], of_shop))
        .await?;
    world.backup_ended("owned").await?;
    let described = owner.stdout(&["describe", "owned"]).await?;
    says(&described, &["Completed"])?;
    let listed = owner
        .stdout(&["ls", "owned", "owned-shop/configmaps"])
        .await?;
    says(&listed, &["item-0", "item-1", "item-2"])?;
    let log = owner.stdout(&["logs", "owned"]).await?;
    ensure!(log == world.backup_log("owned").await?, "another log");
    let list = owner.succeeds(&["get", "-o", "name"]).await?;
    says(&list.stdout, &["backup.velero.io/owned\n"])?;
    says(&list.stderr, &["You may not list all backups"])?;
    // Without a schedule of the owner others may protect it.
    let status = owner.fails(1, &["status"]).await?;
    says(
        &status.stdout,
        &["NOT CHECKED", "owned-shop", "you may not list all backups"],
    )?;
    for other in ["owned-theirs", "owned-both"] {
        ensure!(!list.stdout.contains(other), "{}", list.stdout);
        let words = ["may not see Backup", prod];
        is_refused(&owner, &["describe", other], &words).await?;
        is_refused(&owner, &["logs", other], &words).await?;
        is_refused(&owner, &["ls", other], &words).await?;
    }
    for (flags, words) in [
        (
            &["--include-namespaces=owned-shop,owned-prod", NO_CLUSTER][..],
            "in namespace owned-prod",
        ),
        (&[NO_CLUSTER], "in the whole cluster"),
        (&[of_shop], "spec.includeClusterResources to false"),
    ] {
        let line = [&["create", "owned-more"][..], flags].concat();
        is_refused(&owner, &line, &[words]).await?;
    }

    // Restores the namespace out of a backup of both.
    let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), shop);
    maps.delete_object("item-1").await?;
    let from_both = [
        "restore",
        "create",
        "owned-back",
        "--from-backup=owned-both",
    ];
    owner.succeeds(&of_namespace(&from_both, of_shop)).await?;
    world.restore_ended("owned-back").await?;
    ensure!(maps.exists("item-1").await?, "it did not come back");
    let described = owner.stdout(&["restore", "describe", "owned-back"]).await?;
    says(&described, &["Completed"])?;
    let log = owner.stdout(&["restore", "logs", "owned-back"]).await?;
    ensure!(log == world.restore_log("owned-back").await?, "another log");
    let from_prod = of_namespace(
        &[
            "restore",
            "create",
            "owned-stolen",
            "--from-backup=owned-theirs",
            "--namespace-mappings=owned-prod:owned-shop",
        ],
        "--include-namespaces=owned-prod",
    );
    is_refused(&owner, &from_prod, &["in namespace owned-prod"]).await?;
    let planned = [&from_prod[..], &["--plan"]].concat();
    is_refused(&owner, &planned, &["in namespace owned-prod"]).await
}

async fn a_reader_of_some_types_backs_up_these_and_no_secrets(world: &mut World) -> TestResult {
    let (namespace, flag) = ("owned-read", "--include-namespaces=owned-read");
    world.config_maps(namespace, 3).await?;
    let role: Role = serde_json::from_value(
        json!({ "metadata": { "name": "reads-some" }, "rules": [
        { "apiGroups": [""], "resources": ["configmaps", "namespaces"], "verbs": ["get", "list"] }] }),
    )?;
    Api::<Role>::namespaced(world.client.clone(), namespace)
        .create_object(&role)
        .await?;
    let reader = world.kubectl_backup_as("some-reader", Some(ROLE)).await?;
    bind(world, namespace, "Role", "reads-some", "some-reader").await?;
    let some = of_namespace(&["create", "owned-some", "--include-resources=cm"], flag);
    succeeds_soon(&reader, &some).await?;
    world.backup_ended("owned-some").await?;
    let described = reader.stdout(&["describe", "owned-some"]).await?;
    says(&described, &["Completed"])?;
    let all = of_namespace(&["create", "owned-all"], flag);
    is_refused(&reader, &all, &["get and list", "in namespace owned-read"]).await?;
    let secrets = of_namespace(
        &["create", "owned-keys", "--include-resources=secrets"],
        flag,
    );
    let lacking = "may not get and list secrets in namespace owned-read";
    is_refused(&reader, &secrets, &[lacking]).await?;
    // All of the same namespace, by an operator.
    world
        .back_up("owned-whole", of_namespaces(&[namespace]))
        .await?;
    is_refused(&reader, &["download", "owned-whole"], &["may not see"]).await
}

async fn a_schedule_of_an_owner_is_about_the_owners_namespaces(world: &mut World) -> TestResult {
    let namespace = "owned-yearly";
    ensure_namespace(&world.client, namespace).await?;
    let owner = world
        .kubectl_backup_as("schedule-owner", Some(ROLE))
        .await?;
    bind(
        world,
        namespace,
        "ClusterRole",
        "cluster-admin",
        "schedule-owner",
    )
    .await?;
    let create = ["schedules", "create", "owned-yearly", "--schedule=@yearly"];
    let mine = of_namespace(&create, "--include-namespaces=owned-yearly");
    succeeds_soon(&owner, &[&mine[..], &["--dry-run=server"]].concat()).await?;
    owner.succeeds(&mine).await?;
    let shown = owner.stdout(&["schedules", "get", "owned-yearly"]).await?;
    says(&shown, &["owned-yearly"])?;
    let create = ["schedules", "create", "owned-other", "--schedule=@yearly"];
    let theirs = of_namespace(&create, "--include-namespaces=kube-system");
    is_refused(&owner, &theirs, &["in namespace kube-system"]).await?;
    let schedules = objects_in(&world.client, NAMESPACE, "velero.io/v1", "Schedule");
    schedules.delete_object("owned-yearly").await?;
    Ok(())
}
