//! Refuses flags of Velero's server that this controller does not have, each with a sentence on what
//! does it here. Those that it has are in [`super::Args`], under the same names.

use backup_core::velero_flags::{FlagSupport, flag_support};

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
    match flag_support(name)? {
        FlagSupport::Replaced(sentence) | FlagSupport::Missing(sentence) => Some(format!(
            "--{name} is a flag of Velero's server that does not exist here: {sentence}; leave it out"
        )),
        FlagSupport::Same | FlagSupport::Switch | FlagSupport::Installed => None,
    }
}

#[cfg(test)]
mod tests {
    use clap::{ArgAction, CommandFactory as _};

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
        let ours = |flag: &str| {
            command
                .get_arguments()
                .find(|argument| argument.get_long() == Some(flag))
        };
        for flag in VELERO.split_whitespace() {
            let is_switch =
                ours(flag).map(|argument| matches!(argument.get_action(), ArgAction::SetTrue));
            let expected = match flag_support(flag) {
                None => panic!("--{flag} is not in the table"),
                Some(FlagSupport::Switch) => Some(true),
                Some(FlagSupport::Same | FlagSupport::Installed) => Some(false),
                Some(FlagSupport::Replaced(_) | FlagSupport::Missing(_)) => None,
            };
            assert_eq!(is_switch, expected, "{flag}");
            assert_eq!(refusal_of_velero_flag(flag).is_some(), expected.is_none());
        }
    }

    #[test]
    fn controllers_and_features_are_those_of_the_table() {
        let ours = crate::args::DISABLEABLE.map(|(theirs, _)| theirs);
        assert_eq!(ours, backup_core::velero_flags::CONTROLLERS);
        assert_eq!(crate::args::FEATURES, backup_core::velero_flags::FEATURES);
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
