//! Whether the data of volumes can be moved into the bucket where schedules ask for it, and whether
//! the data that was moved can be read and is maintained.

use std::collections::BTreeMap;

use backup_core::{
    api::{
        BackupRepository,
        backup_repository::{BackupRepositoryPhase, MaintenanceResult},
        transfer::UploaderType,
    },
    cluster::{POD_SECURITY_LABEL, RESTRICTED, pod_security},
    data_movement::{PASSWORD_KEY, PASSWORD_SECRET},
    repository_records::DataCheck,
    text::listed,
};
use backup_deploy::{enables_data_mover, enables_snapshots};
use k8s_openapi::api::core::v1::{Namespace, Secret};

use super::{Finding, Topic, volumes::controller_args};
use crate::{commands::prelude::*, print::human};

const ON: Topic = Topic("volumes");
/// Flag of the controller: backups move data unless they say otherwise.
const MOVED_BY_DEFAULT: &str = "--default-snapshot-move-data";
/// Maximum number of schedules that a finding names.
const MAX_NAMED: usize = 3;
/// Number of maintenances after which a repository counts as not maintained.
const MAX_MISSED_MAINTENANCES: i64 = 3;
/// Time between two maintenances of a repository that names none (seconds).
const DEFAULT_MAINTENANCE_SECONDS: i64 = 24 * 3600;

/// Reports nothing if no schedule moves data, or the arguments of the controller are not known.
pub(super) async fn would_be_moved(session: &Session) -> Result<Vec<Finding>, Problem> {
    let schedules = session.list_readable(ListParams::default(), |schedule: Schedule| {
        Some((
            schedule.name_any(),
            schedule.spec.template.snapshot_move_data,
        ))
    });
    let (args, schedules) = futures::join!(controller_args(session), schedules);
    let Some(args) = args else {
        return Ok(Vec::new());
    };
    let moving = moving(&args, schedules.unwrap_or_default());
    let mut findings = judge_arguments(&args, &moving);
    if !moving.is_empty() && enables_data_mover(&args) {
        findings.extend(judge_namespace(session).await);
    }
    Ok(findings)
}

/// Names of the schedules whose backups move data.
fn moving(args: &[String], schedules: Vec<(String, Option<bool>)>) -> Vec<String> {
    let by_default = args.iter().any(|arg| arg == MOVED_BY_DEFAULT);
    schedules
        .into_iter()
        .filter(|(_, moves)| moves.unwrap_or(by_default))
        .map(|(name, _)| name)
        .collect()
}

fn judge_arguments(args: &[String], moving: &[String]) -> Vec<Finding> {
    if moving.is_empty() {
        return Vec::new();
    }
    let mut findings = Vec::new();
    let named = &moving[..moving.len().min(MAX_NAMED)];
    let who = format!(
        "backups of {} move volume data (snapshotMoveData)",
        plain(&listed(named, moving.len()))
    );
    if !enables_data_mover(args) {
        findings.push(ON.bad(
            format!("{who}, and the controller has no image of the data mover: they are refused"),
            "kubectl backup upgrade --data-mover; with other tools set --mover-image \
             (docs/operate/install.md#volume-data).",
        ));
    }
    if !enables_snapshots(args) {
        findings.push(ON.bad(
            format!("{who}, which takes snapshots of CSI volumes, and these are off"),
            "kubectl backup upgrade --snapshots; with other tools add --features=EnableCSI.",
        ));
    }
    findings
}

/// Whether the namespace of the installation refuses the pods that move data.
async fn judge_namespace(session: &Session) -> Option<Finding> {
    let name = &session.namespace;
    let about = About::of::<Namespace>("get", name);
    let api: Api<Namespace> = Api::all(session.client.clone());
    match optional(session.call(about, api.get_metadata(name)).await) {
        Ok(found) => {
            let labels = found.and_then(|found| found.metadata.labels);
            judge_pod_security(labels.as_ref(), name)
        }
        Err(problem) => {
            let why = format!(
                "whether {name} admits the pods that move volume data; {}",
                plain(&problem.to_string())
            );
            Some(ON.unknown(&why, problem.remedy))
        }
    }
}

fn judge_pod_security(labels: Option<&BTreeMap<String, String>>, home: &str) -> Option<Finding> {
    (pod_security(labels) == RESTRICTED).then(|| {
        ON.bad(
            format!(
                "{home} refuses the pods that move volume data (snapshotMoveData): Pod Security keeps it to {RESTRICTED}"
            ),
            format!("kubectl label --overwrite namespace {home} {POD_SECURITY_LABEL}=baseline"),
        )
    })
}

/// A repository of moved data.
struct Repository {
    name: String,
    namespace: String,
    location: String,
    /// Why it cannot be used.
    problem: Option<String>,
    /// What is known of damage.
    damage: Option<String>,
    maintained: Option<Timestamp>,
    /// Time between two maintenances (seconds).
    period: i64,
    /// Why the last maintenance has failed.
    failure: Option<String>,
}

