//! Statements about how files were made: in-toto's, with the predicate of SLSA.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::facts::Facts;

pub(super) const MEDIA_TYPE: &str = "application/vnd.in-toto+json";

/// A statement about files or manifests, by name with their SHA-256. It has no times, so that two
/// builds of a commit make the same.
pub(super) fn statement(
    facts: &Facts,
    lock_sha256: &str,
    subjects: &BTreeMap<String, String>,
) -> Value {
    let source = facts.source();
    let tag = facts.tag();
    let mut dependencies = vec![json!({
        "uri": format!("{source}/blob/{tag}/Cargo.lock"),
        "digest": { "sha256": lock_sha256 },
    })];
    if let Some(revision) = &facts.revision {
        dependencies.push(json!({
            "uri": format!("git+{source}@refs/tags/{tag}"),
            "digest": { "gitCommit": revision },
        }));
    }
    json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": subjects
            .iter()
            .map(|(name, sha256)| json!({ "name": name, "digest": { "sha256": sha256 } }))
            .collect::<Vec<_>>(),
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": format!("{source}/blob/{tag}/docs/operate/release.md"),
                "externalParameters": {
                    "registry": facts.registry,
                    "repository": facts.repository,
                    "sourceDateEpoch": facts.time,
                },
                "resolvedDependencies": dependencies,
            },
            "runDetails": { "builder": { "id": facts.builder } },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_names_the_commit_unless_files_differ_from_it() {
        let subjects = BTreeMap::from([("a.tar.gz".to_owned(), "00".to_owned())]);
        let mut facts = Facts::of_tests();
        let clean = statement(&facts, "11", &subjects);
        assert_eq!(clean["subject"][0]["digest"]["sha256"], "00");
        let definition = &clean["predicate"]["buildDefinition"];
        assert_eq!(
            definition["resolvedDependencies"][1],
            json!({
                "uri": "git+https://github.com/example/backup@refs/tags/v1.2.3",
                "digest": { "gitCommit": "0123abc" },
            })
        );
        facts.revision = None;
        let changed = statement(&facts, "11", &subjects);
        let definition = &changed["predicate"]["buildDefinition"];
        assert_eq!(
            definition["resolvedDependencies"].as_array().unwrap().len(),
            1
        );
    }
}
