//! A backup that is taken over, of which a journal is full of large items: memory does not grow with them.

use backup_store::crash;

use crate::prelude::*;

crate::tests! {
    ten_thousand_large_entries_are_taken_over_in_little_memory,
}

const PLACE: &str = "large-journal";
const ENTRIES: usize = 10_000;
/// Size of the item in an entry (bytes).
const ITEM: usize = 100 << 10;
const MEMORY_KIB: u64 = 256 << 10;

async fn ten_thousand_large_entries_are_taken_over_in_little_memory(world: &mut World) -> anyhow::Result<()> {
    world.needs_debug_build()?;
    world.config_maps(PLACE, 3).await?;
    world.s3()?.create_bucket(PLACE).await?;
    world.s3_location(PLACE, &world.s3()?.url()).await?;
    let point = crash::POINTS[0];
    world.crash_at(point).await?;
    let backup = world.create_backup(PLACE, of_place(PLACE)).await?;
    world.controllers[0].killed(REACHED).await.with_context(|| format!("{point} was not reached"))?;

    // An action has changed each of many items and started something, which is over by now.
    let folder = world.stored_folder(PLACE, PLACE)?.join(".private");
    let text = "x".repeat(ITEM);
    for number in 1..=2 * ENTRIES {
        let name = (number % ENTRIES).to_string();
        let started = (number <= ENTRIES).then(|| {
            let item = json!({ "metadata": { "name": name }, "data": { "text": text } });
            let executed = json!({ "item": item, "additional": [], "operation": name, "afterOperation": [] });
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
