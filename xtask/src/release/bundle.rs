//! The files of a release, from what was built. Pure: the same inputs make the same bytes.

use std::collections::BTreeMap;

use anyhow::Context as _;
use serde_json::Value;

use super::{
    archive::Tree,
    chart::chart,
    facts::Facts,
    images::{PROGRAMS, Part, image},
    krew,
    oci::{Layout, sha256},
    platforms::Platform,
    provenance, sbom,
};

/// Program of the command.
pub(super) const COMMAND: &str = "kubectl-backup";

pub(super) struct Inputs {
    pub(super) facts: Facts,
    /// Programs by name, for each platform.
    pub(super) programs: BTreeMap<Platform, BTreeMap<String, Vec<u8>>>,
    /// Files of images beside the program, by architecture.
    pub(super) systems: BTreeMap<String, Tree>,
    /// `cargo metadata` for the platforms of the images, and for all platforms.
    pub(super) metadata_of_images: Value,
    pub(super) metadata: Value,
    pub(super) lock_sha256: String,
    /// Files of `deploy/chart` by path.
    pub(super) chart: BTreeMap<String, Vec<u8>>,
    /// `deploy/krew/backup.yaml`.
    pub(super) krew: String,
    pub(super) license: Vec<u8>,
    /// Manifests for `kubectl apply`, by file name.
    pub(super) manifests: BTreeMap<String, Vec<u8>>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Bundle {
    /// Layouts of images by program. Each has the tag of the release.
    pub(super) images: BTreeMap<String, Layout>,
    pub(super) chart: Layout,
    /// Files to download, by name.
    pub(super) files: BTreeMap<String, Vec<u8>>,
}

pub(super) fn bundle(inputs: &Inputs) -> anyhow::Result<Bundle> {
    let facts = &inputs.facts;
    let mut files = inputs.manifests.clone();
    let mut images = BTreeMap::new();
    for program in PROGRAMS {
        let parts = parts(inputs, program);
        if parts.is_empty() {
            continue;
        }
        let mut layout = Layout::default();
        let index = image(&mut layout, facts, program, &parts)?;
        layout.tag(&index, &facts.tag());
        let name = format!("{}/{program}", facts.registry);
        let digest = index.digest.trim_start_matches("sha256:").to_owned();
        let documents = [
            (
                format!("{program}.cdx.json"),
                sbom::MEDIA_TYPE,
                sbom::sbom(facts, program, &inputs.metadata_of_images, &inputs.systems)?,
            ),
            (
                format!("{program}.provenance.json"),
                provenance::MEDIA_TYPE,
                provenance::statement(facts, &inputs.lock_sha256, &[(name, digest)].into()),
            ),
        ];
        for (title, media_type, document) in documents {
            let bytes = document.to_string().into_bytes();
            layout.refer(&index, media_type, &title, bytes.clone());
            files.insert(title, bytes);
        }
        files.insert(format!("{program}.oci.tar"), layout.tree().tar(facts.time)?);
        images.insert(program.to_owned(), layout);
    }
    let archives = archives(inputs)?;
    let list = sbom::sbom(facts, COMMAND, &inputs.metadata, &BTreeMap::new())?;
    files.insert(format!("{COMMAND}.cdx.json"), list.to_string().into_bytes());
    let manifest = krew::manifest(facts, &inputs.krew, &archives)?;
    files.insert("krew.yaml".to_owned(), manifest.into_bytes());
    files.extend(archives);
    let chart = chart(facts, &inputs.chart)?;
    files.insert(chart.file, chart.archive);
    let subjects = files
        .iter()
        .map(|(name, bytes)| (name.clone(), sha256(bytes)))
        .collect();
    let statement = provenance::statement(facts, &inputs.lock_sha256, &subjects);
    files.insert(
        "files.provenance.json".to_owned(),
        statement.to_string().into_bytes(),
    );
    let sums = krew::checksums(&files);
    files.insert("SHA256SUMS".to_owned(), sums.into_bytes());
    Ok(Bundle {
        images,
        chart: chart.layout,
        files,
    })
}

/// The architectures of a program's image.
fn parts<'a>(inputs: &'a Inputs, program: &str) -> Vec<Part<'a>> {
    inputs
        .programs
        .iter()
        .filter(|(platform, _)| platform.has_images())
        .filter_map(|(platform, programs)| {
            Some(Part {
                architecture: platform.arch,
                system: inputs.systems.get(platform.arch)?,
                program: programs.get(program)?,
            })
        })
        .collect()
}

