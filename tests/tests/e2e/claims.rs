//! The ledger in all situations: waiting objects, deletions, break-glass, and a lost ledger.

mod lost_ledger;

use backup_core::{
    api::{DeleteBackupRequest, delete_backup_request::DeleteBackupRequestSpec},
    labels::{
        BREAK_GLASS_ANNOTATION, LEDGER_ANNOTATION, ON_CONFLICT_ANNOTATION, SERIAL_ANNOTATION,
    },
};
use backup_tests::control_plane::client_without_retries;
use k8s_openapi::{api::coordination::v1::Lease, apimachinery::pkg::apis::meta::v1::Time};
use kube::{
    Resource as _,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};

use crate::prelude::*;
use lost_ledger::{
    a_deleted_ledger_is_rebuilt_and_grants_nothing_until_then,
    a_ledger_that_was_edited_by_hand_is_rebuilt,
};

crate::tests! {
    a_restore_that_may_wait_goes_before_backups_that_have_not_begun,
    a_restore_that_may_wait_goes_before_queued_backups_and_after_the_one_that_has_begun,
    a_queue_that_is_deleted_is_in_nobodys_way,
    a_backup_that_is_restored_from_cannot_be_deleted,
    a_deletion_does_not_ask_for_what_its_backup_was_created_with,
    a_namespace_is_deleted_with_a_backup_that_is_restored_from,
    garbage_collection_of_a_backup_waits_for_the_restore_from_it,
    break_glass_is_admitted_and_the_person_named,
    an_end_that_a_person_forces_leaves_an_event_with_the_reason,
    objects_created_without_the_webhook_never_run_together,
    an_object_that_arrives_ended_needs_no_claim,
    a_running_object_cannot_grow_its_footprint,
    a_deleted_ledger_is_rebuilt_and_grants_nothing_until_then,
    a_ledger_that_was_edited_by_hand_is_rebuilt,
}

async fn a_restore_that_may_wait_goes_before_backups_that_have_not_begun(
    world: &mut World,
) -> TestResult {
    world.config_maps("turn", 3).await?;
    world
        .back_up("turn-source", of_namespaces(&["turn"]))
        .await?;
    let plugin = world.kubectl_backup();
    let names = ["turn-first", "turn-second", "turn-third"];
    {
        let world = &*world.pause_controllers()?;
        for name in names {
            world.create_backup(name, of_namespaces(&["turn"])).await?;
        }
        let refused = refusal(
            world
                .create_restore("turn-denied", from_backup("turn-source"))
                .await,
        )?;
        says(
            &refused.message,
            &["turn-first", "backup-lock/on-conflict: queue"],
        )?;
        world
            .restores()
            .create_object(&patient("turn-waits", "turn-source"))
            .await
            .context("it may wait")?;
        let late = world.refused_backup("turn-late", "turn").await?;
        ensure!(late.message.contains("turn-waits"), "{}", late.message);
        for name in names {
            let shown = plugin.run(&["describe", name]).await?;
            says(
                &shown.stdout,
                &["It waits for its turn behind Restore velero/turn-waits"],
            )?;
        }
    }
    let restore = world
        .restore_ends("turn-waits", RestorePhase::Completed)
        .await?;
    for name in names {
        let backup = world.backup_ends(name, BackupPhase::Completed).await?;
        ensure!(
            blocked_reason(&backup).is_empty(),
            "{:?}",
            backup.metadata.annotations
        );
        let (ended, began) = (
            restore.status.completion_timestamp.as_ref(),
            &backup.status.start_timestamp,
        );
        ensure!(
            began.as_ref() >= ended,
            "{name} began at {began:?}, the restore ended at {ended:?}"
        );
        // The intent of the refused restore is kept for two minutes.
        let waited = began
            .as_ref()
            .zip(ended)
            .map(|(began, ended)| began.0.duration_since(ended.0));
        ensure!(
            waited.is_some_and(|time| time.as_secs() < 60),
            "{name} began {waited:?} after the restore"
        );
    }
    // Waits for the end of the refused restore's intent.
    eventually("a backup is admitted", TIMEOUT, async || {
        world
            .create_backup("turn-after", of_namespaces(&["turn"]))
            .await
            .map(Probe::Ready)
    })
    .await?;
    world.backup_ended("turn-after").await.map(drop)
}

