//! What a bucket and the cluster hold, side by side. Pure.

use backup_core::names;

use super::observe::{Cluster, Known};

/// The outcome.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Compared<'a> {
    /// In the bucket, and no Backup of that name is in the cluster.
    pub(super) missing: Vec<&'a str>,
    /// In the bucket, and the Backup of that name is of the location that is named second.
    pub(super) conflicts: Vec<(&'a str, &'a str)>,
    /// Folders that no Backup can be named after.
    pub(super) foreign: Vec<&'a str>,
    /// Stored in this location as the cluster says, and not in the bucket.
    pub(super) orphans: Vec<(&'a str, &'a Known)>,
    /// Backups of this location that the cluster says are stored, orphans among them.
    pub(super) stored: Vec<&'a Known>,
    /// Backups of this location whose objects are to be created still.
    pub(super) pending: Vec<&'a str>,
}

/// Compares. `folders` are sorted, and were listed after the cluster was: what the cluster says is stored was stored when the
/// listing began.
pub(super) fn compare<'a>(folders: &'a [String], cluster: &'a Cluster, location: &str) -> Compared<'a> {
    let mut compared = Compared::default();
    for folder in folders {
        match cluster.get(folder) {
            None if !names::is_object_name(folder) => compared.foreign.push(folder),
            None => compared.missing.push(folder),
            // One that has no location yet is not stored anywhere.
            Some(known) if known.location != location && !known.location.is_empty() => {
                compared.conflicts.push((folder, &known.location));
            }
            Some(known) if known.pending => compared.pending.push(folder),
            Some(_) => {}
        }
    }
    for (name, known) in cluster {
        if known.stored && !known.leaves && known.location == location {
            compared.stored.push(known);
            if folders.binary_search(name).is_err() {
                compared.orphans.push((name, known));
            }
        }
    }
    compared.orphans.sort_unstable_by_key(|(name, _)| *name);
    compared
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_backup_is_in_one_place_of_the_comparison() {
        let known =
            |location: &str, stored| Known { location: location.to_owned(), stored, ..Known::default() };
        let pending = Known { pending: true, ..known("here", true) };
        let leaves = Known { leaves: true, ..known("here", true) };
        let cluster: Cluster = [
            ("both", known("here", true)),
            ("elsewhere", known("there", true)),
            ("gone", known("here", true)),
            ("gone-there", known("there", true)),
            ("leaves", leaves),
            ("new", Known::default()),
            ("pending", pending),
            ("runs", known("here", false)),
        ]
        .into_iter()
        .map(|(name, known)| (name.to_owned(), known))
        .collect();
        let mut folders: Vec<String> =
            ["both", "elsewhere", "lost+found", "missing", "new", "pending", "UPPER"]
                .map(String::from)
                .into();
        folders.sort_unstable();
        let compared = compare(&folders, &cluster, "here");
        assert_eq!(compared.missing, ["missing"]);
        assert_eq!(compared.foreign, ["UPPER", "lost+found"]);
        assert_eq!(compared.conflicts, [("elsewhere", "there")]);
        assert_eq!(compared.pending, ["pending"]);
        let orphans: Vec<_> = compared.orphans.iter().map(|(name, _)| *name).collect();
        assert_eq!(orphans, ["gone"], "not what runs, leaves, is new or of another location");
        assert_eq!(compared.stored.len(), 3);
    }
}
