//! Which of its stored versions of an item is restored. Pure.
//!
//! Velero: `pkg/restore/prioritize_group_version.go`, v1.18. Velero uses the versions of the group;
//! we use the versions of the type.

use std::collections::BTreeMap;

/// The versions that a user prefers, by type.
///
/// They are in the ConfigMap [`Self::CONFIG_MAP`] under one key, one type a line:
/// `rockbands.music.example.io=v2beta1,v2beta2`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VersionPriorities {
    types: BTreeMap<String, Vec<String>>,
    /// Unreadable lines, as sentences for users.
    pub ignored: Vec<String>,
}

impl VersionPriorities {
    /// The name of the ConfigMap, in the namespace of the installation.
    pub const CONFIG_MAP: &'static str = "enableapigroupversions";
    const KEY: &'static str = "restoreResourcesVersionPriority";

    /// Reads the data of the ConfigMap. As with Velero, an unreadable line is skipped.
    pub fn read(data: &BTreeMap<String, String>) -> Self {
        let mut priorities = Self::default();
        for line in data.get(Self::KEY).map_or("", String::as_str).lines() {
            let text: String = line.chars().filter(|c| !c.is_whitespace()).collect();
            if text.is_empty() {
                continue;
            }
            if let Some((name, versions)) = text.split_once('=')
                && !name.is_empty()
                && !versions.is_empty()
                && !versions.contains('=')
            {
                let versions = versions.split(',').map(str::to_owned).collect();
                priorities.types.insert(name.to_owned(), versions);
            } else {
                priorities.ignored.push(format!(
                    "ConfigMap {}: a line of {} is {line:?} and is not followed; write <resource>.<group>=<version>,<version>",
                    Self::CONFIG_MAP,
                    Self::KEY
                ));
            }
        }
        priorities
    }

    /// The preferred versions of a type, best first.
    pub fn of(&self, group_resource: &str) -> &[String] {
        self.types.get(group_resource).map_or(&[], Vec::as_slice)
    }
}

/// The rule for choosing a version.
#[derive(Clone, Copy, Debug)]
pub enum VersionRule<'a> {
    /// The backup's preferred version; another one only if the cluster does not serve it.
    Stored,
    /// These versions, then the cluster's preferred one, as with
    /// `--features=EnableAPIGroupVersions`.
    Served { asked: &'a [String] },
}

/// The versions of a type in the backup, and those that the cluster serves.
#[derive(Clone, Copy, Debug)]
pub struct TypeVersions<'a> {
    /// The preferred version of the backed-up cluster.
    pub preferred: &'a str,
    /// Other versions in the backup.
    pub others: &'a [&'a str],
    /// Versions that the cluster serves, the preferred one first.
    pub served: &'a [&'a str],
}

