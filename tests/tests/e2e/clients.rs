//! What clients see and do when a creation is refused, and when the webhook has failures. The
//! measurements are printed for `docs/evidence/clients.md`.

use std::time::Instant;

use backup_tests::{
    kubectl::{ClientGo, with_kind},
    kubectl_backup::Ran,
    proxy::Fault,
    sibling::{ANNOTATION, Sibling},
};
use kube::api::PostParams;

use crate::prelude::*;

crate::tests! {
    every_client_prints_who_is_in_the_way_and_stores_nothing,
    a_restore_is_refused_to_kubectl_with_the_backup_in_its_way,
    replace_of_what_is_not_there_never_asks_the_webhook,
    replace_with_force_deletes_before_it_is_refused,
    trouble_of_the_webhook_is_waited_out_by_clients_themselves,
    without_any_webhook_creations_fail_at_once_and_say_why,
    a_creation_that_waits_is_admitted_when_the_holder_has_ended,
}

// In a world with a short grace, because every try leaves a claim behind.
crate::tests! { BESIDE_A_SIBLING: clients_that_must_wait_give_up_after_bounded_tries }

/// Time after which a refusal counts as a hang.
const PROMPT: Duration = Duration::from_secs(5);
/// Time for which the end of a restore is delayed.
const END_DELAY: Duration = Duration::from_millis(2500);
/// Duration of the webhook's failure.
const TROUBLE: Duration = Duration::from_secs(4);

/// The result of one attempt by one client.
struct Seen {
    client: String,
    /// Exit code, if the client is a program.
    code: Option<i32>,
    printed: String,
    elapsed: Duration,
    /// Requests that the client sent, if known.
    attempts: Option<u32>,
}

impl Seen {
    fn ran(client: &str, ran: &Ran) -> Self {
        let printed = format!("{}{}", ran.stdout, ran.stderr);
        Self {
            client: client.to_owned(),
            code: Some(ran.code),
            printed,
            elapsed: ran.elapsed,
            attempts: None,
        }
    }

    fn client_go(client: &str, seen: &ClientGo) -> Self {
        let printed = if seen.error.is_empty() {
            format!("{} created", seen.name)
        } else {
            let causes = serde_json::Value::from(seen.causes.clone());
            format!(
                "{} {}: {} (causes {causes})",
                seen.code, seen.reason, seen.error
            )
        };
        Self {
            client: client.to_owned(),
            code: None,
            printed,
            elapsed: Duration::from_secs_f64(seen.elapsed_seconds),
            attempts: Some(seen.attempts),
        }
    }

    fn kube_rs(client: &str, start: Instant, answer: &Result<Backup, kube::Error>) -> Self {
        let printed = match answer {
            Ok(_) => "created".to_owned(),
            Err(kube::Error::Api(status)) => format!("{} {}: {status}", status.code, status.reason),
            Err(error) => error.to_string(),
        };
        Self {
            client: client.to_owned(),
            code: None,
            printed,
            elapsed: start.elapsed(),
            attempts: None,
        }
    }

    /// Prints one line of the table in `docs/evidence/clients.md`.
    fn print(&self, calls: impl Into<Option<u64>>) {
        let or_none = |number: Option<String>| number.unwrap_or_else(|| "-".to_owned());
        println!(
            "    | {} | exit {} | {:.2} s | sent {} | webhook calls {} | {}",
            self.client,
            or_none(self.code.map(|code| code.to_string())),
            self.elapsed.as_secs_f64(),
            or_none(self.attempts.map(|attempts| attempts.to_string())),
            or_none(calls.into().map(|calls| calls.to_string())),
            self.printed.trim(),
        );
    }
}

/// The commands of kubectl that create objects.
const CREATING: [(&str, &[&str]); 5] = [
    ("kubectl create", &["create"]),
    ("kubectl apply", &["apply"]),
    ("kubectl apply --server-side", &["apply", "--server-side"]),
    (
        "kubectl create --dry-run=server",
        &["create", "--dry-run=server"],
    ),
    (
        "kubectl apply --server-side --dry-run=server",
        &["apply", "--server-side", "--dry-run=server"],
    ),
];

