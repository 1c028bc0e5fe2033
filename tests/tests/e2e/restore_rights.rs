//! `--check-restore-rights`: a Restore does nothing that its author may not do directly.

use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{DeleteParams, Patch, PatchParams};

use crate::prelude::*;

crate::tests! {
    a_restore_needs_all_rights_where_it_reads_and_writes,
}

const OWNER: &str = "owner-of-mine";

async fn a_restore_needs_all_rights_where_it_reads_and_writes(world: &mut World) -> TestResult {
    for namespace in ["rights-mine", "rights-prod"] {
        ensure_namespace(&world.client, namespace).await?;
    }
    // May create Restores, like all users who restore, and do everything in one namespace.
    for (namespace, role) in [
        (NAMESPACE, "backup-restorer"),
        ("rights-mine", "cluster-admin"),
    ] {
        let binding = serde_json::from_value(json!({
            "metadata": { "name": format!("{OWNER}-{role}") },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
            "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": OWNER }],
        }))?;
        Api::<RoleBinding>::namespaced(world.client.clone(), namespace)
            .create_object(&binding)
            .await?;
    }
    let owner = Api::<Restore>::namespaced(world.plane.impersonate(OWNER).await?, NAMESPACE);
    let dry = dry_run();
    let spec = |spec: Value| -> anyhow::Result<Restore> {
        Ok(Restore::new("rights", serde_json::from_value(spec)?))
    };
    let mine = json!({
        "backupName": "whatever", "includedNamespaces": ["rights-mine"], "includeClusterResources": false
    });
    let with = |field: &str, value: Value| {
        let mut spec = mine.clone();
        spec[field] = value;
        spec
    };
    // The API servers see the roles a little later.
    eventually(
        "the owner of a namespace restores into it",
        TIMEOUT,
        async || {
            let created = owner.create(&dry, &spec(mine.clone())?).await;
            anyhow::Ok(created.map_or_else(
                |error| Probe::NotYet(error.to_string()),
                |_| Probe::Ready(()),
            ))
        },
    )
    .await?;
    for (spec_of, lacks) in [
        (
            with("includedNamespaces", json!(["rights-mine", "rights-prod"])),
            "namespace rights-prod",
        ),
        (
            with("includedNamespaces", json!(["rights-*"])),
            "the whole cluster",
        ),
        (with("includedNamespaces", json!([])), "the whole cluster"),
        (
            with("includeClusterResources", json!(true)),
            "the whole cluster",
        ),
        (
            with("includeClusterResources", Value::Null),
            "the whole cluster",
        ),
        (
            with("namespaceMapping", json!({ "rights-mine": "rights-prod" })),
            "namespace rights-prod",
        ),
        // The author could read the restored data of production.
        (
            json!({
                "backupName": "whatever", "includedNamespaces": ["rights-prod"], "includeClusterResources": false,
                "namespaceMapping": { "rights-prod": "rights-mine" },
            }),
            "namespace rights-prod",
        ),
    ] {
        let restore = spec(spec_of.clone())?;
        let refused = owner.create(&dry, &restore).await.err();
        let message = refused.map(|error| error.to_string()).unwrap_or_default();
        ensure!(
            message.contains(&format!("*.*) in {lacks}")),
            "{spec_of}: {message}"
        );
        let administrator = world.restores().create(&dry, &restore).await;
        ensure!(
            administrator.is_ok(),
            "an administrator may: {spec_of}: {administrator:?}"
        );
    }
    // It cannot be changed to that afterwards either.
    owner.create_object(&spec(mine.clone())?).await?;
    let mapped = json!({ "spec": {
        "includedNamespaces": ["rights-prod"], "namespaceMapping": { "rights-prod": "rights-mine" } } });
    let changed = owner
        .patch("rights", &PatchParams::default(), &Patch::Merge(mapped))
        .await;
    ensure!(
        changed.is_err_and(|error| error.to_string().contains("namespace rights-prod")),
        "it was changed"
    );
    owner.delete("rights", &DeleteParams::default()).await?;
    Ok(())
}
