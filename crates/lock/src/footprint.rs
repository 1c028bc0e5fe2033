//! What an object reads or writes, as far as its spec tells. What is unknown counts as everything.

use std::{collections::BTreeSet, fmt};

use backup_core::{
    api::{BackupSpec, RestoreSpec},
    names::is_object_name,
    selection::{ObjectName, glob_match, globs_may_overlap},
};
use serde::{Deserialize, Serialize};

/// A footprint with more names than this becomes everything, so that one object cannot fill the
/// ledger.
pub(crate) const MAX_NAMES: usize = 100;
/// A footprint with more bytes of names than this becomes everything, too.
pub(crate) const MAX_BYTES: usize = 4096;
/// Likewise for bytes of globs: comparing two globs takes the product of their lengths.
pub(crate) const MAX_GLOB_BYTES: usize = 256;

/// Namespaces read or written, whether cluster-scoped resources are selected explicitly, and the
/// backup that is read or deleted.
///
/// Cluster-scoped items that are only added because another item needs them, such as the volume of
/// a claim, do not count.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Footprint {
    #[serde(rename = "ns")]
    namespaces: Namespaces,
    #[serde(
        rename = "cluster",
        default,
        skip_serializing_if = "std::ops::Not::not"
    )]
    cluster: bool,
    /// `namespace/name` of a Backup, or `*` for any; empty for none.
    #[serde(rename = "backup", default, skip_serializing_if = "String::is_empty")]
    backup: String,
}

/// Any backup: used while the backup is not known yet.
const ANY_BACKUP: &str = "*";

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
enum Namespaces {
    /// Every namespace, or an unknown set.
    #[serde(rename = "all")]
    All,
    /// Every namespace except these exact names.
    #[serde(rename = "allBut")]
    AllBut(BTreeSet<String>),
    #[serde(rename = "only")]
    Only(BTreeSet<String>),
}

impl Footprint {
    /// Every namespace and every cluster-scoped resource; also used for unknown footprints.
    pub fn everything() -> Self {
        Self {
            namespaces: Namespaces::All,
            cluster: true,
            backup: ANY_BACKUP.to_owned(),
        }
    }

    /// A deletion of this backup: no namespaces, one backup.
    pub fn of_deletion(namespace: &str, backup: &str) -> Self {
        Self::nothing().from_backup(namespace, Some(backup))
    }

    /// The whole scope, where a scope is one database cluster.
    pub fn whole_scope() -> Self {
        Self::everything()
    }

    fn nothing() -> Self {
        Self {
            namespaces: Namespaces::Only(BTreeSet::new()),
            cluster: false,
            backup: String::new(),
        }
    }

    /// The same footprint, reading this backup; `None` or an invalid name counts as any backup.
    #[must_use]
    pub fn from_backup(mut self, namespace: &str, name: Option<&str>) -> Self {
        self.backup = if let Some(name) = name
            && is_object_name(name)
        {
            format!("{namespace}/{name}")
        } else {
            ANY_BACKUP.to_owned()
        };
        self
    }

    /// Exactly these namespaces; names may be globs.
    pub fn namespaces<I: IntoIterator<Item = S>, S: Into<String>>(names: I) -> Self {
        Self::bounded(
            Namespaces::Only(names.into_iter().map(Into::into).collect()),
            false,
        )
    }

    /// Footprint of a backup with this spec: what it reads.
    ///
    /// Cluster-scoped resources count if they are selected explicitly, or if all namespaces are
    /// selected and they are not excluded (Velero `pkg/util/collections/includes_excludes.go`,
    /// v1.18).
    pub fn of_backup(spec: &BackupSpec) -> Self {
        let namespaces = Namespaces::selected(&spec.included_namespaces, &spec.excluded_namespaces);
        let explicit = spec.include_cluster_resources == Some(true)
            || !spec.included_cluster_scoped_resources.is_empty();
        let along = namespaces == Namespaces::All && spec.include_cluster_resources != Some(false);
        Self::bounded(namespaces, explicit || along)
    }

