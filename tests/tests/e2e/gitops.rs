//! Tools that apply a repository repeatedly, and what they encounter: refusals, removals, objects
//! that ended long ago. Tests the promises of docs/use/gitops.md.

use backup_tests::kubectl::Kubectl;
use kube::api::ListParams;

use crate::prelude::*;

crate::tests! {
    a_refused_apply_converges_when_it_is_repeated,
    a_restore_in_git_runs_once_and_again_when_it_is_pruned,
    a_backup_that_has_expired_is_made_again_by_git,
    a_backup_that_is_pruned_comes_back_and_keeps_its_data,
}

/// Label by which `apply --prune` identifies the objects of a repository.
const LABEL: &str = "repository";

/// The objects of a repository at a commit, as one file.
fn commit(kubectl: &Kubectl, repository: &str, objects: &[Value]) -> anyhow::Result<String> {
    let mut objects = objects.to_vec();
    for object in &mut objects {
        object["apiVersion"] = "velero.io/v1".into();
        object["metadata"]["namespace"] = NAMESPACE.into();
        object["metadata"]["labels"] = json!({ LABEL: repository });
    }
    kubectl.manifest(&json!({ "apiVersion": "v1", "kind": "List", "items": objects }))
}

fn backup(name: &str, namespace: &str) -> Value {
    json!({ "kind": "Backup", "metadata": { "name": name }, "spec": { "includedNamespaces": [namespace] } })
}

/// Applies a commit, and removes the objects of earlier commits.
async fn reconcile(
    kubectl: &Kubectl,
    repository: &str,
    file: &str,
) -> anyhow::Result<backup_tests::kubectl_backup::Ran> {
    let selector = format!("{LABEL}={repository}");
    let kinds = [
        "--prune-allowlist=velero.io/v1/Backup",
        "--prune-allowlist=velero.io/v1/Restore",
    ];
    let apply = ["apply", "-f", file, "--prune", "--selector", &selector];
    kubectl.run(&[&apply[..], &kinds].concat()).await
}

/// Names and uids of the Backups of a repository.
async fn backups_of(
    world: &World,
    repository: &str,
) -> anyhow::Result<Vec<(String, Option<String>)>> {
    let list = world
        .backups()
        .list(&ListParams::default().labels(&format!("{LABEL}={repository}")))
        .await?;
    Ok(list
        .into_iter()
        .map(|backup| (backup.name_any(), backup.uid()))
        .collect())
}

async fn a_refused_apply_converges_when_it_is_repeated(world: &mut World) -> TestResult {
    let repository = "converges";
    world.config_maps(repository, 1).await?;
    let kubectl = world.kubectl()?;
    let first = commit(&kubectl, repository, &[backup("gitops-old", repository)])?;
    reconcile(&kubectl, repository, &first)
        .await?
        .expect_code(0)?;
    world
        .backup_ends("gitops-old", BackupPhase::Completed)
        .await?;
    let second = commit(&kubectl, repository, &[backup("gitops-new", repository)])?;
    let server_side = commit(
        &kubectl,
        "server-side",
        &[backup("gitops-server-side", repository)],
    )?;
    let apply_on_server = [
        "apply",
        "--server-side",
        "--field-manager=flux",
        "-f",
        &server_side,
    ];

    let paused = world.pause_controllers()?;
    paused
        .create_claiming_restore("gitops-holder", repository)
        .await?;
    for _ in 0..2 {
        let refused = reconcile(&kubectl, repository, &second)
            .await?
            .expect_code(1)?;
        says(&refused.stderr, &["gitops-holder", "Nothing was stored"])?;
        let refused = kubectl.run(&apply_on_server).await?.expect_code(1)?;
        says(&refused.stderr, &["gitops-holder"])?;
        ensure!(!refused.stderr.contains("force-conflicts"), "{refused:?}");
        // No new object exists, and objects to be removed are kept until the whole commit is
        // applied.
        let there = backups_of(&paused, repository).await?;
        ensure!(there.len() == 1 && there[0].0 == "gitops-old", "{there:?}");
    }
    // An existing object does not fail a dry run of everything, with which Flux begins.
    let existing = [
        "apply",
        "--server-side",
        "--field-manager=flux",
        "--force-conflicts",
        "-f",
        &first,
    ];
    kubectl
        .succeeds(&[&existing[..], &["--dry-run=server"]].concat())
        .await?;
    // A replacement would remove the status, and the Backup would run once more.
    let replaced = kubectl
        .run(&["replace", "-f", &first])
        .await?
        .expect_code(1)?;
    ensure!(replaced.stderr.contains("Forbidden"), "{replaced:?}");
    ensure!(
        paused.backups().get("gitops-old").await?.phase() == BackupPhase::Completed,
        "it was replaced"
    );
    drop(paused);

    let world = &*world;
    eventually("the commit is applied", TIMEOUT, async || {
        let ran = reconcile(&kubectl, repository, &second).await?;
        anyhow::Ok(when(ran.code == 0, ran.stderr))
    })
    .await?;
    kubectl.succeeds(&apply_on_server).await?;
    for name in ["gitops-new", "gitops-server-side"] {
        world.backup_ends(name, BackupPhase::Completed).await?;
    }
    let there = backups_of(world, repository).await?;
    ensure!(there.len() == 1 && there[0].0 == "gitops-new", "{there:?}");
    let again = reconcile(&kubectl, repository, &second)
        .await?
        .expect_code(0)?;
    says(&again.stdout, &["gitops-new unchanged"])?;
    kubectl.succeeds(&apply_on_server).await?;
    ensure!(
        backups_of(world, repository).await? == there,
        "another one was made"
    );
    eventually("no claim is left", TIMEOUT, async || {
        let claims = world.claims().await?;
        anyhow::Ok(when(!claims.contains("gitops-"), claims))
    })
    .await
}

