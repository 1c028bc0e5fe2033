//! A full ledger: what is refused and with which messages, and that every ending, removal or repair
//! still fits into it.

use backup_core::{api::DeleteBackupRequest, labels::LEDGER_ANNOTATION};
use backup_lock::{
    Footprint, Ledger, LedgerStore, ObjectKey, ObjectKind, VELERO_SCOPE,
    ledger::{Ask, Refusal},
};
use kube::api::PostParams;

use crate::prelude::*;

crate::tests! {
    the_last_entry_of_a_ledger_is_admitted_and_works_and_the_next_is_refused,
    the_last_byte_of_a_ledger_is_used_and_all_that_ends_fits,
}
crate::tests! {
    WITH_A_SHORT_GRACE:
    a_full_ledger_is_collected_and_rebuilt
}

const SINCE: &str = "2026-01-02T03:04:05Z";
/// The limit in the documentation.
const BACKUPS: usize = 750;
/// The kit's store keeps a file with this name and `-resource-list.json.gz`.
const LONGEST_NAME: usize = 180;
const ALL_BYTES: usize = 240 * 1024;

/// A claim of an object that was never stored stays in the ledger for as long as the slowest machine
/// needs for a test.
pub const LONG_GRACE: &str = "--orphan-grace=30m";

/// Fills the ledger with claims of objects that were never stored.
async fn fill<T>(world: &World, fill: impl FnMut(&mut Ledger) -> T) -> anyhow::Result<T> {
    let store = LedgerStore::new(world.client.clone(), NAMESPACE);
    Ok(store
        .change(VELERO_SCOPE, tokio::time::Instant::now() + TIMEOUT, fill)
        .await?)
}

/// Adds backups until there are this many entries or one is refused. Few at a time: the more a
/// change does, the likelier another writer of the ledger is faster.
async fn fill_with_backups(
    world: &World,
    entries: usize,
    name: impl Fn(usize) -> String,
) -> anyhow::Result<()> {
    const AT_A_TIME: usize = 50;
    loop {
        let added = fill(world, |ledger| {
            let before = ledger.len();
            _ = fill_with(
                ledger,
                ObjectKind::Backup,
                entries.min(before + AT_A_TIME),
                &name,
            );
            ledger.len() - before
        })
        .await?;
        if added == 0 {
            return Ok(());
        }
    }
}

/// Admits objects of one namespace, each of another user, until there are this many entries or one
/// is refused. Returns the refusal.
fn fill_with(
    ledger: &mut Ledger,
    kind: ObjectKind,
    entries: usize,
    name: impl Fn(usize) -> String,
) -> Option<Refusal> {
    for n in 0.. {
        if ledger.len() >= entries {
            break;
        }
        let key = ObjectKey::new(kind, NAMESPACE, &name(n));
        if ledger.claim(&key).is_some() {
            continue;
        }
        let ask = Ask {
            requester: format!("person {n}"),
            creates: true,
            ..Ask::default()
        };
        let footprint = Footprint::namespaces([if kind == ObjectKind::Restore {
            "full-back"
        } else {
            "full"
        }]);
        let uid = format!("00000000-0000-4000-8000-{n:012}");
        if let Err(refusal) = ledger.admit(&key, &uid, &footprint, SINCE, &ask) {
            return Some(refusal);
        }
    }
    None
}

/// Fills the rest completely, few at a time.
async fn fill_with_holds(world: &World) -> anyhow::Result<()> {
    const AT_A_TIME: usize = 20;
    let mut first = 0;
    loop {
        let mut held = 0;
        fill(world, |ledger| {
            let holds = (first..first + AT_A_TIME).map(|n| longest_hold(ledger, n));
            held = holds.take_while(|held| *held).count();
        })
        .await?;
        if held < AT_A_TIME {
            return Ok(());
        }
        first += AT_A_TIME;
    }
}

/// Adds a hold with the longest note that fits, up to 250 bytes. Returns whether any fits.
fn longest_hold(ledger: &mut Ledger, n: usize) -> bool {
    let key = ObjectKey::new(ObjectKind::Hold, "", &format!("filler-{n}"));
    let footprint = Footprint::namespaces(["full-held"]);
    let add = |length: usize| {
        let by = "y".repeat(length);
        ledger
            .hold(&key, &n.to_string(), &footprint, SINCE, &by)
            .is_ok()
    };
    (1..=250).rev().any(add)
}

