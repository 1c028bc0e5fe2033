//! Existing objects are compared before they are restored, including those that the cluster creates
//! itself.

use k8s_openapi::api::{
    core::v1::{Namespace, ServiceAccount},
    networking::v1::NetworkPolicy,
};

use crate::prelude::*;

crate::tests! {
    what_the_cluster_made_or_opened_meanwhile_is_compared,
}

async fn what_the_cluster_made_or_opened_meanwhile_is_compared(world: &mut World) -> TestResult {
    let name = "opened";
    let enforce = "pod-security.kubernetes.io/enforce";
    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    let accounts: Api<ServiceAccount> = Api::namespaced(world.client.clone(), name);
    let policies: Api<NetworkPolicy> = Api::namespaced(world.client.clone(), name);
    let peers = |peer: Value| json!({ "spec": { "ingress": [{ "from": [peer] }] } });
    let own = json!({ "podSelector": { "matchLabels": { "app": "web" } } });
    let everybody =
        json!({ "podSelector": { "matchLabels": { "app": "web" } }, "namespaceSelector": {} });
    let policy = json!({ "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": { "name": "web", "namespace": name }, "spec": { "podSelector": {}, "ingress": [{ "from": [own] }] } });
    ensure_namespace(&world.client, name).await?;
    create_all(&world.client, [policy]).await?;
    namespaces
        .merge_patch(
            name,
            json!({ "metadata": { "labels": { enforce: "restricted" } } }),
        )
        .await?;
    let has_default = async || accounts.exists("default").await;
    until(
        "the cluster has made the account",
        POINT_TIMEOUT,
        has_default,
    )
    .await?;
    accounts
        .merge_patch("default", json!({ "automountServiceAccountToken": false }))
        .await?;
    world.back_up(name, of_namespaces(&[name])).await?;

    namespaces
        .merge_patch(name, json!({ "metadata": { "labels": { enforce: null } } }))
        .await?;
    accounts
        .merge_patch("default", json!({ "automountServiceAccountToken": true }))
        .await?;
    policies.merge_patch("web", peers(everybody)).await?;
    let left = world.restore("opened-left", from_backup(name)).await?;
    ensure!(left.status.warnings == 3, "{left:?}");
    let warnings = world.restore_file("opened-left", "results.gz").await?["warnings"].to_string();
    says(
        &warnings,
        &[
            "Namespace \\\"opened\\\" exists",
            "NetworkPolicy \\\"web\\\"",
            "ServiceAccount \\\"default\\\"",
        ],
    )?;

    let update = RestoreSpec {
        existing_resource_policy: Some("update".to_owned()),
        ..from_backup(name)
    };
    let updated = world.restore("opened-updated", update).await?;
    ensure!(updated.status.warnings == 0, "{updated:?}");
    let labels = namespaces
        .get(name)
        .await?
        .metadata
        .labels
        .unwrap_or_default();
    ensure!(
        labels
            .get(enforce)
            .is_some_and(|value| value == "restricted"),
        "{labels:?}"
    );
    ensure!(
        accounts
            .get("default")
            .await?
            .automount_service_account_token
            == Some(false),
        "it mounts tokens"
    );
    let policy = serde_json::to_value(policies.get("web").await?)?;
    ensure!(
        policy["spec"]["ingress"][0]["from"][0]["namespaceSelector"].is_null(),
        "{policy}"
    );

    // After a disaster the cluster creates the account before the restore does.
    world.delete_namespace(name).await?;
    let back = world.restore("opened-back", from_backup(name)).await?;
    ensure!(back.status.warnings == 0, "{back:?}");
    ensure!(
        accounts
            .get("default")
            .await?
            .automount_service_account_token
            == Some(false),
        "it mounts tokens"
    );
    Ok(())
}
