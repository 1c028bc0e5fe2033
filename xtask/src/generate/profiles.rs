//! Manifests for guarding another operator besides its profile: rights, a registration, and a
//! policy about ends. Rendered from the profile, so that each kind and each end is defined once.

use std::{collections::BTreeMap, path::PathBuf};

use anyhow::{Context as _, bail};
use backup_core::profile::{Predicate, Profile, Role};
use backup_tests::binaries::root;

const KUSTOMIZATION: &str = include_str!("profiles/kustomization.yaml");
const RBAC: &str = include_str!("profiles/rbac.yaml");
const WEBHOOK: &str = include_str!("profiles/webhook.yaml");
const POLICY: &str = include_str!("profiles/policy.yaml");
const LEASES: &str = include_str!("profiles/leases.yaml");

/// The files of every built-in profile except Velero's, whose kinds are in `deploy/base`.
pub(super) fn files() -> anyhow::Result<BTreeMap<PathBuf, String>> {
    let mut files = BTreeMap::new();
    for profile in Profile::builtin()
        .into_iter()
        .filter(|profile| !profile.is_velero())
    {
        let folder = root().join("deploy/profiles").join(&profile.name);
        // Without the operator's account, its requests cannot be distinguished from others.
        let has_policy = !profile.operator.is_empty();
        let values = values(&profile).with_context(|| format!("profile {}", profile.name))?;
        for (name, template) in [
            ("kustomization.yaml", KUSTOMIZATION),
            ("rbac.yaml", RBAC),
            ("webhook.yaml", WEBHOOK),
            ("policy.yaml", POLICY),
        ] {
            if has_policy || name != "policy.yaml" {
                files.insert(folder.join(name), render(template, &values));
            }
        }
    }
    Ok(files)
}

fn values(profile: &Profile) -> anyhow::Result<Vec<(&'static str, String)>> {
    let [backup, restore] = [&profile.backup, &profile.restore];
    let mut types = vec![backup.plural.as_str(), &restore.plural];
    types.extend(
        profile
            .release
            .as_ref()
            .map(|rule| rule.target.plural.as_str()),
    );
    let leases = match &profile.foreign_lease {
        Some(lease) => render(
            LEASES,
            &[("{lease}", lease.name.replace("{cluster}", "<cluster>"))],
        ),
        None => String::new(),
    };
    let policy = if profile.operator.is_empty() {
        ""
    } else {
        "  - policy.yaml\n"
    };
    Ok(vec![
        ("{name}", profile.name.clone()),
        ("{group}", profile.group.clone()),
        ("{operator}", profile.operator.clone()),
        ("{backups}", backup.plural.clone()),
        ("{restores}", restore.plural.clone()),
        ("{types}", types.join(", ")),
        ("{over}", over(profile, "object")?),
        ("{wasOver}", over(profile, "oldObject")?),
        ("{leases}\n", leases),
        ("{policy}\n", policy.to_owned()),
    ])
}

fn render(template: &str, values: &[(&str, String)]) -> String {
    values
        .iter()
        .fold(template.to_owned(), |text, (name, value)| {
            text.replace(name, value)
        })
}

/// The CEL expression for whether an object has ended.
fn over(profile: &Profile, variable: &str) -> anyhow::Result<String> {
    let [backup, restore] = [Role::Backup, Role::Restore].map(|role| &profile.rule(role).over);
    if let (
        Predicate::In { path, values },
        Predicate::In {
            path: other,
            values: more,
        },
    ) = (backup, restore)
        && path == other
    {
        let mut all = values.clone();
        all.extend(more.iter().filter(|value| !values.contains(value)).cloned());
        return cel(
            &Predicate::In {
                path: path.clone(),
                values: all,
            },
            variable,
        );
    }
    let backup = cel(backup, variable)?;
    let restore = cel(restore, variable)?;
    Ok(format!(
        "(request.kind.kind == \"{}\" ? {backup} : {restore})",
        profile.backup.kind
    ))
}

fn cel(predicate: &Predicate, variable: &str) -> anyhow::Result<String> {
    match predicate {
        Predicate::In { path, values } => {
            let values: Vec<String> = values.iter().map(|value| format!("\"{value}\"")).collect();
            Ok(format!(
                "{}.orValue(\"\") in [{}]",
                optional_field(variable, path),
                values.join(", ")
            ))
        }
        Predicate::Set { path } => Ok(format!(
            "{}.orValue(\"\") != \"\"",
            optional_field(variable, path)
        )),
        other => bail!("no CEL is known for {other:?}; write it in xtask/src/generate/profiles.rs"),
    }
}

/// The CEL of a field that may be missing.
fn optional_field(variable: &str, path: &str) -> String {
    format!("{variable}.?{}", path.replace('.', ".?"))
}