/// Removes all entries of objects that do not exist.
async fn empty(world: &World) -> anyhow::Result<()> {
    fill(world, |ledger| {
        let keys: Vec<_> = ledger
            .claims
            .iter()
            .filter(|claim| claim.key.name.starts_with("filler"))
            .flat_map(|claim| {
                claim
                    .entries
                    .iter()
                    .map(|entry| (claim.key.clone(), entry.uid.clone()))
            })
            .collect();
        for (key, uid) in keys {
            ledger.release(&key, &uid);
        }
    })
    .await?;
    world.delete_unfinished().await
}

async fn the_last_entry_of_a_ledger_is_admitted_and_works_and_the_next_is_refused(
    world: &mut World,
) -> TestResult {
    world.config_maps("full-last", 2).await?;
    let post = PostParams::default();
    let result = async {
        fill_with_backups(world, BACKUPS - 1, |n| format!("filler-{n}")).await?;
        let error = {
            let paused = world.pause_controllers()?;
            paused
                .start_backup("full-last")
                .await
                .context("there is room for one")?;
            let error = paused.refused_backup("full-beyond", "full-last").await?;
            // More important kinds have reserved room.
            paused
                .create_claiming_restore("full-restore", "full-elsewhere")
                .await
                .context("restores have room")?;
            paused.restores().delete_object("full-restore").await?;
            error
        };
        ensure!(error.code == 403, "{error:?}");
        says(
            &error.message,
            &[
                "the ledger is full for backups (750 entries",
                "these may fill 750 entries",
                "the rest is kept for restores",
                "Wait until running backups and restores have ended, or delete",
                "`kubectl backup locks`",
            ],
        )?;
        // It is activated and works, and its end is published.
        world
            .backup_ends("full-last", BackupPhase::Completed)
            .await?;
        let deletion = json!({ "apiVersion": "velero.io/v1", "kind": "DeleteBackupRequest",
            "metadata": { "name": "full-last" }, "spec": { "backupName": "full-last" } });
        world
            .api::<DeleteBackupRequest>()
            .create(&post, &serde_json::from_value(deletion)?)
            .await?;
        world.backup_gone("full-last").await?;
        // The entries of the restore and of the deletion request are removed, too.
        eventually("one place is free", TIMEOUT, async || {
            let created = world
                .create_backup("full-again", of_namespaces(&["full-last"]))
                .await;
            anyhow::Ok(when(created.is_ok(), format!("{created:?}")))
        })
        .await?;
        world
            .backup_ends("full-again", BackupPhase::Completed)
            .await
    }
    .await;
    empty(world).await?;
    result.map(drop)
}

