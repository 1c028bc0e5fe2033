//! References of restored objects, and their owners: nothing is taken from another application, and
//! nothing runs twice.

use backup_core::{
    labels::{LEFT_ITEMS_ANNOTATION, annotation},
    left_items::LeftItems,
};
use k8s_openapi::api::{
    batch::v1::{CronJob, Job},
    core::v1::{PersistentVolume, PersistentVolumeClaim, Pod},
};
use kube::api::ListParams;

use crate::prelude::*;

crate::tests! {
    a_volume_in_use_is_never_taken_from_its_claim,
    a_claim_whose_volume_is_nowhere_says_what_becomes_of_it,
    what_ended_stays_out_and_what_a_job_makes_is_left_to_it,
}

fn claim(namespace: &str, volume: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "data", "namespace": namespace },
        "spec": { "accessModes": ["ReadWriteMany"], "storageClassName": "", "volumeName": volume,
            "resources": { "requests": { "storage": "1Gi" } } } })
}

fn volume(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": name },
        "spec": { "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteMany"], "storageClassName": "",
            "persistentVolumeReclaimPolicy": "Retain", "nfs": { "server": "192.0.2.1", "path": "/c" } } })
}

/// Waits until the claim `data` of a namespace is bound or lost. Returns its volume.
async fn bound(world: &World, namespace: &str) -> anyhow::Result<String> {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(world.client.clone(), namespace);
    let settled = |claim: &PersistentVolumeClaim| {
        let phase = claim
            .status
            .as_ref()
            .and_then(|status| status.phase.as_deref());
        matches!(phase, Some("Bound" | "Lost"))
    };
    let claim = claims
        .wait_until("data", "is bound", POINT_TIMEOUT, settled)
        .await?;
    let phase = claim
        .status
        .and_then(|status| status.phase)
        .unwrap_or_default();
    ensure!(phase == "Bound", "claim {namespace}/data is {phase}");
    claim
        .spec
        .and_then(|spec| spec.volume_name)
        .context("no volume")
}

async fn a_volume_in_use_is_never_taken_from_its_claim(world: &mut World) -> TestResult {
    let (name, nfs) = ("in-use", "nfs-in-use");
    world.config_maps(name, 1).await?;
    create_all(&world.client, [volume(nfs), claim(name, nfs)]).await?;
    bound(world, name).await?;
    world.back_up(name, of_namespaces(&[name])).await?;

    let of =
        |namespace: &str| Api::<PersistentVolumeClaim>::namespaced(world.client.clone(), namespace);
    let update = Some("update".to_owned());
    for (copy, existing_resource_policy) in
        [("in-use-left", None), ("in-use-updated", update.clone())]
    {
        let spec = RestoreSpec {
            existing_resource_policy,
            ..into_namespace(name, copy)
        };
        world
            .run_restore(copy, spec, RestorePhase::PartiallyFailed)
            .await?;
        let errors = world.restore_errors(copy).await?;
        says(
            &errors,
            &[
                nfs,
                "belongs to claim in-use/data",
                &format!("create claim {copy}/data yourself"),
            ],
        )?;
        let warnings = world.restore_file(copy, "results.gz").await?["warnings"].to_string();
        says(&warnings, &[nfs, "belongs to claim in-use/data"])?;
        ensure!(!warnings.contains("existingResourcePolicy"), "{warnings}");
        ensure!(
            !of(copy).exists("data").await?,
            "a claim that cannot bind was created"
        );
        ensure!(
            world.count_config_maps(copy).await? >= 1,
            "the rest is not there"
        );
        ensure!(
            bound(world, name).await? == nfs,
            "the original has another volume"
        );
    }

    // An existing claim keeps its volume.
    let (copy, other) = ("in-use-updated", "nfs-of-the-copy");
    create_all(&world.client, [volume(other), claim(copy, other)]).await?;
    bound(world, copy).await?;
    let spec = RestoreSpec {
        existing_resource_policy: update.clone(),
        ..into_namespace(name, copy)
    };
    let restore = world.restore("in-use-again", spec).await?;
    let missing = restore
        .annotations()
        .get(backup_core::labels::MISSING_DATA_ANNOTATION);
    says(
        missing.map_or("", String::as_str),
        &["in-use-updated/data", other],
    )?;
    ensure!(
        bound(world, copy).await? == other && bound(world, name).await? == nfs,
        "another volume"
    );

    // A volume whose claim was deleted is bound to the copy, which may change it.
    of(name).delete_at_once("data").await?;
    let volumes: Api<PersistentVolume> = Api::all(world.client.clone());
    let released = |volume: &PersistentVolume| {
        volume
            .status
            .as_ref()
            .is_some_and(|status| status.phase.as_deref() == Some("Released"))
    };
    volumes
        .wait_until(nfs, "is released", POINT_TIMEOUT, released)
        .await?;
    let spec = RestoreSpec {
        existing_resource_policy: update,
        ..into_namespace(name, "in-use-moved")
    };
    world.restore("in-use-moved", spec).await?;
    ensure!(bound(world, "in-use-moved").await? == nfs, "another volume");
    Ok(())
}

