//! The profiles that an installation knows: those built in, and those of the folder that its webhook is given, where that is a
//! ConfigMap that the person who asks may read.

use std::path::Path;

use backup_core::profile::{Profile, ProfileSet, RefusedProfile};
use backup_lock::protected_profile::is_profile;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, PodSpec},
};

use super::prelude::*;

/// The Deployment whose flags say which profiles there are, and go over what they say.
const WEBHOOK: &str = "backup-webhook";

pub(crate) struct KnownProfiles {
    pub(crate) profiles: Vec<Profile>,
    /// Profiles of the webhook's folder that cannot be used.
    pub(crate) refused: Vec<RefusedProfile>,
    pub(crate) flags: Fetched<Vec<String>>,
    /// Why there may be others, or others in their place.
    pub(crate) doubt: Option<String>,
}

impl KnownProfiles {
    pub(crate) fn get(&self, name: &str) -> Option<&Profile> {
        self.profiles.iter().find(|profile| profile.name == name)
    }

    /// The profile of this name. Of one that is not known only the name counts: releases and holds depend on nothing else.
    pub(crate) fn get_or_stand_in(&self, name: &str) -> Profile {
        let stand_in = || Profile { name: name.to_owned(), engine: false, ..Profile::velero() };
        self.get(name).cloned().unwrap_or_else(stand_in)
    }

    /// Whether another operator runs the objects of this profile, as far as that is known.
    pub(crate) fn is_guarded(&self, profile: &Profile) -> bool {
        let guarded = match &self.flags {
            Fetched::Known(flags) => {
                values(flags, "--guard").any(|names| names.split(',').any(|name| name == profile.name))
            }
            Fetched::Missing { .. } => false,
        };
        !profile.engine || guarded
    }

    /// That a profile is not known, and why it may not be.
    pub(crate) fn misses(&self, name: &str) -> String {
        let doubt = self.doubt.as_ref().map_or_else(String::new, |doubt| format!(" ({doubt})"));
        format!("this program does not know profile {}{doubt}", plain(name))
    }
}

/// Asks the cluster. Where it does not answer, only the built-in profiles are known.
pub(crate) async fn known_profiles(session: &Session) -> KnownProfiles {
    let pod = match fetched(session, pod(session)).await {
        Fetched::Known(pod) => pod,
        Fetched::Missing { unavailable } => {
            let doubt = format!("what the webhook was started with is not known: {unavailable}");
            let flags = Fetched::missing(unavailable);
            let (profiles, refused) = (Profile::builtin(), Vec::new());
            return KnownProfiles { profiles, refused, flags, doubt: Some(doubt) };
        }
    };
    let flags: Vec<String> =
        pod.containers.iter().flat_map(|container| container.args.iter().flatten()).cloned().collect();
    let built_in = || ProfileSet { profiles: Profile::builtin(), refused: Vec::new() };
    let (ProfileSet { profiles, refused }, doubt) = match values(&flags, "--profiles").last() {
        None => (built_in(), None),
        Some(folder) => match fetched(session, files(session, &pod, folder)).await {
            Fetched::Known(set) => {
                let errors: Vec<String> =
                    set.refused.iter().map(|one| plain(&one.error.to_string())).collect();
                let doubt = format!("of {} this cannot be used: {}", plain(folder), errors.join("; "));
                (set, (!errors.is_empty()).then_some(doubt))
            }
            Fetched::Missing { unavailable } => {
                let doubt =
                    format!("what the webhook reads from {} is not known: {unavailable}", plain(folder));
                (built_in(), Some(doubt))
            }
        },
    };
    KnownProfiles { profiles, refused, flags: Fetched::Known(flags), doubt }
}

async fn pod(session: &Session) -> Result<PodSpec, Problem> {
    let deployment = optional(session.get::<Deployment>(WEBHOOK).await)?.ok_or_else(|| {
        Problem::other(format!("there is no Deployment {WEBHOOK} in namespace {}", session.namespace))
    })?;
    Ok(deployment.spec.and_then(|spec| spec.template.spec).unwrap_or_default())
}

/// What is built in, and the profiles of a folder, in the way of the webhook.
async fn files(session: &Session, pod: &PodSpec, folder: &str) -> Result<ProfileSet, Problem> {
    let name = config_map(pod, folder)
        .ok_or_else(|| Problem::other("it is not a mounted ConfigMap with all its files"))?;
    let files = session.get::<ConfigMap>(name).await?.data.unwrap_or_default();
    let files = files.iter().filter(|(name, _)| is_profile(Path::new(name)));
    Ok(Profile::with_files(files.map(|(name, text)| (name.as_str(), text.as_str()))))
}

/// The ConfigMap that is mounted as this folder, with all its keys.
fn config_map<'pod>(pod: &'pod PodSpec, folder: &str) -> Option<&'pod str> {
    let is_folder = |path: &str| path.trim_end_matches('/') == folder.trim_end_matches('/');
    let mut mounts = pod.containers.iter().flat_map(|container| container.volume_mounts.iter().flatten());
    let mount = mounts.find(|mount| is_folder(&mount.mount_path) && mount.sub_path.is_none())?;
    let volume = pod.volumes.iter().flatten().find(|volume| volume.name == mount.name)?;
    volume.config_map.as_ref().filter(|map| map.items.is_none()).map(|map| map.name.as_str())
}

/// The values of a flag, as `--name=value` or in two words.
pub(super) fn values<'a>(flags: &'a [String], name: &'a str) -> impl Iterator<Item = &'a str> {
    flags.iter().enumerate().filter_map(move |(at, word)| match word.strip_prefix(name)? {
        "" => flags.get(at + 1).map(String::as_str),
        rest => rest.strip_prefix('='),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_config_map_of_a_folder_is_mounted_there_as_a_whole() {
        for (mount, volume, expected) in [
            (json!({"mountPath": "/p"}), json!({"configMap": {"name": "own"}}), Some("own")),
            (json!({"mountPath": "/p/"}), json!({"configMap": {"name": "own"}}), Some("own")),
            (json!({"mountPath": "/other"}), json!({"configMap": {"name": "own"}}), None),
            (json!({"mountPath": "/p", "subPath": "x"}), json!({"configMap": {"name": "own"}}), None),
            (
                json!({"mountPath": "/p"}),
                json!({"configMap": {"name": "own", "items": [{"key": "a", "path": "b"}]}}),
                None,
            ),
            (json!({"mountPath": "/p"}), json!({"emptyDir": {}}), None),
        ] {
            let (mut mount, mut volume) = (mount, volume);
            (mount["name"], volume["name"]) = (json!("v"), json!("v"));
            let pod =
                json!({"containers": [{"name": "webhook", "volumeMounts": [mount]}], "volumes": [volume]});
            let pod: PodSpec = serde_json::from_value(pod.clone()).unwrap();
            assert_eq!(config_map(&pod, "/p"), expected, "{pod:?}");
        }
    }
}
