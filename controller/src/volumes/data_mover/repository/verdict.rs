//! Whether a repository can be used, and what its status says about that. Pure.

use backup_core::{
    api::{BackupRepository, backup_repository::BackupRepositoryPhase as Phase},
    data_movement::{MoverOutcome, PASSWORD_KEY, PASSWORD_SECRET, failure_reason},
};

use super::check::Check;

/// Whether a repository can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Why it cannot be used, and what to do.
    pub(super) message: Option<String>,
    /// Whether it stays so until something is changed.
    pub(super) is_final: bool,
}

impl Verdict {
    pub(super) fn ready() -> Self {
        Self {
            message: None,
            is_final: true,
        }
    }

    /// It cannot be used until something is changed.
    pub(super) fn lasting(message: String) -> Self {
        Self {
            message: Some(message),
            is_final: true,
        }
    }

    /// It cannot be used now, and is looked for again.
    pub(super) fn retried(message: String) -> Self {
        Self {
            message: Some(message),
            is_final: false,
        }
    }

    /// What the end of a pod says about its repository; `None` if that is nothing new.
    pub(super) fn of_outcome(outcome: &MoverOutcome) -> Option<Self> {
        let message = &outcome.message;
        match outcome.reason.as_deref()? {
            failure_reason::WRONG_PASSWORD => Some(Self::lasting(format!(
                "{message}. Put it into Secret {PASSWORD_SECRET}, key {PASSWORD_KEY}: it is in the latest copy that was made of \
                 that Secret, after the last rotation. Keep a copy of the present one, which other repositories may need"
            ))),
            failure_reason::UNSUPPORTED => Some(Self::lasting(format!(
                "{message}: --mover-image of the controller names the version"
            ))),
            _ => None,
        }
    }

    /// The verdict after a pod was to open the repository. `failure`: why it did not.
    pub(super) fn of_opening(
        namespace: &str,
        failure: Option<&str>,
        outcome: Option<&MoverOutcome>,
    ) -> Self {
        let Some(failure) = failure else {
            return Self::ready();
        };
        outcome.and_then(Self::of_outcome).unwrap_or_else(|| {
            Self::retried(format!(
                "the repository of namespace {namespace} could not be opened: {failure}"
            ))
        })
    }

    pub(super) fn phase(&self) -> Phase {
        match self.message {
            None => Phase::Ready,
            Some(_) => Phase::NotReady,
        }
    }
}

/// What the status says about the use of the repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum KnownState {
    Ready,
    Waiting(String),
    Unusable(String),
    /// Something has changed since, or nothing was published yet.
    Stale,
}

pub(super) fn known(repository: &BackupRepository, inputs: &str) -> KnownState {
    let check = Check::of(repository).filter(|check| check.inputs == inputs);
    let Some(check) = check else {
        return KnownState::Stale;
    };
    let status = &repository.status;
    let message = status.message.clone().unwrap_or_default();
    match &status.phase {
        Some(Phase::Ready) => KnownState::Ready,
        Some(Phase::NotReady) if check.is_final => KnownState::Unusable(message),
        Some(Phase::NotReady) => KnownState::Waiting(message),
        None | Some(Phase::New | Phase::Unknown(_)) => KnownState::Stale,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn outcome(reason: &str) -> MoverOutcome {
        MoverOutcome {
            reason: Some(reason.to_owned()),
            message: "why".to_owned(),
            ..MoverOutcome::default()
        }
    }

    #[rstest]
    #[case("wrong_password", Some("velero-repo-credentials"))]
    #[case("unsupported", Some("--mover-image"))]
    #[case("store", None)]
    #[case("damaged", None)]
    fn a_repository_that_no_pod_can_open_is_not_ready(
        #[case] reason: &str,
        #[case] expected: Option<&str>,
    ) {
        let outcome = outcome(reason);
        let verdict = Verdict::of_outcome(&outcome);
        assert_eq!(verdict.is_some(), expected.is_some());
        if let (Some(verdict), Some(expected)) = (verdict, expected) {
            let message = verdict.message.unwrap();
            assert!(message.starts_with("why") && message.contains(expected));
            assert!(verdict.is_final);
        }
        assert_eq!(Verdict::of_outcome(&MoverOutcome::default()), None);
    }

    #[test]
    fn only_a_pod_that_opened_the_repository_makes_it_ready() {
        let opening = |failure: Option<&str>, reason: Option<&str>| {
            let outcome = reason.map(outcome);
            Verdict::of_opening("shop", failure, outcome.as_ref())
        };
        assert_eq!(opening(None, None), Verdict::ready());
        let wrong = opening(Some("why"), Some("wrong_password"));
        let message = wrong.message.unwrap();
        assert!(wrong.is_final && message.contains("repository-password"));
        assert!(message.contains("the latest copy"), "{message}");
        for reason in [Some("store"), None] {
            let failed = opening(Some("no node"), reason);
            assert!(!failed.is_final);
            assert!(failed.message.unwrap().ends_with("not be opened: no node"));
        }
    }
}