fn patient(name: &str, source: &str) -> Restore {
    annotated(
        Restore::new(name, from_backup(source)),
        ON_CONFLICT_ANNOTATION,
        "queue",
    )
}

async fn a_restore_that_may_wait_goes_before_queued_backups_and_after_the_one_that_has_begun(
    world: &mut World,
) -> TestResult {
    world.config_maps("ahead", 20).await?;
    world
        .back_up("ahead-source", of_namespaces(&["ahead"]))
        .await?;
    let names: Vec<String> = (0..8).map(|n| format!("ahead-{n}")).collect();
    for name in &names {
        world.create_backup(name, of_namespaces(&["ahead"])).await?;
    }
    world
        .restores()
        .create_object(&patient("ahead-restore", "ahead-source"))
        .await
        .context("it may wait")?;
    let last = &names[names.len() - 1];
    let shown = world
        .kubectl_backup()
        .run(&["describe", last])
        .await?
        .stdout;
    if !world
        .restores()
        .get("ahead-restore")
        .await?
        .phase()
        .is_terminal()
    {
        says(
            &shown,
            &["It waits for its turn behind Restore velero/ahead-restore"],
        )?;
    }
    let restore = world
        .restore_ends("ahead-restore", RestorePhase::Completed)
        .await?
        .status;
    let (began, ended) = (restore.start_timestamp, restore.completion_timestamp);
    let mut after = 0;
    for name in &names {
        let backup = world
            .backup_ends(name, BackupPhase::Completed)
            .await?
            .status;
        let (from, to) = (backup.start_timestamp, backup.completion_timestamp);
        ensure!(
            to <= began || from >= ended,
            "{name} ran from {from:?} to {to:?}, and the restore from {began:?} to {ended:?}"
        );
        after += usize::from(from >= ended);
    }
    println!(
        "    {after} of {} backups ran after the restore",
        names.len()
    );
    ensure!(after > 0, "nothing was queued: this proves nothing");
    Ok(())
}

/// "Cancel the queue, I must restore now": no claim is kept for its grace, which is two minutes
/// here.
async fn a_queue_that_is_deleted_is_in_nobodys_way(world: &mut World) -> TestResult {
    world.config_maps("cancelled", 20).await?;
    let names: Vec<String> = (0..8).map(|n| format!("cancelled-{n}")).collect();
    for name in &names {
        world
            .create_backup(name, of_namespaces(&["cancelled"]))
            .await?;
    }
    let all = world.backups().list_all().await?;
    let queued = all
        .iter()
        .filter(|backup| backup.phase() == BackupPhase::Queued)
        .count();
    for name in &names {
        world.backups().delete_object(name).await?;
    }
    let start = std::time::Instant::now();
    eventually(
        "a restore is admitted",
        Duration::from_secs(20),
        async || {
            world
                .create_claiming_restore("cancelled-restore", "cancelled")
                .await
                .map(Probe::Ready)
        },
    )
    .await?;
    println!(
        "    {queued} were Queued, and a restore was admitted after {:?}",
        start.elapsed()
    );
    ensure!(queued > 0, "nothing waited: this proves nothing");
    world
        .restores()
        .delete_object("cancelled-restore")
        .await
        .map(drop)
        .map_err(Into::into)
}

async fn a_backup_that_is_restored_from_cannot_be_deleted(world: &mut World) -> TestResult {
    world.config_maps("kept", 2).await?;
    for name in ["kept-source", "kept-other"] {
        world.back_up(name, of_namespaces(&["kept"])).await?;
    }
    let requests: Api<DeleteBackupRequest> = world.api();
    let request = |name: &str| {
        let spec = DeleteBackupRequestSpec {
            backup_name: name.to_owned(),
            ..Default::default()
        };
        DeleteBackupRequest::new(&format!("delete-{name}"), spec)
    };
    {
        let world = &*world.pause_controllers()?;
        world
            .create_restore("kept-restore", from_backup("kept-source"))
            .await?;
        let error = refusal(world.backups().delete_object("kept-source").await)?;
        ensure!(
            error.message.contains("kept-restore") && error.code == 403,
            "{error:?}"
        );
        let error = refusal(requests.create_object(&request("kept-source")).await)?;
        ensure!(error.message.contains("kept-restore"), "{error:?}");
        // A collection deletion skips it or stops at it, but never deletes it.
        let both = ListParams::default().labels("velero.io/storage-location=default");
        let _ = world
            .backups()
            .delete_collection(&DeleteParams::default(), &both)
            .await;
        ensure!(
            world.backups().get_opt("kept-source").await?.is_some(),
            "deleted with the collection"
        );
    }
    world
        .restore_ends("kept-restore", RestorePhase::Completed)
        .await?;
    requests
        .create_object(&request("kept-source"))
        .await
        .context("nobody restores from it")?;
    world.backup_gone("kept-source").await
}