async fn a_restore_in_git_runs_once_and_again_when_it_is_pruned(world: &mut World) -> TestResult {
    let (repository, namespace) = ("restores", "gitops-restored");
    world.backed_up(namespace, 2).await?;
    let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), namespace);
    let mut all = maps.list_all().await?.into_iter().map(|map| map.name_any());
    let name = all
        .find(|name| name != "kube-root-ca.crt")
        .context("no ConfigMap")?;
    maps.delete_object(&name).await?;
    let kubectl = world.kubectl()?;
    let restore = json!({ "kind": "Restore",
        "metadata": { "name": "gitops-restore", "annotations": { "backup-lock/on-conflict": "queue" } },
        "spec": { "backupName": namespace } });
    let file = commit(&kubectl, repository, std::slice::from_ref(&restore))?;

    // With `queue` the first try is admitted, although a backup conflicts with it.
    let paused = world.pause_controllers()?;
    paused
        .create_backup("gitops-in-the-way", of_namespaces(&[namespace]))
        .await?;
    for word in ["created", "unchanged"] {
        let ran = reconcile(&kubectl, repository, &file)
            .await?
            .expect_code(0)?;
        says(&ran.stdout, &[&format!("gitops-restore {word}")])?;
    }
    drop(paused);
    let world = &*world;
    let ended = world
        .restore_ends("gitops-restore", RestorePhase::Completed)
        .await?;
    let way = world
        .backup_ends("gitops-in-the-way", BackupPhase::Completed)
        .await?;
    ensure!(
        way.status.start_timestamp >= ended.status.completion_timestamp,
        "{:?}",
        way.status
    );
    ensure!(maps.exists(&name).await?, "it was not restored");

    // Applied again it does nothing, even with another spec.
    maps.delete_object(&name).await?;
    let ran = reconcile(&kubectl, repository, &file)
        .await?
        .expect_code(0)?;
    says(&ran.stdout, &["gitops-restore unchanged"])?;
    let mut other = restore.clone();
    other["spec"]["includedNamespaces"] = json!([namespace]);
    let other = commit(&kubectl, repository, &[other])?;
    reconcile(&kubectl, repository, &other)
        .await?
        .expect_code(0)?;
    let same = world.restores().get("gitops-restore").await?;
    ensure!(
        same.uid() == ended.uid() && same.phase() == RestorePhase::Completed,
        "{:?}",
        same.status
    );
    ensure!(!maps.exists(&name).await?, "it was restored again");

    // When it is pruned, the object is deleted, and the restored objects are kept; committed again,
    // it runs again.
    let kept = maps.names().await?;
    let last = commit(
        &kubectl,
        repository,
        &[backup("gitops-last", "gitops-restored-elsewhere")],
    )?;
    reconcile(&kubectl, repository, &last)
        .await?
        .expect_code(0)?;
    world
        .restores()
        .wait_gone("gitops-restore", TIMEOUT)
        .await?;
    let left = maps.names().await?;
    ensure!(left == kept, "{left:?}, and before {kept:?}");
    world.backup_ended("gitops-last").await?;
    reconcile(&kubectl, repository, &file)
        .await?
        .expect_code(0)?;
    world
        .restore_ends("gitops-restore", RestorePhase::Completed)
        .await?;
    ensure!(maps.exists(&name).await?, "it was not restored again");

    // With a name generated by the server, each try creates another object.
    let mut generated = restore;
    generated["metadata"] = json!({ "generateName": "gitops-" });
    let generated = commit(&kubectl, repository, &[generated])?;
    let refused = kubectl
        .run(&["apply", "-f", &generated])
        .await?
        .expect_code(1)?;
    says(&refused.stderr, &["cannot use generate name with apply"])
}

