//! What the webhook of an installation publishes about its profiles: their list, and the policy in
//! force.

use serde::{Deserialize, Serialize};

use super::Profile;

/// The ConfigMap with it, in the namespace of the installation. It is one of the names that the
/// webhook may write.
pub const CONFIG_MAP: &str = "backup-lock-profiles";
/// Its key with the JSON.
pub const KEY: &str = "profiles.json";

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PublishedProfiles {
    /// Built-in profiles, and profiles of the installation's files.
    pub profiles: Vec<PublishedProfile>,
    /// Profiles it should guard but cannot, and files that cannot be used.
    pub unusable: Vec<UnusableProfile>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PublishedProfile {
    /// With the policy in force.
    pub profile: Profile,
    /// Whether the lock protects its objects.
    pub guarded: bool,
    /// Flags of the webhook that override the policy of the profile: `--mode=warn`.
    pub over: Vec<String>,
}

/// A profile that cannot be used. Its objects are refused until it can.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnusableProfile {
    pub name: String,
    /// The file, what is wrong with it, and what was expected.
    pub why: String,
}
