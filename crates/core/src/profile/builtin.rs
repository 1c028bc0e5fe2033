//! The profiles that come with the program.

use std::sync::LazyLock;

use super::Profile;

const VELERO: &str = include_str!("../../profiles/velero.yaml");
const PERCONA_PS: &str = include_str!("../../profiles/percona-ps.yaml");

static VELERO_PROFILE: LazyLock<Profile> = LazyLock::new(|| embedded(VELERO));
static PERCONA_PS_PROFILE: LazyLock<Profile> = LazyLock::new(|| embedded(PERCONA_PS));

/// Reads a profile that is part of the program. A test has read it; a profile of no kinds guards nothing.
fn embedded(text: &str) -> Profile {
    Profile::from_yaml(text).unwrap_or_default()
}

impl Profile {
    /// Velero's own kinds, which our controller can run itself.
    pub fn velero() -> Self {
        VELERO_PROFILE.clone()
    }

    /// All profiles that come with the program, Velero's first.
    pub fn builtin() -> Vec<Self> {
        vec![Self::velero(), PERCONA_PS_PROFILE.clone()]
    }
}
