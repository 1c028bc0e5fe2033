//! Reading profiles.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use serde::{Deserialize, de::DeserializeOwned};

use super::{Profile, Role, ScopeRule, check};
use crate::{names::is_dns_label, validate::Finding};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// The text is no YAML, or has unknown fields, missing fields or unsuitable values.
    #[error("not a profile: {message}")]
    Syntax {
        /// Position and cause, and what was expected.
        message: String,
    },
    /// The text is readable, but its content is invalid.
    #[error("profile {name:?} can't be used: {}", list(.findings))]
    Invalid {
        name: String,
        /// All findings; never empty.
        findings: Vec<Finding>,
    },
    /// Two files or profiles share something that must be unique.
    #[error("{first} and {second} both have {what}; take one of them out")]
    Duplicate {
        first: String,
        second: String,
        what: String,
    },
    #[error("{file}: {source}")]
    File {
        file: String,
        source: Box<ProfileError>,
    },
}

fn list(findings: &[Finding]) -> String {
    findings
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("; ")
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
        let profile: Self = parse(text).map_err(|error| ProfileError::Syntax {
            message: located(&error, text),
        })?;
        let findings = check::findings(&profile);
        if findings.is_empty() {
            Ok(profile)
        } else {
            Err(ProfileError::Invalid {
                name: profile.name,
                findings,
            })
        }
    }

    /// The built-in profiles and the profiles of files, given by name and text. A file replaces the
    /// built-in profile of the same name, and one with the same kinds, except Velero's. Velero's
    /// stays the first.
    ///
    /// An unusable file is refused without affecting the others, and so are two files that
    /// conflict. The built-in profile that a refused file would replace is removed too, except
    /// Velero's, which stays.
    pub fn with_files<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> ProfileSet {
        let mut all: Vec<(Self, &str)> = Self::builtin()
            .into_iter()
            .map(|profile| (profile, BUILT_IN))
            .collect();
        let mut refused = Vec::new();
        for (file, text) in files {
            let profile = match Self::from_yaml(text) {
                Ok(profile) => profile,
                Err(source) => {
                    let error = ProfileError::File {
                        file: file.into(),
                        source: Box::new(source),
                    };
                    refused.push(RefusedProfile {
                        name: stated_name(file, text),
                        error,
                    });
                    continue;
                }
            };
            match all.iter_mut().find(|(other, _)| other.name == profile.name) {
                Some(place) if place.1 == BUILT_IN => *place = (profile, file),
                Some((_, other)) => {
                    let error = duplicate(other, file, format!("a profile {:?}", profile.name));
                    refused.push(RefusedProfile {
                        name: profile.name,
                        error,
                    });
                }
                None => all.push((profile, file)),
            }
        }
        let mut replaced = BTreeSet::new();
        let mut shares = BTreeMap::new();
        for (i, (one, file)) in all.iter().enumerate() {
            for (other, other_file) in &all[..i] {
                let Some(what) = shared(one, other) else {
                    continue;
                };
                // Built-in profiles come first, and share nothing with each other.
                if *other_file == BUILT_IN && !other.is_velero() {
                    replaced.insert(other.name.clone());
                    continue;
                }
                let error = duplicate(&other.name, &one.name, what);
                for (name, file) in [(&other.name, other_file), (&one.name, file)] {
                    if *file != BUILT_IN {
                        shares.entry(name.clone()).or_insert_with(|| error.clone());
                    }
                }
            }
        }
        refused.extend(
            shares
                .into_iter()
                .map(|(name, error)| RefusedProfile { name, error }),
        );
        let mut profiles: Vec<Self> = all
            .into_iter()
            .map(|(profile, _)| profile)
            .filter(|profile| {
                !replaced.contains(&profile.name)
                    && !refused.iter().any(|one| one.name == profile.name)
            })
            .collect();
        if !profiles.iter().any(Self::is_velero) {
            profiles.insert(0, Self::velero());
        }
        ProfileSet { profiles, refused }
    }
}

/// The usable profiles, and the refused ones.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileSet {
    pub profiles: Vec<Profile>,
    pub refused: Vec<RefusedProfile>,
}

/// A profile that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedProfile {
    /// The name in the file, or otherwise the file's name without its extension.
    pub name: String,
    pub error: ProfileError,
}

/// The name in a profile that cannot be read otherwise.
fn stated_name(file: &str, text: &str) -> String {
    #[derive(Deserialize)]
    struct NamedProfile {
        name: String,
    }
    match parse::<NamedProfile>(text) {
        Ok(NamedProfile { name }) if is_dns_label(&name) => name,
        _ => Path::new(file)
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
    }
}

/// A profile is a page of text. A deeper or longer text is none, and must be cheap to refuse.
fn parse<T: DeserializeOwned>(text: &str) -> Result<T, serde_saphyr::Error> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_depth: 64, max_nodes: 10_000 },
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(text, options)
}

/// Marks a built-in profile in place of a file's name.
const BUILT_IN: &str = "";

/// A property that two profiles share although it must be unique.
fn shared(one: &Profile, other: &Profile) -> Option<String> {
    if one.group != other.group {
        return None;
    }
    let kind = [Role::Backup, Role::Restore]
        .map(|role| &one.rule(role).kind)
        .into_iter()
        .find(|kind| other.role_of(&other.group, kind).is_some());
    if let Some(kind) = kind {
        Some(format!("the kind {kind} of {}", one.group))
    } else if one.scope == ScopeRule::Cluster && other.scope == ScopeRule::Cluster {
        Some(format!("the scope {}", one.group))
    } else {
        None
    }
}

fn duplicate(first: &str, second: &str, what: String) -> ProfileError {
    ProfileError::Duplicate {
        first: first.into(),
        second: second.into(),
        what,
    }
}

/// The parser's message, with the line it refers to, so that the field can be seen.
fn located(error: &serde_saphyr::Error, text: &str) -> String {
    let line = error.location().and_then(|at| {
        text.lines()
            .nth(usize::try_from(at.line()).ok()?.checked_sub(1)?)
    });
    let shown: String = line.unwrap_or_default().trim().chars().take(120).collect();
    if shown.is_empty() {
        error.to_string()
    } else {
        format!("{error}, in `{shown}`")
    }
}