async fn a_deletion_does_not_ask_for_what_its_backup_was_created_with(
    world: &mut World,
) -> TestResult {
    world.config_maps("asked-once", 2).await?;
    let deleter = deleter(world).await?;
    // A backup created by break-glass, deleted by a user without that permission; and annotations
    // that do not apply to a deletion.
    for (name, annotation, wish) in [
        ("asked-by-glass", BREAK_GLASS_ANNOTATION, "the house burned"),
        ("asked-to-wait", ON_CONFLICT_ANNOTATION, "wait"),
        ("asked-what", ON_CONFLICT_ANNOTATION, "queue"),
    ] {
        let backup = Backup::new(name, of_namespaces(&["asked-once"]));
        if wish == "queue" {
            // A Backup with this annotation is refused; one stored without the webhook may have it.
            world.back_up(name, of_namespaces(&["asked-once"])).await?;
            let annotations = json!({ "metadata": { "annotations": { annotation: wish } } });
            world.backups().merge_patch(name, annotations).await?;
        } else {
            world
                .backups()
                .create_object(&annotated(backup, annotation, wish))
                .await?;
            world.backup_ended(name).await?;
        }
        let restore = format!("{name}-restore");
        {
            let world = &*world.pause_controllers()?;
            world.create_restore(&restore, from_backup(name)).await?;
            let error = refusal(world.backups().delete_object(name).await)?;
            ensure!(
                error.code == 403 && error.message.contains(&restore),
                "{error:?}"
            );
        }
        world
            .restore_ends(&restore, RestorePhase::Completed)
            .await?;
        deleter
            .delete_object(name)
            .await
            .with_context(|| format!("{annotation}: {wish}"))?;
    }
    Ok(())
}

/// Backups as a user who may only read and delete them.
async fn deleter(world: &World) -> anyhow::Result<Api<Backup>> {
    let rbac = "rbac.authorization.k8s.io/v1";
    let role = json!({ "apiVersion": rbac, "kind": "Role", "metadata": { "name": "deletes" },
        "rules": [{ "apiGroups": ["velero.io"], "resources": ["backups"], "verbs": ["get", "delete"] }] });
    let binding = json!({ "apiVersion": rbac, "kind": "RoleBinding", "metadata": { "name": "deletes" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "deletes" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "dora" }] });
    for (kind, object) in [("Role", role), ("RoleBinding", binding)] {
        objects_in(&world.client, NAMESPACE, rbac, kind)
            .apply_object("deletes", &object)
            .await?;
    }
    let backups = Api::namespaced(world.plane.impersonate("dora").await?, NAMESPACE);
    eventually("she may read", TIMEOUT, async || {
        backups.get_opt("none").await.map(|_| Probe::Ready(()))
    })
    .await?;
    Ok(backups)
}

/// The webhook is not called for deletions by the namespace controller, and they do not wait for
/// one another.
async fn a_namespace_is_deleted_with_a_backup_that_is_restored_from(
    world: &mut World,
) -> TestResult {
    let name = "another-velero";
    ensure_namespace(&world.client, name).await?;
    world.name_installation(name).await?;
    let (backups, restores): (Api<Backup>, Api<Restore>) = (
        Api::namespaced(world.client.clone(), name),
        Api::namespaced(world.client.clone(), name),
    );
    let mut backup = Backup::new("old", of_namespaces(&["nowhere"]));
    backup.status.phase = Some(BackupPhase::Completed);
    backups.create_object(&backup).await?;
    restores
        .create_object(&Restore::new("running", from_backup("old")))
        .await?;
    let deleted = backups.delete_object("old").await;
    ensure!(refusal(deleted)?.code == 403, "it is restored from");
    world.delete_namespace(name).await
}

