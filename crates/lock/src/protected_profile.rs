//! The profiles that an installation guards, each with its ledgers.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use backup_core::profile::{Profile, ProfileSet, published::UnusableProfile};
use kube::Client;

use crate::{
    collect::Collector, lease::LedgerStore, registration::Installations, transition::Times,
};

/// How long a restore that a user has ended keeps its place although its worker has not removed its
/// finalizer: the worker stops within two seconds, and requests in flight time out some seconds
/// later.
const WORKER_STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// A profile with all that is needed to protect its objects. Cheap to clone.
#[derive(Clone)]
pub struct ProtectedProfile {
    pub profile: Arc<Profile>,
    pub store: LedgerStore,
    /// Timeouts of entries that nothing else ends.
    pub times: Times,
}

impl ProtectedProfile {
    /// Guards the objects of a profile, with ledgers in this namespace.
    pub fn new(client: Client, namespace: &str, profile: Profile, grace: Duration) -> Self {
        let release = profile
            .release
            .as_ref()
            .map_or(Duration::ZERO, |rule| rule.within);
        let worker_stops = if profile.engine {
            WORKER_STOP_TIMEOUT
        } else {
            Duration::ZERO
        };
        let times = Times {
            grace,
            settle: profile.policy.settle,
            settle_at_most: release.max(profile.policy.settle).max(worker_stops),
            intent: profile.policy.intent,
        };
        let profile = Arc::new(profile);
        let store =
            LedgerStore::of_profile(client, namespace, Arc::clone(&profile)).with_grace(grace);
        Self {
            profile,
            store,
            times,
        }
    }

    /// The same, with only Velero's objects of these namespaces. Other operators work in all
    /// namespaces.
    #[must_use]
    pub fn only_in(mut self, installations: &Installations) -> Self {
        if self.profile.is_velero() {
            self.store = self.store.only_in(installations.clone());
        }
        self
    }

    pub fn collector(&self) -> Collector {
        Collector::new(self.times, self.store.ends())
    }
}

/// Why the profiles of an installation cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProfilesError {
    /// A file or folder could not be read.
    #[error("could not read {}: {source}", path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("there is no profile {name:?}; known are {known}")]
    Unknown { name: String, known: String },
}

impl ProfilesError {
    pub fn category(&self) -> &'static str {
        match self {
            Self::Read { .. } => "read",
            Self::Unknown { .. } => "unknown",
        }
    }
}

/// The profiles that an installation guards.
#[derive(Clone, Debug)]
pub struct GuardedProfiles {
    /// Always `velero`, which our controller runs unless it is in `guarded`, and the profiles in
    /// `guarded`.
    pub profiles: Vec<Profile>,
    /// Other known profiles.
    pub others: Vec<Profile>,
    /// Files that cannot be used, and named profiles that are missing because of them.
    pub unusable: Vec<UnusableProfile>,
}

/// The profiles of an installation that guards the profiles with these names.
///
/// Files in `folder` take precedence over built-in profiles. A file that cannot be used does not
/// stop the others.
pub fn profiles(
    folder: Option<&Path>,
    guarded: &[String],
) -> Result<GuardedProfiles, ProfilesError> {
    let files = folder.map(read_folder).transpose()?.unwrap_or_default();
    let ProfileSet { profiles, refused } = Profile::with_files(
        files
            .iter()
            .map(|(name, text)| (name.as_str(), text.as_str())),
    );
    let mut unusable: Vec<UnusableProfile> = refused
        .into_iter()
        .map(|refused| UnusableProfile {
            name: refused.name,
            why: refused.error.to_string(),
        })
        .collect();
    let names: BTreeSet<&str> = guarded.iter().map(String::as_str).collect();
    for name in &names {
        if profiles.iter().any(|known| known.name == *name)
            || unusable.iter().any(|one| one.name == *name)
        {
            continue;
        }
        let known: Vec<&str> = profiles
            .iter()
            .map(|profile| profile.name.as_str())
            .collect();
        let unknown = ProfilesError::Unknown {
            name: (*name).to_owned(),
            known: known.join(", "),
        };
        // The name may refer to one of the unreadable files, or a file has the kinds of a built-in
        // profile.
        if unusable.is_empty()
            && Profile::builtin()
                .iter()
                .all(|built_in| built_in.name != *name)
        {
            return Err(unknown);
        }
        unusable.push(UnusableProfile {
            name: (*name).to_owned(),
            why: unknown.to_string(),
        });
    }
    let (mut profiles, others): (Vec<_>, Vec<_>) = profiles
        .into_iter()
        .partition(|profile| profile.is_velero() || names.contains(profile.name.as_str()));
    for profile in &mut profiles {
        profile.engine &= !names.contains(profile.name.as_str());
    }
    for UnusableProfile { name, why } in &unusable {
        tracing::error!(
            profile = name,
            why,
            "a profile cannot be used: what it is about is refused; correct the file, see that `kubectl backup profiles check` \
             takes it, and start the program again"
        );
    }
    Ok(GuardedProfiles {
        profiles,
        others,
        unusable,
    })
}

