//! Whose objects are guarded: the profiles of an installation, each with its ledgers.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use backup_core::profile::{Profile, ProfileError};
use kube::Client;

use crate::{collect::Collector, lease::LedgerStore, registration::Installations, transition::Times};

/// A profile, and everything that is needed to protect its objects. Cheap to clone.
#[derive(Clone)]
pub struct ProtectedProfile {
    pub profile: Arc<Profile>,
    pub store: LedgerStore,
    /// How long its entries stay that nothing else ends.
    pub times: Times,
}

impl ProtectedProfile {
    /// Guards the objects of a profile, with ledgers in this namespace.
    pub fn new(client: Client, namespace: &str, profile: Profile, grace: Duration) -> Self {
        let release = profile.release.as_ref().map_or(Duration::ZERO, |rule| rule.within);
        let times = Times {
            grace,
            settle: profile.policy.settle,
            settle_at_most: release.max(profile.policy.settle),
            intent: profile.policy.intent,
        };
        let profile = Arc::new(profile);
        let store = LedgerStore::of_profile(client, namespace, Arc::clone(&profile)).with_grace(grace);
        Self { profile, store, times }
    }

    /// The same, with Velero's objects of these namespaces only. Other operators work in all namespaces.
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
    Read { path: PathBuf, source: std::io::Error },
    /// A file is no profile, or does not go with another.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    #[error("there is no profile {name:?}; known are {known}")]
    Unknown { name: String, known: String },
}

impl ProfilesError {
    pub fn category(&self) -> &'static str {
        match self {
            Self::Read { .. } => "read",
            Self::Profile(_) => "profile",
            Self::Unknown { .. } => "unknown",
        }
    }
}

/// The profiles that an installation guards: always `velero`, which our controller runs unless `guarded` names it, and
/// those that `guarded` names.
///
/// Files in `folder` come before what is built in.
pub fn profiles(folder: Option<&Path>, guarded: &[String]) -> Result<Vec<Profile>, ProfilesError> {
    let files = folder.map(read_folder).transpose()?.unwrap_or_default();
    let mut known = Profile::with_files(files.iter().map(|(name, text)| (name.as_str(), text.as_str())))?;
    let names: BTreeSet<&str> = guarded.iter().map(String::as_str).collect();
    if let Some(unknown) = names.iter().find(|name| known.iter().all(|profile| profile.name != **name)) {
        let all: Vec<&str> = known.iter().map(|profile| profile.name.as_str()).collect();
        return Err(ProfilesError::Unknown { name: (*unknown).to_owned(), known: all.join(", ") });
    }
    known.retain(|profile| profile.is_velero() || names.contains(profile.name.as_str()));
    for profile in &mut known {
        profile.engine &= !names.contains(profile.name.as_str());
    }
    Ok(known)
}

/// Whether a file of the folder is taken for a profile, by the ending of its name.
pub fn is_profile(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "yaml" || ending == "yml")
}

/// Name and text of each file, in order of name.
fn read_folder(folder: &Path) -> Result<Vec<(String, String)>, ProfilesError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| ProfilesError::Read { path, source }
    };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed(folder))? {
        paths.push(entry.map_err(failed(folder))?.path());
    }
    paths.retain(|path| is_profile(path));
    paths.sort();
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).map_err(failed(&path))?;
        Ok((path.display().to_string(), text))
    };
    paths.into_iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn velero_is_always_guarded_and_ours_to_run_unless_it_is_named() {
        let names = |profiles: Vec<Profile>| -> Vec<(String, bool)> {
            profiles.into_iter().map(|profile| (profile.name, profile.engine)).collect()
        };
        assert_eq!(names(profiles(None, &[]).unwrap()), [("velero".to_owned(), true)]);
        assert_eq!(names(profiles(None, &["velero".to_owned()]).unwrap()), [("velero".to_owned(), false)]);
        let both = names(profiles(None, &["percona-ps".to_owned()]).unwrap());
        assert!(
            both.contains(&("velero".to_owned(), true)) && both.contains(&("percona-ps".to_owned(), false))
        );
        let unknown = profiles(None, &["acme".to_owned()]).unwrap_err().to_string();
        assert!(unknown.contains("acme") && unknown.contains("percona-ps"), "{unknown}");
    }

    #[test]
    fn a_file_replaces_the_profile_of_its_name_and_a_broken_one_stops_the_start() {
        let folder = std::env::temp_dir().join(format!("profiles-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("velero.yaml");
        let text = include_str!("../../core/profiles/velero.yaml").replace("settle: 0s", "settle: 40s");
        std::fs::write(&file, text).unwrap();
        let read = profiles(Some(&folder), &[]);
        std::fs::write(&file, "name: velero\ncolour: blue\n").unwrap();
        let broken = profiles(Some(&folder), &[]);
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(read.unwrap()[0].policy.settle, Duration::from_secs(40));
        assert!(broken.unwrap_err().to_string().contains("velero.yaml"));
    }
}
