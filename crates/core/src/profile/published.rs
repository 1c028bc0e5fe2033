//! What the webhook of an installation tells about its profiles: which there are, and the policy in force.

use serde::{Deserialize, Serialize};

use super::Profile;

/// The ConfigMap that has it, in the namespace of the installation. Its name is one of those that the webhook may write.
pub const CONFIG_MAP: &str = "backup-lock-profiles";
/// The key in it: JSON.
pub const KEY: &str = "profiles.json";

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PublishedProfiles {
    /// Those built in, and those of the installation's files.
    pub profiles: Vec<PublishedProfile>,
    /// What it was told to guard and cannot, and files that cannot be used.
    pub unusable: Vec<UnusableProfile>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PublishedProfile {
    /// With the policy in force.
    pub profile: Profile,
    /// Whether its objects are kept apart.
    pub guarded: bool,
    /// Flags of the webhook that go over the policy of the profile: `--mode=warn`.
    pub over: Vec<String>,
}

/// A profile that cannot be used. What it is about is refused until it can.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnusableProfile {
    pub name: String,
    /// Which file, what is wrong with it, and what was expected.
    pub why: String,
}
