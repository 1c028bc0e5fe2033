//! Decides how a rotation of the password continues. Pure.

use std::time::Duration;

use backup_core::{
    repository_records::{KeyChange, KeyWork, PasswordRotation, RotationStage},
    text::listed,
};
use jiff::Timestamp;

/// Maximum number of repositories whose keys are changed at a time.
const MAX_CHANGES: usize = 4;
/// Time between the confirmation that the new password was copied and the first removal of a key:
/// nodes may have the previous password in memory.
const REMOVAL_DELAY: Duration = Duration::from_mins(1);
/// Maximum number of objects that a message names.
const MAX_NAMED: usize = 3;

/// Facts about all repositories of the installation.
#[derive(Clone, Debug)]
pub(super) struct RotationFacts<'a> {
    pub(super) rotation: PasswordRotation,
    /// Version of the Secret.
    pub(super) secret: &'a str,
    pub(super) repositories: Vec<RotatedRepository>,
    /// Why it is not known of a location which repositories it has, or why their keys cannot be
    /// changed.
    pub(super) obstacles: Vec<String>,
    /// Names of pods that began before this stage, and may have the previous password.
    pub(super) earlier_pods: Vec<String>,
    pub(super) now: Timestamp,
}

/// A repository that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RotatedRepository {
    /// Name of its BackupRepository.
    pub(super) name: String,
    /// The change of its keys that was requested last.
    pub(super) change: Option<KeyChange>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RotationPlan {
    /// Pods are at work. What the rotation waits for, for the log.
    Wait(String),
    /// A user has to do something.
    Blocked(String),
    /// Request this change of these repositories.
    Request(KeyChange, Vec<String>),
    /// All repositories have a key of the next password: make it the current one.
    Switch,
    /// No repository has a key of the previous password: remove that.
    Finish,
}

/// The change of keys that a stage asks of every repository.
pub(super) fn key_work(stage: RotationStage) -> Option<KeyWork> {
    match stage {
        RotationStage::Adding => Some(KeyWork::Add),
        RotationStage::Switched => None,
        RotationStage::Removing => Some(KeyWork::Remove),
    }
}

pub(super) fn decide(facts: &RotationFacts<'_>) -> RotationPlan {
    let stage = facts.rotation.stage;
    let Some(work) = key_work(stage) else {
        return RotationPlan::Wait("a copy of the new password".to_owned());
    };
    if stage == RotationStage::Removing
        && let Some(awaited) = before_removal(facts)
    {
        return RotationPlan::Wait(awaited);
    }
    let wanted = KeyChange::requested(work, facts.secret);
    let mut missing = Vec::new();
    let mut running = Vec::new();
    let mut failed = Vec::new();
    for RotatedRepository { name, change } in &facts.repositories {
        let change = change.as_ref();
        let Some(change) = change.filter(|change| change.is_of(work, facts.secret)) else {
            missing.push(name.clone());
            continue;
        };
        if change.is_done {
            continue;
        }
        if change.failed.is_some() {
            failed.push(format!("{name} ({})", change.failure));
        } else {
            running.push(name.clone());
        }
    }
    let slots = MAX_CHANGES.saturating_sub(running.len());
    if !missing.is_empty() && slots > 0 {
        missing.truncate(slots);
        return RotationPlan::Request(wanted, missing);
    }
    if !running.is_empty() {
        return RotationPlan::Wait(format!("the keys of {}", few(&running)));
    }
    let mut obstacles = facts.obstacles.clone();
    if !failed.is_empty() {
        obstacles.push(format!(
            "the keys of these repositories could not be changed, and are tried again: {}",
            few(&failed)
        ));
    }
    if !obstacles.is_empty() {
        return RotationPlan::Blocked(obstacles.join("; "));
    }
    match work {
        KeyWork::Add => RotationPlan::Switch,
        KeyWork::Remove => RotationPlan::Finish,
    }
}

/// Returns what is awaited before the first key of the previous password is removed.
fn before_removal(facts: &RotationFacts<'_>) -> Option<String> {
    if !facts.earlier_pods.is_empty() {
        let pods = few(&facts.earlier_pods);
        return Some(format!(
            "pods that began with the previous password: {pods}"
        ));
    }
    let waited = facts.now.duration_since(facts.rotation.since);
    let waited = Duration::try_from(waited).unwrap_or_default();
    (waited < REMOVAL_DELAY).then(|| "nodes to read the Secret again".to_owned())
}