async fn the_last_byte_of_a_ledger_is_used_and_all_that_ends_fits(world: &mut World) -> TestResult {
    world.config_maps("full-bytes", 2).await?;
    world
        .back_up("full-source", of_namespaces(&["full-bytes"]))
        .await?;
    let result = async {
        // The room of backups, except for less than three entries: the hold below, and an entry with
        // the longest name, fit into two.
        let long = |n: usize| format!("filler-{n:0>240}");
        fill_with_backups(world, BACKUPS, long).await?;
        fill(world, |ledger| {
            for _ in 0..2 {
                // Not the last claim of all: that may be what an earlier test has left.
                let last = ledger
                    .claims
                    .iter()
                    .rfind(|claim| claim.key.name.starts_with("filler"));
                let last = last.map(|claim| (claim.key.clone(), claim.entries[0].uid.clone()));
                last.inspect(|(key, uid)| _ = ledger.release(key, uid));
            }
        })
        .await?;
        {
            let paused = world.pause_controllers()?;
            let named = |length: usize| format!("full-{}", "x".repeat(length));
            let backup =
                |length: usize| Backup::new(&named(length), of_namespaces(&["full-bytes"]));
            // A hold uses the remaining room, so that the length of a name decides: one letter is
            // one byte.
            let (mut fits, mut too_long) = (0, LONGEST_NAME);
            let pad = ObjectKey::new(ObjectKind::Hold, "", "filler-pad");
            for n in 1.. {
                if paused
                    .backups()
                    .create(&dry_run(), &backup(too_long))
                    .await
                    .is_err()
                {
                    break;
                }
                fill(&paused, |ledger| {
                    ledger.release(&pad, "pad");
                    let by = "y".repeat(n * LONGEST_NAME / 3);
                    _ = ledger.hold(
                        &pad,
                        "pad",
                        &Footprint::namespaces(["full-held"]),
                        SINCE,
                        &by,
                    );
                })
                .await?;
            }
            while too_long - fits > 1 {
                let middle = usize::midpoint(fits, too_long);
                match paused.backups().create(&dry_run(), &backup(middle)).await {
                    Ok(_) => fits = middle,
                    Err(_) => too_long = middle,
                }
            }
            let error = refusal(paused.backups().create_object(&backup(too_long)).await)?;
            ensure!(fits > 0, "not even a name of one letter fits: {error:?}");
            says(
                &error.message,
                &[
                    "the ledger is full for backups",
                    "these may fill 750 entries and 184320 bytes",
                ],
            )?;
            paused
                .backups()
                .create_object(&backup(fits))
                .await
                .context("the last byte")?;
            fill_with_holds(&paused).await?;
            let bytes = paused.claims().await?.len();
            println!("    {bytes} bytes of {ALL_BYTES}");
            ensure!(bytes > ALL_BYTES * 2 / 3, "{bytes}");
            let error = refusal(
                paused
                    .create_claiming_restore("full-none", "full-none")
                    .await,
            )?;
            says(
                &error.message,
                &[
                    "the ledger is full for restores",
                    "the rest is kept for deletions",
                ],
            )?;
        }
        // The last one is activated, works and ends.
        let names = world.backups().names().await?;
        let name = names.into_iter().find(|name| name.contains("xxx"));
        world
            .backup_ends(&name.context("it is gone")?, BackupPhase::Completed)
            .await?;
        // A user releases a claim by force; this is recorded, and makes room.
        let first = format!("backup/{}", long(0));
        let release = [
            "locks",
            "release",
            &first,
            "--reason=the ledger is full",
            "--yes",
        ];
        world.kubectl_backup().succeeds(&release).await?;
        let ledger = Ledger::from_json(&world.claims().await?)?;
        let released = ledger
            .claim(&ObjectKey::backup(NAMESPACE, &long(0)))
            .context("it is forgotten")?;
        ensure!(format!("{released:?}").contains("Released"), "{released:?}");
        anyhow::Ok(())
    }
    .await;
    empty(world).await?;
    result?;
    world
        .create_restore("full-back", from_backup("full-source"))
        .await?;
    world
        .restore_ends("full-back", RestorePhase::Completed)
        .await
        .map(drop)
}

async fn a_full_ledger_is_collected_and_rebuilt(world: &mut World) -> TestResult {
    let to_the_end = |ledger: &mut Ledger| {
        for (kind, name) in [(ObjectKind::Backup, "b"), (ObjectKind::Restore, "r")] {
            fill_with(ledger, kind, 1000, |n| format!("filler-{name}-{n:0>200}"));
        }
    };
    let collected = async || {
        eventually("everything is collected", TIMEOUT, async || {
            // An earlier test of this world may have left an intent that is only remembered.
            let ledger = Ledger::from_json(&world.claims().await?)?.without_lapsed();
            let first = ledger.claims.first();
            anyhow::Ok(when(
                ledger.is_empty(),
                format!("{} entries, {:?}, {first:?}", ledger.len(), ledger.status),
            ))
        })
        .await
    };
    let passes = async || {
        eventually("creations pass", TIMEOUT, async || {
            let backup = Backup::new("full-after", of_namespaces(&["full"]));
            let created = world.backups().create(&dry_run(), &backup).await;
            anyhow::Ok(when(created.is_ok(), format!("{created:?}")))
        })
        .await
    };
    // An earlier test of this world may have left a ledger that is being rebuilt.
    passes().await?;
    fill(world, to_the_end).await?;
    let full = world.claims().await?.len();
    ensure!(full > ALL_BYTES / 2, "{full} bytes");
    collected().await?;
    // Edited by an administrator so that its checksum is wrong.
    fill(world, to_the_end).await?;
    let leases: Api<k8s_openapi::api::coordination::v1::Lease> = world.api();
    let mut lease = world.ledger().await?;
    let annotations = lease
        .metadata
        .annotations
        .as_mut()
        .context("no annotations")?;
    let serial: u64 = annotations["backup-lock/serial"].parse()?;
    annotations.insert("backup-lock/serial".to_owned(), (serial + 1).to_string());
    let text = annotations[LEDGER_ANNOTATION].replacen("filler", "edited", 1);
    annotations.insert(LEDGER_ANNOTATION.to_owned(), text);
    leases.replace_object("backup-lock-velero", &lease).await?;
    collected().await?;
    passes().await
}
