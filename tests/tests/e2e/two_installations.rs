//! A second installation in the cluster: one webhook and one ledger keep the two apart, or the
//! second one does not start.

use std::collections::BTreeMap;

use backup_core::labels::INSTALLATIONS_ANNOTATION;
use backup_tests::{
    process::{Process, Spec},
    world::backups::claiming,
};
use k8s_openapi::api::coordination::v1::Lease;

use crate::prelude::*;

crate::tests! {
    two_installations_have_one_ledger_or_the_second_stays_out,
}

const SECOND: &str = "team-b";

async fn two_installations_have_one_ledger_or_the_second_stays_out(
    world: &mut World,
) -> TestResult {
    let world = &*world;
    ensure_namespace(&world.client, SECOND).await?;
    let kubeconfig = world.second_installation(SECOND).await?;
    let start = || {
        let env = BTreeMap::from([("KUBECONFIG".to_owned(), kubeconfig.display().to_string())]);
        let args = [
            "--namespace=team-b",
            "--metrics-address=127.0.0.1:0",
            "--backup-sync-period=0",
        ];
        let args = args.map(str::to_owned).to_vec();
        let program = world.programs().controller.clone();
        Process::start(
            Spec {
                name: "second-controller".to_owned(),
                program,
                args,
                env,
            },
            world.folder(),
        )
    };

    // It is not named: its controller does not start, and its objects are admitted without a claim.
    let mut stranger = start()?;
    until("it does not start", TIMEOUT, async || {
        anyhow::Ok(stranger.has_ended())
    })
    .await?;
    let last = stranger.tail(5);
    ensure!(
        last.contains(INSTALLATIONS_ANNOTATION) && last.contains("does not name team-b"),
        "{last}"
    );
    let (backups, restores): (Api<Backup>, Api<Restore>) = (
        Api::namespaced(world.client.clone(), SECOND),
        Api::namespaced(world.client.clone(), SECOND),
    );
    let kubectl = world.kubectl()?;
    let mut unguarded = Backup::new("unguarded", of_namespaces(&["default"]));
    unguarded.metadata.namespace = Some(SECOND.to_owned());
    let created = kubectl
        .succeeds(&["create", "-f", &kubectl.manifest(&unguarded)?])
        .await?;
    ensure!(
        created
            .stderr
            .contains("no installation works in namespace team-b"),
        "{created:?}"
    );
    ensure!(
        !world.claims().await?.contains("unguarded"),
        "it has a place"
    );
    backups.delete_object("unguarded").await?;

    // Once named, it works, and its claims are in the one ledger.
    world.name_installation(SECOND).await?;
    let second = start()?;
    world.second_location(SECOND).await?;
    backups
        .create_object(&Backup::new("theirs", of_namespaces(&["default"])))
        .await?;
    let ended = backups
        .wait_until("theirs", "has ended", TIMEOUT, |backup| {
            backup.phase().is_terminal()
        })
        .await;
    let ended = ended.map_err(|error| error.context(second.tail(15)))?;
    ensure!(
        ended.phase() == BackupPhase::Completed,
        "{:?}",
        ended.status
    );
    let leases: Api<Lease> = Api::namespaced(world.client.clone(), SECOND);
    ensure!(
        leases.get_opt("backup-lock-velero").await?.is_none(),
        "a second ledger"
    );

    // Work of one keeps the other out, both ways.
    let restore = RestoreSpec {
        backup_name: Some("theirs".to_owned()),
        ..claiming("default")
    };
    second.pause()?;
    restores
        .create_object(&Restore::new("in-the-way", restore))
        .await?;
    let late = world.refused_backup("late", "default").await?;
    ensure!(
        late.message.contains("Restore team-b/in-the-way"),
        "{}",
        late.message
    );
    second.resume()?;
    restores
        .wait_until("in-the-way", "has ended", TIMEOUT, |restore| {
            restore.phase().is_terminal()
        })
        .await?;
    world
        .back_up("late", of_namespaces(&["default"]))
        .await
        .map(drop)
}
