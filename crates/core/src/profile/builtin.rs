//! The built-in profiles.

use std::sync::LazyLock;

use super::Profile;

/// All of them, Velero's first.
const TEXTS: [&str; 6] = [
    include_str!("../../profiles/velero.yaml"),
    include_str!("../../profiles/percona-ps.yaml"),
    include_str!("../../profiles/percona-pxc.yaml"),
    include_str!("../../profiles/percona-psmdb.yaml"),
    include_str!("../../profiles/percona-pg.yaml"),
    include_str!("../../profiles/cloudnative-pg.yaml"),
];

/// A test checks that all can be read; a profile without kinds guards nothing.
static PROFILES: LazyLock<Vec<Profile>> = LazyLock::new(|| {
    TEXTS
        .iter()
        .map(|text| Profile::from_yaml(text).unwrap_or_default())
        .collect()
});

impl Profile {
    /// Velero's own kinds, which our controller can run itself.
    pub fn velero() -> Self {
        PROFILES.first().cloned().unwrap_or_default()
    }

    /// All built-in profiles, Velero's first.
    pub fn builtin() -> Vec<Self> {
        PROFILES.clone()
    }
}
