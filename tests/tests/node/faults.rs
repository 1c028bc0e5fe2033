//! Faults while the data of volumes moves. Each ends in time with a message that says why, and
//! nothing counts as saved or restored that is not.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use backup_core::{
    api::{
        Backup, BackupPhase, BackupStorageLocation, LocationPhase, Restore, RestorePhase,
        transfer::MovePhase,
    },
    data_movement::{
        ATTEMPTS_ANNOTATION, FIRST_LOSS_ANNOTATION, PASSWORD_KEY, PASSWORD_SECRET, repository_name,
        repository_path,
    },
};
use backup_tests::{
    api::{ApiExt as _, objects_in},
    install::NAMESPACE,
    node::{NAME, Node, image_of},
    proxy::Fault,
    wait::{eventually, when},
    world::BUCKET,
};
use k8s_openapi::{
    ByteString,
    api::core::v1::{PersistentVolumeClaim, Secret},
};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use crate::{
    installation::{FREQUENT_POLLS, SOON},
    steps::{
        LONG, MOVER_PROGRAM, SAVING_PODS, backups, begin_backup, lose, missing_data, moving,
        restore, restores, saves_nothing, uploads_of, wait_for_uploads, while_data_moves,
        with_state,
    },
    volumes::{BACKUPS, claims_are_as_before, nothing_of_movers_is_left},
    writer::{FILES, LARGE, SMALL, in_pod, is_same, listing, wait_for_application},
};

/// Flag of the controller: the time for a pod to start, so that a failure is seen soon.
const SHORT_TIMEOUT: &str = "--controller-arg=--data-mover-prepare-timeout=30s";
const MOVER: &str = "backup-mover";
const QUOTA: &str = "no-pods";

/// The only node is drained: the next pod waits until pods may run on it again. The tests after this
/// one use the flags of the controller that are set here.
pub(crate) async fn a_pod_that_is_lost_while_data_moves_is_made_once_more(
    node: &mut Node,
) -> anyhow::Result<()> {
    let [.., name] = BACKUPS;
    let upgrade = ["upgrade", FREQUENT_POLLS, SHORT_TIMEOUT, "--timeout=90s"];
    node.kubectl_backup().succeeds(&upgrade).await?;
    // Random data, as known data is not stored again.
    in_pod(node, "dd if=/dev/urandom of=/first/again bs=1M count=24").await?;
    let create = [
        "create",
        name,
        "--include-namespaces=files",
        "--snapshot-move-data",
    ];
    let ended = async {
        while_data_moves(node, "DataUpload", &create, async |_| drain(node).await).await?;
        let completed = |backup: &Backup| backup.phase() == BackupPhase::Completed;
        let all = backups(node);
        all.wait_until(name, "is completed", LONG, completed)
            .await
            .map(drop)
    }
    .await;
    with_state(node, &["describe", name, "--details"], ended).await?;
    let uploads = uploads_of(node, name).await?;
    let large = uploads
        .iter()
        .find(|upload| upload.spec.source_pvc == LARGE)
        .context("no upload of the large volume")?;
    let annotations = large.annotations();
    let attempts = annotations.get(ATTEMPTS_ANNOTATION);
    ensure!(attempts.is_some_and(|count| count == "2"), "{large:?}");
    let reason = annotations.get(FIRST_LOSS_ANNOTATION);
    ensure!(
        reason.is_some_and(|why| why.contains("its pod")),
        "{large:?}"
    );
    nothing_of_movers_is_left(node).await
}

/// Evicts the pods that save volumes, as before work on their node.
async fn drain(node: &Node) -> anyhow::Result<()> {
    let kubectl = node.kubectl()?;
    let selector = format!("--pod-selector={SAVING_PODS}");
    let drained = kubectl
        .succeeds(&["drain", NAME, &selector, "--timeout=60s"])
        .await;
    kubectl.succeeds(&["uncordon", NAME]).await?;
    drained.map(drop)
}

pub(crate) async fn a_bucket_that_is_away_for_a_while_only_delays_a_restore(
    node: &mut Node,
) -> anyhow::Result<()> {
    const RESTORE: &str = "files-delayed";
    const AWAY: Duration = Duration::from_secs(8);
    let [.., backup] = BACKUPS;
    let before = listing(node).await?;
    lose(node, FILES).await?;
    let named = format!("--name={RESTORE}");
    let create = ["restore", "--from-backup", backup, &named];
    let ended = async {
        while_data_moves(node, "DataDownload", &create, async |_| {
            node.store_front.set(Fault::Refuse);
            tokio::time::sleep(AWAY).await;
            ensure!(
                moving(node, "DataDownload").await?.is_some(),
                "the data had been moved before the bucket was away"
            );
            Ok(())
        })
        .await?;
        let completed = |restore: &Restore| restore.phase() == RestorePhase::Completed;
        let all = restores(node);
        all.wait_until(RESTORE, "is completed", LONG, completed)
            .await
            .map(drop)
    }
    .await;
    with_state(node, &["restore", "describe", RESTORE, "--details"], ended).await?;
    wait_for_application(node).await?;
    is_same(&before, &listing(node).await?)?;
    claims_are_as_before(node).await?;
    nothing_of_movers_is_left(node).await?;
    // Its location may have been validated meanwhile.
    let locations: Api<BackupStorageLocation> = Api::namespaced(node.client.clone(), NAMESPACE);
    let available =
        |one: &BackupStorageLocation| one.status.phase == Some(LocationPhase::Available);
    locations
        .wait_until("default", "is available", LONG, available)
        .await
        .map(drop)
}

