//! A restore from a backup with a file that is missing, cut short, from another backup, or junk:
//! whether it is refused or continues. The same table is in docs/use/stored-files.md.

use std::{fs, path::Path};

use super::{operating::file, *};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Damage {
    Missing,
    /// Cut in half.
    Cut,
    OfAnother,
    /// No JSON, no gzip.
    Junk,
}

/// The result of the restore. The text is in its reason or its results.
#[derive(Clone, Copy, Debug)]
enum Expected {
    Refused(&'static str),
    Warned(&'static str),
    /// Continues without a message.
    GoesOn,
}

use Damage::{Cut, Junk, Missing, OfAnother};
use Expected::{GoesOn, Refused, Warned};

const METADATA: &str = "velero-backup.json";
const TARBALL: &str = "b.tar.gz";
const LIST: &str = "b-resource-list.json.gz";
const SNAPSHOTS: &str = "b-volumesnapshots.json.gz";
/// Files with the same message whether they are cut or junk.
const DECODED: [(&str, &str); 3] = [
    (SNAPSHOTS, "it is no gzipped list"),
    ("b-volumeinfo.json.gz", "it is no gzipped list"),
    ("b-podvolumebackups.json.gz", "it is no gzipped list"),
];
/// Not read by a restore: their data is also in the tarball, or only for users.
const NOT_READ: [&str; 6] = [
    "b-logs.gz",
    "b-results.gz",
    "b-itemoperations.json.gz",
    "b-csi-volumesnapshots.json.gz",
    "b-csi-volumesnapshotclasses.json.gz",
    "b-csi-volumesnapshotcontents.json.gz",
];

fn expected(name: &str, damage: Damage) -> Expected {
    match (name, damage) {
        (METADATA, Missing) => {
            Refused("velero-backup.json, is not there; if b.tar.gz is its own, put back")
        }
        (METADATA, Cut | Junk) => Refused("it is not a Backup"),
        (METADATA, OfAnother) => {
            Refused("are those of another backup, which began at 2025-12-31T00:00:00Z")
        }
        (TARBALL, Missing) => Refused("choose another backup"),
        (TARBALL, Cut) => Refused("was cut short"),
        (TARBALL, Junk) => Refused("the file is damaged"),
        (TARBALL, OfAnother) => Warned("such as resources/configmaps/namespaces/a/other.json"),
        (LIST, Missing) => Warned("b-resource-list.json.gz is not there"),
        (LIST, Cut | Junk) => Warned("it is no gzipped list of items"),
        (LIST, OfAnother) => Warned("such as resources/configmaps/namespaces/a/c.json"),
        (SNAPSHOTS, Missing) => Refused("put it back, or restore without volumes"),
        (SNAPSHOTS, OfAnother) => Refused("is that of backup \"other\""),
        (_, Missing | OfAnother) => GoesOn,
        (_, Cut | Junk) => DECODED
            .iter()
            .find(|(decoded, _)| *decoded == name)
            .map_or(GoesOn, |(_, words)| Refused(words)),
    }
}

pub(super) fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut encoder, text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

/// The file of another backup of the same name.
async fn of_another(name: &str) -> Vec<u8> {
    let item = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}});
    let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other"}});
    let items = if name == TARBALL {
        [item, other]
    } else {
        [other.clone(), other]
    };
    let items = items.map(|item| ("configmaps", Some("a"), item));
    let (folder, ..) = backup::stored(&items).await;
    match name {
        METADATA => {
            let text = fs::read_to_string(folder.path().join("backups/b").join(name)).unwrap();
            let mut metadata: Value = serde_json::from_str(&text).unwrap();
            metadata["metadata"]["uid"] = json!("another");
            metadata["status"]["startTimestamp"] = json!("2025-12-31T00:00:00Z");
            metadata.to_string().into()
        }
        TARBALL | LIST => fs::read(folder.path().join("backups/b").join(name)).unwrap(),
        SNAPSHOTS => {
            let spec =
                json!({"backupName": "other", "persistentVolumeName": "pv", "location": "x"});
            gzip(&json!([{"spec": spec, "status": {"phase": "Failed"}}]).to_string())
        }
        _ => gzip(r#"[{"metadata": {"name": "other"}}]"#),
    }
}

