//! Resource policies that choose claims and the class of their snapshots.

use super::*;

pub(super) async fn a_policy_chooses_claims_by_their_modes_and_the_class_of_snapshots(
    world: &mut World,
) -> TestResult {
    let _driver = ready(world).await?;
    snapshots::claim(&world.client, "csi-policy", "data", "no-such-class").await?;
    let text = "version: v1
volumePolicies:
- conditions: { pvcVolumeMode: Block }
  action: { type: skip }
- conditions: { pvcAccessModes: [ReadWriteMany, ReadWriteOnce] }
  action: { type: skip }
- conditions: { pvcVolumeMode: Filesystem, pvcAccessModes: [ReadWriteOnce] }
  action: { type: snapshot, parameters: { snapshotClass: slow } }
";
    let maps: Api<ConfigMap> = world.api();
    let map = json!({ "metadata": { "name": "class-policy" }, "data": { "policy.yaml": text } });
    maps.create_json(map).await?;
    let mut spec = of_namespaces(&["csi-policy"]);
    spec.resource_policy =
        serde_json::from_value(json!({ "kind": "ConfigMap", "name": "class-policy" }))?;
    let backup = world.back_up("csi-policy", spec).await;
    maps.delete_object("class-policy").await?;
    let status = backup?.status;
    ensure!(snapshotted(&status) == (1, 1), "{status:?}");
    world
        .backup_item(
            "csi-policy",
            "volumesnapshotclasses.snapshot.storage.k8s.io/cluster/slow.json",
        )
        .await?;
    Ok(())
}

pub(super) async fn a_policy_for_all_backups_comes_after_those_of_a_backup(
    world: &mut World,
) -> TestResult {
    let name = "csi-for-all";
    let _driver = ready(world).await?;
    snapshots::claim(&world.client, name, "data", "ready").await?;
    let maps: Api<ConfigMap> = world.api();
    for (map, action) in [("for-all", "skip"), ("of-one", "snapshot")] {
        let text = format!(
            "version: v1\nvolumePolicies:\n- conditions: {{}}\n  action: {{ type: {action} }}\n"
        );
        maps.create_json(json!({ "metadata": { "name": map }, "data": { "policy.yaml": text } }))
            .await?;
    }
    world
        .controllers_with(&["--global-backup-volume-policies-configmap=for-all"])
        .await?;
    let by_default = world.back_up(name, of_namespaces(&[name])).await;
    let mut spec = of_namespaces(&[name]);
    spec.resource_policy =
        serde_json::from_value(json!({ "kind": "ConfigMap", "name": "of-one" }))?;
    let by_its_own = world.back_up("csi-of-one", spec).await;
    world.controllers_with(&[]).await?;
    for map in ["for-all", "of-one"] {
        maps.delete_object(map).await?;
    }
    let by_default = by_default?;
    ensure!(
        snapshotted(&by_default.status) == (0, 0),
        "{:?}",
        by_default.status
    );
    ensure!(
        snapshotted(&by_its_own?.status) == (1, 1),
        "its own policy comes first"
    );
    let shown = world.kubectl_backup().stdout(&["describe", name]).await?;
    says(
        &shown,
        &["those of ConfigMap for-all, which are for all backups"],
    )
}
