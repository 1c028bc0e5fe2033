//! Lists names in Velero's newest version that we do not know: fields and values of definitions,
//! flags of its server and its command.
//!
//! The version is the newest on the Go proxy; without a network, that of tests/plugins, which is in
//! the module cache.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail, ensure};
use backup_core::api::crd;
use backup_tests::binaries::{Programs, root};
use clap::CommandFactory as _;
use regex::Regex;
use serde_json::Value;

/// Names of the module: it has been renamed before.
const MODULES: [&str; 2] = [
    "github.com/velero-io/velero",
    "github.com/vmware-tanzu/velero",
];
/// A Go module that depends on it.
const NEEDS_IT: &str = "tests/plugins";
const DEFINITIONS: [&str; 2] = ["config/crd/v1/bases", "config/crd/v2alpha1/bases"];
const SERVER: &str = "pkg/cmd/server/config/config.go";
/// Source files of Velero's commands, and our corresponding commands.
const COMMANDS: [(&str, &[&str]); 13] = [
    ("backup/create.go", &["create"]),
    ("backup/delete.go", &["delete"]),
    ("backup/describe.go", &["describe"]),
    ("backup/download.go", &["download"]),
    ("backup/logs.go", &["logs"]),
    ("backuplocation/create.go", &["locations", "create"]),
    ("backuplocation/set.go", &["locations", "set"]),
    ("debug/debug.go", &["debug"]),
    ("install/install.go", &["install"]),
    ("restore/create.go", &["restore", "create"]),
    ("restore/describe.go", &["restore", "describe"]),
    ("restore/logs.go", &["restore", "logs"]),
    ("schedule/create.go", &["schedules", "create"]),
];

/// Fails with a list of the unknown names.
pub fn check() -> anyhow::Result<()> {
    let velero = Module::newest()?;
    let mut unknown = unknown_in_definitions(&velero.folder)?;
    unknown.extend(unknown_flags_of_server(&velero.folder)?);
    unknown.extend(unknown_flags_of_commands(&velero.folder)?);
    let version = &velero.version;
    println!("    compared with Velero {version}");
    ensure!(
        unknown.is_empty(),
        "Velero {version} declares what we do not know; support it, or refuse it with a sentence (crates/core/src/api, \
         crates/core/src/validate, velero_flags.rs of crates/core and kubectl-backup):\n  {}",
        unknown.join("\n  ")
    );
    Ok(())
}

struct Module {
    version: String,
    folder: PathBuf,
}

impl Module {
    fn newest() -> anyhow::Result<Self> {
        let latest = MODULES.iter().filter_map(|module| {
            let version = go(&[
                "list",
                "-m",
                "-f",
                "{{.Version}}",
                &format!("{module}@latest"),
            ])
            .ok()?;
            Some((module, version.trim().to_owned()))
        });
        let newest = latest.max_by_key(|(_, version)| order(version));
        let (module, version) = match newest {
            Some((module, version)) => ((*module).to_owned(), version),
            None => needed()?,
        };
        let answer = go(&["mod", "download", "-json", &format!("{module}@{version}")])?;
        let answer: Value =
            serde_json::from_str(&answer).context("read what go mod download says")?;
        let folder = answer["Dir"]
            .as_str()
            .context("go mod download names no folder")?;
        Ok(Self {
            version,
            folder: folder.into(),
        })
    }
}

/// The module and version on which tests/plugins depends.
fn needed() -> anyhow::Result<(String, String)> {
    let file = root().join(NEEDS_IT).join("go.mod");
    let text = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
    let found = text.lines().find_map(|line| {
        let (module, version) = line.trim().split_once(' ')?;
        MODULES
            .contains(&module)
            .then(|| (module.to_owned(), version.trim().to_owned()))
    });
    found.with_context(|| format!("{} needs no Velero", file.display()))
}

/// The numbers of a version such as v1.18.3, for comparison.
fn order(version: &str) -> Vec<u32> {
    let numbers = version.trim_start_matches('v').split(['.', '-']);
    numbers
        .map(|part| part.parse().unwrap_or_default())
        .collect()
}

fn go(args: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("go")
        .current_dir(root().join(NEEDS_IT))
        .args(args)
        .output()?;
    if !output.status.success() {
        bail!(
            "go {}: {}",
            args.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8(output.stdout)?)
}

fn unknown_in_definitions(velero: &Path) -> anyhow::Result<Vec<String>> {
    let mut unknown = Vec::new();
    let ours = serde_json::to_value(crd::all())?;
    let ours: Vec<&Value> = ours.as_array().into_iter().flatten().collect();
    let mut compared = 0;
    for folder in DEFINITIONS {
        let folder = velero.join(folder);
        for file in fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))? {
            let theirs: Value = serde_saphyr::from_str(&fs::read_to_string(file?.path())?)?;
            let name = theirs["metadata"]["name"].as_str().unwrap_or_default();
            match ours.iter().find(|one| one["metadata"]["name"] == name) {
                Some(one) => unknown.extend(unknown_in_definition(name, &theirs, one)),
                None => unknown.push(format!("definition {name}")),
            }
            compared += 1;
        }
    }
    ensure!(
        compared > 10,
        "{compared} definitions were found in {}",
        velero.display()
    );
    Ok(unknown)
}

fn unknown_in_definition(name: &str, theirs: &Value, ours: &Value) -> Vec<String> {
    let mut unknown = Vec::new();
    for version in theirs["spec"]["versions"].as_array().into_iter().flatten() {
        let of_ours = ours["spec"]["versions"].as_array().into_iter().flatten();
        match of_ours
            .into_iter()
            .find(|one| one["name"] == version["name"])
        {
            Some(one) => compare(schema(version), schema(one), name, &mut unknown),
            None => unknown.push(format!("{name}: version {}", version["name"])),
        }
    }
    unknown
}

