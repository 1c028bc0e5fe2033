//! Reading profiles.

use super::{Profile, Role, ScopeRule, check};
use crate::validate::Finding;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// The text is no YAML, or has fields that a profile has not, or lacks some, or has values that do not fit.
    #[error("not a profile: {message}")]
    Syntax {
        /// Where and why, and what was expected.
        message: String,
    },
    /// The text can be read, but what it says cannot be.
    #[error("profile {name:?} can't be used: {}", list(.findings))]
    Invalid {
        name: String,
        /// Everything that was found, never empty.
        findings: Vec<Finding>,
    },
    /// Two files or profiles have what only one can have.
    #[error("{first} and {second} both have {what}; take one of them out")]
    Duplicate { first: String, second: String, what: String },
    #[error("{file}: {source}")]
    File { file: String, source: Box<ProfileError> },
}

fn list(findings: &[Finding]) -> String {
    findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl ProfileError {
    /// Bounded set of labels: `syntax`, `invalid`, `duplicate`.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Syntax { .. } => "syntax",
            Self::Invalid { .. } => "invalid",
            Self::Duplicate { .. } => "duplicate",
            Self::File { source, .. } => source.category(),
        }
    }
}

impl Profile {
    /// Reads a profile from one YAML document and checks it.
    pub(crate) fn from_yaml(text: &str) -> Result<Self, ProfileError> {
        let options = serde_saphyr::options! {
            // A profile is a page of text. What is deeper or longer is none, and must not cost much to refuse.
            budget: serde_saphyr::budget! { max_depth: 64, max_nodes: 10_000 },
            with_snippet: false,
        };
        let profile: Self = serde_saphyr::from_str_with_options(text, options)
            .map_err(|error| ProfileError::Syntax { message: located(&error, text) })?;
        let findings = check::findings(&profile);
        if findings.is_empty() {
            Ok(profile)
        } else {
            Err(ProfileError::Invalid { name: profile.name, findings })
        }
    }

    /// The built-in profiles and those of files, given by name and text. A file replaces the built-in profile of the same
    /// name. Velero's stays the first.
    pub fn with_files<'a>(
        files: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Vec<Self>, ProfileError> {
        let mut all: Vec<(Self, &str)> =
            Self::builtin().into_iter().map(|profile| (profile, BUILT_IN)).collect();
        for (file, text) in files {
            let profile = Self::from_yaml(text)
                .map_err(|source| ProfileError::File { file: file.into(), source: Box::new(source) })?;
            match all.iter_mut().find(|(other, _)| other.name == profile.name) {
                Some(place) if place.1 == BUILT_IN => *place = (profile, file),
                Some((_, other)) => {
                    return Err(duplicate(other, file, format!("a profile {:?}", profile.name)));
                }
                None => all.push((profile, file)),
            }
        }
        for (i, (one, _)) in all.iter().enumerate() {
            for (other, _) in &all[..i] {
                if let Some(what) = shared(one, other) {
                    return Err(duplicate(&other.name, &one.name, what));
                }
            }
        }
        Ok(all.into_iter().map(|(profile, _)| profile).collect())
    }
}

/// Stands for the name of a file.
const BUILT_IN: &str = "";

/// What two profiles cannot both have, if they do.
fn shared(one: &Profile, other: &Profile) -> Option<String> {
    if one.group != other.group {
        return None;
    }
    let kind = [Role::Backup, Role::Restore]
        .map(|role| &one.rule(role).kind)
        .into_iter()
        .find(|kind| other.role_of(&other.group, kind).is_some());
    match kind {
        Some(kind) => Some(format!("the kind {kind} of {}", one.group)),
        None if one.scope == ScopeRule::Cluster && other.scope == ScopeRule::Cluster => {
            Some(format!("the scope {}", one.group))
        }
        None => None,
    }
}

fn duplicate(first: &str, second: &str, what: String) -> ProfileError {
    ProfileError::Duplicate { first: first.into(), second: second.into(), what }
}

/// The parser's message, and the line that it is about, so that the field can be seen.
fn located(error: &serde_saphyr::Error, text: &str) -> String {
    let line =
        error.location().and_then(|at| text.lines().nth(usize::try_from(at.line()).ok()?.checked_sub(1)?));
    let shown: String = line.unwrap_or_default().trim().chars().take(120).collect();
    if shown.is_empty() { error.to_string() } else { format!("{error}, in `{shown}`") }
}
