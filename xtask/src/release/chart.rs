//! The Helm chart: its archive, and the same as an artefact for a registry.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{
    archive::Tree,
    facts::Facts,
    oci::{Layout, MANIFEST},
};

const CONFIG: &str = "application/vnd.cncf.helm.config.v1+json";
const CONTENT: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";

/// The line of the chart's values with the registry.
const REGISTRY: &str = "\n  registry: \"\"\n";

/// The chart, packed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chart {
    /// Name of the archive.
    pub(super) file: String,
    pub(super) archive: Vec<u8>,
    /// The chart with its version as its tag.
    pub(super) layout: Layout,
}

/// Packs the files of the chart, with the registry of the images.
pub(super) fn chart(facts: &Facts, files: &BTreeMap<String, Vec<u8>>) -> anyhow::Result<Chart> {
    let metadata: Value = serde_saphyr::from_str(read(files, "Chart.yaml")?)?;
    let name = metadata["name"].as_str().context("the chart has no name")?;
    ensure!(
        metadata["version"] == facts.version.as_str(),
        "the chart has version {}, the workspace {}: run `cargo xtask generate`",
        metadata["version"],
        facts.version
    );
    let values = read(files, "values.yaml")?;
    ensure!(
        values.matches(REGISTRY).count() == 1,
        "values.yaml of the chart does not have exactly one empty registry"
    );
    let values = values.replace(REGISTRY, &format!("\n  registry: {}\n", facts.registry));
    let mut tree = Tree::default();
    for (path, bytes) in files {
        tree.file(&format!("{name}/{path}"), 0o644, bytes.clone());
    }
    tree.file(&format!("{name}/values.yaml"), 0o644, values.into_bytes());
    let archive = tree.tar_gz(facts.time)?;
    let mut layout = Layout::default();
    let config = layout.json(CONFIG, &metadata);
    let content = layout.blob(CONTENT, archive.clone());
    let manifest = layout.json(
        MANIFEST,
        &json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": config,
            "layers": [content],
            "annotations": {
                "org.opencontainers.image.created": facts.timestamp()?,
                "org.opencontainers.image.description": metadata["description"],
                "org.opencontainers.image.source": facts.source(),
                "org.opencontainers.image.title": name,
                "org.opencontainers.image.version": facts.version,
            },
        }),
    );
    layout.tag(&manifest, &facts.version);
    Ok(Chart {
        file: format!("{name}-{}.tgz", facts.version),
        archive,
        layout,
    })
}

fn read<'a>(files: &'a BTreeMap<String, Vec<u8>>, name: &str) -> anyhow::Result<&'a str> {
    let bytes = files
        .get(name)
        .with_context(|| format!("the chart has no {name}"))?;
    std::str::from_utf8(bytes).with_context(|| format!("{name} of the chart is no UTF-8"))
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::Read as _;

    use flate2::read::GzDecoder;

    use super::*;
    use crate::release::oci::tests::{assert_complete, read as read_blob};

    pub(crate) fn files() -> BTreeMap<String, Vec<u8>> {
        let chart = "name: backup\nversion: 1.2.3\ndescription: d\n";
        let values = "image:\n  # Where.\n  registry: \"\"\n  tag: \"\"\n";
        [
            ("Chart.yaml", chart),
            ("templates/a.yaml", "a"),
            ("values.yaml", values),
        ]
        .map(|(path, text)| (path.to_owned(), text.as_bytes().to_vec()))
        .into()
    }

    #[test]
    fn a_chart_has_the_registry_of_its_images_and_the_media_types_of_helm() {
        let chart = chart(&Facts::of_tests(), &files()).unwrap();
        assert_eq!(chart.file, "backup-1.2.3.tgz");
        assert_complete(&chart.layout);
        let manifest = chart.layout.tagged("1.2.3").unwrap();
        let manifest = read_blob(&chart.layout, &manifest.digest);
        assert_eq!(manifest["config"]["mediaType"], CONFIG);
        assert_eq!(manifest["layers"][0]["mediaType"], CONTENT);
        let mut archive = tar::Archive::new(GzDecoder::new(chart.archive.as_slice()));
        let mut texts = BTreeMap::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().display().to_string();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            texts.insert(path, text);
        }
        let values = &texts["backup/values.yaml"];
        assert!(
            values.contains("  registry: registry.example.com/backup\n"),
            "{values}"
        );
        assert_eq!(texts["backup/templates/a.yaml"], "a");
    }

    #[test]
    fn a_chart_of_another_version_is_refused() {
        let mut facts = Facts::of_tests();
        facts.version = "2.0.0".to_owned();
        let error = chart(&facts, &files()).unwrap_err();
        assert!(
            error.to_string().contains("cargo xtask generate"),
            "{error}"
        );
    }

    #[test]
    fn the_chart_of_the_project_can_be_packed() {
        let folder = backup_tests::binaries::root().join("deploy/chart");
        let files = ["Chart.yaml", "values.yaml"].map(|name| {
            let bytes = std::fs::read(folder.join(name)).unwrap();
            (name.to_owned(), bytes)
        });
        let mut facts = Facts::of_tests();
        facts.version = env!("CARGO_PKG_VERSION").to_owned();
        chart(&facts, &files.into()).unwrap();
    }
}