fn schema(version: &Value) -> &Value {
    &version["schema"]["openAPIV3Schema"]
}

/// Adds fields and enum values that are only in their schema, not in ours.
fn compare(theirs: &Value, ours: &Value, at: &str, unknown: &mut Vec<String>) {
    if ours["x-kubernetes-preserve-unknown-fields"] == true {
        return;
    }
    for (name, property) in theirs["properties"].as_object().into_iter().flatten() {
        let at = format!("{at} {name}").replacen(".io ", ".io: ", 1);
        match ours["properties"].get(name) {
            Some(our) => compare(property, our, &at, unknown),
            None => {
                // Every object has these fields; a definition need not contain them.
                if !["apiVersion", "kind", "metadata"].contains(&name.as_str()) {
                    unknown.push(at);
                }
            }
        }
    }
    for inner in ["items", "additionalProperties"] {
        if theirs[inner].is_object() {
            compare(&theirs[inner], &ours[inner], at, unknown);
        }
    }
    if let (Some(values), Some(known)) = (theirs["enum"].as_array(), ours["enum"].as_array()) {
        let new = values.iter().filter(|value| !known.contains(value));
        unknown.extend(new.map(|value| format!("{at}: the value {value}")));
    }
}

/// Names of flags that a Go source declares: the first text of each call on a flag set.
fn declared_flags(source: &str) -> anyhow::Result<BTreeSet<String>> {
    let call = Regex::new(r#"[fF]lags(?:\(\))?\.[A-Za-z0-9]+\([^"]*?"([a-z][a-z0-9-]*)""#)?;
    Ok(call
        .captures_iter(source)
        .map(|found| found[1].to_owned())
        .collect())
}

fn flags_in(file: &Path) -> anyhow::Result<BTreeSet<String>> {
    let source = fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
    declared_flags(&source)
}

fn unknown_flags_of_server(velero: &Path) -> anyhow::Result<Vec<String>> {
    let command = backup_controller::Args::command();
    let ours: Vec<&str> = command
        .get_arguments()
        .filter_map(clap::Arg::get_long)
        .collect();
    let theirs = flags_in(&velero.join(SERVER))?;
    ensure!(
        theirs.len() > 30,
        "{} flags were found in {SERVER}",
        theirs.len()
    );
    let unknown = theirs.into_iter().filter(|flag| {
        !ours.contains(&flag.as_str()) && backup_controller::refusal_of_velero_flag(flag).is_none()
    });
    Ok(unknown
        .map(|flag| format!("flag of the server: --{flag}"))
        .collect())
}

/// Runs our command with only this flag: the flag is unknown if the error is the parser's for any
/// unknown word.
fn unknown_flags_of_commands(velero: &Path) -> anyhow::Result<Vec<String>> {
    let program = Programs::build("dev")?.kubectl_backup;
    let mut unknown = Vec::new();
    for (source, words) in COMMANDS {
        let mut theirs = flags_in(&velero.join("pkg/cmd/cli").join(source))?;
        if source == "schedule/create.go" {
            theirs.extend(flags_in(&velero.join("pkg/cmd/cli/backup/create.go"))?);
            // Flags only for backups.
            theirs.retain(|flag| flag != "wait" && flag != "from-schedule");
        }
        for flag in theirs {
            let output = Command::new(&program)
                .args(words)
                // If the flag is known, the command must do nothing.
                .arg(format!("--{flag}"))
                .arg("--help")
                .env("KUBECONFIG", "/dev/null")
                .output()
                .with_context(|| format!("run {}", program.display()))?;
            let said = String::from_utf8_lossy(&output.stderr);
            if said.contains(&format!("unexpected argument '--{flag}'")) {
                unknown.push(format!("flag of its command: {} --{flag}", words.join(" ")));
            }
        }
    }
    Ok(unknown)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_schema_takes_more_is_found() {
        let ours = json!({ "properties": {
            "spec": { "properties": { "a": { "enum": ["x"] }, "any": { "x-kubernetes-preserve-unknown-fields": true } } },
        } });
        let theirs = json!({ "properties": {
            "kind": {},
            "spec": { "properties": {
                "a": { "enum": ["x", "y"] },
                "any": { "properties": { "b": {} } },
                "c": {},
                "list": { "items": { "properties": { "d": {} } } },
            } },
        } });
        let mut unknown = Vec::new();
        compare(&theirs, &ours, "backups.velero.io", &mut unknown);
        assert_eq!(
            unknown,
            [
                "backups.velero.io: spec a: the value \"y\"",
                "backups.velero.io: spec c",
                "backups.velero.io: spec list"
            ]
        );
    }

    #[test]
    fn flags_are_read_from_go() {
        let source = r#"
            flags.DurationVar(&c.Sync, "backup-sync-period", c.Sync, "How \"often\".")
            f := flags.VarPF(
                &o.Wait, "wait", "w", "Wait")
            c.Flags().StringVar(&x, "output", x, "o")
            fmt.Println("not-a-flag")
        "#;
        let flags: Vec<String> = declared_flags(source).unwrap().into_iter().collect();
        assert_eq!(flags, ["backup-sync-period", "output", "wait"]);
    }

    #[test]
    fn versions_are_compared_by_number() {
        assert!(order("v1.18.10") > order("v1.18.9") && order("v1.19.0") > order("v1.18.10"));
    }
}
