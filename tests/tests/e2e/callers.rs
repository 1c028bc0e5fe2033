//! A caller other than the API server cannot change anything or use up resources.

use axum::http::StatusCode;
use backup_core::labels::{BREAK_GLASS_ANNOTATION, INSTALLATIONS_ANNOTATION};
use backup_tests::install::webhook_path;
use futures::{StreamExt as _, stream};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;

use crate::prelude::*;

crate::tests! {
    a_forged_review_is_not_read_and_leaves_the_ledger_as_it_is,
    a_path_that_is_taken_out_of_the_registration_is_replaced_at_once,
    reviews_of_any_size_and_number_fit_into_the_memory,
}

/// The memory limit of deploy/base/webhook.yaml.
const LIMIT_KIB: u64 = 128 * 1024;
const LARGEST: usize = 8 * 1024 * 1024;

/// A caller that can reach the port of the replicas.
struct Stranger {
    client: reqwest::Client,
    url: String,
}

impl Stranger {
    fn of(world: &World) -> anyhow::Result<Self> {
        let ca = reqwest::Certificate::from_pem(world.webhook_ca.as_bytes())?;
        let client = reqwest::Client::builder()
            .tls_certs_only([ca])
            .http1_only()
            .no_proxy();
        let front = world.webhook_front.as_ref().context("no webhook")?;
        let client = client.timeout(Duration::from_secs(20)).build()?;
        Ok(Self {
            client,
            url: format!("https://{}", front.address()),
        })
    }

    async fn post(&self, path: &str, body: Vec<u8>) -> reqwest::Result<(StatusCode, String)> {
        let request = self
            .client
            .post(format!("{}{path}", self.url))
            .header("content-type", "application/json");
        let answer = request.body(body).send().await?;
        Ok((answer.status(), answer.text().await?))
    }
}

async fn a_forged_review_is_not_read_and_leaves_the_ledger_as_it_is(
    world: &mut World,
) -> TestResult {
    world.config_maps("forged", 1).await?;
    world
        .back_up("forged-source", of_namespaces(&["forged"]))
        .await?;
    let stranger = Stranger::of(world)?;
    let right = webhook_path(&world.client).await?;
    let wrong = format!("/validate/{}", "0".repeat(64));
    let world = &*world.pause_controllers()?;
    world
        .create_backup("forged-runs", of_namespaces(&["forged"]))
        .await?;
    let uid = world
        .backups()
        .get("forged-runs")
        .await?
        .uid()
        .unwrap_or_default();
    let before = world.ledger().await?;
    for path in [
        "/",
        "/validate",
        &wrong,
        &right[..right.len() - 1],
        &format!("{right}0"),
    ] {
        for (kind, operation) in [
            ("Backup", "CREATE"),
            ("Restore", "CREATE"),
            ("DeleteBackupRequest", "CREATE"),
            ("Backup", "UPDATE"),
            ("Backup", "DELETE"),
        ] {
            let (status, answer) = stranger.post(path, forged(kind, operation, &uid)).await?;
            ensure!(
                status == StatusCode::FORBIDDEN,
                "{path}: {kind} {operation}: {status} {answer}"
            );
            says(&answer, &["registration"])?;
        }
    }
    let after = world.ledger().await?;
    ensure!(
        after.metadata == before.metadata && after.spec == before.spec,
        "the ledger has changed: {after:?}"
    );
    // With the right path, the same review is accepted, but it still changes nothing.
    let (status, answer) = stranger
        .post(&right, forged("Backup", "CREATE", &uid))
        .await?;
    ensure!(status == StatusCode::OK, "{status} {answer}");
    let claims = world.claims().await?;
    ensure!(
        !claims.contains("house"),
        "an entry was forced by a repeated review: {claims}"
    );
    Ok(())
}

/// A review that asks for everything by break-glass, under the uid of an existing object.
fn forged(kind: &str, operation: &str, uid: &str) -> Vec<u8> {
    let object = json!({
        "apiVersion": "velero.io/v1", "kind": kind, "spec": { "includedNamespaces": ["*"], "backupName": "forged-source" },
        "metadata": { "name": "forged-runs", "namespace": NAMESPACE, "uid": uid, "resourceVersion": "1",
            "annotations": { BREAK_GLASS_ANNOTATION: "the house burns" } },
    });
    let mut old = object.clone();
    old["status"] = json!({ "phase": "Completed" });
    json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "forged", "operation": operation, "name": "forged-runs", "namespace": NAMESPACE, "dryRun": false,
        "kind": { "group": "velero.io", "version": "v1", "kind": kind },
        "resource": { "group": "velero.io", "version": "v1", "resource": format!("{}s", kind.to_lowercase()) },
        "userInfo": { "username": "admin", "groups": ["system:masters"] },
        "object": object, "oldObject": if operation == "CREATE" { Value::Null } else { old },
    } })
    .to_string()
    .into_bytes()
}

