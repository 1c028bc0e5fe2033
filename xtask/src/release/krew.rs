//! The manifest for krew, and checksums.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{facts::Facts, oci::sha256};

/// Fills in deploy/krew/backup.yaml: repository and checksums of the archives, by file name.
/// Platforms without an archive are left out.
pub(super) fn manifest(
    facts: &Facts,
    template: &str,
    archives: &BTreeMap<String, Vec<u8>>,
) -> anyhow::Result<String> {
    let mut manifest: Value =
        serde_saphyr::from_str(&template.replace("REPOSITORY", &facts.repository))?;
    ensure!(
        manifest["spec"]["version"] == facts.tag(),
        "deploy/krew/backup.yaml has version {}, the workspace {}",
        manifest["spec"]["version"],
        facts.tag()
    );
    let platforms = manifest["spec"]["platforms"]
        .as_array_mut()
        .context("deploy/krew/backup.yaml has no platforms")?;
    platforms.retain_mut(|platform| {
        let uri = platform["uri"].as_str().unwrap_or_default();
        let archive = uri.rsplit('/').next().and_then(|name| archives.get(name));
        if let Some(archive) = archive {
            platform["sha256"] = json!(sha256(archive));
            return true;
        }
        false
    });
    ensure!(
        !platforms.is_empty(),
        "no archive of the command is one of deploy/krew/backup.yaml"
    );
    Ok(serde_saphyr::to_string(&manifest)?)
}

/// Checksums as `sha256sum --check` reads them.
pub(super) fn checksums(files: &BTreeMap<String, Vec<u8>>) -> String {
    files
        .iter()
        .map(|(name, bytes)| format!("{}  {name}\n", sha256(bytes)))
        .collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The template of the project, for the version of the tests.
    pub(crate) fn template() -> String {
        let path = backup_tests::binaries::root().join("deploy/krew/backup.yaml");
        let text = std::fs::read_to_string(path).unwrap();
        text.replace(concat!("v", env!("CARGO_PKG_VERSION")), "v1.2.3")
    }

    #[test]
    fn the_manifest_has_the_platforms_that_were_built_with_their_checksums() {
        let archives = BTreeMap::from([
            ("kubectl-backup-linux-amd64.tar.gz".to_owned(), Vec::new()),
            ("kubectl-backup-windows-amd64.tar.gz".to_owned(), vec![1]),
        ]);
        let text = manifest(&Facts::of_tests(), &template(), &archives).unwrap();
        assert!(
            !text.contains("SHA256_") && !text.contains("REPOSITORY"),
            "{text}"
        );
        let manifest: Value = serde_saphyr::from_str(&text).unwrap();
        let platforms = manifest["spec"]["platforms"].as_array().unwrap();
        assert_eq!(platforms.len(), 2);
        assert_eq!(platforms[0]["sha256"], sha256(&[]));
        assert_eq!(
            platforms[1]["uri"],
            "https://github.com/example/backup/releases/download/v1.2.3/kubectl-backup-windows-amd64.tar.gz"
        );
        assert_eq!(platforms[1]["bin"], "kubectl-backup.exe");
    }

    #[test]
    fn a_manifest_without_platforms_is_refused() {
        assert!(manifest(&Facts::of_tests(), &template(), &BTreeMap::new()).is_err());
    }

    #[test]
    fn checksums_are_sorted_by_name() {
        let files = BTreeMap::from([("b".to_owned(), Vec::new()), ("a".to_owned(), vec![0])]);
        assert_eq!(
            checksums(&files),
            "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d  a\n\
             e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  b\n"
        );
    }
}
