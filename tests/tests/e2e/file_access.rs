//! Reading stored files through the API server alone: with the role `backup-reader`, and the real
//! service proxy.

mod large;

use std::{os::unix::fs::PermissionsExt as _, process::Stdio, time::Instant};

use backup_core::{
    api::{DownloadRequest, VeleroKind, download_request::DownloadRequestPhase},
    labels::READ_KEY_ANNOTATION,
    reading::{KEY_HEADER, Key},
};
use backup_tests::{
    control_plane::client_without_retries,
    faulty_s3::Mood,
    install,
    world::downloads::{answered, read_request},
};
use futures::future::try_join_all;
use http::{Request, Response, header};
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::{Endpoints, Secret};
use kube::{
    Client,
    api::{Patch, PatchParams},
    client::Body,
};
use sha2::{Digest as _, Sha256};
use tokio::io::AsyncReadExt as _;

use crate::prelude::*;
use large::{
    a_download_goes_on_where_a_killed_controller_broke_it_off,
    a_large_tarball_is_read_in_ranges_with_little_memory,
    of_a_large_tarball_that_was_looked_into_one_item_is_read_alone,
};

crate::tests! {
    logs_and_tarballs_are_read_through_the_api_server,
    a_key_opens_one_file_once_and_is_not_in_the_request,
    of_concurrent_readers_with_one_key_one_gets_the_whole,
    files_of_another_backup_of_the_name_are_not_given,
    a_large_tarball_is_read_in_ranges_with_little_memory,
    of_a_large_tarball_that_was_looked_into_one_item_is_read_alone,
    a_download_goes_on_where_a_killed_controller_broke_it_off,
    a_store_that_hangs_takes_no_readers_from_other_stores,
}

// In a world with two controllers.
crate::tests! { BESIDE_A_LEADER: a_replica_that_does_not_lead_gives_files_and_plans_too }

/// The role of readers.
const ROLE: &str = "backup-reader";
/// A client of a ServiceAccount that has only this role.
async fn reader(world: &World, name: &str) -> anyhow::Result<Client> {
    client_without_retries(&world.person(name, Some(ROLE)).await?).await
}

async fn backed_up(world: &World, name: &str) -> anyhow::Result<Backup> {
    world.config_maps(name, 3).await?;
    install::ensure_secret(&world.client, name, "hidden", "password", "correct horse").await?;
    world.back_up(name, of_namespaces(&[name])).await
}

async fn contents(world: &World, name: &str) -> anyhow::Result<Vec<u8>> {
    Ok(world
        .s3()?
        .read(BUCKET, &format!("backups/{name}/{name}.tar.gz"))
        .await?
        .to_vec())
}

/// A granted request.
struct Grant {
    request: String,
    path: String,
    key: Key,
}

/// A request of this user, and the answer.
async fn asked(
    client: &Client,
    kind: &str,
    of: &str,
    uid: &str,
) -> anyhow::Result<(DownloadRequest, Key)> {
    let key = Key::new(Sha256::digest(format!("{of} {kind} {}", jiff::Timestamp::now())).into());
    let request = read_request(kind, of, uid, &key);
    Ok((
        answered(&Api::namespaced(client.clone(), NAMESPACE), &request).await?,
        key,
    ))
}

async fn granted<K: VeleroKind>(client: &Client, kind: &str, of: &K) -> anyhow::Result<Grant> {
    let (request, key) = asked(client, kind, &of.name_any(), &of.uid().unwrap_or_default()).await?;
    let path = request
        .status
        .download_url
        .clone()
        .with_context(|| format!("{:?}", request.status))?;
    Ok(Grant {
        request: request.name_any(),
        path,
        key,
    })
}

/// A GET with the key and these headers.
async fn fetch(
    client: &Client,
    path: &str,
    key: &str,
    headers: &[(header::HeaderName, &str)],
) -> anyhow::Result<Response<Body>> {
    let mut request = Request::get(path);
    if !key.is_empty() {
        request = request.header(KEY_HEADER, key);
    }
    for (name, value) in headers {
        request = request.header(name, *value);
    }
    Ok(client.send(request.body(Body::empty())?).await?)
}

/// Code and message of a refusal by the controller.
async fn refusal(response: Response<Body>) -> anyhow::Result<(u16, String)> {
    let code = response.status().as_u16();
    let bytes = response.into_body().collect_bytes().await?;
    let status: Value = serde_json::from_slice(&bytes).with_context(|| {
        format!(
            "{code}: {}",
            String::from_utf8_lossy(&bytes[..bytes.len().min(200)])
        )
    })?;
    ensure!(
        status["details"]["kind"] == "storedfiles",
        "not by the controller: {status}"
    );
    Ok((
        code,
        status["message"].as_str().unwrap_or_default().to_owned(),
    ))
}