async fn every_client_prints_who_is_in_the_way_and_stores_nothing(world: &mut World) -> TestResult {
    let world = &*world.pause_controllers()?;
    let kubectl = world.kubectl()?;
    let holder = world.create_claiming_restore("holder", "clients-a").await?;
    let since = holder
        .metadata
        .creation_timestamp
        .context("no creation time")?
        .0
        .to_string();
    let refused = Backup::new("refused", of_namespaces(&["clients-a"]));
    let manifest = kubectl.manifest(&with_kind(&refused))?;

    // Discovery is cached from here on, as for a user who has used kubectl before.
    kubectl.run(&["get", "backups", "-n", "velero"]).await?;
    for (client, args) in CREATING {
        let before = world.admissions("").await?;
        let ran = kubectl.run(&[args, &["-f", &manifest]].concat()).await?;
        let seen = Seen::ran(client, &ran);
        seen.print(world.admissions("").await? - before);
        ensure!(ran.code == 1 && ran.stdout.is_empty(), "{ran:?}");
        ensure!(
            ran.stderr.contains("(Forbidden)"),
            "{client}: not shown as forbidden: {}",
            ran.stderr
        );
        ensure!(
            !ran.stderr.contains("--force-conflicts"),
            "advises force: {}",
            ran.stderr
        );
        stands_alone(&seen, &since)?;
        ensure!(
            world.admissions("").await? - before == 1,
            "{client}: the webhook was asked more than once"
        );
        not_stored(world, "refused").await?;
    }

    for (client, flags) in [
        ("client-go", &[][..]),
        ("client-go, dry run", &["--dry-run"]),
    ] {
        let before = world.admissions("").await?;
        let answer = kubectl.client_go(&manifest, "backups", flags).await?;
        let seen = Seen::client_go(client, &answer);
        seen.print(world.admissions("").await? - before);
        ensure!(
            answer.code == 403 && answer.reason == "Forbidden" && answer.attempts == 1,
            "{answer:?}"
        );
        ensure!(
            !answer.causes.is_empty() && answer.retry_after_seconds > 0,
            "{answer:?}"
        );
        stands_alone(&seen, &since)?;
        not_stored(world, "refused").await?;
    }

    for dry_run in [false, true] {
        let (before, start) = (world.admissions("").await?, Instant::now());
        let answer = world
            .backups()
            .create(
                &PostParams {
                    dry_run,
                    ..PostParams::default()
                },
                &refused,
            )
            .await;
        let seen = Seen::kube_rs(
            if dry_run {
                "kube-rs, dry run"
            } else {
                "kube-rs"
            },
            start,
            &answer,
        );
        let calls = world.admissions("").await? - before;
        seen.print(calls);
        stands_alone(&seen, &since)?;
        ensure!(calls == 1, "the webhook was asked {calls} times");
        let status = refusal(answer)?;
        ensure!(
            status.code == 403 && status.reason == "Forbidden",
            "{status:?}"
        );
        not_stored(world, "refused").await?;
    }
    world.delete_unfinished().await
}

async fn a_restore_is_refused_to_kubectl_with_the_backup_in_its_way(
    world: &mut World,
) -> TestResult {
    let world = &*world.pause_controllers()?;
    let kubectl = world.kubectl()?;
    world
        .create_backup("holder", of_namespaces(&["clients-b"]))
        .await?;
    let restore = serde_json::json!({ "apiVersion": "velero.io/v1", "kind": "Restore",
        "metadata": { "name": "refused", "namespace": "velero" },
        "spec": { "backupName": "there-is-none", "includedNamespaces": ["clients-b"] } });
    let ran = kubectl
        .run(&["create", "-f", &kubectl.manifest(&restore)?])
        .await?;
    Seen::ran("kubectl create (a Restore)", &ran).print(None);
    ensure!(
        ran.code == 1 && ran.stderr.contains("(Forbidden)") && ran.stderr.contains("holder"),
        "{ran:?}"
    );
    ensure!(
        ran.stderr.contains("kubectl backup") && ran.elapsed < PROMPT,
        "{ran:?}"
    );
    ensure!(
        world.restores().get_opt("refused").await?.is_none(),
        "stored although it was refused"
    );
    world.delete_unfinished().await
}

