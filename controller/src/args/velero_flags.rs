//! Flags of Velero's server (`pkg/cmd/server/config/config.go`, up to what comes after v1.18.3)
//! that this controller does not have: each with a sentence on what does it here. Those that it has
//! are in [`super::Args`], under the same names.

const FILES: &str = "copying files of mounted volumes is not done here, only those of snapshots (docs/use/volumes.md); leave it out";
const MAINTENANCE: &str = "repositories are maintained by a pod of the data mover, removed at its end (--mover-image, --mover-memory-limit); leave it out";
const LIMITS: &str = "the API server limits its clients (API Priority and Fairness), and lists come in pages of --client-page-size; leave it out";

const ELSEWHERE: [(&str, &str); 17] = [
    (
        "backup-repository-configmap",
        "repositories are of the restic format, which needs no settings; leave it out",
    ),
    ("client-burst", LIMITS),
    ("client-qps", LIMITS),
    (
        "crd-schema-check",
        "definitions are compared by `kubectl backup doctor`, and `kubectl backup upgrade` brings them; leave it out",
    ),
    (
        "default-repo-maintain-frequency",
        "a repository is maintained once a day, or as spec.maintenanceFrequency of its BackupRepository says; leave it out",
    ),
    ("default-volumes-to-fs-backup", FILES),
    (
        "disable-informer-cache",
        "restores always read the cluster itself; leave it out",
    ),
    ("fs-backup-timeout", FILES),
    ("keep-latest-maintenance-jobs", MAINTENANCE),
    (
        "max-concurrent-k8s-connections",
        "requests share one connection; leave it out",
    ),
    ("pod-volume-operation-timeout", FILES),
    (
        "profiler-address",
        "there is no profiler; /metrics has times and sizes",
    ),
    ("repo-maintenance-job-configmap", MAINTENANCE),
    (
        "terminating-resource-timeout",
        "--resource-timeout is also how long a restore waits for what is being deleted",
    ),
    ("uploader-type", FILES),
    ("v", "--log-level says how much is logged"),
    (
        "volume-group-snapshot-label-key",
        "the label is velero.io/volume-group where spec.volumeGroupSnapshotLabelKey of the Backup names no other",
    ),
];

/// What to say of the first argument that is such a flag.
pub(super) fn refusal(arguments: impl IntoIterator<Item = String>) -> Option<String> {
    arguments.into_iter().skip(1).find_map(|argument| {
        let flag = argument.strip_prefix("--")?;
        let name = flag.split_once('=').map_or(flag, |(name, _)| name);
        refusal_of_velero_flag(name)
    })
}

/// What to say of a flag (without its dashes) of Velero's server that does not exist here; `None`
/// of any other.
pub fn refusal_of_velero_flag(name: &str) -> Option<String> {
    let (_, sentence) = ELSEWHERE.iter().find(|(known, _)| *known == name)?;
    Some(format!(
        "--{name} is a flag of Velero's server that does not exist here: {sentence}"
    ))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::Args;

    /// All of Velero's server, v1.18.3, and those that come after it. `cargo xtask velero` reads
    /// the newest version.
    const VELERO: &str = "log-level log-format plugin-dir metrics-address backup-sync-period fs-backup-timeout restore-only \
        disable-controllers restore-resource-priorities default-backup-storage-location store-validation-frequency client-qps \
        client-burst client-page-size profiler-address terminating-resource-timeout default-backup-ttl \
        volume-group-snapshot-label-key default-repo-maintain-frequency garbage-collection-frequency \
        item-operation-sync-frequency default-volumes-to-fs-backup uploader-type default-item-operation-timeout \
        resource-timeout max-concurrent-k8s-connections default-snapshot-move-data disable-informer-cache \
        schedule-skip-immediately default-volume-snapshot-locations backup-repository-configmap \
        repo-maintenance-job-configmap item-block-worker-count concurrent-backups features namespace kubeconfig \
        global-backup-volume-policies-configmap default-resource-modifier-configmap max-backup-extraction-size crd-schema-check";

    #[test]
    fn every_flag_of_the_incumbent_is_ours_or_has_a_sentence() {
        let command = Args::command();
        let ours: Vec<&str> = command
            .get_arguments()
            .filter_map(clap::Arg::get_long)
            .collect();
        for flag in VELERO.split_whitespace() {
            let told = ELSEWHERE.iter().any(|(known, _)| *known == flag);
            assert!(ours.contains(&flag) != told, "{flag}: {told}");
        }
        assert!(ELSEWHERE.is_sorted());
    }

    #[test]
    fn a_flag_is_found_with_and_without_its_value() {
        let refused = |line: &str| refusal(line.split(' ').map(str::to_owned));
        for line in [
            "backup-controller --client-qps=50",
            "backup-controller --namespace velero --client-qps 50",
        ] {
            assert!(
                refused(line)
                    .is_some_and(|why| why.starts_with("--client-qps is a flag of Velero")),
                "{line}"
            );
        }
        assert_eq!(
            refused("backup-controller --resource-timeout=5m --client-page-size=10"),
            None
        );
    }
}
