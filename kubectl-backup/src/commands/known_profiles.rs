//! The profiles of an installation, as its webhook publishes them; the built-in profiles if they
//! cannot be read.

use backup_core::profile::{
    Profile,
    published::{CONFIG_MAP, KEY, PublishedProfile, PublishedProfiles, UnusableProfile},
};
use k8s_openapi::api::core::v1::ConfigMap;

use super::prelude::*;

pub(crate) struct KnownProfiles {
    /// The published profiles, or the built-in ones.
    pub(crate) all: Vec<PublishedProfile>,
    /// Why only built-in profiles are used: guarded kinds and flags are then unknown.
    pub(crate) unavailable: Option<String>,
    /// Profiles that the webhook should guard but cannot, and profile files that cannot be used.
    pub(crate) unusable: Vec<UnusableProfile>,
}

impl KnownProfiles {
    pub(crate) fn get(&self, name: &str) -> Option<&Profile> {
        self.all
            .iter()
            .map(|one| &one.profile)
            .find(|profile| profile.name == name)
    }

    /// The profile of this name. An unknown profile gets default rules: releases and holds depend
    /// only on the name.
    pub(crate) fn get_or_stand_in(&self, name: &str) -> Profile {
        self.get(name).cloned().unwrap_or_else(|| Profile {
            name: name.to_owned(),
            engine: false,
            ..Profile::velero()
        })
    }

    /// Why other profiles may exist, or the webhook may use different ones.
    pub(crate) fn doubt(&self) -> Option<String> {
        if let Some(why) = &self.unavailable {
            return Some(format!(
                "which profiles the webhook has is not known: {why}"
            ));
        }
        let all: Vec<String> = self.unusable.iter().map(|one| plain(&one.why)).collect();
        (!all.is_empty()).then(|| format!("this cannot be used: {}", all.join("; ")))
    }

    /// The message that a profile is unknown, and why it may exist anyway.
    pub(crate) fn misses(&self, name: &str) -> String {
        let doubt = self
            .doubt()
            .map_or_else(String::new, |doubt| format!(" ({doubt})"));
        format!("this program does not know profile {}{doubt}", plain(name))
    }
}

/// Reads the published profiles. If the cluster does not answer, only the built-in profiles are
/// known.
pub(crate) async fn known_profiles(session: &Session) -> KnownProfiles {
    match fetched(session, published(session)).await {
        FetchResult::Known(PublishedProfiles { profiles, unusable }) => KnownProfiles {
            all: profiles,
            unavailable: None,
            unusable,
        },
        FetchResult::Missing { unavailable } => {
            let all = Profile::builtin()
                .into_iter()
                .map(|profile| PublishedProfile {
                    profile,
                    guarded: false,
                    over: Vec::new(),
                })
                .collect();
            KnownProfiles {
                all,
                unavailable: Some(unavailable),
                unusable: Vec::new(),
            }
        }
    }
}

async fn published(session: &Session) -> Result<PublishedProfiles, Problem> {
    let map = optional(session.get::<ConfigMap>(CONFIG_MAP).await)?;
    let text = map
        .as_ref()
        .and_then(|map| map.data.as_ref()?.get(KEY))
        .ok_or_else(|| {
            Problem::other(format!(
                "no webhook has published it in namespace {}",
                session.namespace
            ))
        })?;
    serde_json::from_str(text).map_err(|error| {
        Problem::other(format!(
            "what the webhook has published is of another version: {error}"
        ))
    })
}
