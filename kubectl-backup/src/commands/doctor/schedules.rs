//! Whether each schedule makes backups.

use backup_core::restorability::Places;
use kube::core::error_boundary::InvalidObject;

use super::{Finding, Topic};
use crate::{
    commands::prelude::*,
    print::{Tone, ago},
    view::schedule::{Obstacle, difference},
};

const ON: Topic = Topic("schedules");

pub(super) async fn schedules(session: &Session, now: Timestamp) -> Result<Vec<Finding>, Problem> {
    let locations = session.list_readable(ListParams::default(), Some::<BackupStorageLocation>);
    let (all, locations) = futures::try_join!(list(session, now), locations)?;
    let places = Places::of(&locations);
    if all.is_empty() {
        return Ok(vec![ON.good(
            "there is none: backups are made when somebody asks for one",
        )]);
    }
    let mut findings = Vec::new();
    let mut good = 0;
    for ListedSchedule {
        object,
        read_otherwise,
    } in all
    {
        let found = match object {
            Ok(schedule) => problem(&schedule, &places, &session.namespace, now),
            Err(error) => {
                let name = plain(&error.metadata.name.unwrap_or_default());
                let text = format!(
                    "{name} cannot be read, so it makes no backups: {}",
                    plain(&error.error)
                );
                Some(ON.bad(text, correct(&session.namespace, &name)))
            }
        };
        good += usize::from(found.is_none());
        findings.extend(found);
        findings.extend(read_otherwise);
    }
    if good > 0 {
        let (are, make) = if good == 1 {
            ("is", "makes")
        } else {
            ("are", "make")
        };
        findings.insert(0, ON.good(format!("{good} {are} valid and {make} backups")));
    }
    Ok(findings)
}

/// Schedules that Velero's two libraries read differently, for a check before this program replaces
/// a Velero server. Schedules that cannot be decoded are reported by doctor once the controller
/// runs.
pub(crate) async fn all_read_otherwise(session: &Session, now: Timestamp) -> Vec<Finding> {
    match list(session, now).await {
        Ok(all) => all
            .into_iter()
            .filter_map(|listed| listed.read_otherwise)
            .collect(),
        Err(problem) => vec![ON.unknown(&problem.to_string(), None)],
    }
}

/// A Schedule, or why it cannot be decoded, and a finding if Velero's two libraries read it
/// differently.
struct ListedSchedule {
    object: Result<Schedule, InvalidObject>,
    read_otherwise: Option<Finding>,
}

async fn list(session: &Session, now: Timestamp) -> Result<Vec<ListedSchedule>, Problem> {
    let api: Api<DeserializeGuard<Schedule>> = session.api();
    session
        .list(
            About::of::<Schedule>("list", ""),
            &api,
            ListParams::default(),
            |DeserializeGuard(object)| Some(listed_schedule(object, now)),
        )
        .await
}

fn listed_schedule(object: Result<Schedule, InvalidObject>, now: Timestamp) -> ListedSchedule {
    let read_otherwise = object
        .as_ref()
        .ok()
        .and_then(|schedule| read_otherwise(schedule, now));
    ListedSchedule {
        object,
        read_otherwise,
    }
}

fn correct(namespace: &str, name: &str) -> String {
    format!("Correct it: kubectl -n {namespace} edit schedules.velero.io {name}")
}

/// Velero's two libraries read the expression differently: after a move from or to another version,
/// backups run on other days.
fn read_otherwise(schedule: &Schedule, now: Timestamp) -> Option<Finding> {
    let name = schedule.name_any();
    let expression = plain(&schedule.spec.schedule);
    let how = difference(schedule, now)?;
    let text = format!("{name}: Velero's two libraries read {expression:?} differently; {how}");
    let remedy = "Write an expression that both read alike, or choose one with --cron-dialect of the controller \
                  (docs/use/schedules.md#which-cron).";
    Some(ON.warn(text, remedy))
}

/// Why a schedule makes no backups, or no backups that are kept.
fn problem(
    schedule: &Schedule,
    places: &Places,
    namespace: &str,
    now: Timestamp,
) -> Option<Finding> {
    let name = schedule.name_any();
    let last = schedule.status.last_backup.as_ref();
    let last = last.map_or_else(
        || "it has made none yet".to_owned(),
        |at| format!("its last one was made {}", ago(at.0, now)),
    );
    let obstacle = Obstacle::of(schedule, Some(places), now)?;
    let text = format!("{name} {obstacle}");
    let correct = correct(namespace, &name);
    let (text, remedy) = match &obstacle {
        Obstacle::Invalid(why) => (
            format!(
                "{text}, so it makes no backups ({last}): {}",
                why.join("; ")
            ),
            correct,
        ),
        Obstacle::Paused => (
            format!("{text}, so it makes no backups ({last})"),
            format!("kubectl backup schedules unpause {name}"),
        ),
        Obstacle::NotLookedAt => {
            let remedy = format!(
                "kubectl -n {namespace} get pods -l app.kubernetes.io/name=backup-controller"
            );
            (format!("{text}, so it makes no backups"), remedy)
        }
        Obstacle::Refused { .. } => (
            text,
            format!(
                "See `kubectl backup locations`, or name another one: kubectl backup schedules set {name} \
                 --storage-location=NAME"
            ),
        ),
        Obstacle::NeverDue(_) | Obstacle::Rare(_) | Obstacle::ShortLived { .. } => (text, correct),
    };
    Some(if obstacle.tone() == Tone::Warn {
        ON.warn(text, remedy)
    } else {
        ON.bad(text, remedy)
    })
}
