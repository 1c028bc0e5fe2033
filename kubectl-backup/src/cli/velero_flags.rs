//! Flags of velero's own command (`pkg/cmd/cli`, v1.18.3) that this program does not have: each
//! with a sentence on what does it here. `cargo xtask velero` compares them with velero's newest
//! version.

const AGENT: &str = "there is no node agent here; leave it out";
const LOCATION: &str = "the location of backups is created after the installation: `kubectl backup locations create --help`";
const SNAPSHOTS: &str =
    "locations of snapshots are created after the installation: `kubectl backup locations --help`";
const CONTROLLER: &str = "it is a flag of the controller: give it as --controller-arg";
const NOT_DONE: &str = "the controller does not do that (docs/use/differences.md); leave it out";
const POD: &str = "the Helm chart and kustomize set it (docs/operate/install.md)";
const STORE_CERTIFICATE: &str = "stored files come by way of the API server, so the certificate of the store does not matter; leave it out";

/// Flags of `velero install`.
const INSTALL: [(&str, &str); 31] = [
    (
        "apply",
        "what is there already is brought to the version of this program by `kubectl backup upgrade`",
    ),
    ("backup-location-config", LOCATION),
    ("backup-repository-configmap", NOT_DONE),
    ("bucket", LOCATION),
    ("cacert", LOCATION),
    ("concurrent-backups", CONTROLLER),
    (
        "crds-only",
        "`kubectl backup install --dry-run=client -o yaml` prints the definitions among the other objects",
    ),
    ("csi-snapshot-early-frequent-polling", NOT_DONE),
    ("default-repo-maintain-frequency", NOT_DONE),
    ("default-resource-modifier-configmap", CONTROLLER),
    ("default-snapshot-move-data", CONTROLLER),
    ("default-volumes-to-fs-backup", NOT_DONE),
    ("disable-informer-cache", NOT_DONE),
    ("garbage-collection-frequency", CONTROLLER),
    ("image", "--registry and --tag name the images"),
    ("item-block-worker-count", CONTROLLER),
    ("no-default-backup-location", LOCATION),
    ("no-secret", LOCATION),
    (
        "plugins",
        "plugins go into the folder of the controller's --plugin-dir (docs/operate/plugins.md)",
    ),
    ("pod-volume-operation-timeout", NOT_DONE),
    ("prefix", LOCATION),
    ("provider", LOCATION),
    ("repo-maintenance-job-configmap", NOT_DONE),
    ("restore-only", CONTROLLER),
    ("schedule-skip-immediately", CONTROLLER),
    ("secret-file", LOCATION),
    ("server-priority-class-name", POD),
    ("service-account-name", POD),
    ("snapshot-location-config", SNAPSHOTS),
    ("uploader-type", NOT_DONE),
    ("use-volume-snapshots", SNAPSHOTS),
];

/// Of these `velero install` has several.
const INSTALL_PREFIXES: [(&str, &str); 9] = [
    ("keep-latest-maintenance-jobs", NOT_DONE),
    ("kubelet-root-dir", AGENT),
    ("maintenance-job-", NOT_DONE),
    ("node-agent-", AGENT),
    ("pod-", POD),
    ("privileged-node-agent", AGENT),
    ("sa-annotations", POD),
    ("use-node-agent", AGENT),
    ("velero-pod-", POD),
];

/// Flags of other commands.
const OTHERS: [(&str, &str); 4] = [
    ("cacert", STORE_CERTIFICATE),
    (
        "selector",
        "this command takes names; `kubectl backup get --selector` lists what has the labels",
    ),
    (
        "timeout",
        "--request-timeout says how long a request may take",
    ),
    ("verbose", "the archive says what is in it; leave it out"),
];

/// The message about a flag that the parser does not know. `words` is the command line, and `flag`
/// includes its dashes.
pub(crate) fn refusal(words: &[String], flag: &str) -> Option<String> {
    let name = flag.strip_prefix("--")?;
    let installs = words.iter().any(|word| word == "install");
    let sentence = if installs {
        sentence_of(name, &INSTALL).or_else(|| sentence_of_prefix(name))
    } else {
        sentence_of(name, &OTHERS)
    }?;
    Some(format!(
        "--{name} is a flag of velero that does not exist here: {sentence}"
    ))
}

fn sentence_of(name: &str, table: &[(&str, &'static str)]) -> Option<&'static str> {
    table
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, sentence)| *sentence)
}

fn sentence_of_prefix(name: &str) -> Option<&'static str> {
    INSTALL_PREFIXES
        .iter()
        .find(|(prefix, _)| name.starts_with(prefix))
        .map(|(_, sentence)| *sentence)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(line: &str, flag: &str) -> Option<String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        refusal(&words, flag)
    }

    #[test]
    fn a_flag_of_velero_is_answered_with_a_sentence() {
        for (line, flag, part) in [
            (
                "kubectl-backup install --bucket=b",
                "--bucket",
                "locations create",
            ),
            (
                "kubectl-backup -n x install --bucket=b",
                "--bucket",
                "locations create",
            ),
            ("kubectl-backup create b --bucket=b", "--bucket", ""),
            (
                "kubectl-backup install --node-agent-pod-cpu-request=1",
                "--node-agent-pod-cpu-request",
                "no node agent",
            ),
            (
                "kubectl-backup describe b --cacert=f",
                "--cacert",
                "by way of the API server",
            ),
        ] {
            assert_eq!(
                said(line, flag).is_some_and(|text| text.contains(part)),
                !part.is_empty(),
                "{line}"
            );
        }
        assert_eq!(said("kubectl-backup create b --later", "--later"), None);
        assert!(INSTALL.is_sorted() && INSTALL_PREFIXES.is_sorted() && OTHERS.is_sorted());
    }
}
