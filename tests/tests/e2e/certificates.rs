//! The certificate that replicas make themselves: replaced under load, lost, and used by a
//! restarted replica.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use backup_lock::{Ledger, State};
use backup_tests::{control_plane::client_without_retries, world::backups::claiming};
use k8s_openapi::api::{
    admissionregistration::v1::ValidatingWebhookConfiguration, core::v1::Secret,
};
use kube::api::PostParams;

use crate::prelude::*;

crate::tests! {
    certificates_are_replaced_under_load_and_no_creation_fails,
    each_creation_of_a_burst_has_one_claim_while_certificates_are_replaced,
    a_lost_certificate_and_a_new_replica_do_not_alternate,
}

const SECRET: &str = "backup-webhook-tls";
const CLIENTS: usize = 8;
const ROTATIONS: usize = 4;
/// Below one user's share of the ledger.
const BURSTS: usize = 55;

struct Watched {
    secrets: Api<Secret>,
    registrations: Api<ValidatingWebhookConfiguration>,
}

impl Watched {
    fn of(world: &World) -> Self {
        let client = &world.client;
        Self {
            secrets: Api::namespaced(client.clone(), NAMESPACE),
            registrations: Api::all(client.clone()),
        }
    }

    async fn served(&self) -> anyhow::Result<Option<Vec<u8>>> {
        let data = self
            .secrets
            .get_opt(SECRET)
            .await?
            .and_then(|secret| secret.data);
        Ok(data
            .and_then(|mut data| data.remove("tls.crt"))
            .map(|bytes| bytes.0))
    }

    /// The authority and the Service in the registration.
    async fn named(&self) -> anyhow::Result<Value> {
        let found = self.registrations.get("backup-webhook").await?;
        let first = found
            .webhooks
            .unwrap_or_default()
            .into_iter()
            .next()
            .context("no webhook")?;
        Ok(json!([
            first.client_config.ca_bundle,
            first.client_config.service
        ]))
    }
}

async fn certificates_are_replaced_under_load_and_no_creation_fails(
    world: &mut World,
) -> TestResult {
    let (stop, created) = (AtomicBool::new(false), AtomicUsize::new(0));
    let backups = world.backups();
    let watched = Watched::of(world);
    let dry = dry_run();
    let client = async |number: usize| {
        while !stop.load(Ordering::SeqCst) {
            let backup = Backup::new(&format!("rotated-{number}"), of_namespaces(&["rotated"]));
            backups.create(&dry, &backup).await?;
            created.fetch_add(1, Ordering::SeqCst);
        }
        anyhow::Ok(())
    };
    let rotations = async {
        let mut seen = vec![watched.served().await?.context("no certificate")?];
        let replaced = until("certificates are replaced", TIMEOUT, async || {
            let served = watched.served().await?;
            if let Some(served) = served.filter(|served| !seen.contains(served)) {
                seen.push(served);
                // One of them is lost.
                if seen.len() == 2 {
                    watched.secrets.delete_object(SECRET).await?;
                }
            }
            anyhow::Ok(seen.len() > ROTATIONS)
        })
        .await;
        stop.store(true, Ordering::SeqCst);
        replaced
    };
    let clients = futures::future::try_join_all((0..CLIENTS).map(client));
    let (rotated, clients) = tokio::join!(rotations, async {
        let ended = clients.await;
        stop.store(true, Ordering::SeqCst);
        ended
    });
    clients.with_context(|| format!("after {} creations", created.load(Ordering::SeqCst)))?;
    rotated?;
    let created = created.load(Ordering::SeqCst);
    ensure!(created > 100, "only {created} creations");
    Ok(())
}

/// Bursts of real backups and restores of the same namespaces, while both replicas change their
/// certificates: of each pair one is stored, with one claim, and the other is refused because of
/// it.
async fn each_creation_of_a_burst_has_one_claim_while_certificates_are_replaced(
    world: &mut World,
) -> TestResult {
    let watched = Watched::of(world);
    let client = client_without_retries(world.plane.admin_kubeconfig()).await?;
    let backups: Api<Backup> = Api::namespaced(client.clone(), NAMESPACE);
    let restores: Api<Restore> = Api::namespaced(client, NAMESPACE);
    let post = PostParams::default();
    let pair = async |name: String| {
        let (backup, restore) = (
            Backup::new(&name, of_namespaces(&[&name])),
            Restore::new(&name, claiming(&name)),
        );
        let (backup, restore) = tokio::join!(
            backups.create(&post, &backup),
            restores.create(&post, &restore)
        );
        let (stored, refused) = match (backup, restore) {
            (Ok(backup), Err(error)) => (backup.metadata, error),
            (Err(error), Ok(restore)) => (restore.metadata, error),
            other => bail!("{name}: {other:?}"),
        };
        let status = refusal(Err::<(), _>(refused)).with_context(|| name.clone())?;
        ensure!(
            status.code == 403 && status.message.contains(&name),
            "{name}: {status:?}"
        );
        let ledger = Ledger::from_json(&world.claims().await?)?;
        let own = ledger
            .claims
            .iter()
            .filter(|claim| claim.key.name == name && claim.state() != State::Intent);
        let uids: Vec<_> = own
            .flat_map(|claim| &claim.entries)
            .map(|entry| entry.uid.clone())
            .collect();
        ensure!(
            stored.uid.as_slice() == uids,
            "{name} is {:?} and has {uids:?}",
            stored.uid
        );
        Ok(())
    };
    let (mut seen, mut bursts) = (vec![watched.served().await?.context("no certificate")?], 0);
    while seen.len() <= 2 {
        ensure!(
            bursts < BURSTS,
            "{} certificates in {bursts} bursts",
            seen.len()
        );
        let names = (0..CLIENTS).map(|number| format!("burst-{bursts}-{number}"));
        futures::future::try_join_all(names.map(pair))
            .await
            .with_context(|| format!("burst {bursts}"))?;
        seen.extend(
            watched
                .served()
                .await?
                .filter(|served| !seen.contains(served)),
        );
        bursts += 1;
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    println!(
        "    {} pairs, {} certificates",
        bursts * CLIENTS,
        seen.len()
    );
    world.delete_unfinished().await
}

/// A replica without a certificate makes a new one; the other replica takes it over, and they do
/// not alternate.
async fn a_lost_certificate_and_a_new_replica_do_not_alternate(world: &mut World) -> TestResult {
    let watched = Watched::of(world);
    world.webhooks[1].pause()?;
    watched.secrets.delete_object(SECRET).await?;
    let [first, second] = &mut world.webhooks[..] else {
        bail!("two replicas are needed")
    };
    let made = async {
        let made = until("a certificate is made", TIMEOUT, async || {
            anyhow::Ok(watched.served().await?.is_some())
        });
        let made = made.await;
        // Not later: a replica that is paused for longer than a rotation serves a certificate
        // whose authority is gone.
        second.resume()?;
        made
    };
    let (restarted, made) = tokio::join!(first.restart(), made);
    restarted?;
    made?;
    let dry = dry_run();
    let backup = Backup::new("alternated", of_namespaces(&["alternated"]));
    let backups = world.backups();
    until("creations pass", TIMEOUT, async || {
        anyhow::Ok(backups.create(&dry, &backup).await.is_ok())
    })
    .await?;
    let mut changes = 0;
    let mut before = watched.named().await?;
    for _ in 0..100 {
        backups.create(&dry, &backup).await?;
        let now = watched.named().await?;
        changes += usize::from(now != before);
        before = now;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // At most two rotations of three steps in this time.
    ensure!(changes <= 6, "the registration changed {changes} times");
    Ok(())
}