async fn damage(path: &Path, name: &str, damage: Damage) {
    // Files that this backup does not need are empty lists.
    if !path.exists() {
        fs::write(path, gzip("[]")).unwrap();
    }
    let whole = fs::read(path).unwrap();
    match damage {
        Missing => fs::remove_file(path).unwrap(),
        Cut => fs::write(path, &whole[..whole.len() / 2]).unwrap(),
        OfAnother => fs::write(path, of_another(name).await).unwrap(),
        Junk => fs::write(path, "no such thing").unwrap(),
    }
}

#[tokio::test]
async fn of_each_file_of_a_backup_that_is_damaged_it_is_known_whether_a_restore_goes_on() {
    let decoded = DECODED.iter().map(|(name, _)| *name);
    for name in [METADATA, TARBALL, LIST]
        .into_iter()
        .chain(decoded)
        .chain(NOT_READ)
    {
        for kind in [Missing, Cut, OfAnother, Junk] {
            let (fake, folder, ctx) = prepared(None).await;
            let mut stored = fake.get(BACKUP).unwrap();
            stored["status"]["startTimestamp"] = json!("2026-01-01T00:00:00Z");
            stored["status"]["volumeSnapshotsAttempted"] = json!(1);
            fake.put(BACKUP, stored);
            let files = folder.path().join("backups/b");
            if !files.join(SNAPSHOTS).exists() {
                fs::write(files.join(SNAPSHOTS), gzip("[]")).unwrap();
            }
            damage(&files.join(name), name, kind).await;
            assert_eq!(step(&mut worker(&ctx)).await, Step::Done, "{name} {kind:?}");

            let status = status(&fake);
            let case = format!("{name} {kind:?}: {status}");
            let (phase, words) = match expected(name, kind) {
                Refused(words) => ("Failed", Some(words)),
                Warned(words) => ("Completed", Some(words)),
                GoesOn => ("Completed", None),
            };
            assert_eq!(status["phase"], phase, "{case}");
            assert_eq!(fake.get(ITEM).is_some(), phase == "Completed", "{case}");
            assert_eq!(claims(&ctx).await, 0, "{case}");
            let results = file(&folder, "results.gz");
            if let Refused(words) = expected(name, kind) {
                let reason = status["failureReason"].as_str().unwrap();
                assert!(
                    reason.contains(words) && reason.starts_with("nothing was restored: "),
                    "{case}"
                );
                assert!(reason.contains(name) || name == METADATA, "{case}");
                continue;
            }
            let warnings = results["warnings"].to_string();
            let count = |field| status[field].as_i64().unwrap_or_default();
            assert_eq!(
                (count("errors"), words.is_some()),
                (0, count("warnings") > 0),
                "{case}"
            );
            assert!(
                words.is_none_or(|words| warnings.contains(words)),
                "{case} {warnings}"
            );
        }
    }
}

#[tokio::test]
async fn a_restore_that_is_resumed_from_a_backup_that_cannot_be_read_fails_and_is_not_resumed_again()
 {
    let (fake, folder, ctx) = prepared(Some("InProgress")).await;
    damage(&folder.path().join("backups/b").join(TARBALL), TARBALL, Cut).await;
    assert_eq!(step(&mut worker(&ctx)).await, Step::Done);
    let status = status(&fake);
    assert_eq!(status["phase"], "Failed");
    let reason = status["failureReason"].as_str().unwrap();
    assert_says!(reason, "was cut short", "restored before");
    let before = fake.log().len();
    assert_eq!(step(&mut worker(&ctx)).await, Step::Done);
    assert!(
        fake.log()[before..]
            .iter()
            .all(|line| line.starts_with("GET")),
        "{:?}",
        &fake.log()[before..]
    );
}