async fn no_requests(world: &World) -> anyhow::Result<()> {
    let api: Api<DownloadRequest> = world.api();
    eventually("requests are used up", Duration::from_secs(5), async || {
        let left = api.names().await?;
        Ok::<_, kube::Error>(when(left.is_empty(), format!("{left:?}")))
    })
    .await
}

/// Checks that the request is gone, because its last piece was sent.
async fn used_up(world: &World, request: &str) -> anyhow::Result<()> {
    ensure!(
        !world.api::<DownloadRequest>().exists(request).await?,
        "{request} is there"
    );
    Ok(())
}

async fn logs_and_tarballs_are_read_through_the_api_server(world: &mut World) -> TestResult {
    let name = "read-all";
    backed_up(world, name).await?;
    world
        .restore(name, into_namespace(name, &format!("{name}-too")))
        .await?;
    let person = world.reader().await?;

    let ran = person.succeeds(&["logs", name]).await?;
    ensure!(ran.stdout == world.backup_log(name).await?);
    ensure!(
        ran.stdout.contains("level=info") && ran.stderr.is_empty(),
        "{}",
        ran.stderr
    );
    println!("  a log is read in {:?}", ran.elapsed);
    let ran = person.succeeds(&["restore", "logs", name]).await?;
    let stored = world.restore_log(name).await?;
    ensure!(ran.stdout == stored && !stored.is_empty(), "{}", ran.stdout);

    let file = world.folder().join("read.tar.gz");
    let output = file.display().to_string();
    let download = ["download", name, "-o", &output];
    person.succeeds(&download).await?;
    ensure!(
        std::fs::read(&file)? == contents(world, name).await?,
        "other bytes"
    );
    ensure!(
        std::fs::metadata(&file)?.permissions().mode() & 0o777 == 0o600,
        "others can read Secrets"
    );
    let again = person.fails(1, &download).await?;
    ensure!(
        again.stderr.contains("exists") && again.stderr.contains("--force"),
        "{}",
        again.stderr
    );
    person
        .succeeds(&[&download[..], &["--force"]].concat())
        .await?;
    let gone = person.fails(1, &["logs", "never-was"]).await?;
    ensure!(gone.stderr.contains("was not found"), "{}", gone.stderr);
    no_requests(world).await?;

    // The role is sufficient for this, and for nothing else.
    let client = reader(world, "reader").await?;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), name);
    ensure!(
        matches!(secrets.get("hidden").await, Err(kube::Error::Api(status)) if status.code == 403),
        "a Secret"
    );
    let other = "/api/v1/namespaces/velero/services/backup-controller:files/proxy/files/x";
    ensure!(
        fetch(&client, other, "", &[]).await?.status() == 403,
        "another name of the Service"
    );
    let stranger = world.kubectl_backup_as("stranger", None).await?;
    let refused = stranger.fails(1, &["logs", name]).await?;
    ensure!(refused.stderr.contains("forbidden"), "{}", refused.stderr);
    // A user who may look, but not request files, cannot read any.
    let viewer = world
        .kubectl_backup_as("viewer", Some("backup-lock-view"))
        .await?;
    let refused = viewer.fails(1, &["logs", name]).await?;
    ensure!(
        refused.stderr.contains("downloadrequests"),
        "{}",
        refused.stderr
    );
    Ok(())
}

