//! What an object reads or writes, as far as it can be known from its spec. What cannot be known counts as everything.

use std::{collections::BTreeSet, fmt};

use backup_core::{
    api::{BackupSpec, RestoreSpec},
    names::is_object_name,
    selection::{ObjectName, glob_match, globs_may_overlap},
};
use serde::{Deserialize, Serialize};

/// More names than this are replaced by everything, so that one object cannot fill the ledger.
pub(crate) const MAX_NAMES: usize = 100;
/// More bytes of names than this, likewise.
pub(crate) const MAX_BYTES: usize = 4096;
/// More bytes of globs than this, likewise: comparing two globs takes the product of their lengths.
pub(crate) const MAX_GLOB_BYTES: usize = 256;

/// Namespaces read or written, whether cluster-scoped resources were asked for by name, and the backup that is read or
/// deleted.
///
/// Cluster-scoped items that merely come along, such as the volume of a claim, do not count.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Footprint {
    #[serde(rename = "ns")]
    namespaces: Namespaces,
    #[serde(rename = "cluster", default, skip_serializing_if = "std::ops::Not::not")]
    cluster: bool,
    /// `namespace/name` of a Backup, or `*` for any; empty for none.
    #[serde(rename = "backup", default, skip_serializing_if = "String::is_empty")]
    backup: String,
}

/// Any backup: which one is not known yet.
const ANY_BACKUP: &str = "*";

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
enum Namespaces {
    /// Every namespace, or nobody knows which.
    #[serde(rename = "all")]
    All,
    /// Every namespace but these exact names.
    #[serde(rename = "allBut")]
    AllBut(BTreeSet<String>),
    #[serde(rename = "only")]
    Only(BTreeSet<String>),
}

impl Footprint {
    /// Every namespace and every cluster-scoped resource; also what is not known.
    pub fn everything() -> Self {
        Self { namespaces: Namespaces::All, cluster: true, backup: ANY_BACKUP.to_owned() }
    }

    /// A deletion of this backup: no namespaces, one backup.
    pub fn of_deletion(namespace: &str, backup: &str) -> Self {
        Self::nothing().from_backup(namespace, Some(backup))
    }

    /// All that there is in a scope which is one database cluster.
    pub fn whole_scope() -> Self {
        Self::everything()
    }

    fn nothing() -> Self {
        Self { namespaces: Namespaces::Only(BTreeSet::new()), cluster: false, backup: String::new() }
    }

    /// The same, read from this backup; none, and what cannot be a name: from one that is not known.
    #[must_use]
    pub fn from_backup(mut self, namespace: &str, name: Option<&str>) -> Self {
        self.backup = match name {
            Some(name) if is_object_name(name) => format!("{namespace}/{name}"),
            _ => ANY_BACKUP.to_owned(),
        };
        self
    }

    /// Exactly these namespaces; names may be globs.
    pub fn namespaces<I: IntoIterator<Item = S>, S: Into<String>>(names: I) -> Self {
        Self::bounded(Namespaces::Only(names.into_iter().map(Into::into).collect()), false)
    }

    /// What a backup with this spec reads.
    ///
    /// Cluster-scoped resources count where they are selected explicitly, or where all namespaces are and they are not
    /// left out (Velero `pkg/util/collections/includes_excludes.go`, v1.18).
    pub fn of_backup(spec: &BackupSpec) -> Self {
        let namespaces = Namespaces::selected(&spec.included_namespaces, &spec.excluded_namespaces);
        let explicit = spec.include_cluster_resources == Some(true)
            || !spec.included_cluster_scoped_resources.is_empty();
        let along = namespaces == Namespaces::All && spec.include_cluster_resources != Some(false);
        Self::bounded(namespaces, explicit || along)
    }

    /// What a restore with this spec writes: the namespaces it includes, or those that they are mapped to.
    ///
    /// `backup` is the spec of the backup it restores from, where that is known: a restore of everything touches what
    /// that backup holds. Unknown counts as everything.
    pub fn of_restore(spec: &RestoreSpec, backup: Option<&BackupSpec>) -> Self {
        let objects = named_objects(spec);
        let asked = match &objects {
            Some(objects) => Namespaces::Only(objects.iter().flatten().map(ToString::to_string).collect()),
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
                // What is mapped away is read from the backup only: nothing is done to the namespace itself.
                for (from, _) in &mapped {
                    names.remove(from);
                }
                names.extend(mapped.into_iter().map(|(_, to)| to));
                Namespaces::Only(names)
            }
        };
        Self::bounded(namespaces, cluster)
    }

    /// Whether something may be touched by both. Errs on the side of yes.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.cluster && other.cluster || self.namespaces.overlap(&other.namespaces)
    }

    /// Whether both have to do with the same backup. Errs on the side of yes.
    pub(crate) fn shares_backup(&self, other: &Self) -> bool {
        let any = |one: &Self| one.backup == ANY_BACKUP;
        let none = |one: &Self| one.backup.is_empty();
        !none(self) && !none(other) && (any(self) || any(other) || self.backup == other.backup)
    }

    /// Whether all that `other` may touch is in it. Errs on the side of no.
    pub fn covers(&self, other: &Self) -> bool {
        let backup = other.backup.is_empty() || self.backup == ANY_BACKUP || self.backup == other.backup;
        backup && (self.cluster || !other.cluster) && self.namespaces.cover(&other.namespaces)
    }

    /// The length of its JSON, at most.
    pub(crate) fn bytes_at_most(&self) -> usize {
        let names = match &self.namespaces {
            Namespaces::All => 0,
            Namespaces::AllBut(names) | Namespaces::Only(names) => {
                names.iter().map(|name| json_bytes(name) + 3).sum()
            }
        };
        64 + names + json_bytes(&self.backup)
    }

    /// Whether this namespace is in it. Errs on the side of yes.
    pub fn includes(&self, namespace: &str) -> bool {
        match &self.namespaces {
            Namespaces::All => true,
            Namespaces::AllBut(names) => !names.contains(namespace),
            Namespaces::Only(names) => names.iter().any(|name| may_overlap(name, namespace)),
        }
    }

    /// Its namespaces, if each of them is known by its name.
    pub fn names(&self) -> Option<&BTreeSet<String>> {
        match &self.namespaces {
            Namespaces::Only(names) if names.iter().all(|name| is_plain(name)) => Some(names),
            _ => None,
        }
    }

    pub fn includes_cluster(&self) -> bool {
        self.cluster
    }

    /// A footprint that covers both.
    #[must_use]
    pub(crate) fn union(&self, other: &Self) -> Self {
        let namespaces = match (&self.namespaces, &other.namespaces) {
            (a, b) if a == b => a.clone(),
            (Namespaces::Only(a), Namespaces::Only(b)) => Namespaces::Only(a.union(b).cloned().collect()),
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
        let bytes = |names: &mut dyn Iterator<Item = &String>| names.map(String::len).sum::<usize>();
        let too_long = names.is_some_and(|names| {
            names.len() > MAX_NAMES
                || bytes(&mut names.iter()) > MAX_BYTES
                || bytes(&mut names.iter().filter(|name| !is_plain(name))) > MAX_GLOB_BYTES
        });
        Self {
            namespaces: if too_long { Namespaces::All } else { namespaces },
            cluster,
            backup: String::new(),
        }
    }
}

