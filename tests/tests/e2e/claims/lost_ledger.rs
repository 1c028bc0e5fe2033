//! A ledger that is deleted or edited by hand.

use super::*;

pub(super) async fn a_deleted_ledger_is_rebuilt_and_grants_nothing_until_then(
    world: &mut World,
) -> TestResult {
    let leases: Api<Lease> = world.api();
    let before = world.ledger().await?;
    let world = &*world.pause_controllers()?;
    world.create_claiming_restore("lost-holder", "lost").await?;
    let epoch = |lease: &Lease| {
        lease
            .spec
            .as_ref()
            .and_then(|spec| spec.lease_transitions)
            .unwrap_or_default()
    };
    let held = epoch(&world.ledger().await?);
    // An administrator may delete it; policy refuses all other users.
    leases.delete_object("backup-lock-velero").await?;
    // Clients retry after a 503 with a delay: this one does not.
    let once = once(world).await?;
    let early = Backup::new("lost-early", of_namespaces(&["elsewhere-lost"]));
    let early = refusal(once.create_object(&early).await)?;
    ensure!(
        early.code == 503 && early.message.contains("being rebuilt"),
        "{early:?}"
    );
    eventually("the ledger is rebuilt", TIMEOUT, async || {
        world
            .create_backup("lost-late", of_namespaces(&["elsewhere-lost"]))
            .await
            .map(Probe::Ready)
    })
    .await?;
    let after = world.ledger().await?;
    ensure!(
        after.metadata.uid != before.metadata.uid,
        "it is another Lease"
    );
    ensure!(
        epoch(&after) > held,
        "the epoch goes on: {} after {held}",
        epoch(&after)
    );
    let error = world.refused_backup("lost-collides", "lost").await?;
    ensure!(
        error.message.contains("lost-holder"),
        "who holds a place keeps it: {error:?}"
    );
    world.delete_unfinished().await
}

pub(super) async fn a_ledger_that_was_edited_by_hand_is_rebuilt(world: &mut World) -> TestResult {
    let leases: Api<Lease> = world.api();
    let markers: Api<ConfigMap> = world.api();
    let world = &*world.pause_controllers()?;
    world
        .create_claiming_restore("edited-holder", "edited")
        .await?;
    let once = once(world).await?;
    // The replicas may write at any time, too.
    eventually("the ledger is edited", TIMEOUT, async || {
        let mut lease = world.ledger().await?;
        let annotations = lease
            .metadata
            .annotations
            .as_mut()
            .context("no annotations")?;
        let serial: u64 = annotations[SERIAL_ANNOTATION].parse()?;
        // Removes every claim, as a user might who wants to run a backup now.
        let empty = r#"{"v":1,"epoch":0,"bound":0,"footprints":[],"claims":[]}"#;
        annotations.insert(LEDGER_ANNOTATION.to_owned(), empty.to_owned());
        annotations.insert(SERIAL_ANNOTATION.to_owned(), (serial + 1).to_string());
        match leases.replace_object("backup-lock-velero", &lease).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {
                anyhow::Ok(when(false, status.message))
            }
            written => written
                .map(|_| when(true, String::new()))
                .map_err(Into::into),
        }
    })
    .await?;
    eventually("the ledger is rebuilt", TIMEOUT, async || {
        let collides = Backup::new("edited-collides", of_namespaces(&["edited"]));
        let refused = refusal(once.create_object(&collides).await)?;
        ensure!(
            refused.code == 503 || refused.message.contains("edited-holder"),
            "{refused:?}"
        );
        anyhow::Ok(when(refused.code == 403, refused.message))
    })
    .await?;
    ensure!(
        markers
            .get("backup-lock-velero")
            .await?
            .data
            .is_some_and(|data| data.contains_key("ledger")),
        "no marker"
    );
    world.delete_unfinished().await
}

/// Backups, by a client without retries.
async fn once(world: &World) -> anyhow::Result<Api<Backup>> {
    let client = client_without_retries(world.plane.admin_kubeconfig()).await?;
    Ok(Api::namespaced(client, NAMESPACE))
}