async fn garbage_collection_of_a_backup_waits_for_the_restore_from_it(
    world: &mut World,
) -> TestResult {
    let world = &*world.pause_controllers()?;
    let owners: Api<ConfigMap> = world.api();
    let owner = owners
        .create_json(json!({ "metadata": { "name": "owner" } }))
        .await?;
    for name in ["owned-source", "owned-other"] {
        let mut backup = Backup::new(name, of_namespaces(&["owned"]));
        backup.status.phase = Some(BackupPhase::Completed);
        backup.metadata.owner_references = owner.owner_ref(&()).map(|owner| vec![owner]);
        world.backups().create_object(&backup).await?;
    }
    world
        .create_restore("owned-restore", from_backup("owned-source"))
        .await?;
    owners.delete_object("owner").await?;
    world.backup_gone("owned-other").await?;
    // The garbage collector has tried both by now, and retries.
    tokio::time::sleep(Duration::from_secs(2)).await;
    ensure!(
        world.backups().get_opt("owned-source").await?.is_some(),
        "collected while it is restored from"
    );
    world.restores().delete_object("owned-restore").await?;
    world.backup_gone("owned-source").await
}

async fn break_glass_is_admitted_and_the_person_named(world: &mut World) -> TestResult {
    let world = &*world.pause_controllers()?;
    world
        .create_claiming_restore("glass-holder", "glass")
        .await?;
    let backup = Backup::new("glass-breaker", of_namespaces(&["glass"]));
    let backup = annotated(backup, BREAK_GLASS_ANNOTATION, "the disk dies tonight");
    world
        .backups()
        .create_object(&backup)
        .await
        .context("an administrator may")?;
    let nobody = world.plane.impersonate("nobody-special").await?;
    let api: Api<Backup> = Api::namespaced(nobody, NAMESPACE);
    ensure!(
        api.create_object(&backup).await.is_err(),
        "and not just anybody"
    );
    let names_both = |note: &str| note.contains("glass-holder") && note.contains(" by ");
    world
        .wait_for_event("BreakGlass", |_, note| names_both(note))
        .await?;
    world.delete_unfinished().await
}

async fn an_end_that_a_person_forces_leaves_an_event_with_the_reason(
    world: &mut World,
) -> TestResult {
    let ends = |finalizer: &str| {
        // As if it were being worked on, which is not so.
        Patch::Merge(
            json!({ "status": { "phase": "Failed" }, "metadata": { "finalizers": [finalizer],
            "annotations": { BREAK_GLASS_ANNOTATION: "it will never end" } } }),
        )
    };
    {
        let (world, params) = (&*world.pause_controllers()?, PatchParams::default());
        world
            .create_backup("forced-backup", of_namespaces(&["forced-b"]))
            .await?;
        world
            .create_claiming_restore("forced-restore", "forced-r")
            .await?;
        world
            .backups()
            .patch(
                "forced-backup",
                &params,
                &ends("backup-controller.velero.io/work"),
            )
            .await?;
        world
            .restores()
            .patch("forced-restore", &params, &ends("backup-controller/work"))
            .await?;
    }
    for name in ["forced-backup", "forced-restore"] {
        let note = world
            .wait_for_event("ForcedEnd", |object, _| {
                object.name.as_deref() == Some(name)
            })
            .await?;
        ensure!(
            note.contains("Failed") && note.contains("it will never end"),
            "{name}: {note}"
        );
    }
    ensure!(
        world
            .backups()
            .get("forced-backup")
            .await?
            .finalizers()
            .is_empty(),
        "it is still held"
    );
    ensure!(
        world
            .restores()
            .get("forced-restore")
            .await?
            .finalizers()
            .is_empty(),
        "it is still held"
    );
    Ok(())
}

