//! Writes the two sides as files in two folders, to be compared by `diff`, or by the program that
//! KUBECTL_EXTERNAL_DIFF names.

use std::{fs, path::Path, process::Command, time::SystemTime};

use backup_actions::restore::json::Object;
use serde_json::Value;
use tempfile::TempDir;

use super::hide_secrets;
use crate::error::Problem;

/// Names of the folders, as they appear in the program's output.
const CLUSTER: &str = "CLUSTER";
const BACKUP: &str = "BACKUP";
const DEFAULT: &str = "diff -u -N -r";

pub(super) struct Sides {
    folder: TempDir,
}

fn failed(error: &std::io::Error) -> Problem {
    Problem::other(format!("cannot write temporary files: {error}"))
}

impl Sides {
    pub(super) fn new() -> Result<Self, Problem> {
        let folder = tempfile::tempdir().map_err(|error| failed(&error))?;
        for side in [CLUSTER, BACKUP] {
            fs::create_dir(folder.path().join(side)).map_err(|error| failed(&error))?;
        }
        Ok(Self { folder })
    }

    /// Adds an object that differs, or is missing in the cluster.
    pub(super) fn add(
        &mut self,
        kind: &str,
        namespace: Option<&str>,
        name: &str,
        mut cluster: Option<Object>,
        mut backup: Object,
    ) -> Result<(), Problem> {
        if kind == "Secret" {
            hide_secrets(&mut cluster, &mut backup);
        }
        // Names may contain characters with a meaning in paths.
        let file = [Some(kind), namespace, Some(name)]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(".");
        let file = file.replace('/', "_");
        for (side, object) in [(CLUSTER, cluster), (BACKUP, Some(backup))] {
            if let Some(object) = object {
                write(
                    &self.folder.path().join(side).join(&file),
                    &Value::Object(object),
                )?;
            }
        }
        Ok(())
    }

    /// Runs the program and returns its output.
    pub(super) fn diff(&self, program: Option<&str>) -> Result<String, Problem> {
        let line = program.unwrap_or(DEFAULT);
        let mut words = line.split_whitespace();
        let mut command = Command::new(words.next().unwrap_or("diff"));
        command
            .args(words)
            .args([CLUSTER, BACKUP])
            .current_dir(self.folder.path());
        // Zone in which `diff` prints file times.
        command.env("TZ", "UTC");
        let remedy =
            "Install `diff`, or name another program in KUBECTL_EXTERNAL_DIFF; -o json needs none.";
        let output = command.output().map_err(|error| {
            Problem::other(format!(
                "cannot run {line:?}, which shows what differs: {error}"
            ))
            .with_remedy(remedy)
        })?;
        // Exit codes of `diff`: 1 means a difference, 2 and higher an error.
        if output.status.code().is_none_or(|code| code > 1) {
            let why = String::from_utf8_lossy(&output.stderr);
            return Err(Problem::other(format!(
                "{line:?} failed ({}): {}",
                output.status,
                why.trim()
            ))
            .with_remedy(remedy));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

fn write(path: &Path, object: &Value) -> Result<(), Problem> {
    let yaml = serde_saphyr::to_string(object)
        .map_err(|error| Problem::other(format!("cannot write an object as YAML: {error}")))?;
    fs::write(path, yaml).map_err(|error| failed(&error))?;
    // The time of writing says nothing about the object.
    let file = fs::File::options().write(true).open(path);
    file.and_then(|file| file.set_modified(SystemTime::UNIX_EPOCH))
        .map_err(|error| failed(&error))
}
