//! Tarballs of many megabytes: read in ranges, item by item, and across a crash.

use super::*;

/// Name of the large backup.
const LARGE: &str = "read-large";

/// A backup whose compressed size is more than 20 MiB; made once.
async fn large(world: &World) -> anyhow::Result<Backup> {
    if let Some(backup) = world.backups().get_opt(LARGE).await? {
        return Ok(backup);
    }
    world.noise(LARGE, 60).await?;
    world.back_up(LARGE, of_namespaces(&[LARGE])).await
}

pub(super) async fn a_large_tarball_is_read_in_ranges_with_little_memory(
    world: &mut World,
) -> TestResult {
    const READERS: usize = 16;
    const MIB: usize = 1024 * 1024;
    let backup = large(world).await?;
    let stored = contents(world, LARGE).await?;
    ensure!(stored.len() > 20 * MIB, "{} bytes", stored.len());
    let client = reader(world, "reader").await?;
    let grant = granted(&client, "BackupContents", &backup).await?;
    let get = async |headers: &[(header::HeaderName, &str)]| {
        fetch(&client, &grant.path, grant.key.as_str(), headers).await
    };
    let (size, third) = (stored.len(), stored.len() / 3);
    let mut tag = String::new();
    for (range, expected) in [
        (format!("bytes=0-{}", third - 1), 0..third),
        (format!("bytes={third}-{}", 2 * third - 1), third..2 * third),
        ("bytes=0-0".to_owned(), 0..1),
    ] {
        let response = get(&[(header::RANGE, &range)]).await?;
        let told = format!("bytes {}-{}/{size}", expected.start, expected.end - 1);
        ensure!(
            response.status() == 206 && response.headers()[header::CONTENT_RANGE] == *told,
            "{response:?}"
        );
        ensure!(
            response.headers()[header::CONTENT_LENGTH] == *(expected.len().to_string()),
            "{response:?}"
        );
        tag = response.headers()[header::ETAG].to_str()?.to_owned();
        ensure!(
            response.into_body().collect_bytes().await? == stored[expected],
            "{range}: other bytes"
        );
    }
    let behind = get(&[(header::RANGE, &format!("bytes={size}-"))]).await?;
    ensure!(behind.status() == 416, "{behind:?}");
    ensure!(
        behind.headers()[header::CONTENT_RANGE] == *format!("bytes */{size}"),
        "{behind:?}"
    );
    let other = get(&[(header::RANGE, "bytes=5-"), (header::IF_RANGE, "\"other\"")]).await?;
    ensure!(other.status() == 200, "another version: {other:?}");
    drop(other);

    // Readers who open a file and stop reading use one slot each, and little memory. None reads to
    // the end, which would use the key up.
    let all_but_one = format!("bytes=0-{}", size - 2);
    let before = world.controllers[0].peak_memory_kib()?;
    let kubeconfig = world.person("reader", Some(ROLE)).await?;
    let standing = try_join_all((0..READERS).map(async |_| {
        // On a shared connection, a stopped reader would block the others.
        let client = client_without_retries(&kubeconfig).await?;
        fetch(
            &client,
            &grant.path,
            grant.key.as_str(),
            &[(header::RANGE, &all_but_one)],
        )
        .await
    }))
    .await?;
    ensure!(
        standing.iter().all(|response| response.status() == 206),
        "{standing:?}"
    );
    let busy = get(&[]).await?;
    ensure!(
        busy.status() == 503 && busy.headers()[header::RETRY_AFTER] == "2",
        "{busy:?}"
    );
    drop(standing);
    let grown = world.controllers[0]
        .peak_memory_kib()?
        .saturating_sub(before);
    println!(
        "  {READERS} readers of {} MiB have the controller grow by {} MiB",
        size / MIB,
        grown / 1024
    );
    ensure!(grown < 48 * 1024, "{grown} KiB");
    eventually(
        "the places are free again",
        Duration::from_secs(5),
        async || {
            let response = get(&[(header::RANGE, "bytes=0-0")]).await?;
            anyhow::Ok(when(
                response.status() == 206,
                response.status().to_string(),
            ))
        },
    )
    .await?;

    let rest = get(&[
        (header::RANGE, &format!("bytes={}-", 2 * third)),
        (header::IF_RANGE, &tag),
    ])
    .await?;
    ensure!(rest.status() == 206, "{rest:?}");
    ensure!(
        rest.into_body().collect_bytes().await? == stored[2 * third..],
        "the rest: other bytes"
    );
    let (code, message) = refusal(get(&[(header::RANGE, "bytes=0-0")]).await?).await?;
    ensure!(code == 403, "after the last byte: {code} {message}");
    used_up(world, &grant.request).await
}

