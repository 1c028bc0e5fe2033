//! Whether the data of volumes can be moved into the bucket where schedules ask for it, and whether
//! the data that was moved can be read.

use backup_core::{
    api::{BackupRepository, backup_repository::BackupRepositoryPhase, transfer::UploaderType},
    data_movement::{PASSWORD_KEY, PASSWORD_SECRET},
    text::listed,
};
use backup_deploy::{enables_data_mover, enables_snapshots};
use k8s_openapi::api::core::v1::Secret;

use super::{Finding, Topic, volumes::controller_args};
use crate::commands::prelude::*;

const ON: Topic = Topic("volumes");
/// Flag of the controller: backups move data unless they say otherwise.
const MOVED_BY_DEFAULT: &str = "--default-snapshot-move-data";
/// Maximum number of schedules that a finding names.
const MAX_NAMED: usize = 3;

/// Reports nothing if no schedule moves data, or the arguments of the controller are not known.
pub(super) async fn would_be_moved(session: &Session) -> Result<Vec<Finding>, Problem> {
    let schedules = session.list_readable(ListParams::default(), |schedule: Schedule| {
        Some((
            schedule.name_any(),
            schedule.spec.template.snapshot_move_data,
        ))
    });
    let (args, schedules) = futures::join!(controller_args(session), schedules);
    Ok(args.map_or_else(Vec::new, |args| {
        let moving = moving(&args, schedules.unwrap_or_default());
        judge_arguments(&args, &moving)
    }))
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

/// A repository of moved data.
struct Repository {
    name: String,
    namespace: String,
    location: String,
    /// Why it cannot be used.
    problem: Option<String>,
}

/// Reports nothing if there is no repository of the data mover.
pub(super) async fn can_be_read(session: &Session) -> Result<Vec<Finding>, Problem> {
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
        .filter_map(|repository| judge_repository(repository, &session.namespace))
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
    let is_unusable = one.status.phase == Some(BackupRepositoryPhase::NotReady);
    Some(Repository {
        name: one.name_any(),
        namespace: one.spec.volume_namespace,
        location: one.spec.backup_storage_location,
        problem: is_unusable.then(|| one.status.message.unwrap_or_default()),
    })
}

fn judge_repository(repository: &Repository, home: &str) -> Option<Finding> {
    let problem = repository.problem.as_ref()?;
    let text = format!(
        "the repository with the volume data of namespace {} in location {} cannot be used: {}",
        plain(&repository.namespace),
        plain(&repository.location),
        plain(problem)
    );
    let remedy = format!(
        "Its state is checked again every few minutes: kubectl -n {home} get backuprepositories.velero.io {} -o yaml",
        repository.name
    );
    Some(ON.bad(text, remedy))
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
            judge_repository(&repository, "velero")
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
    fn a_password_that_is_missing_is_broken() {
        assert_eq!(judge_password(true, 1, "velero").tone, Tone::Good);
        let missing = judge_password(false, 2, "velero");
        assert_eq!(missing.tone, Tone::Bad);
        assert_says!(missing.text, "2 repositories");
    }
}