/// kubectl reads before it replaces, and the API server does not create custom resources by PUT.
async fn replace_of_what_is_not_there_never_asks_the_webhook(world: &mut World) -> TestResult {
    let world = &*world.pause_controllers()?;
    let kubectl = world.kubectl()?;
    world.create_claiming_restore("holder", "clients-c").await?;
    let manifest = kubectl.manifest(&with_kind(&Backup::new(
        "missing",
        of_namespaces(&["clients-c"]),
    )))?;
    let before = world.admissions("").await?;
    let ran = kubectl.run(&["replace", "-f", &manifest]).await?;
    let calls = world.admissions("").await? - before;
    Seen::ran("kubectl replace (nothing there)", &ran).print(calls);
    ensure!(
        ran.code == 1 && ran.stderr.contains("(NotFound)") && ran.elapsed < PROMPT,
        "{ran:?}"
    );
    ensure!(calls == 0, "the webhook was asked {calls} times");
    not_stored(world, "missing").await?;

    // With --force and no old object it is a plain creation.
    let ran = kubectl
        .run(&["replace", "--force", "-f", &manifest])
        .await?;
    Seen::ran("kubectl replace --force (nothing there)", &ran)
        .print(world.admissions("").await? - before);
    ensure!(
        ran.code == 1 && ran.stderr.contains("holder") && ran.elapsed < PROMPT,
        "{ran:?}"
    );
    not_stored(world, "missing").await?;
    world.delete_unfinished().await
}

/// The old object is already deleted when the new one is refused: no admission in between could
/// prevent that. The stored backup is kept.
async fn replace_with_force_deletes_before_it_is_refused(world: &mut World) -> TestResult {
    world
        .create_backup("replaced", of_namespaces(&["clients-d"]))
        .await?;
    world.backup_ended("replaced").await?;
    let world = &*world.pause_controllers()?;
    let kubectl = world.kubectl()?;
    world.create_claiming_restore("holder", "clients-d").await?;
    let manifest = kubectl.manifest(&with_kind(&Backup::new(
        "replaced",
        of_namespaces(&["clients-d"]),
    )))?;
    let before = world.admissions("denied").await?;
    let ran = kubectl
        .run(&["replace", "--force", "-f", &manifest])
        .await?;
    Seen::ran("kubectl replace --force (an ended Backup)", &ran)
        .print(world.admissions("denied").await? - before);
    ensure!(ran.code == 1 && ran.elapsed < PROMPT, "{ran:?}");
    ensure!(
        ran.stderr.contains("holder") && ran.stderr.contains("kubectl backup"),
        "{ran:?}"
    );
    let left = world.backups().get_opt("replaced").await?;
    ensure!(
        left.is_none_or(|backup| backup.phase().is_terminal()),
        "a refused Backup is stored"
    );
    world.delete_unfinished().await
}

/// The webhook cannot reach the API server, so it answers 503 with a retry delay of one second;
/// every client waits, and succeeds after the failure.
async fn trouble_of_the_webhook_is_waited_out_by_clients_themselves(
    world: &mut World,
) -> TestResult {
    let front = world.plane_front()?;
    front.set(Fault::Refuse);
    let creates = |name: &str| Backup::new(name, of_namespaces(&["clients-e"]));
    let (all, ()) = tokio::join!(all_wait(world, "trouble", creates), async {
        tokio::time::sleep(TROUBLE).await;
        front.set(Fault::None);
    });
    for seen in all? {
        let elapsed = seen.elapsed;
        ensure!(elapsed > TROUBLE / 2, "there was no trouble: {elapsed:?}");
        ensure!(
            elapsed < TROUBLE + Duration::from_secs(15),
            "took {elapsed:?}"
        );
    }
    all_gone(world, "trouble").await
}