impl<'a> TypeVersions<'a> {
    /// The stored versions that can be restored, in the order of tries. Empty: the cluster serves
    /// none of them.
    pub fn order(self, rule: VersionRule<'a>) -> Vec<&'a str> {
        let Self {
            preferred,
            others,
            served,
        } = self;
        let first: Vec<&str> = match rule {
            VersionRule::Stored => vec![preferred],
            VersionRule::Served { asked } => asked
                .iter()
                .map(String::as_str)
                .chain(served.first().copied())
                .chain([preferred])
                .collect(),
        };
        let mut order = Vec::new();
        for version in first.into_iter().chain(served.iter().copied()) {
            let is_stored = version == preferred || others.contains(&version);
            if is_stored && served.contains(&version) && !order.contains(&version) {
                order.push(version);
            }
        }
        order
    }

    /// Why a version is used that the backed-up cluster did not prefer.
    pub fn reason(self, version: &str, rule: VersionRule<'_>) -> String {
        if let VersionRule::Served { asked } = rule
            && asked.iter().any(|asked| asked == version)
        {
            format!("ConfigMap {} prefers it", VersionPriorities::CONFIG_MAP)
        } else if !self.served.contains(&self.preferred) {
            format!("the cluster does not serve {}", self.preferred)
        } else {
            "the cluster prefers it".to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORED: VersionRule<'_> = VersionRule::Stored;

    fn owned(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn the_stored_version_comes_first_unless_it_is_not_served() {
        for (others, served, expected) in [
            (&[][..], &["v2"][..], &["v2"][..]),
            (&["v1"], &["v3", "v2", "v1"], &["v2", "v1"]),
            (&["v1", "v3"], &["v3", "v2", "v1"], &["v2", "v3", "v1"]),
            (&["v1", "v3"], &["v3", "v1"], &["v3", "v1"]),
            (&["v1", "v1beta1"], &["v1"], &["v1"]),
            (&["v1"], &["v3"], &[]),
            (&["v1"], &[], &[]),
        ] {
            let versions = TypeVersions {
                preferred: "v2",
                others,
                served,
            };
            assert_eq!(versions.order(STORED), expected, "{versions:?}");
        }
    }

    #[test]
    fn the_config_map_then_the_cluster_then_the_backup_decide() {
        for (asked, others, served, expected) in [
            (&[][..], &["v1"][..], &["v1", "v2"][..], &["v1", "v2"][..]),
            (&[], &["v1"], &["v2", "v1"], &["v2", "v1"]),
            // The cluster's preferred version is not in the backup.
            (&[], &["v1"], &["v3", "v1", "v2"], &["v2", "v1"]),
            // Nor does it serve the backup's preferred version: by the order of the cluster.
            (
                &[],
                &["v1", "v1beta1"],
                &["v3", "v1", "v1beta1"],
                &["v1", "v1beta1"],
            ),
            (&["v4", "v1", "v2"], &["v1"], &["v2", "v1"], &["v1", "v2"]),
            (&["v1"], &["v1"], &["v2"], &["v2"]),
            (&["v1"], &[], &["v2", "v1"], &["v2"]),
            (&["v1"], &["v1"], &[], &[]),
        ] {
            let asked = owned(asked);
            let versions = TypeVersions {
                preferred: "v2",
                others,
                served,
            };
            let rule = VersionRule::Served { asked: &asked };
            assert_eq!(versions.order(rule), expected, "{asked:?} {versions:?}");
        }
    }

    #[test]
    fn the_reason_for_another_version_is_said() {
        let asked = owned(&["v1"]);
        let [none, some] = [&[][..], &asked].map(|asked| VersionRule::Served { asked });
        let versions = |served| TypeVersions {
            preferred: "v2",
            others: &["v1"],
            served,
        };
        for (rule, served, reason) in [
            (STORED, &["v1"][..], "the cluster does not serve v2"),
            (none, &["v1", "v2"], "the cluster prefers it"),
            (none, &["v1"], "the cluster does not serve v2"),
            (
                some,
                &["v2", "v1"],
                "ConfigMap enableapigroupversions prefers it",
            ),
        ] {
            assert_eq!(versions(served).reason("v1", rule), reason);
        }
    }

    #[test]
    fn priorities_are_read_line_by_line() {
        let text = "rockbands.music.example.io = v2beta1, v2beta2\n\n  \norchestras.music.example.io=v2\nx\ny=\n=z\na=b=c\n";
        let priorities =
            VersionPriorities::read(&[(VersionPriorities::KEY.to_owned(), text.to_owned())].into());
        assert_eq!(
            priorities.of("rockbands.music.example.io"),
            ["v2beta1", "v2beta2"]
        );
        assert_eq!(priorities.of("orchestras.music.example.io"), ["v2"]);
        assert!(priorities.of("x").is_empty() && priorities.of("a").is_empty());
        assert_eq!(priorities.ignored.len(), 4, "{:?}", priorities.ignored);
        assert!(
            priorities.ignored[0].contains("\"x\""),
            "{:?}",
            priorities.ignored
        );
        assert_eq!(
            VersionPriorities::read(&BTreeMap::new()),
            VersionPriorities::default()
        );
    }
}
