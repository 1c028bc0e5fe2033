//! Images of the programs: what a program needs beside itself, and one index for all
//! architectures.

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use super::{
    archive::{Tree, gzip},
    facts::Facts,
    oci::{CONFIG, Descriptor, INDEX, LAYER, Layout, MANIFEST, sha256},
};

/// Programs with an image.
pub(super) const PROGRAMS: [&str; 3] = [
    backup_deploy::PROGRAMS[0],
    backup_deploy::PROGRAMS[1],
    backup_deploy::MOVER,
];

/// User and group of the programs, as in the Dockerfile.
const USER: &str = "65532:65532";

/// The C library, for our programs and for plugins that are linked with it.
pub(super) const LIBRARIES: [&str; 7] = [
    "libc.so.6",
    "libdl.so.2",
    "libgcc_s.so.1",
    "libm.so.6",
    "libpthread.so.0",
    "libresolv.so.2",
    "librt.so.1",
];

/// The architecture of an image: where its C library is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Architecture {
    pub(super) name: &'static str,
    /// Path of the loader, which programs name.
    pub(super) loader: &'static str,
    /// Folder of the libraries, in which the loader looks first.
    pub(super) libraries: &'static str,
    /// Folder of a machine of another architecture with the same files.
    pub(super) cross_libraries: &'static str,
    /// Packages of Debian with this folder.
    pub(super) packages: &'static str,
    /// Number of the architecture in programs and libraries (`e_machine` of ELF).
    machine: u16,
}

impl Architecture {
    /// Whether a program or a library is for this architecture.
    pub(super) fn runs(&self, file: &[u8]) -> bool {
        file.starts_with(b"\x7fELF")
            && file.get(18..20) == Some(self.machine.to_le_bytes().as_slice())
    }
}

const ARCHITECTURES: [Architecture; 2] = [
    Architecture {
        name: "amd64",
        loader: "lib64/ld-linux-x86-64.so.2",
        libraries: "lib/x86_64-linux-gnu",
        cross_libraries: "usr/x86_64-linux-gnu/lib",
        packages: "libc6-amd64-cross libgcc-s1-amd64-cross",
        machine: 62,
    },
    Architecture {
        name: "arm64",
        loader: "lib/ld-linux-aarch64.so.1",
        libraries: "lib/aarch64-linux-gnu",
        cross_libraries: "usr/aarch64-linux-gnu/lib",
        packages: "libc6-arm64-cross libgcc-s1-arm64-cross",
        machine: 183,
    },
];

pub(super) fn architecture(name: &str) -> anyhow::Result<Architecture> {
    ARCHITECTURES
        .into_iter()
        .find(|architecture| architecture.name == name)
        .with_context(|| format!("there are no images for {name}"))
}

/// The files of an image beside its program. `read` returns a library of the architecture by file
/// name.
pub(super) fn system(
    architecture: &Architecture,
    authorities: Vec<u8>,
    mut read: impl FnMut(&str) -> anyhow::Result<Vec<u8>>,
) -> anyhow::Result<Tree> {
    let mut tree = Tree::default();
    tree.folder("plugins", 0o755);
    tree.folder("tmp", 0o1777);
    tree.file("etc/ssl/certs/ca-certificates.crt", 0o644, authorities);
    let loader = architecture.loader;
    let name = loader.rsplit('/').next().unwrap_or(loader);
    tree.file(loader, 0o755, read(name)?);
    for name in LIBRARIES {
        let path = format!("{}/{name}", architecture.libraries);
        tree.file(&path, 0o755, read(name)?);
    }
    Ok(tree)
}

/// Fails if a program needs a library that images do not have. `dynamic` is the output of `readelf
/// --dynamic`.
pub(super) fn check_libraries(program: &str, dynamic: &str) -> anyhow::Result<()> {
    let needed = dynamic
        .lines()
        .filter(|line| line.contains("(NEEDED)"))
        .filter_map(|line| line.split_once('[')?.1.split_once(']'))
        .map(|(name, _)| name);
    for name in needed {
        if !LIBRARIES.contains(&name) && !name.starts_with("ld-linux") {
            bail!("{program} needs {name}, which images do not have");
        }
    }
    Ok(())
}

/// The parts of an image for one architecture.
pub(super) struct Part<'a> {
    pub(super) architecture: &'a str,
    pub(super) system: &'a Tree,
    pub(super) program: &'a [u8],
}