    /// Footprint of a restore with this spec: the namespaces it includes, or the targets of their
    /// mappings.
    ///
    /// `backup` is the spec of the backup it restores from, if known: a restore of everything
    /// touches the contents of that backup. Unknown counts as everything.
    pub fn of_restore(spec: &RestoreSpec, backup: Option<&BackupSpec>) -> Self {
        let objects = named_objects(spec);
        let asked = match &objects {
            Some(objects) => {
                Namespaces::Only(objects.iter().flatten().map(ToString::to_string).collect())
            }
            None => Namespaces::selected(&spec.included_namespaces, &spec.excluded_namespaces),
        };
        let source = backup.map_or_else(Self::everything, Self::of_backup);
        let cluster = match (spec.include_cluster_resources, objects) {
            (Some(false), _) => false,
            (_, Some(objects)) => objects.contains(&None),
            (Some(true), None) => true,
            (None, None) => asked == Namespaces::All && source.cluster,
        };
        let sources = match asked {
            Namespaces::Only(names) => Namespaces::Only(names),
            Namespaces::AllBut(left_out) => source.namespaces.without(left_out),
            Namespaces::All => source.namespaces,
        };
        let targets = spec.namespace_mapping.iter();
        let namespaces = match sources {
            Namespaces::All => Namespaces::All,
            Namespaces::AllBut(mut names) => {
                targets.for_each(|(_, to)| {
                    names.remove(to);
                });
                Namespaces::AllBut(names)
            }
            Namespaces::Only(mut names) => {
                let mapped: Vec<(String, String)> = targets
                    .filter(|(from, _)| names.iter().any(|name| may_overlap(name, from)))
                    .map(|(from, to)| (from.clone(), to.clone()))
                    .collect();
                // A namespace that is mapped to another is only read from the backup: the restore
                // does not touch it in the cluster.
                for (from, _) in &mapped {
                    names.remove(from);
                }
                names.extend(mapped.into_iter().map(|(_, to)| to));
                Namespaces::Only(names)
            }
        };
        Self::bounded(namespaces, cluster)
    }

    /// Whether both may touch the same object. Errs on the side of yes.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.cluster && other.cluster || self.namespaces.overlap(&other.namespaces)
    }

    /// Whether both read or delete the same backup. Errs on the side of yes.
    pub(crate) fn shares_backup(&self, other: &Self) -> bool {
        if self.backup.is_empty() || other.backup.is_empty() {
            return false;
        }
        self.backup == ANY_BACKUP || other.backup == ANY_BACKUP || self.backup == other.backup
    }

    /// Whether it contains everything that `other` may touch. Errs on the side of no.
    pub fn covers(&self, other: &Self) -> bool {
        let backup =
            other.backup.is_empty() || self.backup == ANY_BACKUP || self.backup == other.backup;
        backup && (self.cluster || !other.cluster) && self.namespaces.cover(&other.namespaces)
    }

    /// Upper bound of the length of its JSON (bytes).
    pub(crate) fn bytes_at_most(&self) -> usize {
        let names = match &self.namespaces {
            Namespaces::All => 0,
            Namespaces::AllBut(names) | Namespaces::Only(names) => {
                names.iter().map(|name| json_bytes(name) + 3).sum()
            }
        };
        64 + names + json_bytes(&self.backup)
    }

    /// Whether it contains this namespace. Errs on the side of yes.
    pub fn includes(&self, namespace: &str) -> bool {
        match &self.namespaces {
            Namespaces::All => true,
            Namespaces::AllBut(names) => !names.contains(namespace),
            Namespaces::Only(names) => names.iter().any(|name| may_overlap(name, namespace)),
        }
    }

    /// Its namespaces, if all of them are given as plain names.
    pub fn names(&self) -> Option<&BTreeSet<String>> {
        let Namespaces::Only(names) = &self.namespaces else {
            return None;
        };
        names.iter().all(|name| is_plain(name)).then_some(names)
    }

    pub fn includes_cluster(&self) -> bool {
        self.cluster
    }

    /// A footprint that covers both.
    #[must_use]
    pub(crate) fn union(&self, other: &Self) -> Self {
        let namespaces = match (&self.namespaces, &other.namespaces) {
            (a, b) if a == b => a.clone(),
            (Namespaces::Only(a), Namespaces::Only(b)) => {
                Namespaces::Only(a.union(b).cloned().collect())
            }
            _ => Namespaces::All,
        };
        let mut union = Self::bounded(namespaces, self.cluster || other.cluster);
        union.backup = match (self.backup.as_str(), other.backup.as_str()) {
            (one, other) if one == other || other.is_empty() => one.to_owned(),
            ("", other) => other.to_owned(),
            _ => ANY_BACKUP.to_owned(),
        };
        union
    }

    fn bounded(namespaces: Namespaces, cluster: bool) -> Self {
        let names = match &namespaces {
            Namespaces::All => None,
            Namespaces::AllBut(names) | Namespaces::Only(names) => Some(names),
        };
        let too_long = names.is_some_and(|names| {
            names.len() > MAX_NAMES
                || total_bytes(names.iter()) > MAX_BYTES
                || total_bytes(names.iter().filter(|name| !is_plain(name))) > MAX_GLOB_BYTES
        });
        Self {
            namespaces: if too_long {
                Namespaces::All
            } else {
                namespaces
            },
            cluster,
            backup: String::new(),
        }
    }
}

fn total_bytes<'a>(names: impl Iterator<Item = &'a String>) -> usize {
    names.map(String::len).sum()
}

/// The namespaces of the objects that a Restore lists one by one (`None` for a cluster-scoped
/// object); `None` if it lists none, or if any of them cannot be parsed.
fn named_objects(spec: &RestoreSpec) -> Option<Vec<Option<&str>>> {
    let names = spec.included_objects.iter();
    let namespaces: Option<Vec<_>> = names
        .map(|text| ObjectName::parse(text).map(|object| object.namespace))
        .collect();
    namespaces.filter(|all| !all.is_empty())
}