/// Whether a file of the folder counts as a profile, by its extension.
pub fn is_profile(path: &Path) -> bool {
    path.extension()
        .is_some_and(|ending| ending == "yaml" || ending == "yml")
}

/// Name and text of each file, ordered by name.
fn read_folder(folder: &Path) -> Result<Vec<(String, String)>, ProfilesError> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(|source| read_error(folder, source))? {
        let entry = entry.map_err(|source| read_error(folder, source))?;
        paths.push(entry.path());
    }
    paths.retain(|path| is_profile(path));
    paths.sort();
    let mut files = Vec::with_capacity(paths.len());
    for path in paths {
        let bytes = std::fs::read(&path).map_err(|source| read_error(&path, source))?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        files.push((path.display().to_string(), text));
    }
    Ok(files)
}

fn read_error(path: &Path, source: std::io::Error) -> ProfilesError {
    ProfilesError::Read {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn velero_is_always_guarded_and_ours_to_run_unless_it_is_named() {
        let names = |guarded: GuardedProfiles| -> Vec<(String, bool)> {
            guarded
                .profiles
                .into_iter()
                .map(|profile| (profile.name, profile.engine))
                .collect()
        };
        assert_eq!(
            names(profiles(None, &[]).unwrap()),
            [("velero".to_owned(), true)]
        );
        assert_eq!(
            names(profiles(None, &["velero".to_owned()]).unwrap()),
            [("velero".to_owned(), false)]
        );
        let both = names(profiles(None, &["percona-ps".to_owned()]).unwrap());
        assert!(
            both.contains(&("velero".to_owned(), true))
                && both.contains(&("percona-ps".to_owned(), false))
        );
        let unknown = profiles(None, &["acme".to_owned()])
            .unwrap_err()
            .to_string();
        assert_says!(unknown, "acme", "percona-ps");
    }

    #[test]
    fn a_file_replaces_the_profile_of_its_name_and_a_broken_one_stops_nothing_else() {
        let folder = std::env::temp_dir().join(format!("profiles-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("velero.yaml");
        let text =
            include_str!("../../core/profiles/velero.yaml").replace("settle: 0s", "settle: 40s");
        std::fs::write(&file, text).unwrap();
        let read = profiles(Some(&folder), &[]).unwrap();
        std::fs::write(&file, b"name: velero\ncolour: \xff\n").unwrap();
        std::fs::write(folder.join("acme.yaml"), "name: acme\n").unwrap();
        let guarded = ["percona-ps", "acme", "other"].map(str::to_owned);
        let broken = profiles(Some(&folder), &guarded).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(
            (read.profiles[0].policy.settle, read.unusable.len()),
            (Duration::from_secs(40), 0)
        );
        let names: Vec<&str> = broken
            .profiles
            .iter()
            .map(|profile| profile.name.as_str())
            .collect();
        assert_eq!(names, ["velero", "percona-ps"]);
        assert!(broken.profiles[0].engine);
        let unusable: Vec<&str> = broken
            .unusable
            .iter()
            .map(|one| one.name.as_str())
            .collect();
        assert_eq!(unusable, ["acme", "velero", "other"]);
        assert_says!(broken.unusable[1].why, "velero.yaml: not a profile");
        assert_says!(broken.unusable[2].why, "no profile \"other\"");
    }
}
