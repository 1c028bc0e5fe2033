//! The contents of the images, as far as the Dockerfile says.

use backup_tests::binaries::root;

use crate::prelude::*;

crate::tests! {
    images_have_authorities_and_no_shell_and_are_no_root,
}

async fn images_have_authorities_and_no_shell_and_are_no_root(_: &mut World) -> anyhow::Result<()> {
    let recipe = std::fs::read_to_string(root().join("Dockerfile"))?;
    let stages: Vec<&str> = recipe.split("\nFROM ").collect();
    for program in ["backup-webhook", "backup-controller", "backup-mover"] {
        let stage = stages
            .iter()
            .find(|stage| stage.starts_with(&format!("scratch AS {program}\n")));
        let stage = stage.with_context(|| format!("{program} is not made from scratch"))?;
        ensure!(
            stage.contains("\nUSER 65532:65532\n"),
            "{program} runs as root, or as a name: {stage}"
        );
        ensure!(
            stage.contains("\nCOPY --from=system /root-fs /\n"),
            "{program} has no authorities: {stage}"
        );
    }
    let system = stages
        .iter()
        .find(|stage| stage.contains(" AS system\n"))
        .context("no stage system")?;
    ensure!(
        system.contains("cp /etc/ssl/certs/ca-certificates.crt "),
        "no authorities: {system}"
    );
    let build = stages
        .iter()
        .find(|stage| stage.contains(" AS build\n"))
        .context("no stage build")?;
    ensure!(
        build.contains("cargo build --release --locked "),
        "not what Cargo.lock says: {build}"
    );
    for program in ["backup-webhook", "backup-controller", "backup-mover"] {
        ensure!(
            build.contains(&format!(" -p {program} ")),
            "{program} is not built: {build}"
        );
    }
    // The compiler is for the build machine, the programs are for the target platform.
    for stage in [build, system] {
        says(stage, &["--platform=$BUILDPLATFORM ", "\nARG TARGETARCH\n"])?;
    }
    let ignored = std::fs::read_to_string(root().join(".dockerignore"))?;
    for folder in [".git", "**/target"] {
        ensure!(
            ignored.lines().any(|line| line == folder),
            "{folder} is copied into the build"
        );
    }
    Ok(())
}