async fn a_path_that_is_taken_out_of_the_registration_is_replaced_at_once(
    world: &mut World,
) -> TestResult {
    let registrations: Api<ValidatingWebhookConfiguration> = Api::all(world.client.clone());
    let old = webhook_path(&world.client).await?;
    let mut registration = registrations.get("backup-webhook").await?;
    for webhook in registration.webhooks.iter_mut().flatten() {
        if let Some(service) = &mut webhook.client_config.service {
            service.path = None;
        }
    }
    registrations
        .replace_object("backup-webhook", &registration)
        .await?;
    let new = eventually("another path", TIMEOUT, async || {
        // The first request is refused, and triggers a check of the registration.
        let backup = Backup::new("asked", of_namespaces(&["nowhere"]));
        let _ = world.backups().create(&dry_run(), &backup).await;
        let path = webhook_path(&world.client).await?;
        anyhow::Ok(if path == old {
            Probe::NotYet(path)
        } else {
            Probe::Ready(path)
        })
    })
    .await?;
    // All replicas accept both paths until every API server has seen the new one.
    let stranger = Stranger::of(world)?;
    for path in [&old, &new] {
        for _ in 0..6 {
            let (status, answer) = stranger.post(path, b"{}".to_vec()).await?;
            ensure!(status == StatusCode::BAD_REQUEST, "{status} {answer}");
        }
    }
    let backup = Backup::new("asked", of_namespaces(&["nowhere"]));
    eventually("creations are decided on", TIMEOUT, async || {
        world
            .backups()
            .create(&dry_run(), &backup)
            .await
            .map(Probe::Ready)
    })
    .await?;
    // The annotation with further installations is kept, like all fields that are not ours.
    let annotations = registrations
        .get("backup-webhook")
        .await?
        .metadata
        .annotations;
    let names = |annotations: Option<std::collections::BTreeMap<String, String>>| {
        annotations.and_then(|all| all.get(INSTALLATIONS_ANNOTATION).cloned())
    };
    ensure!(names(annotations) == names(registration.metadata.annotations));
    Ok(())
}

async fn reviews_of_any_size_and_number_fit_into_the_memory(world: &mut World) -> TestResult {
    let stranger = &Stranger::of(world)?;
    let right = webhook_path(&world.client).await?;
    let padded = |start: &[u8], with: u8| {
        let mut body = start.to_vec();
        body.resize(LARGEST, with);
        body
    };
    let start =
        br#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"object":["#;
    let nested = [&start[..], &br#"{"a":{}},"#.repeat(300_000)].concat();
    for (what, path, body, times, expected) in [
        (
            "of strangers",
            "/validate",
            padded(b"", b'x'),
            300,
            [403, 403],
        ),
        (
            "of the largest size",
            &right,
            padded(b"", b'x'),
            300,
            [400, 503],
        ),
        ("of lists", &right, padded(start, b'['), 40, [413, 503]),
        ("of many objects", &right, nested, 40, [413, 503]),
        (
            "that are too large",
            &right,
            vec![b'x'; LARGEST + 1],
            40,
            [413, 413],
        ),
    ] {
        let posts = stream::iter(0..times)
            .map(|_| stranger.post(path, body.clone()))
            .buffer_unordered(100);
        let answers: Vec<_> = posts.collect().await;
        for answer in answers {
            // A request that is refused before it was read may lose its connection.
            let Ok((status, answer)) = answer else {
                continue;
            };
            ensure!(
                expected.contains(&status.as_u16()),
                "{what}: {status} {answer}"
            );
        }
    }
    for webhook in &world.webhooks {
        let peak = webhook.peak_memory_kib()?;
        ensure!(peak < LIMIT_KIB, "{} had {peak} KiB", webhook.name());
    }
    let backup = Backup::new("after-the-flood", of_namespaces(&["nowhere"]));
    eventually("creations are decided on", TIMEOUT, async || {
        world
            .backups()
            .create(&dry_run(), &backup)
            .await
            .map(Probe::Ready)
    })
    .await?;
    Ok(())
}