async fn a_key_opens_one_file_once_and_is_not_in_the_request(world: &mut World) -> TestResult {
    let name = "read-once";
    let backup = backed_up(world, name).await?;
    let (one, other) = (
        reader(world, "reader").await?,
        reader(world, "other-reader").await?,
    );
    let grant = granted(&one, "BackupLog", &backup).await?;
    // Another user may read everything in the API, but that is not sufficient for access.
    let api: Api<DownloadRequest> = Api::namespaced(other.clone(), NAMESPACE);
    let seen = api.get(&grant.request).await?;
    ensure!(
        !serde_json::to_string(&seen)?.contains(grant.key.as_str()),
        "the key is in the request"
    );
    let hash = seen.annotations()[READ_KEY_ANNOTATION].clone();
    let own = granted(&other, "BackupLog", &backup).await?;
    for (what, key) in [
        ("no key", ""),
        ("the hash", &hash),
        ("the key of another request", own.key.as_str()),
    ] {
        let (code, message) = refusal(fetch(&other, &grant.path, key, &[]).await?).await?;
        ensure!(code == 403, "{what}: {code} {message}");
    }
    let never = grant.path.replace(&grant.request, "read-never");
    let (code, never) = refusal(fetch(&one, &never, grant.key.as_str(), &[]).await?).await?;
    ensure!(code == 403, "a request that never was: {code} {never}");

    let response = fetch(&one, &grant.path, grant.key.as_str(), &[]).await?;
    ensure!(response.status() == 200, "{response:?}");
    let mut cached = response.headers().get_all(header::CACHE_CONTROL).iter();
    ensure!(
        cached.any(|value| value == "no-store"),
        "{:?}",
        response.headers()
    );
    let bytes = response.into_body().collect_bytes().await?;
    ensure!(
        bytes
            == world
                .s3()?
                .read(BUCKET, &format!("backups/{name}/{name}-logs.gz"))
                .await?,
        "other bytes"
    );
    let (code, used) = refusal(fetch(&one, &grant.path, grant.key.as_str(), &[]).await?).await?;
    ensure!(
        (code, &used) == (403, &never),
        "a second time: {code} {used}"
    );

    // Expired: a moment before the controller removes it, and after that.
    let grant = granted(&one, "BackupLog", &backup).await?;
    let past = json!({ "status": { "expiration": jiff::Timestamp::now() - jiff::SignedDuration::from_secs(1) } });
    let all: Api<DownloadRequest> = world.api();
    all.merge_patch(&grant.request, past).await?;
    let (code, message) = refusal(fetch(&one, &grant.path, grant.key.as_str(), &[]).await?).await?;
    ensure!((code, &message) == (403, &never), "over: {code} {message}");

    // Only GET is allowed.
    let delete = Request::delete(&own.path)
        .header(KEY_HEADER, own.key.as_str())
        .body(Body::empty())?;
    ensure!(world.client.send(delete).await?.status() == 405, "a DELETE");
    let log = world.controllers[0].tail(100_000);
    ensure!(
        !log.contains(grant.key.as_str()) && !log.contains(own.key.as_str()),
        "a key is in the log"
    );
    ensure!(
        log.contains("a file is read"),
        "that a file was read is not in the log"
    );
    fetch(&other, &own.path, own.key.as_str(), &[])
        .await?
        .into_body()
        .collect_bytes()
        .await?;
    no_requests(world).await
}

async fn of_concurrent_readers_with_one_key_one_gets_the_whole(world: &mut World) -> TestResult {
    const READERS: usize = 4;
    const ROUNDS: usize = 10;
    let name = "read-raced";
    let backup = backed_up(world, name).await?;
    let stored = world
        .s3()?
        .read(BUCKET, &format!("backups/{name}/{name}-logs.gz"))
        .await?;
    let kubeconfig = world.person("reader", Some(ROLE)).await?;
    // One connection each, so that none waits for another.
    let clients = try_join_all((0..READERS).map(|_| client_without_retries(&kubeconfig))).await?;
    let mut broken_off = 0;
    for round in 0..ROUNDS {
        let grant = &granted(&clients[0], "BackupLog", &backup).await?;
        let reads = clients.iter().map(async |client| {
            // A reader whose only piece is held back may be cut off before the head of the answer.
            let Ok(response) = fetch(client, &grant.path, grant.key.as_str(), &[]).await else {
                return Ok(Some(false));
            };
            if response.status() != 200 {
                let (code, message) = refusal(response).await?;
                ensure!(code == 403, "{code} {message}");
                return Ok(None);
            }
            Ok(Some(
                response
                    .into_body()
                    .collect_bytes()
                    .await
                    .is_ok_and(|bytes| bytes == stored),
            ))
        });
        let read = try_join_all(reads).await?;
        let whole = read.iter().filter(|read| **read == Some(true)).count();
        ensure!(
            whole == 1,
            "round {round}: {whole} of {READERS} readers got all of it: {read:?}"
        );
        broken_off += read.iter().filter(|read| **read == Some(false)).count();
        used_up(world, &grant.request).await?;
    }
    // Later readers were refused, as they would be without any race.
    ensure!(broken_off > 0, "no two readers were at it at the same time");
    println!(
        "  {ROUNDS} times one of {READERS} got all; {broken_off} were broken off before the last piece"
    );
    Ok(())
}