async fn without_any_webhook_creations_fail_at_once_and_say_why(world: &mut World) -> TestResult {
    for webhook in &mut world.webhooks {
        webhook.kill().await?;
    }
    let result = without_webhook(world).await;
    world.restart_webhooks().await?;
    result?;
    let name = "after-the-webhook";
    world
        .create_backup(name, of_namespaces(&["clients-f"]))
        .await
        .context("the webhook is back")?;
    gone(world, name).await
}

async fn without_webhook(world: &World) -> anyhow::Result<()> {
    let kubectl = world.kubectl()?;
    let backup = Backup::new("no-webhook", of_namespaces(&["clients-f"]));
    let manifest = kubectl.manifest(&with_kind(&backup))?;
    let mut all = Vec::new();
    for (client, args) in &CREATING[..3] {
        all.push(Seen::ran(
            client,
            &kubectl
                .run(&[args, &["-f", &manifest][..]].concat())
                .await?,
        ));
    }
    all.push(Seen::client_go(
        "client-go",
        &kubectl.client_go(&manifest, "backups", &[]).await?,
    ));
    let start = Instant::now();
    all.push(Seen::kube_rs(
        "kube-rs",
        start,
        &world.backups().create_object(&backup).await,
    ));
    for seen in all {
        seen.print(None);
        ensure!(
            seen.code.is_none_or(|code| code == 1),
            "{}: exit code {:?}",
            seen.client,
            seen.code
        );
        ensure!(
            seen.printed.contains("failed calling webhook"),
            "{}: {}",
            seen.client,
            seen.printed
        );
        ensure!(seen.elapsed < PROMPT, "{}: {:?}", seen.client, seen.elapsed);
    }
    not_stored(world, "no-webhook").await
}

/// The wish is an annotation; the answer is 429 with a delay in seconds, and the client waits.
async fn a_creation_that_waits_is_admitted_when_the_holder_has_ended(
    world: &mut World,
) -> TestResult {
    let world = &*world.pause_controllers()?;
    world.create_claiming_restore("held", "clients-g").await?;
    let waiting = |name: &str| {
        annotated(
            Backup::new(name, of_namespaces(&["clients-g"])),
            "backup-lock/on-conflict",
            "wait",
        )
    };
    let (all, held) = tokio::join!(all_wait(world, "waits", waiting), async {
        tokio::time::sleep(END_DELAY).await;
        let stored = world.backups().list_all().await?;
        let early = stored
            .iter()
            .any(|backup| backup.name_any().starts_with("waits-"));
        ensure!(!early, "created beside the restore");
        world
            .controllers
            .iter()
            .try_for_each(backup_tests::process::Process::resume)
    });
    held?;
    for seen in all? {
        ensure!(
            seen.elapsed > END_DELAY && seen.elapsed < Duration::from_secs(40),
            "{:?}",
            seen.elapsed
        );
    }
    all_gone(world, "waits").await
}

/// Creates a Backup by each client, `<stem>-1` and so on, all at the same time. Each of them must
/// wait, and succeed.
async fn all_wait(
    world: &World,
    stem: &str,
    backup: impl Fn(&str) -> Backup,
) -> anyhow::Result<Vec<Seen>> {
    let kubectl = world.kubectl()?;
    let manifest =
        |number: usize| kubectl.manifest(&with_kind(&backup(&format!("{stem}-{number}"))));
    let by_kubectl = async |number: usize| {
        let (client, args) = CREATING[number - 1];
        let ran = kubectl
            .succeeds(&[args, &["-f", &manifest(number)?]].concat())
            .await?;
        anyhow::Ok(Seen::ran(client, &ran))
    };
    let by_client_go = async {
        let answer = kubectl.client_go(&manifest(4)?, "backups", &[]).await?;
        ensure!(answer.error.is_empty() && answer.attempts > 1, "{answer:?}");
        Ok(Seen::client_go("client-go", &answer))
    };
    let by_kube_rs = async {
        let start = Instant::now();
        let answer = world
            .backups()
            .create_object(&backup(&format!("{stem}-5")))
            .await;
        let seen = Seen::kube_rs("kube-rs", start, &answer);
        answer?;
        anyhow::Ok(seen)
    };
    let (create, apply, server_side, client_go, kube_rs) = tokio::join!(
        by_kubectl(1),
        by_kubectl(2),
        by_kubectl(3),
        by_client_go,
        by_kube_rs
    );
    let all = vec![create?, apply?, server_side?, client_go?, kube_rs?];
    for seen in &all {
        seen.print(None);
    }
    Ok(all)
}

