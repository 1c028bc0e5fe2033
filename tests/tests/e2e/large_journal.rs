//! Takeover of a backup whose journal is full of large items, or whose record has large files:
//! memory does not grow with them.

use std::{io::Read as _, path::Path};

use backup_core::digest::sha256;
use backup_store::crash;

use crate::prelude::*;

crate::tests! {
    ten_thousand_large_entries_are_taken_over_in_little_memory,
    a_record_of_large_files_is_taken_over_in_little_memory,
}

const PLACE: &str = "large-journal";
const ENTRIES: usize = 10_000;
/// Size of the item in an entry (bytes).
const ITEM_BYTES: usize = 100 << 10;
const MEMORY_KIB: u64 = 256 << 10;
/// Files of the record that are made large, and their size (bytes).
const LARGE_FILES: [&str; 4] = [
    "-logs.gz",
    "-results.gz",
    "-resource-list.json.gz",
    "-volumeinfo.json.gz",
];
const LARGE_BYTES: usize = 64 << 20;

async fn ten_thousand_large_entries_are_taken_over_in_little_memory(
    world: &mut World,
) -> TestResult {
    world.needs_debug_build()?;
    world.config_maps(PLACE, 3).await?;
    world.s3()?.create_bucket(PLACE).await?;
    world.s3_location(PLACE, &world.s3()?.url()).await?;
    let point = crash::POINTS[0];
    world.crash_at(point).await?;
    let backup = world.create_backup(PLACE, of_place(PLACE)).await?;
    world.controllers[0]
        .killed(POINT_TIMEOUT)
        .await
        .with_context(|| format!("{point} was not reached"))?;

    // An action has changed each of many items and started an operation, which has ended by now.
    let folder = world.stored_folder(PLACE, PLACE)?.join(".private");
    let text = "x".repeat(ITEM_BYTES);
    for number in 1..=2 * ENTRIES {
        let name = (number % ENTRIES).to_string();
        let started = (number <= ENTRIES).then(|| {
            let item = json!({ "metadata": { "name": name }, "data": { "text": text } });
            let executed =
                json!({ "item": item, "additional": [], "operation": name, "afterOperation": [] });
            json!({ "executed": executed, "at": "2026-01-01T00:00:00Z" })
        });
        let item = json!({ "groupResource": "configmaps", "namespace": PLACE, "name": name });
        let entry = json!({ "actionEnded": { "action": "test/large", "item": item }, "started": started, "backup": backup.uid() });
        std::fs::write(folder.join(format!("journal-{number}")), entry.to_string())?;
    }
    world.controllers[0].restart().await?;
    world.backup_ends(PLACE, BackupPhase::Completed).await?;
    let peak = world.controllers[0].peak_memory_kib()?;
    println!("{ENTRIES} entries: {} MiB at most", peak >> 10);
    ensure!(peak < MEMORY_KIB, "{peak} KiB");
    Ok(())
}

async fn a_record_of_large_files_is_taken_over_in_little_memory(world: &mut World) -> TestResult {
    world.needs_debug_build()?;
    let place = "large-record";
    world.config_maps(place, 3).await?;
    world.s3()?.create_bucket(place).await?;
    world.s3_location(place, &world.s3()?.url()).await?;
    world.crash_at("after-record").await?;
    world.create_backup(place, of_place(place)).await?;
    world.controllers[0].killed(POINT_TIMEOUT).await?;
    let folder = world.stored_folder(place, place)?;
    enlarge(&folder.join(".private/record-1"))?;
    world.controllers[0].restart().await?;
    world.backup_ends(place, BackupPhase::Completed).await?;
    for suffix in LARGE_FILES {
        let written = std::fs::metadata(folder.join(format!("{place}{suffix}")))?.len();
        ensure!(written == LARGE_BYTES as u64, "{suffix}: {written} bytes");
    }
    let peak = world.controllers[0].peak_memory_kib()?;
    println!(
        "{} files of {} MiB: {} MiB at most",
        LARGE_FILES.len(),
        LARGE_BYTES >> 20,
        peak >> 10
    );
    ensure!(peak < MEMORY_KIB, "{peak} KiB");
    Ok(())
}

/// Makes files of a record large.
fn enlarge(record: &Path) -> anyhow::Result<()> {
    let before = std::fs::read(record)?;
    let (mut files, mut archive) = (Vec::new(), tar::Archive::new(before.as_slice()));
    for entry in archive.entries()? {
        let mut entry = entry?;
        let name = entry.path()?.display().to_string();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes)?;
        if LARGE_FILES.iter().any(|suffix| name.ends_with(suffix)) {
            bytes = vec![b'x'; LARGE_BYTES];
        }
        files.push((name, bytes));
    }
    let (name, header) = files.remove(0);
    let mut header: Value = serde_json::from_slice(&header)?;
    let said = header["files"]
        .as_array_mut()
        .context("it names no files")?;
    for (said, (_, bytes)) in said.iter_mut().zip(&files) {
        said["bytes"] = json!(bytes.len());
        said["sha256"] = json!(sha256(bytes));
    }
    files.insert(0, (name, header.to_string().into_bytes()));
    let mut archive = tar::Builder::new(std::fs::File::create(record)?);
    for (name, bytes) in &files {
        let mut head = tar::Header::new_gnu();
        head.set_mode(0o644);
        head.set_size(bytes.len() as u64);
        archive.append_data(&mut head, name, bytes.as_slice())?;
    }
    archive.finish()?;
    Ok(())
}
