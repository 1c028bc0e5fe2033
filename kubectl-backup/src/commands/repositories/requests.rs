//! `repositories maintain` and `repositories check`: have the controller do now what it does once a
//! day. An annotation asks for it, and is gone when that has ended.

use backup_core::{
    api::{BackupRepository, backup_repository::MaintenanceResult, transfer::UploaderType},
    repository_records::{
        CHECK_REQUEST_ANNOTATION, CheckRequest, DATA_PARTS, DataCheck,
        MAINTENANCE_REQUEST_ANNOTATION,
    },
};

use super::super::{
    poll::{Look, in_vain, poll},
    prelude::*,
};

/// What is requested of a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RepositoryWork {
    Maintenance,
    Check { reads_all_data: bool },
}

impl RepositoryWork {
    /// Name of the command below `repositories`.
    const fn command(self) -> &'static str {
        match self {
            Self::Maintenance => "maintain",
            Self::Check { .. } => "check",
        }
    }

    const fn noun(self) -> &'static str {
        match self {
            Self::Maintenance => "maintenance",
            Self::Check { .. } => "check",
        }
    }

    const fn annotation(self) -> &'static str {
        match self {
            Self::Maintenance => MAINTENANCE_REQUEST_ANNOTATION,
            Self::Check { .. } => CHECK_REQUEST_ANNOTATION,
        }
    }

    /// The request, which differs from all earlier ones.
    fn request(self, now: Timestamp) -> String {
        match self {
            Self::Maintenance => now.to_string(),
            Self::Check { reads_all_data } => CheckRequest::new(now, reads_all_data).annotation(),
        }
    }

    /// Whether a request that was made before asks for as much.
    fn is_met_by(self, request: &str) -> bool {
        match self {
            Self::Maintenance => true,
            Self::Check { reads_all_data } => {
                !reads_all_data || CheckRequest::of(request).reads_all_data
            }
        }
    }

    /// That the work of this request has not read all data, as a sentence.
    fn unread(self, request: &str) -> Option<String> {
        let is_part =
            matches!(self, Self::Check { .. }) && !CheckRequest::of(request).reads_all_data;
        is_part.then(|| {
            format!(
                "All folders and one of {DATA_PARTS} parts of the data were read. To have all data read, add --read-data"
            )
        })
    }

    /// How the work that was recorded last has ended.
    fn result(self, repository: &BackupRepository) -> WorkResult {
        match self {
            Self::Maintenance => {
                let last = repository.status.recent_maintenance.last();
                match last.and_then(|last| last.result.as_ref()) {
                    Some(MaintenanceResult::Succeeded) => WorkResult::Done,
                    _ => WorkResult::Failed(
                        last.and_then(|last| last.message.clone())
                            .unwrap_or_else(|| "its result is not recorded".to_owned()),
                    ),
                }
            }
            Self::Check { .. } => {
                let check = DataCheck::of(repository.annotations());
                match check.known_damage() {
                    _ if check.failed.is_some() => WorkResult::Failed(check.failure),
                    Some(damage) => WorkResult::Damaged(damage),
                    None => WorkResult::Done,
                }
            }
        }
    }
}

/// How requested work has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
enum WorkResult {
    Done,
    Failed(String),
    Damaged(String),
}

pub(super) async fn run(
    name: &str,
    work: RepositoryWork,
    wait: Option<GoDuration>,
    terminal: &mut Terminal,
) -> CommandResult {
    let session = Session::connect(terminal).await?;
    let verb = work.command();
    let repository: BackupRepository = get_named(&session, verb, name).await?;
    if repository.spec.repository_type == UploaderType::Kopia {
        let message = format!("repository {name} is one of a Velero server");
        return Err(Problem::other(message)
            .with_remedy("The controller maintains and checks only repositories of its own."));
    }
    let known = repository.annotations().get(work.annotation());
    let request = if let Some(request) = known.filter(|request| work.is_met_by(request)) {
        request.clone()
    } else {
        let request = work.request(terminal.now());
        let patch = json!({ "metadata": { "annotations": { (work.annotation()): request } } });
        let uid = repository.metadata.uid.as_ref();
        session.patch::<BackupRepository>(name, uid, patch).await?;
        request
    };
    let Some(timeout) = wait else {
        terminal.data(&format!("{} requested\n", work.noun()))?;
        terminal.say(&what_it_waits_for(name));
        return Ok(Exit::Done);
    };
    let mut message = String::new();
    let waited = poll(
        &session,
        terminal,
        timeout.as_std(),
        async |terminal: &mut Terminal| {
            let now: BackupRepository = session.get(name).await?;
            if now.annotations().get(work.annotation()) != Some(&request) {
                return Ok(Look::Found(now));
            }
            let said = now.status.message.unwrap_or_default();
            if said == message {
                return Ok(Look::Same);
            }
            if !said.is_empty() {
                terminal.say(&plain(&said));
            }
            message = said;
            Ok(Look::Changed)
        },
    )
    .await?;
    let ended = match waited {
        Ok(ended) => ended,
        Err(exit) => {
            let what = format!("the {} of repository {name} has not ended", work.noun());
            terminal.say(&in_vain(exit, &what, timeout));
            terminal.say(&what_it_waits_for(name));
            return Ok(exit);
        }
    };
    show(work, &request, work.result(&ended), terminal)
}

