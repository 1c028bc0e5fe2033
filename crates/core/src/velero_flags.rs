//! Flags of Velero's server (`pkg/cmd/server/config/config.go`, up to what comes after v1.18.3), and
//! what the controller has in their place. The controller refuses flags by this table, and `kubectl
//! backup migrate` translates by it.

/// How the controller supports a flag of Velero's server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlagSupport {
    /// The controller has it, with the same values.
    Same,
    /// The controller has it as a switch: it takes no value.
    Switch,
    /// The controller has it, and the manifests of the installation set it.
    Installed,
    /// Something else does it here, or nothing needs it; the sentence says what.
    Replaced(&'static str),
    /// Nothing does it here; the sentence says what to do instead.
    Missing(&'static str),
}

use FlagSupport::{Installed, Missing, Replaced, Same, Switch};

const FILES: FlagSupport = Replaced(
    "copying files of mounted volumes is not done here, only those of snapshots (docs/use/volumes.md)",
);
const MAINTENANCE: FlagSupport = Replaced(
    "repositories are maintained by a pod of the data mover, removed at its end (--mover-image, --mover-memory-limit)",
);
const LIMITS: FlagSupport = Replaced(
    "the API server limits its clients (API Priority and Fairness), and lists come in pages of --client-page-size",
);

/// All flags, by name. Some are of older versions of Velero.
const FLAGS: [(&str, FlagSupport); 51] = [
    (
        "backup-repository-configmap",
        Replaced("repositories are of the restic format, which needs no settings"),
    ),
    ("backup-sync-period", Same),
    ("client-burst", LIMITS),
    ("client-page-size", Same),
    ("client-qps", LIMITS),
    ("colorized", Replaced("the log has no colours")),
    ("concurrent-backups", Same),
    (
        "crd-schema-check",
        Replaced(
            "definitions are compared by `kubectl backup doctor`, and `kubectl backup upgrade` brings them",
        ),
    ),
    ("default-backup-storage-location", Same),
    ("default-backup-ttl", Same),
    ("default-item-operation-timeout", Same),
    (
        "default-repo-maintain-frequency",
        Replaced(
            "a repository is maintained once a day, or as spec.maintenanceFrequency of its BackupRepository says",
        ),
    ),
    ("default-resource-modifier-configmap", Same),
    ("default-snapshot-move-data", Switch),
    ("default-volume-snapshot-locations", Same),
    (
        "default-volumes-to-fs-backup",
        Missing(
            "copying files of mounted volumes is not done here, only those of snapshots (docs/use/volumes.md)",
        ),
    ),
    ("disable-controllers", Same),
    (
        "disable-informer-cache",
        Replaced("restores always read the cluster itself"),
    ),
    ("features", Same),
    ("fs-backup-timeout", FILES),
    ("garbage-collection-frequency", Same),
    ("global-backup-volume-policies-configmap", Same),
    ("item-block-worker-count", Same),
    ("item-operation-sync-frequency", Same),
    ("keep-latest-maintenance-jobs", MAINTENANCE),
    ("kubeconfig", Installed),
    (
        "kubecontext",
        Replaced("the controller works in the cluster of its pod"),
    ),
    ("log-format", Same),
    ("log-level", Same),
    ("maintenance-job-cpu-limit", MAINTENANCE),
    ("maintenance-job-cpu-request", MAINTENANCE),
    ("maintenance-job-mem-limit", MAINTENANCE),
    ("maintenance-job-mem-request", MAINTENANCE),
    ("max-backup-extraction-size", Same),
    (
        "max-concurrent-k8s-connections",
        Replaced("requests share one connection"),
    ),
    ("metrics-address", Installed),
    ("namespace", Installed),
    ("plugin-dir", Installed),
    ("pod-volume-operation-timeout", FILES),
    (
        "profiler-address",
        Replaced("there is no profiler; /metrics has times and sizes"),
    ),
    ("repo-maintenance-job-configmap", MAINTENANCE),
    ("resource-timeout", Same),
    ("restore-only", Switch),
    ("restore-resource-priorities", Same),
    ("schedule-skip-immediately", Switch),
    ("store-validation-frequency", Same),
    (
        "terminating-resource-timeout",
        Replaced("--resource-timeout is also how long a restore waits for what is being deleted"),
    ),
    ("uploader-type", FILES),
    ("v", Replaced("--log-level says how much is logged")),
    ("vmodule", Replaced("--log-level says how much is logged")),
    (
        "volume-group-snapshot-label-key",
        Missing(
            "volumes of a group are snapshotted one by one, and the label is velero.io/volume-group where \
             spec.volumeGroupSnapshotLabelKey of the Backup names no other",
        ),
    ),
];

/// Controllers that `--disable-controllers` of the controller accepts, by Velero's names.
pub const CONTROLLERS: [&str; 8] = [
    "backup",
    "backup-deletion",
    "backup-sync",
    "download-request",
    "gc",
    "restore",
    "schedule",
    "server-status-request",
];

/// Features that `--features` of the controller knows.
pub const FEATURES: [&str; 2] = ["EnableCSI", "EnableAPIGroupVersions"];

/// The support of a flag (without its dashes); `None` if Velero's server has no such flag.
pub fn flag_support(name: &str) -> Option<FlagSupport> {
    let found = FLAGS.iter().find(|(known, _)| *known == name);
    found.map(|(_, support)| *support)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_flag_is_listed_once_by_name() {
        assert!(FLAGS.is_sorted_by(|(before, _), (after, _)| before < after));
    }

    #[test]
    fn a_flag_is_found_by_its_name() {
        assert_eq!(flag_support("resource-timeout"), Some(Same));
        assert_eq!(flag_support("restore-only"), Some(Switch));
        assert_eq!(flag_support("fs-backup-timeout"), Some(FILES));
        assert_eq!(flag_support("cron-dialect"), None);
    }
}
