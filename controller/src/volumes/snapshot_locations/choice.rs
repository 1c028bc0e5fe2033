//! Chooses the VolumeSnapshotLocations of a backup: those that it names, and for each other
//! provider the only one, or the default (Velero `pkg/controller/backup_controller.go`,
//! `validateAndGetSnapshotLocations`, v1.18). Pure.

use std::collections::{BTreeMap, BTreeSet};

use backup_core::{
    api::{BackupSpec, VolumeSnapshotLocation},
    validate::Finding,
};
use backup_store::plugin_of;
use kube::ResourceExt as _;

const FIELD: &str = "spec.volumeSnapshotLocations";

#[derive(Clone, Debug, Default)]
pub(crate) struct SnapshotCandidates {
    pub(crate) locations: Vec<VolumeSnapshotLocation>,
    /// Names of the plugins that can take snapshots.
    pub(crate) plugins: BTreeSet<String>,
    /// Why other plugins cannot be run.
    pub(crate) problems: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChosenLocations {
    /// Names of locations: the requested ones in their order, then the others by name. At most one
    /// for each provider.
    pub(crate) names: Vec<String>,
    /// Errors that keep the backup from running.
    pub(crate) findings: Vec<Finding>,
    /// Why locations that were not requested cannot be used.
    pub(crate) unusable: Vec<String>,
}

/// `defaults` maps providers to names. A location that is neither requested nor served by a plugin
/// is skipped; so are all that are not requested if `snapshotVolumes` is false.
pub(crate) fn choose(
    spec: &BackupSpec,
    candidates: &SnapshotCandidates,
    defaults: &BTreeMap<String, String>,
) -> ChosenLocations {
    let mut chosen = ChosenLocations::default();
    let mut by_provider: BTreeMap<&str, &str> = BTreeMap::new();
    let mut asked: Vec<&str> = spec
        .volume_snapshot_locations
        .iter()
        .map(String::as_str)
        .collect();
    let mut seen = BTreeSet::new();
    asked.retain(|name| seen.insert(*name));
    for name in asked {
        let Some(location) = candidates
            .locations
            .iter()
            .find(|location| location.name_any() == name)
        else {
            chosen.refuse(format!(
                "VolumeSnapshotLocation {name:?} does not exist; existing ones: {}",
                names(&candidates.locations)
            ));
            continue;
        };
        let provider = location.spec.provider.as_str();
        if let Some(reason) = unserved(location, candidates) {
            chosen.refuse(reason);
        } else if let Some(other) = by_provider.get(provider) {
            chosen.refuse(format!(
                "{other} and {name} are both of provider {provider}; name one of them"
            ));
        } else {
            by_provider.insert(provider, name);
            chosen.names.push(name.to_owned());
        }
    }
    if spec.snapshot_volumes == Some(false) {
        return chosen;
    }
    let mut others: BTreeMap<&str, Vec<&VolumeSnapshotLocation>> = BTreeMap::new();
    for location in &candidates.locations {
        if by_provider.contains_key(location.spec.provider.as_str()) {
            continue;
        }
        match unserved(location, candidates) {
            Some(reason) => chosen.unusable.push(reason),
            None => others
                .entry(&location.spec.provider)
                .or_default()
                .push(location),
        }
    }
    let mut found = Vec::new();
    for (provider, locations) in others {
        let default = defaults.get(provider);
        match (locations.as_slice(), default) {
            ([only], _) => found.push(only.name_any()),
            (many, Some(default)) if many.iter().any(|one| one.name_any() == *default) => {
                found.push(default.clone());
            }
            (many, default) => {
                let why = default.map_or_else(
                    || "none of them is the default".to_owned(),
                    |default| format!("the default, {default}, does not exist"),
                );
                chosen.refuse(format!(
                    "there is more than one VolumeSnapshotLocation of provider {provider} ({}), and {why}: name one, or start \
                     the controller with --default-volume-snapshot-locations={provider}:NAME",
                    names(many.iter().copied())
                ));
            }
        }
    }
    found.sort_unstable();
    chosen.names.extend(found);
    chosen
}

impl ChosenLocations {
    fn refuse(&mut self, message: String) {
        self.findings.push(Finding::new(FIELD, message));
    }
}

/// Why a location cannot be used: no plugin serves it, or its settings cannot be honoured. `None`
/// if it can be used.
fn unserved(location: &VolumeSnapshotLocation, candidates: &SnapshotCandidates) -> Option<String> {
    if let Err(error) = super::settings(location) {
        return Some(error.to_string());
    }
    let plugin = plugin_of(&location.spec.provider);
    (!candidates.plugins.contains(&plugin))
        .then(|| missing_plugin(&location.name_any(), &plugin, &candidates.problems))
}

pub(super) fn missing_plugin(location: &str, plugin: &str, problems: &[String]) -> String {
    let mut sentence = format!(
        "VolumeSnapshotLocation {location} needs the plugin {plugin} (a VolumeSnapshotter), which no binary in --plugin-dir \
         offers"
    );
    for problem in problems {
        sentence.push_str("; ");
        sentence.push_str(problem);
    }
    sentence
}

/// Names, for a message.
pub(crate) fn names<'a, K: kube::ResourceExt + 'a>(
    objects: impl IntoIterator<Item = &'a K>,
) -> String {
    let names: Vec<_> = objects.into_iter().map(K::name_any).collect();
    if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use backup_core::api::volume_snapshot_location::VolumeSnapshotLocationSpec;

    use super::*;

    fn facts(locations: &[(&str, &str)], plugins: &[&str]) -> SnapshotCandidates {
        let location = |(name, provider): &(&str, &str)| {
            let spec = VolumeSnapshotLocationSpec {
                provider: (*provider).to_owned(),
                ..Default::default()
            };
            VolumeSnapshotLocation::new(name, spec)
        };
        SnapshotCandidates {
            locations: locations.iter().map(location).collect(),
            plugins: plugins.iter().map(ToString::to_string).collect(),
            problems: vec![],
        }
    }

    fn chosen(
        facts: &SnapshotCandidates,
        asked: &[&str],
        snapshots: Option<bool>,
        default: &[(&str, &str)],
    ) -> ChosenLocations {
        let spec = BackupSpec {
            volume_snapshot_locations: asked.iter().map(ToString::to_string).collect(),
            snapshot_volumes: snapshots,
            ..BackupSpec::default()
        };
        let defaults = default
            .iter()
            .map(|(of, name)| ((*of).to_owned(), (*name).to_owned()))
            .collect();
        choose(&spec, facts, &defaults)
    }

    #[test]
    fn those_that_are_named_come_first_and_then_the_only_one_or_the_default_of_each_other_provider()
    {
        let there = [
            ("b", "x.io/x"),
            ("a", "x.io/x"),
            ("only", "aws"),
            ("idle", "gcp"),
        ];
        let facts = facts(&there, &["x.io/x", "velero.io/aws"]);
        let named = chosen(&facts, &["b", "b"], None, &[]);
        assert_eq!(
            (named.names.as_slice(), named.findings.len()),
            (&["b".to_owned(), "only".to_owned()][..], 0)
        );
        assert_says!(named.unusable[0], "velero.io/gcp");
        let default = chosen(&facts, &[], None, &[("x.io/x", "a")]);
        assert_eq!(default.names, ["a", "only"]);
        assert!(chosen(&facts, &[], Some(false), &[]).names.is_empty());
        assert_eq!(chosen(&facts, &["a"], Some(false), &[]).names, ["a"]);
    }

    #[rstest::rstest]
    #[case(&["ghost"], &[("aws", "a")], "\"ghost\" does not exist; existing ones: a, b, idle")]
    #[case(&["a", "b"], &[], "a and b are both of provider aws")]
    #[case(&["a", "idle"], &[], "needs the plugin velero.io/gcp")]
    #[case(&[], &[], "more than one VolumeSnapshotLocation of provider aws (a, b), and none of them is the default")]
    #[case(&[], &[("aws", "c")], "the default, c, does not exist")]
    fn what_can_not_be_chosen_is_refused_with_what_to_do(
        #[case] asked: &[&str],
        #[case] default: &[(&str, &str)],
        #[case] expected: &str,
    ) {
        let facts = facts(
            &[("a", "aws"), ("b", "aws"), ("idle", "gcp")],
            &["velero.io/aws"],
        );
        let chosen = chosen(&facts, asked, None, default);
        let [finding] = chosen.findings.as_slice() else {
            panic!("{chosen:?}")
        };
        assert_eq!(finding.field, FIELD);
        assert_says!(finding.message, expected);
    }

    #[test]
    fn a_location_that_names_a_file_of_credentials_is_refused_before_the_backup_begins() {
        let mut facts = facts(&[("a", "aws")], &["velero.io/aws"]);
        facts.locations[0]
            .spec
            .config
            .insert("credentialsFile".to_owned(), "/etc/passwd".to_owned());
        let named = chosen(&facts, &["a"], None, &[]);
        assert_says!(
            named.findings[0].message,
            "spec.config[credentialsFile] cannot be honoured"
        );
        let unnamed = chosen(&facts, &[], None, &[]);
        assert!(
            unnamed.names.is_empty() && unnamed.unusable.len() == 1,
            "{unnamed:?}"
        );
    }
}
