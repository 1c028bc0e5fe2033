//! Decides after a look into the bucket. Pure.

use backup_core::{
    api::backup_repository::BackupRepositoryPhase as Phase,
    data_movement::{PASSWORD_KEY, PASSWORD_SECRET},
};

use super::Facts;
use crate::volumes::data_mover::repository::{password::PasswordSecret, verdict::Verdict};

/// What is known of the bucket.
#[derive(Clone, Debug)]
pub(crate) struct BucketFacts {
    /// Of the repository, for messages.
    pub(crate) url: String,
    pub(crate) is_read_only: bool,
    /// Whether the repository exists.
    pub(crate) exists: bool,
    pub(crate) others: OtherRepositories,
}

/// Whether there are other repositories, in any location: all have the same password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OtherRepositories {
    /// There are none, or that does not matter.
    None,
    /// Where one is.
    At(String),
    /// Why that is not known.
    Unknown(String),
}

/// What to do after a look into the bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum InspectionPlan {
    Publish(Verdict),
    /// Create the Secret with a password: no repository needs another one.
    MakePassword,
    /// Have the repository made.
    Init,
    /// Have it opened by a pod: nothing is known of its password, or it could not be used before.
    Open,
}

pub(crate) fn inspected(facts: &Facts<'_>, bucket: BucketFacts) -> InspectionPlan {
    let BucketFacts {
        url,
        is_read_only,
        exists,
        others,
    } = bucket;
    let repository = facts.repository;
    let secret = format!("Secret {PASSWORD_SECRET}");
    if is_read_only && !exists {
        return lasting(format!(
            "there is no repository at {url}, and BackupStorageLocation {} is read-only: set spec.accessMode to ReadWrite \
             to have one made",
            repository.spec.backup_storage_location
        ));
    }
    match facts.password {
        PasswordSecret::NoKey { .. } => lasting(format!(
            "{secret} has no key {PASSWORD_KEY}: add it, with the password in the latest copy of the Secret, after the last rotation"
        )),
        PasswordSecret::Present { .. } if !exists => InspectionPlan::Init,
        PasswordSecret::Present { .. } if repository.status.phase == Some(Phase::Ready) => {
            InspectionPlan::Publish(Verdict::ready())
        }
        PasswordSecret::Present { .. } => InspectionPlan::Open,
        PasswordSecret::Absent if exists => lasting(format!(
            "there is a repository at {url}, and no {secret}: bring the Secret back from its latest copy, after the last \
             rotation of the password (key {PASSWORD_KEY})"
        )),
        PasswordSecret::Absent => match others {
            OtherRepositories::None => InspectionPlan::MakePassword,
            OtherRepositories::At(place) => lasting(format!(
                "there are repositories at {place}, and no {secret}, which had the password of all: bring it back (key \
                 {PASSWORD_KEY}); or, if the data in them is given up, create it with a new password"
            )),
            OtherRepositories::Unknown(why) => InspectionPlan::Publish(Verdict::retried(format!(
                "there is no {secret}, and no password is made, as repositories in another location may have one: {why}. \
                 Correct or delete that location, or create the Secret (key {PASSWORD_KEY})"
            ))),
        },
    }
}

fn lasting(message: String) -> InspectionPlan {
    InspectionPlan::Publish(Verdict::lasting(message))
}

#[cfg(test)]
mod tests;
