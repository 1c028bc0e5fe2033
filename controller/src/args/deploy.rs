//! What `deploy/` gives the controller fits what its flags allow
//! (docs/operate/install.md#memory-and-disk).

use backup_core::quantity;
use clap::Parser as _;
use serde_json::Value;

use super::Args;

const MIB: u64 = 1 << 20;
/// What each item takes at most in a restore: the help of `--restore-max-items` says so (bytes).
const BYTES_PER_ITEM: u64 = 500;
/// The largest record that is read when a backup or restore is continued.
const MAX_RECORD_BYTES: u64 = 512 * MIB;
/// Lists, uploads, and the program itself.
const OTHER_BYTES: u64 = 256 * MIB;
/// Compressed tarballs of backups, and logs.
const BYTES_PER_BACKUP: u64 = 4096 * MIB;

#[test]
fn memory_and_disk_of_the_controller_fit_its_flags() {
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../deploy/base/controller.yaml"
    );
    let objects: Vec<Value> =
        serde_saphyr::from_multiple(&std::fs::read_to_string(file).unwrap()).unwrap();
    let deployment = objects
        .iter()
        .find(|object| object["kind"] == "Deployment")
        .unwrap();
    let pod = &deployment["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let flags = container["args"]
        .as_array()
        .unwrap()
        .iter()
        .map(|arg| arg.as_str().unwrap());
    let args = Args::try_parse_from(std::iter::once("backup-controller").chain(flags)).unwrap();
    let restores = u64::from(args.concurrent_restores);
    let limits = args.restore_limits();
    let items = BYTES_PER_ITEM * limits.items as u64 * restores;
    let memory = items + args.restore_item_memory + MAX_RECORD_BYTES + OTHER_BYTES;
    let resources = &container["resources"];
    assert!(
        memory <= size(&resources["limits"]["memory"]),
        "{} MiB are needed",
        memory / MIB
    );

    let disk = limits.bytes / 2 * restores + BYTES_PER_BACKUP * u64::from(args.concurrent_backups);
    let volumes = pod["volumes"].as_array().unwrap();
    let scratch = volumes
        .iter()
        .find(|volume| volume["name"] == "scratch")
        .unwrap();
    let scratch = size(&scratch["emptyDir"]["sizeLimit"]);
    assert!(disk <= scratch, "{} MiB are needed in /tmp", disk / MIB);
    assert!(
        scratch < size(&resources["limits"]["ephemeral-storage"]),
        "the pod is evicted before /tmp is full"
    );
    assert!(
        size(&resources["requests"]["ephemeral-storage"]) > 0,
        "no disk is asked for"
    );
}

fn size(value: &Value) -> u64 {
    let bytes = quantity::bytes(value.as_str().unwrap_or_default()).unwrap_or_default();
    u64::try_from(bytes).unwrap()
}