async fn a_backup_that_has_expired_is_made_again_by_git(world: &mut World) -> TestResult {
    let (repository, name) = ("expires", "gitops-expires");
    world.config_maps(repository, 1).await?;
    let world = &*world;
    let kubectl = world.kubectl()?;
    let mut object = backup(name, repository);
    object["spec"]["ttl"] = "6s".into();
    let file = commit(&kubectl, repository, &[object])?;
    let mut made = Vec::new();
    for number in 0..2 {
        reconcile(&kubectl, repository, &file)
            .await?
            .expect_code(0)?;
        made.push(world.backup_ends(name, BackupPhase::Completed).await?.uid());
        // The last good one would stay.
        let newer = format!("gitops-newer-{number}");
        world.back_up(&newer, of_namespaces(&[repository])).await?;
        world.backups().wait_gone(name, TIMEOUT).await?;
    }
    ensure!(made[0] != made[1], "{made:?}");
    Ok(())
}

async fn a_backup_that_is_pruned_comes_back_and_keeps_its_data(world: &mut World) -> TestResult {
    let (repository, name) = ("prunes", "gitops-pruned");
    world.s3()?.create_bucket(repository).await?;
    world.s3_location(repository, &world.s3()?.url()).await?;
    world.config_maps(repository, 1).await?;
    let world = &*world;
    let kubectl = world.kubectl()?;
    let mut object = backup(name, repository);
    object["spec"]["storageLocation"] = repository.into();
    let with = commit(&kubectl, repository, &[object])?;
    let without = commit(
        &kubectl,
        repository,
        &[backup("gitops-unpruned", repository)],
    )?;
    reconcile(&kubectl, repository, &with)
        .await?
        .expect_code(0)?;
    let stored = world.backup_ends(name, BackupPhase::Completed).await?.uid();
    let stored_uid = async || {
        let metadata = world
            .s3()?
            .read(repository, &format!("backups/{name}/velero-backup.json"))
            .await?;
        let metadata: Value = serde_json::from_slice(&metadata)?;
        anyhow::Ok(metadata["metadata"]["uid"].as_str().map(str::to_owned))
    };

    // The object is deleted, the bucket keeps the backup: another one of this name is not stored
    // over it.
    reconcile(&kubectl, repository, &without)
        .await?
        .expect_code(0)?;
    world.backups().wait_gone(name, TIMEOUT).await?;
    world.backup_ended("gitops-unpruned").await?;
    reconcile(&kubectl, repository, &with)
        .await?
        .expect_code(0)?;
    let again = world.backup_ends(name, BackupPhase::Failed).await?;
    says(
        &again.status.failure_reason.unwrap_or_default(),
        &["already exists in object storage"],
    )?;
    // Its deletion does not remove the other backup's files either.
    world.request_deletion(name).await?;
    world.backups().wait_gone(name, TIMEOUT).await?;
    ensure!(stored_uid().await? == stored, "the stored backup is gone");

    // Synchronisation imports the object without the marks by which tools prune, except its own
    // labels; applied, it is unchanged.
    world.sync(repository, None).await?;
    let back = world.backup_arrives(name).await?;
    reconcile(&kubectl, repository, &with)
        .await?
        .expect_code(0)?;
    let applied = world.backups().get(name).await?;
    ensure!(
        applied.uid() == back.uid() && applied.phase() == BackupPhase::Completed,
        "{:?}",
        applied.status
    );
    ensure!(
        stored_uid().await? == stored,
        "the stored backup is another one"
    );
    world.forget_location(repository).await
}
