//! The profiles that an installation knows, as its webhook publishes them; those built in where that cannot be read.

use backup_core::profile::{
    Profile,
    published::{CONFIG_MAP, KEY, PublishedProfile, PublishedProfiles, UnusableProfile},
};
use k8s_openapi::api::core::v1::ConfigMap;

use super::prelude::*;

pub(crate) struct KnownProfiles {
    pub(crate) published: Fetched<Vec<PublishedProfile>>,
    /// What the webhook was told to guard and cannot, and files of profiles that cannot be used.
    pub(crate) unusable: Vec<UnusableProfile>,
    /// Why there may be others, or others in their place.
    pub(crate) doubt: Option<String>,
}

impl KnownProfiles {
    pub(crate) fn profiles(&self) -> Vec<Profile> {
        let of_published = |all: &Vec<PublishedProfile>| all.iter().map(|one| one.profile.clone()).collect();
        self.published.known().map_or_else(Profile::builtin, of_published)
    }

    pub(crate) fn get(&self, name: &str) -> Option<Profile> {
        self.profiles().into_iter().find(|profile| profile.name == name)
    }

    /// The profile of this name. Of one that is not known only the name counts: releases and holds depend on nothing else.
    pub(crate) fn get_or_stand_in(&self, name: &str) -> Profile {
        let stand_in = || Profile { name: name.to_owned(), engine: false, ..Profile::velero() };
        self.get(name).unwrap_or_else(stand_in)
    }

    /// That a profile is not known, and why it may not be.
    pub(crate) fn misses(&self, name: &str) -> String {
        let doubt = self.doubt.as_ref().map_or_else(String::new, |doubt| format!(" ({doubt})"));
        format!("this program does not know profile {}{doubt}", plain(name))
    }
}

/// Asks the cluster. Where it does not answer, only the built-in profiles are known.
pub(crate) async fn known_profiles(session: &Session) -> KnownProfiles {
    let (published, unusable) = match fetched(session, published(session)).await {
        Fetched::Known(PublishedProfiles { profiles, unusable }) => (Fetched::Known(profiles), unusable),
        Fetched::Missing { unavailable } => (Fetched::missing(unavailable), Vec::new()),
    };
    let doubt = match &published {
        Fetched::Missing { unavailable } => {
            Some(format!("which profiles the webhook has is not known: {unavailable}"))
        }
        Fetched::Known(_) if unusable.is_empty() => None,
        Fetched::Known(_) => {
            let all: Vec<String> = unusable.iter().map(|one| plain(&one.why)).collect();
            Some(format!("this cannot be used: {}", all.join("; ")))
        }
    };
    KnownProfiles { published, unusable, doubt }
}

async fn published(session: &Session) -> Result<PublishedProfiles, Problem> {
    let map = optional(session.get::<ConfigMap>(CONFIG_MAP).await)?;
    let text = map.as_ref().and_then(|map| map.data.as_ref()?.get(KEY)).ok_or_else(|| {
        Problem::other(format!("no webhook has published it in namespace {}", session.namespace))
    })?;
    serde_json::from_str(text).map_err(|error| {
        Problem::other(format!("what the webhook has published is of another version: {error}"))
    })
}