/// The volume had the reclaim policy Retain, and is neither in the backup nor in the cluster; its
/// claim has no class.
async fn a_claim_whose_volume_is_nowhere_says_what_becomes_of_it(world: &mut World) -> TestResult {
    let (name, nfs) = ("volume-nowhere", "nfs-nowhere");
    world.config_maps(name, 1).await?;
    create_all(&world.client, [volume(nfs), claim(name, nfs)]).await?;
    bound(world, name).await?;
    let spec = BackupSpec {
        include_cluster_resources: Some(false),
        ..of_namespaces(&[name])
    };
    world.back_up(name, spec).await?;
    Api::<PersistentVolumeClaim>::namespaced(world.client.clone(), name)
        .delete_at_once("data")
        .await?;
    Api::<PersistentVolume>::all(world.client.clone())
        .delete_at_once(nfs)
        .await?;

    let restore = world.restore(name, from_backup(name)).await?;
    let missing = restore
        .annotations()
        .get(backup_core::labels::MISSING_DATA_ANNOTATION);
    says(
        missing.map_or("", String::as_str),
        &[
            "nowhere/data",
            "nothing of it was saved",
            nfs,
            "is not in the backup",
        ],
    )?;
    let warnings = world.restore_file(name, "results.gz").await?["warnings"].to_string();
    let pending = "it has no volume and stays Pending until there is one for it: it asks for no storage class";
    says(
        &warnings,
        &[
            "claim \\\"data\\\" comes back empty",
            "is not in the backup",
            pending,
        ],
    )?;
    let shown = world
        .kubectl_backup()
        .run(&["restore", "describe", name])
        .await?
        .stdout;
    says(
        &shown,
        &["the data of 1 of 1 volume was not restored: volume-nowhere/data"],
    )
}

fn job(name: &str, more: &Value) -> Value {
    let mut job = json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": name, "namespace": "jobs" },
        "spec": { "backoffLimit": 0, "template": pod_template() } });
    json_patch::merge(&mut job, more);
    job
}

fn pod_template() -> Value {
    json!({ "spec": { "restartPolicy": "Never",
        "containers": [{ "name": "c", "image": "registry.example.com/c:1" }] } })
}

async fn what_ended_stays_out_and_what_a_job_makes_is_left_to_it(world: &mut World) -> TestResult {
    let name = "jobs";
    ensure_namespace(&world.client, name).await?;
    let jobs: Api<Job> = Api::namespaced(world.client.clone(), name);
    let cron_jobs: Api<CronJob> = Api::namespaced(world.client.clone(), name);
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), name);
    let report = json!({ "apiVersion": "batch/v1", "kind": "CronJob", "metadata": { "name": "report", "namespace": name },
        "spec": { "schedule": "0 3 * * *", "concurrencyPolicy": "Forbid",
            "jobTemplate": { "spec": { "template": pod_template() } } } });
    create_all(
        &world.client,
        [
            report,
            job("charge-cards", &json!({})),
            job("migrate-db", &json!({})),
        ],
    )
    .await?;
    let owner = |cron_job: &CronJob| {
        json!([{ "apiVersion": "batch/v1", "kind": "CronJob", "name": "report", "uid": cron_job.uid(),
            "controller": true, "blockOwnerDeletion": true }])
    };
    let owners = owner(&cron_jobs.get("report").await?);
    create_all(
        &world.client,
        [job(
            "report-1",
            &json!({ "metadata": { "ownerReferences": owners } }),
        )],
    )
    .await?;

    let of = async |job: &str| {
        anyhow::Ok(
            pods.list(&ListParams::default().labels(&format!("job-name={job}")))
                .await?
                .items,
        )
    };
    let one_each = async || {
        let mut counts = Vec::new();
        for job in ["charge-cards", "migrate-db", "report-1"] {
            counts.push(of(job).await?.len());
        }
        anyhow::Ok(when(counts == [1, 1, 1], format!("{counts:?}")))
    };
    eventually("each Job has a pod", POINT_TIMEOUT, one_each).await?;
    let charges = of("charge-cards").await?.swap_remove(0);
    pods.merge_patch_status(&charges.name_any(), json!({ "phase": "Failed" }))
        .await?;
    let failed = |job: &Job| {
        let conditions = job
            .status
            .iter()
            .filter_map(|status| status.conditions.as_ref())
            .flatten();
        conditions
            .into_iter()
            .any(|one| one.type_ == "Failed" && one.status == "True")
    };
    jobs.wait_until("charge-cards", "has failed", POINT_TIMEOUT, failed)
        .await?;
    let before = of("migrate-db").await?.swap_remove(0);

    world.back_up(name, of_namespaces(&[name])).await?;
    world.delete_namespace(name).await?;
    let restore = world.restore(name, from_backup(name)).await?;
    ensure!(restore.status.warnings == 0, "{:?}", restore.status);
    let left = LeftItems::read(annotation(&restore, LEFT_ITEMS_ANNOTATION)).unwrap_or_default();
    let counted = left.left_out_lines();
    ensure!(
        counted.contains(&"1 Job: the job had failed".to_owned()),
        "{counted:?}"
    );

    ensure!(
        !jobs.exists("charge-cards").await?,
        "a Job that had failed runs again"
    );
    let one_again = async || {
        let names: Vec<String> = of("migrate-db")
            .await?
            .iter()
            .map(ResourceExt::name_any)
            .collect();
        anyhow::Ok(when(names.len() == 1, format!("{names:?}")))
    };
    eventually("the Job has made its pod again", POINT_TIMEOUT, one_again).await?;
    let after = of("migrate-db").await?.swap_remove(0);
    ensure!(
        after.name_any() != before.name_any(),
        "the pod of the old Job came back"
    );
    let job = jobs.get("migrate-db").await?;
    ensure!(
        after
            .owner_references()
            .iter()
            .any(|owner| Some(&owner.uid) == job.uid().as_ref()),
        "{after:?}"
    );
    let owners = serde_json::to_value(jobs.get("report-1").await?.owner_references())?;
    ensure!(owners == owner(&cron_jobs.get("report").await?), "{owners}");

    let log = world.restore_log(name).await?;
    says(
        &log,
        &[
            "the job had failed",
            "its Job makes its pods again",
            &before.name_any(),
        ],
    )
}
