//! The confirmation of a restore that removes objects (`restore --prune`), by the names of their
//! namespaces.

use std::collections::BTreeSet;

use backup_core::api::RestoreSpec;

use super::prelude::*;

/// Whether the user confirms that objects are removed: by the names in `given`, or else on the
/// terminal. True if the restore removes none.
pub(super) fn confirmed(
    spec: &RestoreSpec,
    given: &[String],
    terminal: &mut Terminal,
) -> Result<bool, Problem> {
    if spec.prune != Some(true) {
        return if given.is_empty() {
            Ok(true)
        } else {
            Err(Problem::usage(
                "--yes-prune has nothing to confirm: the restore removes no objects without --prune",
            ))
        };
    }
    let targets = targets(spec);
    let names = targets.iter().copied().collect::<Vec<_>>().join(",");
    let s = if targets.len() == 1 { "" } else { "s" };
    if !given.is_empty() {
        let given: BTreeSet<&str> = given.iter().map(String::as_str).collect();
        return if given == targets {
            Ok(true)
        } else {
            Err(Problem::usage(format!(
                "--yes-prune does not name the namespace{s} that objects would be removed from: {names}"
            )))
        };
    }
    let from = spec.backup_name.as_deref().map_or_else(
        || "the backup".to_owned(),
        |name| format!("backup {}", plain(name)),
    );
    let question = format!(
        "After all else, the restore removes objects from namespace{s} {names} that {from} does not have; --plan shows which.\n\
         Type {names} to confirm: "
    );
    let Some(answer) = terminal.ask(&question) else {
        return Err(Problem::usage(format!(
            "refusing to remove objects from namespace{s} {names} without --yes-prune: there is no terminal to ask on"
        ))
        .with_remedy(format!(
            "See first what it would remove (--plan); confirm it with --yes-prune={names}."
        )));
    };
    let typed: BTreeSet<&str> = answer
        .split([',', ' '])
        .filter(|name| !name.is_empty())
        .collect();
    Ok(typed == targets)
}

/// The namespaces from which objects are removed, in the cluster.
fn targets(spec: &RestoreSpec) -> BTreeSet<&str> {
    let sources = spec.included_namespaces.iter();
    sources
        .filter(|source| !spec.excluded_namespaces.contains(source))
        .map(|source| spec.namespace_mapping.get(source).unwrap_or(source))
        .map(String::as_str)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_namespaces_in_the_cluster_are_confirmed() {
        let spec = json!({ "includedNamespaces": ["shop", "db", "shop"], "excludedNamespaces": ["old"],
            "namespaceMapping": { "shop": "copy" } });
        let spec: RestoreSpec = serde_json::from_value(spec).unwrap();
        assert_eq!(targets(&spec), BTreeSet::from(["copy", "db"]));
    }
}
