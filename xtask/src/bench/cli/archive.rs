//! Reading from a large archive: the first time, when it is indexed, and again.

use anyhow::ensure;
use backup_tests::{World, api::ApiExt as _, archive::write_members, world::BUCKET};

use super::{MAX_MEMORY_MIB, Table, backup, middle};
use crate::bench::{
    objects,
    table::{Row, Target},
};

const ITEMS: usize = 100_000;
const NAMESPACES: usize = 100;
/// Maximum time for the first reading, and for later ones (ms).
const MAX_FIRST_MILLIS: f64 = 2000.0;
const MAX_LATER_MILLIS: f64 = 300.0;
const NAME: &str = "archive";

pub(super) async fn measure(world: &World, table: &mut Table) -> anyhow::Result<()> {
    let created = world.backups().create_object(&backup(NAME)?).await?;
    world.store_backup(BUCKET, NAME, &serde_json::to_value(&created)?)?;
    eprintln!("writing an archive of {ITEMS} items");
    let mut archive = Vec::new();
    let size = write_members(items(), &mut archive)? >> 20;
    let key = format!("backups/{NAME}/{NAME}.tar.gz");
    world.s3()?.write(BUCKET, &key, archive).await?;
    let person = world.kubectl_backup();
    let place = format!("namespace-{}", NAMESPACES - 1);
    let last = format!("{place}/configmaps/item-{:06}", ITEMS - 1);
    for (line, expected) in [
        (vec!["ls", NAME, &place], (ITEMS / NAMESPACES).to_string()),
        (
            vec!["cat", NAME, &last],
            format!("name: item-{:06}", ITEMS - 1),
        ),
    ] {
        for (when, is_first, most) in [
            ("the first time", true, MAX_FIRST_MILLIS),
            ("after that", false, MAX_LATER_MILLIS),
        ] {
            let took = middle(async || {
                if is_first {
                    person.forget()?;
                }
                let ran = person.succeeds(&line).await?;
                ensure!(
                    ran.stdout.contains(&expected) && ran.stderr.is_empty(),
                    "{}{}",
                    ran.stdout,
                    ran.stderr
                );
                Ok(ran.elapsed)
            })
            .await?;
            table.row(&Row {
                what: format!("{} in {ITEMS} items, {when}", line[0]),
                found: format!("{took:.0} ms"),
                beside: format!("{size} MiB in the bucket"),
                target: Target::at_most(took, most, " ms"),
            });
        }
    }
    person.forget()?;
    let listing = person.peak_memory_kib(&["ls", NAME]).await?;
    let reading = person.peak_memory_kib(&["cat", NAME, &last]).await?;
    table.memory(
        format!("memory of ls and cat in {ITEMS} items"),
        listing.max(reading),
        "-".to_owned(),
        MAX_MEMORY_MIB,
    );
    world.backups().delete_object(NAME).await?;
    Ok(())
}

/// Each item at both paths at which the controller writes it.
fn items() -> impl Iterator<Item = (String, Vec<u8>)> {
    (0..ITEMS).flat_map(|number| {
        let namespace = format!("namespace-{}", number % NAMESPACES);
        let text = objects::text(number, 12);
        let json = format!(
            r#"{{"apiVersion":"v1","data":{{"text":"{text}"}},"kind":"ConfigMap","metadata":{{"name":"item-{number:06}","namespace":"{namespace}"}}}}"#
        );
        ["", "v1-preferredversion/"].map(|version| {
            let path = format!("resources/configmaps/{version}namespaces/{namespace}/item-{number:06}.json");
            (path, json.clone().into_bytes())
        })
    })
}