/// The namespaces of the objects that a Restore names one by one, none for an object without one; `None` if it names none, or if
/// not all of them can be read.
fn named_objects(spec: &RestoreSpec) -> Option<Vec<Option<&str>>> {
    let names = spec.included_objects.iter();
    let namespaces: Option<Vec<_>> =
        names.map(|text| ObjectName::parse(text).map(|object| object.namespace)).collect();
    namespaces.filter(|all| !all.is_empty())
}

impl Namespaces {
    fn cover(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::All, _) => true,
            (Self::AllBut(without), Self::AllBut(names)) => without.is_subset(names),
            (Self::AllBut(without), Self::Only(names)) => {
                !names.iter().any(|name| without.iter().any(|out| may_overlap(name, out)))
            }
            (Self::Only(all), Self::Only(names)) => names.iter().all(|name| {
                all.contains(name) || is_plain(name) && all.iter().any(|glob| glob_match(glob, name))
            }),
            (Self::AllBut(_) | Self::Only(_), Self::All) | (Self::Only(_), Self::AllBut(_)) => false,
        }
    }

    /// What these include and exclude lists select. Exclusions are used only where they are plain names and everything
    /// else is included; left out they only make the set larger, which is safe.
    fn selected(includes: &[String], excludes: &[String]) -> Self {
        if includes.is_empty() || includes.iter().any(|name| name == "*") {
            let plain: BTreeSet<String> = excludes.iter().filter(|name| is_plain(name)).cloned().collect();
            if plain.is_empty() { Self::All } else { Self::AllBut(plain) }
        } else {
            Self::Only(includes.iter().cloned().collect())
        }
    }

    /// The same without these exact names, or all but these where that cannot be told more closely. Never more than all
    /// but these: what a backup turns out to hold is no growth.
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
            (Self::Only(a), Self::Only(b)) => {
                a.iter().any(|one| b.iter().any(|other| may_overlap(one, other)))
            }
            (Self::All, Self::Only(names)) | (Self::Only(names), Self::All) => !names.is_empty(),
            (Self::AllBut(without), Self::Only(names)) | (Self::Only(names), Self::AllBut(without)) => {
                names.iter().any(|name| !without.contains(name))
            }
            (Self::All | Self::AllBut(_), Self::All | Self::AllBut(_)) => true,
        }
    }
}

/// Whether this can only be the name of one namespace.
fn is_plain(name: &str) -> bool {
    name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

/// Whether two names or globs may name the same namespace.
fn may_overlap(one: &str, other: &str) -> bool {
    if is_plain(one) && is_plain(other) {
        return one == other;
    }
    // Some glob dialects know braces and escapes; who writes them may mean anything.
    let strange = |pattern: &str| pattern.contains(['{', '}', '\\', '!', '^']);
    strange(one) || strange(other) || globs_may_overlap(one, other)
}

impl fmt::Display for Footprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |names: &BTreeSet<String>| {
            let shown: Vec<&str> = names.iter().take(3).map(String::as_str).collect();
            let more = if names.len() > 3 { format!(" and {} more", names.len() - 3) } else { String::new() };
            format!("{}{more}", shown.join(", "))
        };
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
            Namespaces::AllBut(names) => write!(f, "all namespaces but {}", list(names)),
            Namespaces::Only(names) if names.len() == 1 => write!(f, "namespace {}", list(names)),
            Namespaces::Only(names) => write!(f, "namespaces {}", list(names)),
        }?;
        if self.cluster && self.namespaces != Namespaces::All {
            write!(f, " and cluster-scoped resources")?;
        }
        Ok(())
    }
}

/// The length of a text in JSON, at most and without its quotes: a character that has to be escaped takes six bytes.
pub(crate) fn json_bytes(text: &str) -> usize {
    let escaped = |byte: &u8| *byte < b' ' || matches!(byte, b'"' | b'\\');
    text.len() + 5 * text.as_bytes().iter().filter(|byte| escaped(byte)).count()
}

#[cfg(test)]
mod tests;