fn show(
    work: RepositoryWork,
    request: &str,
    result: WorkResult,
    terminal: &mut Terminal,
) -> CommandResult {
    let noun = work.noun();
    let (line, why) = match result {
        WorkResult::Done => {
            terminal.data(&format!("{noun} completed\n"))?;
            if let Some(unread) = work.unread(request) {
                terminal.say(&unread);
            }
            return Ok(Exit::Done);
        }
        WorkResult::Failed(why) => (format!("{noun} failed\n"), why),
        WorkResult::Damaged(damage) => ("damaged\n".to_owned(), damage),
    };
    terminal.data(&line)?;
    terminal.say(&plain(&why));
    Ok(Exit::NotGood)
}

fn what_it_waits_for(name: &str) -> String {
    format!(
        "It begins when no other pod works on the repository, a maintenance also when no upload uses it. See the result: \
         kubectl backup repositories get {name} -o wide"
    )
}

#[cfg(test)]
mod tests {
    use backup_core::{
        api::backup_repository::{BackupRepositorySpec, Maintenance},
        repository_records::DATA_CHECK_ANNOTATION,
    };

    use super::*;

    fn check(reads_all_data: bool) -> RepositoryWork {
        RepositoryWork::Check { reads_all_data }
    }

    #[test]
    fn a_request_that_asks_for_less_is_replaced() {
        let at: Timestamp = "2026-11-03T05:14:12Z".parse().unwrap();
        for (work, known, is_met) in [
            (RepositoryWork::Maintenance, "now".to_owned(), true),
            (check(false), "now".to_owned(), true),
            (check(false), check(true).request(at), true),
            (check(true), check(false).request(at), false),
            (check(true), check(true).request(at), true),
        ] {
            assert_eq!(work.is_met_by(&known), is_met, "{work:?} {known}");
        }
    }

    #[test]
    fn a_completed_check_says_whether_it_has_read_all_data() {
        let at: Timestamp = "2026-11-03T05:14:12Z".parse().unwrap();
        let request = |work: RepositoryWork| work.request(at);
        for (work, request, is_part) in [
            (check(false), request(check(false)), true),
            (check(false), "now".to_owned(), true),
            // It has joined a request that asks for more.
            (check(false), request(check(true)), false),
            (check(true), request(check(true)), false),
            (
                RepositoryWork::Maintenance,
                request(RepositoryWork::Maintenance),
                false,
            ),
        ] {
            let text = work.unread(&request).unwrap_or_default();
            let says = text.contains("one of 30 parts of the data");
            assert_eq!(says, is_part, "{work:?} {request}: {text}");
        }
    }

    #[test]
    fn the_result_of_a_request_is_what_was_recorded_last() {
        let mut repository = BackupRepository::new("r", BackupRepositorySpec::default());
        let failed = |why: &str| WorkResult::Failed(why.to_owned());
        let maintenance = |result: MaintenanceResult, message: Option<&str>| Maintenance {
            result: Some(result),
            message: message.map(str::to_owned),
            ..Maintenance::default()
        };
        repository.status.recent_maintenance = vec![
            maintenance(MaintenanceResult::Succeeded, None),
            maintenance(MaintenanceResult::Failed, Some("why")),
        ];
        assert_eq!(
            RepositoryWork::Maintenance.result(&repository),
            failed("why")
        );
        repository.status.recent_maintenance.pop();
        let result = RepositoryWork::Maintenance.result(&repository);
        assert_eq!(result, WorkResult::Done);
        assert_eq!(check(true).result(&repository), WorkResult::Done);
        for (record, expected) in [
            (
                json!({"damage": "a pack is missing"}),
                WorkResult::Damaged("a pack is missing".to_owned()),
            ),
            (
                json!({"failed": "2026-11-03T05:14:12Z", "failure": "why", "damage": "old"}),
                failed("why"),
            ),
        ] {
            let annotations = [(DATA_CHECK_ANNOTATION.to_owned(), record.to_string())];
            repository.metadata.annotations = Some(annotations.into());
            assert_eq!(check(false).result(&repository), expected);
        }
    }
}