pub(super) async fn of_a_large_tarball_that_was_looked_into_one_item_is_read_alone(
    world: &mut World,
) -> TestResult {
    large(world).await?;
    let person = world.kubectl_backup_as("reader", Some(ROLE)).await?;
    let mut maps = person
        .stdout(&["ls", LARGE, &format!("{LARGE}/configmaps"), "-o", "name"])
        .await?;
    let last = maps.split_off(maps.trim_end().rfind('\n').context("there is one item")? + 1);
    let item = format!("{LARGE}/configmaps/{}", last.trim());
    let reads = || {
        let log = world.controllers[0].tail(100_000);
        let reads: Vec<&str> = log
            .lines()
            .filter(|line| line.contains("\"a file is read\""))
            .collect();
        (
            reads.len(),
            reads
                .last()
                .is_some_and(|line| !line.contains("\"from\":0,")),
        )
    };
    let (before, _) = reads();
    let cat = person
        .succeeds(&["cat", LARGE, &item, "-o", "json"])
        .await?;
    println!("  one item of it is read within {:?}", cat.elapsed);
    let printed = cat.stdout;
    let path = format!("configmaps/namespaces/{LARGE}/{}.json", last.trim());
    let stored = world.backup_item(LARGE, &path).await?;
    ensure!(
        serde_json::from_str::<serde_json::Value>(&printed)? == stored,
        "another item: {printed:.200}"
    );
    ensure!(
        reads() == (before + 1, true),
        "it was not read in part: {:?}",
        reads()
    );
    person.succeeds(&["ls", LARGE]).await?;
    ensure!(reads().0 == before + 1, "the tarball was read again");
    Ok(())
}

pub(super) async fn a_download_goes_on_where_a_killed_controller_broke_it_off(
    world: &mut World,
) -> TestResult {
    let backup = large(world).await?;
    let stored = contents(world, LARGE).await?;
    let client = reader(world, "reader").await?;
    // By hand, with the same key.
    let grant = granted(&client, "BackupContents", &backup).await?;
    let mut body = fetch(&client, &grant.path, grant.key.as_str(), &[])
        .await?
        .into_body();
    let mut read = body
        .frame()
        .await
        .context("no bytes")??
        .into_data()
        .unwrap_or_default()
        .to_vec();
    world.controllers[0].kill().await?;
    while let Some(Ok(frame)) = body.frame().await {
        read.extend_from_slice(&frame.into_data().unwrap_or_default());
    }
    ensure!(
        read.len() < stored.len(),
        "all was read before the controller was killed"
    );
    world.controllers[0].restart().await?;
    let range = format!("bytes={}-", read.len());
    let rest = eventually(
        "the new controller gives the rest",
        Duration::from_secs(20),
        async || {
            let rest = fetch(
                &client,
                &grant.path,
                grant.key.as_str(),
                &[(header::RANGE, &range)],
            )
            .await?;
            let status = rest.status();
            anyhow::Ok(if status == 206 {
                Probe::Ready(rest)
            } else {
                Probe::NotYet(status.to_string())
            })
        },
    )
    .await?;
    read.extend_from_slice(&rest.into_body().collect_bytes().await?);
    ensure!(read == stored, "other bytes");

    // By the command, which resumes by itself.
    let person = world.reader().await?;
    let kubeconfig = world.person("reader", Some(ROLE)).await?;
    let mut command = tokio::process::Command::new(person.program());
    command
        .args(["download", LARGE, "-o", "-"])
        .env("KUBECONFIG", kubeconfig)
        .env_remove("VELERO_NAMESPACE");
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut output = child.stdout.take().context("no output")?;
    let mut read = vec![0; 1024 * 1024];
    output.read_exact(&mut read).await?;
    world.controllers[0].restart().await?;
    output.read_to_end(&mut read).await?;
    let ended = child.wait_with_output().await?;
    let told = String::from_utf8_lossy(&ended.stderr);
    ensure!(
        ended.status.success() && read == stored,
        "{}: {} bytes: {told}",
        ended.status,
        read.len()
    );
    ensure!(
        told.contains("trying again"),
        "it was not broken off: {told}"
    );
    println!("  the command said: {}", told.trim());
    used_up(world, &grant.request).await
}