async fn all_gone(world: &World, stem: &str) -> anyhow::Result<()> {
    for number in 1..=5 {
        gone(world, &format!("{stem}-{number}")).await?;
    }
    Ok(())
}

/// kube-rs is left out: it tries 16 times with doubling pauses, which takes over four minutes.
async fn clients_that_must_wait_give_up_after_bounded_tries(world: &mut World) -> TestResult {
    let sibling = Sibling::start(&world.client, world.folder()).await?;
    let kubectl = world.kubectl()?;
    let told = |wish: &str| {
        annotated(
            Backup::new("told", of_namespaces(&["clients-h"])),
            ANNOTATION,
            wish,
        )
    };
    for (wish, tries) in [
        ("429,retry-1", 11),
        ("503,retry-1", 11),
        ("429", 1),
        ("503", 1),
        ("403,retry-1", 1),
    ] {
        let manifest = kubectl.manifest(&with_kind(&told(wish)))?;
        let before = sibling.calls();
        let creating =
            async |args: &[&str]| kubectl.run(&[args, &["-f", &manifest]].concat()).await;
        let (create, apply, server_side, client_go) = tokio::join!(
            creating(CREATING[0].1),
            creating(CREATING[1].1),
            creating(CREATING[2].1),
            kubectl.client_go(&manifest, "backups", &[]),
        );
        let calls = sibling.calls() - before;
        for ((client, _), ran) in CREATING.iter().zip([create?, apply?, server_side?]) {
            Seen::ran(&format!("{client} told {wish}"), &ran).print(calls / 4);
            ensure!(ran.code == 1, "{ran:?}");
        }
        let client_go = client_go?;
        Seen::client_go(&format!("client-go told {wish}"), &client_go).print(calls / 4);
        ensure!(client_go.attempts == tries, "{client_go:?}");
        ensure!(
            calls == 4 * u64::from(tries),
            "{calls} calls of four clients told {wish}"
        );
    }
    // The one flag that shortens this: it limits all tries together.
    let manifest = kubectl.manifest(&with_kind(&told("429,retry-1")))?;
    let before = sibling.calls();
    let ran = kubectl
        .run(&["create", "--request-timeout=3s", "-f", &manifest])
        .await?;
    Seen::ran("kubectl create --request-timeout=3s told 429,retry-1", &ran)
        .print(sibling.calls() - before);
    ensure!(ran.code == 1 && ran.elapsed < PROMPT, "{ran:?}");
    sibling.remove().await
}

/// The message is all that users see: which object, in which phase, since when, and what to type
/// next.
fn stands_alone(seen: &Seen, since: &str) -> anyhow::Result<()> {
    for part in ["holder", "New", since, "kubectl backup"] {
        ensure!(
            seen.printed.contains(part),
            "{}: {part:?} is missing in: {}",
            seen.client,
            seen.printed
        );
    }
    ensure!(
        seen.elapsed < PROMPT,
        "{} took {:?}",
        seen.client,
        seen.elapsed
    );
    Ok(())
}

async fn not_stored(world: &World, name: &str) -> anyhow::Result<()> {
    ensure!(
        !world.backups().exists(name).await?,
        "{name} is stored although it was refused"
    );
    Ok(())
}

/// Waits until a created Backup has ended, in any phase, deletes it, and waits until it is gone.
///
/// If it were deleted before it was seen as stored, its claim would be kept for a whole grace.
async fn gone(world: &World, name: &str) -> anyhow::Result<()> {
    world.backup_ended(name).await?;
    world.backups().delete_object(name).await?;
    world
        .backups()
        .wait_gone(name, Duration::from_secs(30))
        .await
}