/// As the kernel kills one that exceeds its memory.
pub(crate) async fn a_mover_that_is_killed_twice_fails_its_volume(
    node: &mut Node,
) -> anyhow::Result<()> {
    const NAME: &str = "files-killed";
    begin_backup(node, FILES, NAME).await?;
    let reasons = ["not saved in 2 attempts", "it was killed (exit code 137)"];
    let ended = tokio::select! {
        ended = saves_nothing(node, NAME, &reasons) => ended,
        never = kill_movers(node) => never,
    };
    ended?;
    nothing_of_movers_is_left(node).await
}

/// Kills each mover as soon as it runs, for ever.
async fn kill_movers(node: &Node) -> anyhow::Result<()> {
    loop {
        // An error if none runs.
        let _ = node.kill_all(MOVER_PROGRAM);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Three backups, one after another without an end of the one before: without the image of the
/// mover, without the right to make pods, and without the password of the repository.
pub(crate) async fn transfers_that_cannot_start_end_in_time_and_say_why(
    node: &mut Node,
) -> anyhow::Result<()> {
    let password = password(node).await?;
    let ended = fail_to_start(node).await;
    // The faults end, whatever was seen.
    let undone = undo(node, &password).await;
    ended?;
    undone?;
    nothing_of_movers_is_left(node).await
}

async fn fail_to_start(node: &Node) -> anyhow::Result<()> {
    const IMAGE: &str = "files-without-image";
    const PODS: &str = "files-without-pods";
    const PASSWORD: &str = "files-without-password";
    node.hide_image(MOVER).await?;
    begin_backup(node, FILES, IMAGE).await?;
    wait_for_uploads(node, IMAGE, "have pods", |upload| {
        upload.status.transfer.phase == Some(MovePhase::Prepared)
    })
    .await?;
    forbid_pods(node).await?;
    begin_backup(node, FILES, PODS).await?;
    wait_for_uploads(node, PODS, "are refused pods", |upload| {
        let message = upload.status.transfer.message.as_deref();
        message.is_some_and(|message| message.contains(QUOTA))
    })
    .await?;
    secrets(node).delete_object(PASSWORD_SECRET).await?;
    begin_backup(node, FILES, PASSWORD).await?;

    let image = image_of(MOVER);
    saves_nothing(
        node,
        IMAGE,
        &["its pod does not start", "ImagePull", &image],
    )
    .await?;
    let quota = format!("exceeded quota: {QUOTA}");
    saves_nothing(node, PODS, &["--data-mover-prepare-timeout", &quota]).await?;
    saves_nothing(node, PASSWORD, &["bring the Secret back", PASSWORD_SECRET]).await?;
    ensure!(
        !secrets(node).exists(PASSWORD_SECRET).await?,
        "there is a new password beside a repository with another one"
    );
    Ok(())
}

/// No pod can be created any more in the namespace of the installation; those that exist stay.
async fn forbid_pods(node: &Node) -> anyhow::Result<()> {
    let quotas = objects_in(&node.client, NAMESPACE, "v1", "ResourceQuota");
    let quota = json!({ "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": QUOTA },
        "spec": { "hard": { "pods": "0" } } });
    quotas.create_json(quota).await?;
    // The controller of quotas writes it, too, a moment later.
    let status = json!({ "hard": { "pods": "0" }, "used": { "pods": "4" } });
    quotas.merge_patch_status(QUOTA, status).await?;
    Ok(())
}

async fn undo(node: &Node, password: &ByteString) -> anyhow::Result<()> {
    let delete = ["delete", "resourcequota", QUOTA, "--ignore-not-found"];
    let namespace = ["--namespace", NAMESPACE];
    node.kubectl()?
        .succeeds(&[&delete[..], &namespace].concat())
        .await?;
    set_password(node, password).await?;
    node.show_image(MOVER).await
}

/// The right one is used again by the test after this one.
pub(crate) async fn a_wrong_password_is_named(node: &mut Node) -> anyhow::Result<()> {
    const NAME: &str = "files-with-a-wrong-password";
    let password = password(node).await?;
    set_password(node, &ByteString(b"another password".to_vec())).await?;
    let ended = async {
        begin_backup(node, FILES, NAME).await?;
        let reason = "the password does not open the repository";
        saves_nothing(node, NAME, &[reason]).await
    }
    .await;
    set_password(node, &password).await?;
    ended?;
    nothing_of_movers_is_left(node).await
}

pub(crate) async fn damaged_data_fails_its_volume_until_it_is_whole_again(
    node: &mut Node,
) -> anyhow::Result<()> {
    let [.., backup] = BACKUPS;
    let before = listing(node).await?;
    lose(node, FILES).await?;
    let whole = damage(node).await?;
    let ended = restore_damaged(node, backup).await;
    for (key, bytes) in whole {
        node.s3.write(BUCKET, &key, bytes).await?;
    }
    ended?;
    // The check that the damage has begun may have read data that was damaged.
    let name = repository_name(FILES, "default");
    let check = ["repositories", "check", &name, "--read-data", "--wait=150s"];
    node.kubectl_backup().succeeds(&check).await?;
    let described = node
        .kubectl_backup()
        .succeeds(&["describe", backup])
        .await?;
    let described = described.stdout;
    ensure!(!described.contains("Damage"), "{described}");
    lose(node, FILES).await?;
    restore(node, backup, "files-whole").await?;
    wait_for_application(node).await?;
    is_same(&before, &listing(node).await?)?;
    nothing_of_movers_is_left(node).await
}

/// Changes the first bytes of all large packs of the repository, which belong to the large volume.
/// Returns the packs as they were.
async fn damage(node: &Node) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    const MIN_BYTES: usize = 1 << 20;
    const DAMAGED_BYTES: usize = 512;
    let data = format!("{}/data/", repository_path(FILES));
    let mut whole = Vec::new();
    for key in node.s3.keys(BUCKET).await? {
        if !key.starts_with(&data) {
            continue;
        }
        let bytes = node.s3.read(BUCKET, &key).await?.to_vec();
        if bytes.len() >= MIN_BYTES {
            whole.push((key, bytes));
        }
    }
    ensure!(!whole.is_empty(), "the repository has no large pack");
    for (key, bytes) in &whole {
        let mut damaged = bytes.clone();
        for byte in damaged.iter_mut().take(DAMAGED_BYTES) {
            *byte = !*byte;
        }
        node.s3.write(BUCKET, key, damaged).await?;
    }
    Ok(whole)
}

