//! Restores with `spec.prune`: a namespace becomes what the backup holds.

use k8s_openapi::api::{
    apps::v1::Deployment, core::v1::PersistentVolumeClaim, rbac::v1::RoleBinding,
};

use crate::prelude::*;

crate::tests! {
    a_namespace_becomes_what_the_backup_holds_and_its_data_stays,
    who_may_not_delete_may_not_have_a_restore_do_so,
}

/// A user who may restore.
const PRUNER: &str = "pruner";

/// A claim for which no volume has to exist.
fn claim(name: &str) -> Value {
    json!({ "metadata": { "name": name }, "spec": { "accessModes": ["ReadWriteOnce"],
        "resources": { "requests": { "storage": "1Mi" } } } })
}

async fn a_namespace_becomes_what_the_backup_holds_and_its_data_stays(
    world: &mut World,
) -> TestResult {
    let (name, other) = ("pruned", "pruned-other");
    world.backed_up(name, 3).await?;
    world.config_maps(other, 1).await?;
    let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), name);
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(world.client.clone(), name);
    let deployments: Api<Deployment> = Api::namespaced(world.client.clone(), name);
    maps.delete_object("item-0").await?;
    maps.merge_patch("item-1", json!({ "data": { "number": "changed" } }))
        .await?;
    maps.create_json(json!({ "metadata": { "name": "extra" } }))
        .await?;
    claims.create_json(claim("cache")).await?;
    let labels = json!({ "app": "extra" });
    let pod = json!({ "metadata": { "labels": labels }, "spec": { "containers": [{ "name": "c", "image": "none.example.com/none" }] } });
    deployments
        .create_json(json!({ "metadata": { "name": "extra" },
            "spec": { "replicas": 0, "selector": { "matchLabels": labels }, "template": pod } }))
        .await?;
    // Creation times are in whole seconds.
    tokio::time::sleep(Duration::from_secs(2)).await;

    let person = world.kubectl_backup();
    let namespaces = format!("--include-namespaces={name}");
    let from = format!("--from-backup={name}");
    let update = "--existing-resource-policy=update";
    let create = [
        "restore",
        "create",
        name,
        &from,
        &namespaces,
        update,
        "--prune",
    ];
    let plan = person.stdout(&[&create[..], &["--plan"]].concat()).await?;
    says(
        &plan,
        &[
            "REMOVED\n",
            "  ConfigMap pruned/extra\n",
            "  Deployment pruned/extra\n",
            "not removed: PersistentVolumeClaim pruned/cache: its data would be lost",
        ],
    )?;
    ensure!(maps.exists("extra").await?, "the plan has removed it");
    let refused = person.fails(2, &create).await?.stderr;
    says(&refused, &["--yes-prune=pruned"])?;
    let confirmed = [&create[..], &["--yes-prune=pruned", "--wait"]].concat();
    person.succeeds(&confirmed).await?;

    let gone = !maps.exists("extra").await? && !deployments.exists("extra").await?;
    ensure!(gone, "something that the backup does not have is there");
    for kept in ["item-0", "item-1", "item-2", "kube-root-ca.crt"] {
        ensure!(maps.exists(kept).await?, "{kept} is gone");
    }
    let data = maps.get("item-1").await?.data.unwrap_or_default();
    ensure!(data["number"] == "1", "{data:?}");
    ensure!(claims.exists("cache").await?, "data was removed");
    ensure!(
        world.count_config_maps(other).await? >= 1,
        "another namespace has lost something"
    );
    let shown = person.stdout(&["restore", "describe", name]).await?;
    says(
        &shown,
        &[
            "2 objects that the backup does not have",
            "REMOVED\n",
            "ConfigMap pruned/extra",
        ],
    )?;
    let list = world.restore_file(name, "resource-list.json.gz").await;
    let list = list?.to_string();
    says(&list, &["pruned/extra(removed)"])
}

/// The author may create Restores, and delete nothing.
async fn who_may_not_delete_may_not_have_a_restore_do_so(world: &mut World) -> TestResult {
    let binding = serde_json::from_value(json!({
        "metadata": { "name": PRUNER },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "backup-restorer" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": PRUNER }],
    }))?;
    Api::<RoleBinding>::namespaced(world.client.clone(), NAMESPACE)
        .create_object(&binding)
        .await?;
    let pruner = Api::<Restore>::namespaced(world.plane.impersonate(PRUNER).await?, NAMESPACE);
    let spec = json!({ "backupName": "whatever", "includedNamespaces": ["pruned-by-nobody"], "prune": true });
    let restore = Restore::new("pruned-by-nobody", serde_json::from_value(spec)?);
    // The API servers see the role a little later.
    eventually("the restore is refused", TIMEOUT, async || {
        let created = pruner.create(&dry_run(), &restore).await;
        let said = created
            .err()
            .map_or_else(|| "it was admitted".to_owned(), |error| error.to_string());
        anyhow::Ok(
            if said.contains("may not delete *.* in namespace pruned-by-nobody") {
                Probe::Ready(())
            } else {
                Probe::NotYet(said)
            },
        )
    })
    .await?;
    world.restores().create(&dry_run(), &restore).await?;
    Ok(())
}
