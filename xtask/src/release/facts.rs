//! Name and origin of a release.

use k8s_openapi::jiff::Timestamp;

#[derive(Clone, Debug)]
pub(super) struct Facts {
    /// Without a `v`.
    pub(super) version: String,
    /// Time of all files in archives (seconds since 1970).
    pub(super) time: u64,
    /// Commit; `None` if files differ from it.
    pub(super) revision: Option<String>,
    /// Owner and name on GitHub.
    pub(super) repository: String,
    /// Registry and path of the images.
    pub(super) registry: String,
    /// URI of what builds.
    pub(super) builder: String,
}

impl Facts {
    /// Tag in git, and of the images.
    pub(super) fn tag(&self) -> String {
        format!("v{}", self.version)
    }

    pub(super) fn source(&self) -> String {
        format!("https://github.com/{}", self.repository)
    }

    /// The time as in RFC 3339.
    pub(super) fn timestamp(&self) -> anyhow::Result<String> {
        let time = Timestamp::from_second(i64::try_from(self.time)?)?;
        Ok(time.to_string())
    }

    #[cfg(test)]
    pub(super) fn of_tests() -> Self {
        Self {
            version: "1.2.3".to_owned(),
            time: 1_700_000_000,
            revision: Some("0123abc".to_owned()),
            repository: "example/backup".to_owned(),
            registry: "registry.example.com/backup".to_owned(),
            builder: "https://example.com/builder".to_owned(),
        }
    }
}