/// The archives of the command by file name.
fn archives(inputs: &Inputs) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
    let mut archives = BTreeMap::new();
    for (platform, programs) in &inputs.programs {
        let program = programs
            .get(COMMAND)
            .with_context(|| format!("{COMMAND} for {} is missing", platform.name()))?;
        let mut tree = Tree::default();
        tree.file("LICENSE", 0o644, inputs.license.clone());
        tree.file(&platform.file(COMMAND), 0o755, program.clone());
        archives.insert(
            format!("{COMMAND}-{}.tar.gz", platform.name()),
            tree.tar_gz(inputs.facts.time)?,
        );
    }
    Ok(archives)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::release::{
        chart::tests::files as chart_files, krew::tests::template, oci::tests::assert_complete,
        platforms::PLATFORMS, sbom::tests::metadata,
    };

    /// `cargo metadata` with all programs.
    fn all_metadata() -> Value {
        let mut all = metadata(COMMAND);
        for program in PROGRAMS {
            let one = json!({ "id": program, "name": program, "version": "1.0.0", "source": null });
            all["packages"].as_array_mut().unwrap().push(one);
            let node = json!({ "id": program, "deps": [] });
            let nodes = all["resolve"]["nodes"].as_array_mut().unwrap();
            nodes.push(node);
        }
        all
    }

    fn programs(platform: &Platform) -> BTreeMap<String, Vec<u8>> {
        let names = PROGRAMS.iter().chain([&COMMAND]);
        names
            .map(|name| {
                let bytes = format!("{name} for {}", platform.name());
                ((*name).to_owned(), bytes.into_bytes())
            })
            .collect()
    }

    fn inputs() -> Inputs {
        let mut system = Tree::default();
        system.file("lib/libc.so.6", 0o755, b"libc".to_vec());
        Inputs {
            facts: Facts::of_tests(),
            programs: PLATFORMS
                .iter()
                .map(|platform| (*platform, programs(platform)))
                .collect(),
            systems: ["amd64", "arm64"]
                .map(|name| (name.to_owned(), system.clone()))
                .into(),
            metadata_of_images: all_metadata(),
            metadata: all_metadata(),
            lock_sha256: "00".to_owned(),
            chart: chart_files(),
            krew: template(),
            license: b"license".to_vec(),
            manifests: [("engine.yaml".to_owned(), b"a: b".to_vec())].into(),
        }
    }

    #[test]
    fn the_same_inputs_make_the_same_bytes() {
        let one = bundle(&inputs()).unwrap();
        let other = bundle(&inputs()).unwrap();
        assert_eq!(one, other);
        for (program, layout) in &one.images {
            assert_eq!(layout.tree(), other.images[program].tree());
        }
    }

    #[test]
    fn a_release_has_images_archives_lists_statements_and_checksums() {
        let bundle = bundle(&inputs()).unwrap();
        for layout in bundle.images.values() {
            assert_complete(layout);
            layout.tagged("v1.2.3").unwrap();
        }
        let names: Vec<_> = bundle.files.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            [
                "SHA256SUMS",
                "backup-1.2.3.tgz",
                "backup-controller.cdx.json",
                "backup-controller.oci.tar",
                "backup-controller.provenance.json",
                "backup-mover.cdx.json",
                "backup-mover.oci.tar",
                "backup-mover.provenance.json",
                "backup-webhook.cdx.json",
                "backup-webhook.oci.tar",
                "backup-webhook.provenance.json",
                "engine.yaml",
                "files.provenance.json",
                "krew.yaml",
                "kubectl-backup-darwin-amd64.tar.gz",
                "kubectl-backup-darwin-arm64.tar.gz",
                "kubectl-backup-linux-amd64.tar.gz",
                "kubectl-backup-linux-arm64.tar.gz",
                "kubectl-backup-windows-amd64.tar.gz",
                "kubectl-backup-windows-arm64.tar.gz",
                "kubectl-backup.cdx.json",
            ]
        );
        let sums = std::str::from_utf8(&bundle.files["SHA256SUMS"]).unwrap();
        assert_eq!(sums.lines().count(), names.len() - 1);
    }

    #[test]
    fn a_platform_without_a_c_library_has_no_image_but_an_archive() {
        let mut inputs = inputs();
        inputs.systems.remove("arm64");
        assert_eq!(parts(&inputs, "backup-webhook").len(), 1);
        let bundle = bundle(&inputs).unwrap();
        assert!(
            bundle
                .files
                .contains_key("kubectl-backup-linux-arm64.tar.gz")
        );
    }
}