impl Namespaces {
    fn cover(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::All, _) => true,
            (Self::AllBut(without), Self::AllBut(names)) => without.is_subset(names),
            (Self::AllBut(without), Self::Only(names)) => !names
                .iter()
                .any(|name| without.iter().any(|out| may_overlap(name, out))),
            (Self::Only(all), Self::Only(names)) => names.iter().all(|name| {
                all.contains(name)
                    || is_plain(name) && all.iter().any(|glob| glob_match(glob, name))
            }),
            (Self::AllBut(_) | Self::Only(_), Self::All) | (Self::Only(_), Self::AllBut(_)) => {
                false
            }
        }
    }

    /// The namespaces that these include and exclude lists select. Exclusions are used only if they
    /// are plain names and everything else is included; ignoring them only makes the set larger,
    /// which is safe.
    fn selected(includes: &[String], excludes: &[String]) -> Self {
        if includes.is_empty() || includes.iter().any(|name| name == "*") {
            let plain: BTreeSet<String> = excludes
                .iter()
                .filter(|name| is_plain(name))
                .cloned()
                .collect();
            if plain.is_empty() {
                Self::All
            } else {
                Self::AllBut(plain)
            }
        } else {
            Self::Only(includes.iter().cloned().collect())
        }
    }

    /// The same without these exact names, or all namespaces except these if a closer result is not
    /// known. Never more than all except these: learning the contents of a backup is no growth.
    fn without(self, left_out: BTreeSet<String>) -> Self {
        match self {
            Self::Only(mut names) => {
                names.retain(|name| !left_out.contains(name));
                let rest = Self::Only(names);
                let all_but = Self::AllBut(left_out);
                if all_but.cover(&rest) { rest } else { all_but }
            }
            Self::All | Self::AllBut(_) => Self::AllBut(left_out),
        }
    }

    fn overlap(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Only(a), Self::Only(b)) => a
                .iter()
                .any(|one| b.iter().any(|other| may_overlap(one, other))),
            (Self::All, Self::Only(names)) | (Self::Only(names), Self::All) => !names.is_empty(),
            (Self::AllBut(without), Self::Only(names))
            | (Self::Only(names), Self::AllBut(without)) => {
                names.iter().any(|name| !without.contains(name))
            }
            (Self::All | Self::AllBut(_), Self::All | Self::AllBut(_)) => true,
        }
    }
}

/// Whether this can only be the name of one namespace.
fn is_plain(name: &str) -> bool {
    name.bytes()
        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

/// Whether two names or globs may name the same namespace.
fn may_overlap(one: &str, other: &str) -> bool {
    if is_plain(one) && is_plain(other) {
        return one == other;
    }
    has_dialect_syntax(one) || has_dialect_syntax(other) || globs_may_overlap(one, other)
}

/// Some glob dialects have braces and escapes; such a pattern may mean anything.
fn has_dialect_syntax(pattern: &str) -> bool {
    pattern.contains(['{', '}', '\\', '!', '^'])
}

impl fmt::Display for Footprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nowhere = matches!(&self.namespaces, Namespaces::Only(names) if names.is_empty());
        if nowhere && self.backup.is_empty() && !self.cluster {
            return f.write_str("nothing");
        }
        if nowhere && !self.backup.is_empty() {
            return match self.backup.as_str() {
                ANY_BACKUP => write!(f, "any backup"),
                name => write!(f, "backup {name}"),
            };
        }
        match &self.namespaces {
            Namespaces::All => write!(f, "all namespaces"),
            Namespaces::AllBut(names) => write!(f, "all namespaces but {}", first_three(names)),
            Namespaces::Only(names) => {
                let noun = if names.len() == 1 {
                    "namespace"
                } else {
                    "namespaces"
                };
                write!(f, "{noun} {}", first_three(names))
            }
        }?;
        if self.cluster && self.namespaces != Namespaces::All {
            write!(f, " and cluster-scoped resources")?;
        }
        Ok(())
    }
}

/// The first three names, and the number of the others.
fn first_three(names: &BTreeSet<String>) -> String {
    let shown: Vec<&str> = names.iter().take(3).map(String::as_str).collect();
    let more = if names.len() > 3 {
        format!(" and {} more", names.len() - 3)
    } else {
        String::new()
    };
    format!("{}{more}", shown.join(", "))
}

/// Upper bound of the length of a text in JSON without its quotes: a character that has to be
/// escaped takes six bytes.
pub(crate) fn json_bytes(text: &str) -> usize {
    let escaped = text
        .bytes()
        .filter(|byte| *byte < b' ' || matches!(byte, b'"' | b'\\'))
        .count();
    text.len() + 5 * escaped
}

#[cfg(test)]
mod tests;