fn few(names: &[String]) -> String {
    listed(&names[..names.len().min(MAX_NAMED)], names.len())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const SECRET: &str = "u/7";

    fn now() -> Timestamp {
        "2026-11-01T12:00:00Z".parse().unwrap()
    }

    fn repository(name: &str, change: Option<KeyChange>) -> RotatedRepository {
        RotatedRepository {
            name: name.to_owned(),
            change,
        }
    }

    fn requested(work: KeyWork) -> KeyChange {
        KeyChange::requested(work, SECRET)
    }

    fn done(work: KeyWork) -> KeyChange {
        KeyChange {
            is_done: true,
            ..requested(work)
        }
    }

    fn failed(work: KeyWork) -> KeyChange {
        KeyChange {
            failed: Some(now()),
            failure: "why".to_owned(),
            ..requested(work)
        }
    }

    fn repeated(change: Option<KeyChange>, count: usize) -> Vec<Option<KeyChange>> {
        vec![change; count]
    }

    fn facts(stage: RotationStage, changes: &[Option<KeyChange>]) -> RotationFacts<'static> {
        let repositories = changes.iter().enumerate();
        RotationFacts {
            rotation: PasswordRotation {
                stage,
                since: "2026-11-01T11:00:00Z".parse().unwrap(),
            },
            secret: SECRET,
            repositories: repositories
                .map(|(number, change)| repository(&format!("r{number}"), change.clone()))
                .collect(),
            obstacles: Vec::new(),
            earlier_pods: Vec::new(),
            now: now(),
        }
    }

    #[rstest]
    #[case::adding(RotationStage::Adding, KeyWork::Add, RotationPlan::Switch)]
    #[case::removing(RotationStage::Removing, KeyWork::Remove, RotationPlan::Finish)]
    fn a_stage_ends_when_every_repository_has_confirmed_it_for_this_secret(
        #[case] stage: RotationStage,
        #[case] work: KeyWork,
        #[case] end: RotationPlan,
    ) {
        let other_secret = KeyChange {
            secret: "u/6".to_owned(),
            ..done(work)
        };
        let other_work = done(match work {
            KeyWork::Add => KeyWork::Remove,
            KeyWork::Remove => KeyWork::Add,
        });
        for unconfirmed in [None, Some(other_secret), Some(other_work)] {
            let facts = facts(stage, &[Some(done(work)), unconfirmed]);
            let expected = RotationPlan::Request(requested(work), vec!["r1".to_owned()]);
            assert_eq!(decide(&facts), expected);
        }
        let waiting = facts(stage, &[Some(done(work)), Some(requested(work))]);
        assert!(matches!(decide(&waiting), RotationPlan::Wait(_)));
        assert_eq!(
            decide(&facts(stage, &[Some(done(work)), Some(done(work))])),
            end
        );
        assert_eq!(decide(&facts(stage, &[])), end, "without a repository");
    }

    #[rstest]
    #[case(RotationStage::Adding, KeyWork::Add)]
    #[case(RotationStage::Removing, KeyWork::Remove)]
    fn a_repository_or_location_that_fails_blocks_the_end_and_nothing_else(
        #[case] stage: RotationStage,
        #[case] work: KeyWork,
    ) {
        let mut away = facts(stage, &[Some(done(work)), None]);
        away.obstacles = vec!["BackupStorageLocation second: 403".to_owned()];
        assert!(matches!(decide(&away), RotationPlan::Request(..)));
        away.repositories.pop();
        let blocked = RotationPlan::Blocked("BackupStorageLocation second: 403".to_owned());
        assert_eq!(decide(&away), blocked);
        let failing = facts(stage, &[Some(failed(work)), Some(done(work))]);
        let RotationPlan::Blocked(why) = decide(&failing) else {
            panic!("{failing:?}");
        };
        assert!(
            why.contains("could not be changed") && why.contains("r0 (why)"),
            "{why}"
        );
    }

    #[test]
    fn few_repositories_are_changed_at_a_time_and_those_that_fail_hold_up_no_other() {
        let work = KeyWork::Add;
        let many = facts(RotationStage::Adding, &repeated(None, 9));
        let RotationPlan::Request(_, names) = decide(&many) else {
            panic!("{many:?}");
        };
        assert_eq!(names.len(), MAX_CHANGES);
        let mut changes = repeated(Some(requested(work)), MAX_CHANGES - 1);
        changes.extend(repeated(Some(failed(work)), 9));
        changes.extend([None, None]);
        let RotationPlan::Request(_, names) = decide(&facts(RotationStage::Adding, &changes))
        else {
            panic!("one slot is free");
        };
        assert_eq!(names, [format!("r{}", changes.len() - 2)]);
        let mut changes = repeated(Some(requested(work)), MAX_CHANGES);
        changes.push(None);
        let full = facts(RotationStage::Adding, &changes);
        assert!(matches!(decide(&full), RotationPlan::Wait(_)));
    }

    #[test]
    fn no_key_is_removed_while_a_pod_may_need_it_or_before_the_copy_is_confirmed() {
        let switched = facts(RotationStage::Switched, &[None]);
        assert!(matches!(decide(&switched), RotationPlan::Wait(_)));
        let mut removing = facts(RotationStage::Removing, &[None]);
        removing.earlier_pods = vec!["upload-data".to_owned()];
        let RotationPlan::Wait(awaited) = decide(&removing) else {
            panic!("{removing:?}");
        };
        assert!(awaited.contains("upload-data"), "{awaited}");
        removing.earlier_pods.clear();
        removing.rotation.since = "2026-11-01T11:59:01Z".parse().unwrap();
        assert!(matches!(decide(&removing), RotationPlan::Wait(_)));
        removing.rotation.since = "2026-11-01T11:59:00Z".parse().unwrap();
        assert!(matches!(decide(&removing), RotationPlan::Request(..)));
    }
}
