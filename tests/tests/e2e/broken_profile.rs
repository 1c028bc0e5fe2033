//! A file with a profile is broken while webhook and controller run, and they are restarted one by
//! one.

use backup_tests::{
    control_plane::client_without_retries,
    percona::{self, BACKUP, PROFILE, VERSION},
};

use crate::{guarded_operators::PS, percona::guard, prelude::*};

crate::tests! {
    a_broken_profile_stops_nothing_but_what_it_is_about,
}

/// The profile that both programs read first: the built-in one.
pub const FINE: &str = include_str!("../../../crates/core/profiles/percona-ps.yaml");
pub const FILE: &str = "percona-ps.yaml";

async fn a_broken_profile_stops_nothing_but_what_it_is_about(world: &mut World) -> TestResult {
    guard(world).await?;
    // A client without retries.
    let client = client_without_retries(world.plane.admin_kubeconfig()).await?;
    let backups = objects_in(&client, percona::NAMESPACE, VERSION, BACKUP);
    let create = async |name: &str| {
        let object = json!({ "apiVersion": VERSION, "kind": BACKUP, "metadata": { "name": name },
            "spec": { "clusterName": name } });
        backups.create_json(object).await
    };
    std::fs::write(
        world.profiles_folder().join(FILE),
        "name: percona-ps\ncolour: blue\n",
    )?;
    world.restart_webhook(1).await?;
    world.webhooks[1].kill().await?;
    eventually(
        "the replica that has not read it goes on",
        TIMEOUT,
        async || {
            let created = create("by-the-last-good").await;
            anyhow::Ok(when(created.is_ok(), format!("{created:?}")))
        },
    )
    .await?;
    PS.set_state(world, BACKUP, "by-the-last-good", "Succeeded")
        .await?;
    world.restart_webhook(1).await?;
    world.webhooks[0].kill().await?;
    let error = eventually("the one that has read it is asked", TIMEOUT, async || {
        let error = refusal(create("not-judged").await)?;
        let judged = error.message.contains("cannot judge");
        anyhow::Ok(if judged {
            Probe::Ready(error)
        } else {
            Probe::NotYet(error.message)
        })
    })
    .await?;
    says(
        &error.message,
        &["PerconaServerMySQLBackup", FILE, "colour", "profiles check"],
    )?;
    world.controllers[0].restart().await?;
    world
        .back_up("while-a-profile-is-broken", of_namespaces(&["default"]))
        .await?;
    let unusable = world
        .metric(&format!(
            "velero_profiles_unusable{{profile=\"{PROFILE}\"}}"
        ))
        .await?;
    ensure!(unusable == Some(1.0), "{unusable:?}");
    std::fs::write(world.profiles_folder().join(FILE), FINE)?;
    world.restart_webhooks().await?;
    eventually("it is guarded again", TIMEOUT, async || {
        let created = create("again").await;
        anyhow::Ok(when(created.is_ok(), format!("{created:?}")))
    })
    .await
}
