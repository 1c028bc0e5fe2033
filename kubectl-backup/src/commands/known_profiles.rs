//! The profiles that an installation knows, as its webhook publishes them; those built in where that cannot be read.

use backup_core::profile::{
    Profile,
    published::{CONFIG_MAP, KEY, PublishedProfile, PublishedProfiles, UnusableProfile},
};
use k8s_openapi::api::core::v1::ConfigMap;

use super::prelude::*;

pub(crate) struct KnownProfiles {
    /// As they are published, else those built in.
    pub(crate) all: Vec<PublishedProfile>,
    /// Why they are those built in: what is guarded and which flags there are is not known.
    pub(crate) unavailable: Option<String>,
    /// What the webhook was told to guard and cannot, and files of profiles that cannot be used.
    pub(crate) unusable: Vec<UnusableProfile>,
}

impl KnownProfiles {
    pub(crate) fn get(&self, name: &str) -> Option<&Profile> {
        self.all.iter().map(|one| &one.profile).find(|profile| profile.name == name)
    }

    /// The profile of this name. Of one that is not known only the name counts: releases and holds depend on nothing else.
    pub(crate) fn get_or_stand_in(&self, name: &str) -> Profile {
        let stand_in = || Profile { name: name.to_owned(), engine: false, ..Profile::velero() };
        self.get(name).cloned().unwrap_or_else(stand_in)
    }

    /// Why there may be others, or others in their place.
    pub(crate) fn doubt(&self) -> Option<String> {
        if let Some(why) = &self.unavailable {
            return Some(format!("which profiles the webhook has is not known: {why}"));
        }
        let all: Vec<String> = self.unusable.iter().map(|one| plain(&one.why)).collect();
        (!all.is_empty()).then(|| format!("this cannot be used: {}", all.join("; ")))
    }

    /// That a profile is not known, and why it may not be.
    pub(crate) fn misses(&self, name: &str) -> String {
        let doubt = self.doubt().map_or_else(String::new, |doubt| format!(" ({doubt})"));
        format!("this program does not know profile {}{doubt}", plain(name))
    }
}

/// Asks the cluster. Where it does not answer, only the built-in profiles are known.
pub(crate) async fn known_profiles(session: &Session) -> KnownProfiles {
    match fetched(session, published(session)).await {
        Fetched::Known(PublishedProfiles { profiles, unusable }) => {
            KnownProfiles { all: profiles, unavailable: None, unusable }
        }
        Fetched::Missing { unavailable } => {
            let unguarded = |profile| PublishedProfile { profile, guarded: false, over: Vec::new() };
            let all = Profile::builtin().into_iter().map(unguarded).collect();
            KnownProfiles { all, unavailable: Some(unavailable), unusable: Vec::new() }
        }
    }
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