async fn a_replica_that_does_not_lead_gives_files_and_plans_too(world: &mut World) -> TestResult {
    let name = "read-beside";
    backed_up(world, name).await?;
    let other = 1 - world.leader().await?;
    // The Service leads to the other replica only.
    let endpoints: Api<Endpoints> = world.api();
    let both = endpoints.get("backup-controller").await?;
    let subset = both
        .subsets
        .as_ref()
        .and_then(|subsets| subsets.get(other))
        .context("no second endpoint")?;
    let only = Patch::Merge(json!({ "subsets": [subset] }));
    endpoints
        .patch("backup-controller", &PatchParams::default(), &only)
        .await?;
    let person = world.reader().await?;
    let ran = person.succeeds(&["logs", name]).await?;
    let stored = world.backup_log(name).await?;
    ensure!(ran.stdout == stored && !stored.is_empty(), "{}", ran.stdout);
    let log = world.controllers[other].tail(100_000);
    ensure!(log.contains("a file is read"), "another one gave it: {log}");
    let start = Instant::now();
    let plan = world
        .kubectl_backup()
        .stdout(&["restore", name, "--plan"])
        .await?;
    says(&plan, &["nothing was written"])?;
    ensure!(
        start.elapsed() < Duration::from_secs(20),
        "the plan took {:?}",
        start.elapsed()
    );
    no_requests(world).await?;
    let again = Patch::Merge(json!({ "subsets": both.subsets }));
    endpoints
        .patch("backup-controller", &PatchParams::default(), &again)
        .await?;
    Ok(())
}

async fn files_of_another_backup_of_the_name_are_not_given(world: &mut World) -> TestResult {
    let name = "read-namesake";
    let first = backed_up(world, name).await?;
    let client = reader(world, "reader").await?;
    let (refused, _) = asked(&client, "BackupLog", name, "another-uid").await?;
    ensure!(
        refused.status.phase == Some(DownloadRequestPhase::Failed),
        "{:?}",
        refused.status
    );
    let grant = granted(&client, "BackupLog", &first).await?;
    // Deleted from the cluster and not from the bucket: the next backup of this name finds its
    // folder taken.
    world.backups().delete_object(name).await?;
    world.backup_gone(name).await?;
    let second = world
        .run_backup(name, of_namespaces(&[name]), BackupPhase::Failed)
        .await?;
    tokio::time::sleep(Duration::from_secs(1)).await; // what is known of a backup is known for a second
    let (code, message) =
        refusal(fetch(&client, &grant.path, grant.key.as_str(), &[]).await?).await?;
    ensure!(
        code == 424 && message.contains("another one has its name now"),
        "{code} {message}"
    );
    let grant = granted(&client, "BackupLog", &second).await?;
    let (code, message) =
        refusal(fetch(&client, &grant.path, grant.key.as_str(), &[]).await?).await?;
    ensure!(
        code == 404 && message.contains("of another backup of this name"),
        "{code} {message}"
    );
    let ran = world.reader().await?.fails(1, &["logs", name]).await?;
    ensure!(
        ran.stderr.contains("of another backup of this name"),
        "{}",
        ran.stderr
    );
    Ok(())
}

async fn a_store_that_hangs_takes_no_readers_from_other_stores(world: &mut World) -> TestResult {
    let (still, moving) = ("read-still", "read-moving");
    let store = world.faulty_s3().await?;
    world.s3()?.create_bucket(still).await?;
    world
        .synced_location(still, &store.url(), &json!({}))
        .await?;
    backed_up(world, moving).await?;
    let backup = world
        .back_up(still, into_location(still, &[moving]))
        .await?;
    let person = world.reader().await?;
    let whole = person.stdout(&["describe", still]).await?;
    ensure!(!whole.contains("unavailable"), "{whole}");

    // As many as are served at a time; they wait until the timeout.
    let kubeconfig = world.person("reader", Some(ROLE)).await?;
    let clients = try_join_all((0..16).map(|_| client_without_retries(&kubeconfig))).await?;
    let grant = &granted(&clients[0], "BackupLog", &backup).await?;
    store.rule(|_| Mood::Held);
    let standing = clients.iter().map(async |client| {
        refusal(fetch(client, &grant.path, grant.key.as_str(), &[]).await?).await
    });
    let others = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        anyhow::Ok((
            person.run(&["logs", moving]).await?,
            person.run(&["describe", still]).await?,
        ))
    };
    let (standing, others) = tokio::try_join!(try_join_all(standing), others)?;
    let (log, described) = (others.0.expect_code(0)?, others.1.expect_code(0)?);
    ensure!(
        !log.stdout.is_empty() && log.elapsed < Duration::from_secs(10),
        "{log:?}"
    );
    says(&described.stdout, &["unavailable", "Everything was saved"])?;
    // Each part has a timeout of ten seconds.
    ensure!(described.elapsed < Duration::from_secs(15), "{described:?}");
    for (code, message) in standing {
        ensure!(
            code == 503 && message.contains("gave no file within"),
            "{code} {message}"
        );
    }
    store.calm();
    let again = person.stdout(&["describe", still]).await?;
    ensure!(!again.contains("unavailable"), "{again}");
    world.remove_location(still).await
}