/// Checks that only the small volume comes back, and that the other one is named.
async fn restore_damaged(node: &Node, backup: &str) -> anyhow::Result<()> {
    const RESTORE: &str = "files-damaged";
    let plugin = node.kubectl_backup();
    let named = format!("--name={RESTORE}");
    let create = ["restore", "--from-backup", backup, &named];
    let flags = ["--wait", "--timeout=150s"];
    let describe = ["restore", "describe", RESTORE, "--details"];
    let failed = plugin.fails(3, &[&create[..], &flags].concat()).await;
    with_state(node, &describe, failed).await?;
    let described = plugin.succeeds(&describe).await?.stdout;
    let restore = restores(node).get(RESTORE).await?;
    ensure!(
        restore.phase() == RestorePhase::PartiallyFailed,
        "{described}"
    );
    let large = format!("{FILES}/{LARGE}");
    for part in [large.as_str(), "the data was not restored"] {
        ensure!(described.contains(part), "no {part:?} in {described}");
    }
    let missing = missing_data(&restore).with_context(|| described.clone())?;
    let volumes: Vec<&String> = missing.volumes.keys().collect();
    ensure!(volumes == [&large], "{missing:?}: {described}");
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(node.client.clone(), FILES);
    for (name, is_restored) in [(LARGE, false), (SMALL, true)] {
        let claim = claims.get(name).await?;
        let volume = claim
            .spec
            .as_ref()
            .and_then(|spec| spec.volume_name.as_ref());
        ensure!(volume.is_some() == is_restored, "{claim:?}: {described}");
    }
    let described = plugin.succeeds(&["describe", backup]).await?.stdout;
    ensure!(
        described.contains("Damage"),
        "no damage of the repository in {described}"
    );
    eventually("the volume without its data is removed", SOON, async || {
        let volumes = node.csi.volumes()?;
        anyhow::Ok(when(volumes.len() == 1, format!("{volumes:?}")))
    })
    .await
}

fn secrets(node: &Node) -> Api<Secret> {
    Api::namespaced(node.client.clone(), NAMESPACE)
}

/// The password of the repositories.
async fn password(node: &Node) -> anyhow::Result<ByteString> {
    let secret = secrets(node).get(PASSWORD_SECRET).await?;
    let mut data = secret.data.unwrap_or_default();
    data.remove(PASSWORD_KEY).context("no password")
}

async fn set_password(node: &Node, password: &ByteString) -> anyhow::Result<()> {
    let mut secret = Secret {
        data: Some([(PASSWORD_KEY.to_owned(), password.clone())].into()),
        ..Secret::default()
    };
    secret.metadata.name = Some(PASSWORD_SECRET.to_owned());
    secrets(node).apply_object(PASSWORD_SECRET, &secret).await?;
    Ok(())
}
