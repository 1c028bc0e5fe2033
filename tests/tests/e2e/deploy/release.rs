//! The contents of a release, as far as the files say.

use std::collections::BTreeSet;

use backup_tests::binaries::root;

use crate::prelude::*;

crate::tests! {
    a_release_builds_the_plugin_for_each_platform_of_krew,
    a_release_is_checked_before_anything_is_published,
    the_license_is_the_one_that_the_manifests_name,
    the_changelog_has_the_form_of_keep_a_changelog,
}

const PLATFORMS: [(&str, &str); 6] = [
    ("darwin", "amd64"),
    ("darwin", "arm64"),
    ("linux", "amd64"),
    ("linux", "arm64"),
    ("windows", "amd64"),
    ("windows", "arm64"),
];

fn read(path: &str) -> anyhow::Result<String> {
    std::fs::read_to_string(root().join(path)).with_context(|| format!("read {path}"))
}

fn yaml(path: &str) -> anyhow::Result<Value> {
    serde_saphyr::from_str(&read(path)?).with_context(|| format!("{path} is no YAML"))
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A plugin's manifest has the shape of krew's `api/v1alpha2`, and passes krew's checks: a name in
/// lower case, a version, a one-line short description, and for each platform a selector, an
/// archive, its checksum and its program.
async fn a_release_builds_the_plugin_for_each_platform_of_krew(
    _: &mut World,
) -> anyhow::Result<()> {
    let krew = yaml("deploy/krew/backup.yaml")?;
    let version = format!("v{}", env!("CARGO_PKG_VERSION"));
    ensure!(
        krew["apiVersion"] == "krew.googlecontainer.com/v1alpha2" && krew["kind"] == "Plugin",
        "{krew}"
    );
    ensure!(
        krew["metadata"]["name"] == "backup",
        "krew calls the program kubectl-NAME: {krew}"
    );
    ensure!(
        krew["spec"]["version"] == version,
        "another version: {}",
        krew["spec"]["version"]
    );
    let short = text(&krew["spec"]["shortDescription"]);
    ensure!(
        !short.is_empty() && short.len() <= 50 && !short.contains('\n'),
        "{short:?}"
    );
    let (mut found, mut words) = (BTreeSet::new(), BTreeSet::new());
    for platform in items(&krew["spec"]["platforms"]) {
        let labels = &platform["selector"]["matchLabels"];
        let (os, arch) = (text(&labels["os"]), text(&labels["arch"]));
        let archive = format!("/releases/download/{version}/kubectl-backup-{os}-{arch}.tar.gz");
        ensure!(
            text(&platform["uri"]).ends_with(&archive),
            "{os} {arch}: {}",
            platform["uri"]
        );
        let word = format!("SHA256_{os}_{arch}").to_uppercase();
        ensure!(
            platform["sha256"] == word,
            "{os} {arch}: {}",
            platform["sha256"]
        );
        let program = if os == "windows" {
            "kubectl-backup.exe"
        } else {
            "kubectl-backup"
        };
        ensure!(
            platform["bin"] == program,
            "{os} {arch}: {}",
            platform["bin"]
        );
        found.insert((os, arch));
        words.insert(word);
    }
    ensure!(
        found == PLATFORMS.into() && words.len() == PLATFORMS.len(),
        "other platforms: {found:?}"
    );
    let workflow = yaml(".github/workflows/release.yml")?;
    let matrix = items(&workflow["jobs"]["programs"]["strategy"]["matrix"]["include"]);
    let built: BTreeSet<_> = matrix
        .iter()
        .map(|one| (text(&one["os"]), text(&one["arch"])))
        .collect();
    ensure!(built == found, "other platforms are built: {built:?}");
    let targets: BTreeSet<_> = matrix.iter().map(|one| text(&one["target"])).collect();
    ensure!(
        targets.len() == PLATFORMS.len(),
        "a platform is built twice: {targets:?}"
    );
    Ok(())
}

async fn a_release_is_checked_before_anything_is_published(_: &mut World) -> anyhow::Result<()> {
    let workflow = yaml(".github/workflows/release.yml")?;
    let jobs = workflow["jobs"].as_object().context("no jobs")?;
    for (name, job) in jobs {
        ensure!(job["timeout-minutes"].is_u64(), "{name} has no deadline");
        let needs = match &job["needs"] {
            Value::Array(needs) => needs.clone(),
            Value::Null => Vec::new(),
            one => vec![one.clone()],
        };
        ensure!(
            needs.iter().all(|need| jobs.contains_key(text(need))),
            "{name} needs {needs:?}"
        );
        // Jobs that can write wait for all checks.
        let writes = job["permissions"]
            .as_object()
            .is_some_and(|all| all.values().any(|one| one == "write"));
        let waits = ["test", "programs", "images"]
            .iter()
            .any(|need| needs.contains(&json!(need)));
        ensure!(
            !writes || waits,
            "{name} publishes what nothing has checked"
        );
    }
    ensure!(workflow["permissions"] == json!({ "contents": "read" }));
    let all = read(".github/workflows/release.yml")?;
    says(
        &all,
        &[
            "cargo deny check advisories bans licenses sources",
            "cargo xtask release --programs programs",
            "oras cp --recursive --from-oci-layout",
            "cosign sign --yes --recursive",
            "cosign attest --yes --type cyclonedx",
            "helm lint --strict release/files/",
            "sha256sum --check SHA256SUMS",
            // Tests on the real node read the variable.
            "sudo --preserve-env=HOME,PATH,BACKUP_TESTS_LAST_RELEASE .ci/run",
            "-p backup-core -p backup-lock -p backup-store --lib",
        ],
    )?;
    // The same programs as in CI, and the same version of cargo-deny.
    let ci = read(".ci/run")?;
    let install = "cargo install --locked cargo-deny --version ";
    let version = |text: &str| -> Option<String> {
        Some(
            text.split(install)
                .nth(1)?
                .split_whitespace()
                .next()?
                .to_owned(),
        )
    };
    ensure!(
        version(&ci).is_some() && version(&ci) == version(&all),
        "CI checks with another cargo-deny"
    );
    Ok(())
}

async fn the_license_is_the_one_that_the_manifests_name(_: &mut World) -> anyhow::Result<()> {
    ensure!(
        read("Cargo.toml")?.contains("license = \"Apache-2.0\""),
        "another license"
    );
    let license = read("LICENSE")?;
    says(
        &license,
        &[
            "Apache License",
            "Version 2.0, January 2004",
            "END OF TERMS AND CONDITIONS",
        ],
    )?;
    ensure!(
        read("deploy/chart/Chart.yaml")?.contains("artifacthub.io/license: Apache-2.0"),
        "no license"
    );
    Ok(())
}

/// Sections of versions, the unreleased one first, each with groups of the convention's names.
async fn the_changelog_has_the_form_of_keep_a_changelog(_: &mut World) -> anyhow::Result<()> {
    const GROUPS: [&str; 6] = [
        "Added",
        "Changed",
        "Deprecated",
        "Removed",
        "Fixed",
        "Security",
    ];
    let changelog = read("CHANGELOG.md")?;
    let versions: Vec<&str> = changelog
        .lines()
        .filter_map(|line| line.strip_prefix("## "))
        .collect();
    ensure!(
        versions.first() == Some(&"[Unreleased]"),
        "the first section is {:?}",
        versions.first()
    );
    // Such as `[0.1.0] - 2026-12-01`.
    for version in &versions[1..] {
        let date = version
            .strip_prefix('[')
            .and_then(|rest| rest.split_once("] - "))
            .map(|(_, date)| date);
        ensure!(
            date.is_some_and(|date| date.parse::<jiff::civil::Date>().is_ok()),
            "{version} has no date"
        );
    }
    for group in changelog
        .lines()
        .filter_map(|line| line.strip_prefix("### "))
    {
        ensure!(GROUPS.contains(&group), "the convention has no {group}");
    }
    Ok(())
}