/// Reports nothing if there is no repository of the data mover.
pub(super) async fn can_be_read(
    session: &Session,
    now: Timestamp,
) -> Result<Vec<Finding>, Problem> {
    let found = session
        .list_readable(ListParams::default(), repository)
        .await;
    let repositories = match found {
        // The cluster has no definition of repositories.
        Err(problem) if problem.kind == ProblemKind::NotServed => return Ok(Vec::new()),
        found => found?,
    };
    if repositories.is_empty() {
        return Ok(Vec::new());
    }
    // Only the metadata: the password stays where it is.
    let password = optional(session.get_metadata::<Secret>(PASSWORD_SECRET).await);
    let mut findings: Vec<Finding> = repositories
        .iter()
        .filter_map(|repository| judge_repository(repository, &session.namespace, now))
        .collect();
    findings.push(match password {
        Ok(found) => judge_password(found.is_some(), repositories.len(), &session.namespace),
        Err(problem) => {
            let why = format!(
                "whether the password of the moved volume data is there; {}",
                plain(&problem.to_string())
            );
            ON.unknown(&why, problem.remedy)
        }
    });
    Ok(findings)
}

/// `None` if it is of another format, and so of another data mover.
fn repository(one: BackupRepository) -> Option<Repository> {
    if one.spec.repository_type != UploaderType::Restic {
        return None;
    }
    let name = one.name_any();
    let damage = DataCheck::of(one.annotations()).known_damage();
    let status = one.status;
    let is_unusable = status.phase == Some(BackupRepositoryPhase::NotReady);
    let last = status.recent_maintenance.last();
    let failed = last.filter(|last| last.result == Some(MaintenanceResult::Failed));
    let period = one.spec.maintenance_frequency.as_secs();
    Some(Repository {
        name,
        namespace: one.spec.volume_namespace,
        location: one.spec.backup_storage_location,
        maintained: status.last_maintenance_time.as_ref().map(|time| time.0),
        period: if period > 0 {
            period
        } else {
            DEFAULT_MAINTENANCE_SECONDS
        },
        failure: failed.map(|failed| failed.message.clone().unwrap_or_default()),
        damage,
        problem: is_unusable.then(|| status.message.unwrap_or_default()),
    })
}

fn judge_repository(repository: &Repository, home: &str, now: Timestamp) -> Option<Finding> {
    let what = format!(
        "the repository with the volume data of namespace {} in location {}",
        plain(&repository.namespace),
        plain(&repository.location)
    );
    let shown = format!(
        "kubectl -n {home} get backuprepositories.velero.io {} -o yaml",
        repository.name
    );
    if let Some(problem) = &repository.problem {
        return Some(ON.bad(
            format!("{what} cannot be used: {}", plain(problem)),
            format!("A corrected Secret or location is noticed within five minutes: {shown}"),
        ));
    }
    if let Some(damage) = &repository.damage {
        return Some(ON.bad(
            format!("{what} is damaged: {}", plain(damage)),
            format!(
                "docs/use/volumes.md#repositories says what to do; afterwards look again: kubectl backup repositories check {} \
                 --read-data --wait=24h",
                repository.name
            ),
        ));
    }
    let age = now.duration_since(repository.maintained?).as_secs();
    if age <= repository.period.saturating_mul(MAX_MISSED_MAINTENANCES) {
        return None;
    }
    let why = repository.failure.as_ref().map_or_else(
        || "none has begun since".to_owned(),
        |failure| format!("the last one has failed: {}", plain(failure)),
    );
    Some(ON.warn(
        format!(
            "{what} was not maintained for {}, so the space of deleted backups is not freed; {why}",
            human(age)
        ),
        format!("A maintenance waits until no upload uses the repository: {shown}"),
    ))
}

fn judge_password(exists: bool, repositories: usize, home: &str) -> Finding {
    if exists {
        return ON.good(format!(
            "the password of the moved volume data is in Secret {PASSWORD_SECRET}: keep a copy outside of the cluster, as nobody \
             can read that data without it"
        ));
    }
    let of = if repositories == 1 {
        "1 repository".to_owned()
    } else {
        format!("{repositories} repositories")
    };
    ON.bad(
        format!(
            "Secret {PASSWORD_SECRET} is missing: without its password the volume data in {of} cannot be read"
        ),
        format!(
            "Bring it back from your copy: kubectl -n {home} create secret generic {PASSWORD_SECRET} \
             --from-file={PASSWORD_KEY}=FILE"
        ),
    )
}

#[cfg(test)]
mod tests {
    use backup_core::repository_records::DATA_CHECK_ANNOTATION;

    use super::*;
    use crate::print::Tone;

    const IMAGE: &str = "--mover-image=$(MOVER_IMAGE)";
    const SNAPSHOTS: &str = "--features=EnableCSI";
    const NO_IMAGE: &str = "no image of the data mover";
    const NO_SNAPSHOTS: &str = "and these are off";

