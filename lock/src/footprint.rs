//! What an object reads or writes, as far as it can be known from its spec. What can't be known counts as everything.

use std::{collections::BTreeSet, fmt};

use backup_core::{
    api::{BackupSpec, RestoreSpec},
    selection::globs_may_overlap,
};
use serde::{Deserialize, Serialize};

/// More names than this are replaced by everything, so that one object can't fill the ledger.
pub const MAX_NAMES: usize = 100;
/// More bytes of names than this, likewise.
pub const MAX_BYTES: usize = 4096;
/// More bytes of globs than this, likewise: comparing two globs takes the product of their lengths.
pub const MAX_GLOB_BYTES: usize = 256;

/// Namespaces read or written, and whether cluster-scoped resources were asked for by name.
///
/// Cluster-scoped items that merely come along, such as the volume of a claim, do not count.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Footprint {
    #[serde(rename = "ns")]
    namespaces: Namespaces,
    #[serde(rename = "cluster", default, skip_serializing_if = "std::ops::Not::not")]
    cluster: bool,
}

/// A set of namespaces.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
enum Namespaces {
    /// Every namespace, or nobody knows which.
    #[serde(rename = "all")]
    All,
    /// Every namespace but these exact names.
    #[serde(rename = "allBut")]
    AllBut(BTreeSet<String>),
    /// These names and globs.
    #[serde(rename = "only")]
    Only(BTreeSet<String>),
}

impl Footprint {
    /// Every namespace and every cluster-scoped resource; also what is not known.
    pub fn everything() -> Self {
        Self { namespaces: Namespaces::All, cluster: true }
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

    /// What a restore with this spec reads or writes: the namespaces it includes and those they are mapped to.
    ///
    /// `backup` is the spec of the backup it restores from, where that is known: a restore of everything touches what
    /// that backup holds. Unknown counts as everything.
    pub fn of_restore(spec: &RestoreSpec, backup: Option<&BackupSpec>) -> Self {
        let asked = Namespaces::selected(&spec.included_namespaces, &spec.excluded_namespaces);
        let source = backup.map_or_else(Self::everything, Self::of_backup);
        let cluster = match spec.include_cluster_resources {
            Some(explicit) => explicit,
            None => asked == Namespaces::All && source.cluster,
        };
        let sources = match asked {
            Namespaces::Only(names) => Namespaces::Only(names),
            Namespaces::AllBut(_) if source.namespaces != Namespaces::All => source.namespaces,
            Namespaces::AllBut(names) => Namespaces::AllBut(names),
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
                let mapped: Vec<String> = targets
                    .filter(|(from, _)| names.iter().any(|name| may_overlap(name, from)))
                    .map(|(_, to)| to.clone())
                    .collect();
                names.extend(mapped);
                Namespaces::Only(names)
            }
        };
        Self::bounded(namespaces, cluster)
    }

    /// Whether something may be touched by both. Errs on the side of yes.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.cluster && other.cluster || self.namespaces.overlap(&other.namespaces)
    }

    /// Whether this namespace is in it. Errs on the side of yes.
    pub fn includes(&self, namespace: &str) -> bool {
        match &self.namespaces {
            Namespaces::All => true,
            Namespaces::AllBut(names) => !names.contains(namespace),
            Namespaces::Only(names) => names.iter().any(|name| may_overlap(name, namespace)),
        }
    }

    /// Whether cluster-scoped resources are in it.
    pub fn includes_cluster(&self) -> bool {
        self.cluster
    }

    /// A footprint that covers both.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let namespaces = match (&self.namespaces, &other.namespaces) {
            (a, b) if a == b => a.clone(),
            (Namespaces::Only(a), Namespaces::Only(b)) => Namespaces::Only(a.union(b).cloned().collect()),
            _ => Namespaces::All,
        };
        Self::bounded(namespaces, self.cluster || other.cluster)
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
        Self { namespaces: if too_long { Namespaces::All } else { namespaces }, cluster }
    }
}

impl Namespaces {
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

#[cfg(test)]
mod tests;