async fn objects_created_without_the_webhook_never_run_together(world: &mut World) -> TestResult {
    world.config_maps("unguarded", 2).await?;
    world
        .back_up("unguarded-source", of_namespaces(&["unguarded"]))
        .await?;
    {
        let world = &*world.pause_controllers()?;
        let created = async || {
            let mut n = 0;
            // Until every API server has seen that the registration is gone.
            loop {
                n += 1;
                let restore =
                    Restore::new(&format!("unguarded-{n}"), from_backup("unguarded-source"));
                let backup = Backup::new(&format!("unguarded-{n}"), of_namespaces(&["unguarded"]));
                let restored = world.restores().create_object(&restore).await;
                if restored.is_ok() && world.backups().create_object(&backup).await.is_ok() {
                    return anyhow::Ok(());
                }
                ensure!(n < 50, "the registration does not go away");
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        world.unregistered(created).await?;
    }
    eventually("all have ended", TIMEOUT, async || {
        let active = world.restores().list_all().await?.into_iter();
        let active = active.filter(|restore| restore.phase().is_active()).count();
        let running = world.backups().list_all().await?.into_iter();
        let running = running.filter(|backup| backup.phase().is_active()).count();
        Ok::<_, kube::Error>(when(
            active + running == 0,
            format!("{active} restores, {running} backups"),
        ))
    })
    .await?;
    // When each worked, in whole seconds; the second of two either ended without having started,
    // with the reason, or worked later.
    let (mut spans, mut turned_away) = (Vec::new(), 0);
    let mut ended = |name: String, from: Option<Time>, to: Option<Time>, why: Option<String>| match (
        why.filter(|why| why.contains("conflicts with")),
        from,
        to,
    ) {
        (Some(_), ..) => turned_away += 1,
        (None, Some(from), Some(to)) => spans.push((name, from.0.as_second(), to.0.as_second())),
        (None, ..) => {}
    };
    for restore in world.restores().list_all().await? {
        let (name, status) = (format!("restore {}", restore.name_any()), restore.status);
        if name.contains("unguarded-") {
            ended(
                name,
                status.start_timestamp,
                status.completion_timestamp,
                status.failure_reason,
            );
        }
    }
    for backup in world.backups().list_all().await? {
        let (name, status) = (format!("backup {}", backup.name_any()), backup.status);
        if name.contains("unguarded-") && !name.contains("source") {
            ended(
                name,
                status.start_timestamp,
                status.completion_timestamp,
                status.failure_reason,
            );
        }
    }
    println!(
        "    {} worked, {turned_away} were ended without having started",
        spans.len()
    );
    ensure!(!spans.is_empty(), "nobody worked");
    for (one, from, to) in &spans {
        for (other, start, end) in spans.iter().filter(|(other, ..)| other != one) {
            let both = one.starts_with("backup") && other.starts_with("backup");
            ensure!(
                both || to <= start || end <= from,
                "{one} and {other} worked together: {spans:?}"
            );
        }
    }
    Ok(())
}

async fn an_object_that_arrives_ended_needs_no_claim(world: &mut World) -> TestResult {
    let world = &*world.pause_controllers()?;
    world
        .create_claiming_restore("sync-holder", "synced")
        .await?;
    let mut backup = Backup::new("synced", of_namespaces(&["synced"]));
    backup.status.phase = Some(BackupPhase::Completed);
    world
        .backups()
        .create_object(&backup)
        .await
        .context("it does not run")?;
    world.backups().delete_object("synced").await?;
    world.delete_unfinished().await
}

async fn a_running_object_cannot_grow_its_footprint(world: &mut World) -> TestResult {
    let world = &*world.pause_controllers()?;
    world
        .create_backup("grows", of_namespaces(&["grows-a"]))
        .await?;
    let merge = |spec: serde_json::Value| Patch::Merge(json!({ "spec": spec }));
    let more = merge(json!({ "includedNamespaces": ["grows-a", "grows-b"] }));
    let refused = world
        .backups()
        .patch("grows", &PatchParams::default(), &more)
        .await;
    let error = refusal(refused)?;
    ensure!(error.message.contains("grows-b"), "{error:?}");
    let same = merge(json!({ "ttl": "1h0m0s" }));
    world
        .backups()
        .patch("grows", &PatchParams::default(), &same)
        .await
        .context("this touches no more")?;
    world.delete_unfinished().await
}