/// Adds the image of a program to a layout. Returns its index, which has no tag yet.
pub(super) fn image(
    layout: &mut Layout,
    facts: &Facts,
    program: &str,
    parts: &[Part<'_>],
) -> anyhow::Result<Descriptor> {
    let mut manifests = Vec::new();
    for part in parts {
        manifests.push(manifest(layout, facts, program, part)?);
    }
    let index = json!({
        "schemaVersion": 2,
        "mediaType": INDEX,
        "manifests": manifests,
        "annotations": annotations(facts, program),
    });
    Ok(layout.json(INDEX, &index))
}

fn manifest(
    layout: &mut Layout,
    facts: &Facts,
    program: &str,
    part: &Part<'_>,
) -> anyhow::Result<Descriptor> {
    let mut own = Tree::default();
    own.file(program, 0o755, part.program.to_vec());
    let mut hashes = Vec::new();
    let mut layers = Vec::new();
    for tree in [part.system, &own] {
        let tar = tree.tar(facts.time)?;
        hashes.push(format!("sha256:{}", sha256(&tar)));
        layers.push(layout.blob(LAYER, gzip(&tar)?));
    }
    let created = facts.timestamp()?;
    let config = json!({
        "created": created,
        "architecture": part.architecture,
        "os": "linux",
        "config": {
            "User": USER,
            "Entrypoint": [format!("/{program}")],
            "WorkingDir": "/",
            "Labels": annotations(facts, program),
        },
        "rootfs": { "type": "layers", "diff_ids": hashes },
        "history": [
            { "created": created, "created_by": "C library and certificate authorities" },
            { "created": created, "created_by": program },
        ],
    });
    let config = layout.json(CONFIG, &config);
    let mut manifest = layout.json(
        MANIFEST,
        &json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": config,
            "layers": layers,
        }),
    );
    manifest.platform = Some(json!({ "os": "linux", "architecture": part.architecture }));
    Ok(manifest)
}

fn annotations(facts: &Facts, program: &str) -> Value {
    let mut all = json!({
        "org.opencontainers.image.title": program,
        "org.opencontainers.image.version": facts.tag(),
        "org.opencontainers.image.licenses": "Apache-2.0",
        "org.opencontainers.image.source": facts.source(),
    });
    if let Some(revision) = &facts.revision {
        all["org.opencontainers.image.revision"] = json!(revision);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::release::oci::tests::{assert_complete, read};

    fn tree(architecture: &str) -> Tree {
        let architecture = super::architecture(architecture).unwrap();
        system(&architecture, b"authorities".to_vec(), |name| {
            Ok(name.as_bytes().to_vec())
        })
        .unwrap()
    }

    #[test]
    fn an_image_has_an_index_with_a_manifest_for_each_architecture() {
        let trees = [tree("amd64"), tree("arm64")];
        let parts = [
            Part {
                architecture: "amd64",
                system: &trees[0],
                program: b"1",
            },
            Part {
                architecture: "arm64",
                system: &trees[1],
                program: b"2",
            },
        ];
        let mut layout = Layout::default();
        let index = image(&mut layout, &Facts::of_tests(), "backup-controller", &parts).unwrap();
        layout.tag(&index, "v1.2.3");
        assert_complete(&layout);
        let index = read(&layout, &index.digest);
        let manifests = index["manifests"].as_array().unwrap();
        let platforms: Vec<_> = manifests.iter().map(|one| &one["platform"]).collect();
        assert_eq!(
            json!(platforms),
            json!([
                { "os": "linux", "architecture": "amd64" },
                { "os": "linux", "architecture": "arm64" },
            ])
        );
        let manifest = read(&layout, manifests[1]["digest"].as_str().unwrap());
        let config = read(&layout, manifest["config"]["digest"].as_str().unwrap());
        assert_eq!(config["architecture"], "arm64");
        assert_eq!(
            config["config"]["Entrypoint"],
            json!(["/backup-controller"])
        );
        assert_eq!(config["created"], "2023-11-14T22:13:20Z");
        assert_eq!(config["rootfs"]["diff_ids"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn an_image_has_no_shell_and_a_folder_for_temporary_files() {
        let arm64 = tree("arm64");
        let paths: Vec<_> = arm64.files().map(|(path, _)| path).collect();
        assert_eq!(
            paths[..3],
            [
                "etc/ssl/certs/ca-certificates.crt",
                "lib/aarch64-linux-gnu/libc.so.6",
                "lib/aarch64-linux-gnu/libdl.so.2",
            ]
        );
        assert!(paths.contains(&"lib/ld-linux-aarch64.so.1"));
        assert_eq!(paths.len(), LIBRARIES.len() + 2);
    }

    #[test]
    fn images_run_as_the_dockerfile_says() {
        let file = backup_tests::binaries::root().join("Dockerfile");
        let dockerfile = std::fs::read_to_string(file).unwrap();
        assert_eq!(
            dockerfile.matches(&format!("USER {USER}\n")).count(),
            PROGRAMS.len()
        );
        for program in PROGRAMS {
            assert!(dockerfile.contains(&format!("ENTRYPOINT [\"/{program}\"]")));
        }
    }

    #[test]
    fn an_architecture_runs_its_own_programs_only() {
        let mut file = b"\x7fELF".to_vec();
        file.resize(64, 0);
        file[18] = 183;
        assert!(architecture("arm64").unwrap().runs(&file));
        assert!(!architecture("amd64").unwrap().runs(&file));
        assert!(!architecture("arm64").unwrap().runs(b"GROUP ( libm.so.6 )"));
        assert!(architecture("s390x").is_err());
    }

    #[test]
    fn a_program_that_needs_another_library_is_refused() {
        let line = |name: &str| format!(" 0x1 (NEEDED)  Shared library: [{name}]\n");
        let known = line("libc.so.6") + &line("ld-linux-x86-64.so.2") + " 0xe (SONAME) [x]\n";
        check_libraries("p", &known).unwrap();
        let error = check_libraries("p", &(known + &line("libssl.so.3"))).unwrap_err();
        assert_eq!(
            error.to_string(),
            "p needs libssl.so.3, which images do not have"
        );
    }
}