    #[test]
    fn schedules_that_move_data_need_image_and_snapshots() {
        for (args, moves, expected) in [
            (vec![IMAGE, SNAPSHOTS], Some(true), vec![]),
            (vec![], None, vec![]),
            (vec![], Some(false), vec![]),
            (vec![SNAPSHOTS], Some(true), vec![NO_IMAGE]),
            (vec![IMAGE], Some(true), vec![NO_SNAPSHOTS]),
            (vec![], Some(true), vec![NO_IMAGE, NO_SNAPSHOTS]),
            (vec![IMAGE, MOVED_BY_DEFAULT], None, vec![NO_SNAPSHOTS]),
            (vec![IMAGE, MOVED_BY_DEFAULT], Some(false), vec![]),
        ] {
            let args: Vec<String> = args.into_iter().map(str::to_owned).collect();
            let moving = moving(&args, vec![("nightly".to_owned(), moves)]);
            let findings = judge_arguments(&args, &moving);
            assert_eq!(findings.len(), expected.len(), "{args:?}: {findings:?}");
            for (finding, part) in findings.iter().zip(expected) {
                let is_named = finding.text.contains(part) && finding.text.contains("nightly");
                assert!(is_named && finding.tone == Tone::Bad, "{finding:?}");
            }
        }
    }

    fn stored(kind: &str, phase: &str) -> BackupRepository {
        serde_json::from_value(json!({ "apiVersion": "velero.io/v1", "kind": "BackupRepository",
            "metadata": { "name": "r" },
            "spec": { "volumeNamespace": "shop", "backupStorageLocation": "default", "repositoryType": kind,
                "maintenanceFrequency": "24h" },
            "status": { "phase": phase, "message": "wrong password" } }))
        .unwrap()
    }

    #[test]
    fn a_repository_that_cannot_be_used_is_named_with_its_message() {
        let judged = |phase: &str| {
            let repository = repository(stored("restic", phase)).unwrap();
            judge_repository(&repository, "velero", Timestamp::UNIX_EPOCH)
        };
        let found = judged("NotReady").unwrap();
        assert_eq!(
            found.text,
            "the repository with the volume data of namespace shop in location default cannot be used: wrong password"
        );
        for fine in ["", "New", "Ready"] {
            assert_eq!(judged(fine), None, "{fine}");
        }
        assert!(repository(stored("kopia", "NotReady")).is_none());
    }

    #[test]
    fn a_repository_that_is_damaged_is_broken() {
        let damage = "the repository of namespace shop is damaged at 1 place";
        let mut stored = stored("restic", "Ready");
        let check = DataCheck {
            damage: damage.to_owned(),
            ..DataCheck::default()
        };
        let annotations = [(DATA_CHECK_ANNOTATION.to_owned(), check.annotation())];
        stored.metadata.annotations = Some(annotations.into());
        let repository = repository(stored).unwrap();
        let found = judge_repository(&repository, "velero", Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(found.tone, Tone::Bad);
        assert!(
            found.text.ends_with(&format!(" is damaged: {damage}")),
            "{found:?}"
        );
    }

    #[test]
    fn a_repository_that_is_not_maintained_is_worth_a_look() {
        let judged = |frequency: &str, recent: Value, day: i64| {
            let mut stored = stored("restic", "Ready");
            stored.spec.maintenance_frequency = serde_json::from_value(json!(frequency)).unwrap();
            stored.status.last_maintenance_time =
                serde_json::from_value(json!("1970-01-01T00:00:00Z")).unwrap();
            stored.status.recent_maintenance = serde_json::from_value(recent).unwrap();
            let now = Timestamp::from_second(day * 86400 + 3600).unwrap();
            let found = judge_repository(&repository(stored).unwrap(), "velero", now)?;
            assert_eq!(found.tone, Tone::Warn);
            Some(found.text)
        };
        let none = || json!([]);
        for (frequency, day, overdue) in [
            ("24h", 2, false),
            ("24h", 3, true),
            ("0s", 3, true),
            ("168h", 3, false),
            ("168h", 22, true),
        ] {
            let found = judged(frequency, none(), day);
            assert_eq!(found.is_some(), overdue, "{frequency} {day}: {found:?}");
        }
        assert_eq!(
            judged("24h", none(), 3).unwrap(),
            "the repository with the volume data of namespace shop in location default was not maintained for 3d1h, so the space of \
             deleted backups is not freed; none has begun since"
        );
        let failed =
            json!([{ "result": "Succeeded" }, { "result": "Failed", "message": "no node" }]);
        let found = judged("24h", failed, 3).unwrap();
        assert!(
            found.ends_with("; the last one has failed: no node"),
            "{found}"
        );
    }

    #[test]
    fn a_namespace_that_refuses_the_pods_of_the_mover_is_broken() {
        let judged = |level: &str| {
            let labels = [(POD_SECURITY_LABEL.to_owned(), level.to_owned())].into();
            judge_pod_security(Some(&labels), "velero")
        };
        assert_eq!(judged("restricted").unwrap().tone, Tone::Bad);
        assert_eq!(judged("baseline"), None);
        assert_eq!(judge_pod_security(None, "velero"), None);
    }

    #[test]
    fn a_password_that_is_missing_is_broken() {
        assert_eq!(judge_password(true, 1, "velero").tone, Tone::Good);
        let missing = judge_password(false, 2, "velero");
        assert_eq!(missing.tone, Tone::Bad);
        assert_says!(missing.text, "2 repositories");
    }
}
