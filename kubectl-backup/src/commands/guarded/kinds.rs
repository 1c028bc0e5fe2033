//! The kinds of profiles that a cluster serves, and the names that users may type for them.

use backup_core::profile::Profile;
use backup_lock::{ObjectKind, observe::resource};

use crate::commands::{known_profiles::KnownProfiles, prelude::*};

/// A kind of a profile that the cluster serves.
#[derive(Clone, Debug)]
pub(crate) struct ServedKind {
    pub(crate) profile: Profile,
    pub(crate) kind: ObjectKind,
    pub(crate) resource: ApiResource,
    /// Names in lower case, without the group: plural, singular, kind, short names.
    pub(crate) names: Vec<String>,
}

impl ServedKind {
    pub(crate) fn full_name(&self) -> String {
        format!("{}.{}", self.resource.plural, self.resource.group)
    }

    /// Whether the word is one of the kind's names, with or without the group.
    fn is_called(&self, word: &str) -> bool {
        let word = word.to_lowercase();
        let (name, group) = word
            .split_once('.')
            .map_or((word.as_str(), None), |(name, group)| (name, Some(group)));
        self.names.iter().any(|known| known == name)
            && group.is_none_or(|group| group == self.resource.group)
    }
}

pub(crate) async fn of_profile(
    session: &Session,
    profile: &Profile,
) -> Result<Vec<ServedKind>, Problem> {
    let version = format!("{}/{}", profile.group, profile.version);
    let about = About::called("list", "kind", &version, "");
    let list = match session
        .call(about, session.client.list_api_group_resources(&version))
        .await
    {
        Ok(list) => list,
        Err(problem) if problem.kind == ProblemKind::NotServed => return Ok(Vec::new()),
        Err(problem) => return Err(problem),
    };
    let mut all = Vec::new();
    for kind in [ObjectKind::Backup, ObjectKind::Restore] {
        let Some(resource) = resource(profile, kind) else {
            continue;
        };
        let Some(found) = list
            .resources
            .iter()
            .find(|one| one.name == resource.plural)
        else {
            continue;
        };
        let mut names = vec![
            resource.plural.clone(),
            resource.kind.to_lowercase(),
            found.singular_name.clone(),
        ];
        names.extend(found.short_names.iter().flatten().cloned());
        names.retain(|name| !name.is_empty());
        names.dedup();
        all.push(ServedKind {
            profile: profile.clone(),
            kind,
            resource,
            names,
        });
    }
    Ok(all)
}

/// The only kind of the known profiles with this name. Sends one request for each profile.
pub(crate) async fn find(
    session: &Session,
    known: &KnownProfiles,
    word: &str,
) -> Result<ServedKind, Problem> {
    let mut all = Vec::new();
    for one in &known.all {
        all.extend(of_profile(session, &one.profile).await?);
    }
    choose(&all, word, known.doubt().as_deref())
}

/// `doubt` says why there may be more profiles.
fn choose(all: &[ServedKind], word: &str, doubt: Option<&str>) -> Result<ServedKind, Problem> {
    let called: Vec<&ServedKind> = all.iter().filter(|one| one.is_called(word)).collect();
    match called.as_slice() {
        [one] => Ok((*one).clone()),
        [] => {
            let there = if all.is_empty() {
                "It serves no kind of any profile that is known".to_owned()
            } else {
                format!("There are: {}", full_names(all))
            };
            let remedy = doubt.map_or_else(|| there.clone(), |doubt| format!("{there}; {doubt}"));
            Err(Problem::other(format!(
                "this cluster serves no kind {word:?} that a profile is for"
            ))
            .with_remedy(remedy))
        }
        several => Err(
            Problem::usage(format!("{word:?} may mean several kinds")).with_remedy(format!(
                "Say which: {}",
                full_names(several.iter().copied())
            )),
        ),
    }
}

fn full_names<'a>(kinds: impl IntoIterator<Item = &'a ServedKind>) -> String {
    let names: Vec<String> = kinds.into_iter().map(ServedKind::full_name).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(profile: &str, names: &[&str]) -> ServedKind {
        let profile = Profile::builtin()
            .into_iter()
            .find(|one| one.name == profile)
            .unwrap();
        let resource = resource(&profile, ObjectKind::Backup).unwrap();
        ServedKind {
            profile,
            kind: ObjectKind::Backup,
            resource,
            names: names.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    #[test]
    fn a_kind_is_found_by_any_of_its_names_and_never_guessed() {
        let all = || {
            vec![
                served("velero", &["backups", "backup", "bk"]),
                served("percona-ps", &["bk", "ps-backup"]),
            ]
        };
        for (word, group) in [
            ("backup", Some("velero.io")),
            ("Backups.velero.io", Some("velero.io")),
            ("ps-backup", Some("ps.percona.com")),
            ("bk.ps.percona.com", Some("ps.percona.com")),
            ("bk", None),
            ("backups.ps.percona.com", None),
            ("pods", None),
            ("", None),
        ] {
            let found = choose(&all(), word, None)
                .ok()
                .map(|one| one.resource.group);
            assert_eq!(found.as_deref(), group, "{word}");
        }
        let problem = choose(&all(), "bk", None).unwrap_err();
        assert!(
            problem
                .remedy
                .as_ref()
                .unwrap()
                .contains("perconaservermysqlbackups.ps.percona.com"),
            "{problem}"
        );
        let nothing = choose(&[], "x", Some("what the webhook reads is not known"))
            .unwrap_err()
            .remedy
            .unwrap();
        assert_eq!(
            nothing,
            "It serves no kind of any profile that is known; what the webhook reads is not known"
        );
    }
}
