//! Whether each schedule makes backups.

use std::collections::BTreeMap;

use backup_core::{
    api::{BackupStorageLocation, Schedule, schedule::SchedulePhase},
    cron::Reading,
    labels::CRON_ANNOTATION,
};

use kube::core::error_boundary::InvalidObject;

use super::{Finding, Topic, installation::is_read_only};
use crate::{
    commands::prelude::*,
    print::{ago, seconds},
    view::schedule::difference,
};

const ON: Topic = Topic("schedules");
/// A schedule that the controller has not looked at for this long is not looked at.
const NOT_LOOKED_AT_SECONDS: i64 = 60;

/// What a schedule needs to know of the locations.
#[derive(Debug, Default)]
struct Places {
    /// By name: whether it is read-only.
    read_only: BTreeMap<String, bool>,
    /// The one for backups that name none, if one is marked.
    default: Option<String>,
}

pub(super) async fn schedules(session: &Session, now: Timestamp) -> Result<Vec<Finding>, Problem> {
    let (all, places) = futures::try_join!(list(session, now), places(session))?;
    if all.is_empty() {
        return Ok(vec![ON.good("there is none: backups are made when somebody asks for one")]);
    }
    let mut findings = Vec::new();
    let mut good = 0;
    for Listed { object, read_otherwise } in all {
        let found = match object {
            Ok(schedule) => problem(&schedule, &places, &session.namespace, now),
            Err(error) => {
                let name = plain(&error.metadata.name.unwrap_or_default());
                let text = format!("{name} cannot be read, so it makes no backups: {}", plain(&error.error));
                Some(ON.bad(text, correct(&session.namespace, &name)))
            }
        };
        good += usize::from(found.is_none());
        findings.extend(found);
        findings.extend(read_otherwise);
    }
    if good > 0 {
        let (are, make) = if good == 1 { ("is", "makes") } else { ("are", "make") };
        findings.insert(0, ON.good(format!("{good} {are} valid and {make} backups")));
    }
    Ok(findings)
}

/// The schedules that Velero's two libraries read differently, before this program takes a Velero server's place. What cannot be read
/// is named by doctor, once it is the controller's.
pub(crate) async fn all_read_otherwise(session: &Session, now: Timestamp) -> Vec<Finding> {
    match list(session, now).await {
        Ok(all) => all.into_iter().filter_map(|listed| listed.read_otherwise).collect(),
        Err(problem) => vec![ON.unknown(&problem.to_string(), None)],
    }
}

/// A Schedule, or why it cannot be decoded; and whether Velero's two libraries read it differently.
struct Listed {
    object: Result<Schedule, InvalidObject>,
    read_otherwise: Option<Finding>,
}

async fn list(session: &Session, now: Timestamp) -> Result<Vec<Listed>, Problem> {
    let api: Api<DeserializeGuard<Schedule>> = session.api();
    let listed = |DeserializeGuard(object): DeserializeGuard<Schedule>| {
        let read_otherwise = object.as_ref().ok().and_then(|schedule| read_otherwise(schedule, now));
        Some(Listed { object, read_otherwise })
    };
    session.list(About::of::<Schedule>("list", ""), &api, ListParams::default(), listed).await
}

async fn places(session: &Session) -> Result<Places, Problem> {
    let mut places = Places::default();
    let all: Vec<BackupStorageLocation> = session.list_readable(ListParams::default(), Some).await?;
    for location in all {
        if location.spec.default.unwrap_or_default() {
            places.default = Some(location.name_any());
        }
        places.read_only.insert(location.name_any(), is_read_only(&location));
    }
    Ok(places)
}

fn correct(namespace: &str, name: &str) -> String {
    format!("Correct it: kubectl -n {namespace} edit schedules.velero.io {name}")
}

/// Velero's two libraries read the expression differently: after a move from or to another version other days have backups.
fn read_otherwise(schedule: &Schedule, now: Timestamp) -> Option<Finding> {
    let (name, expression) = (schedule.name_any(), plain(&schedule.spec.schedule));
    let how = difference(schedule, now)?;
    let text = format!("{name}: Velero's two libraries read {expression:?} differently; {how}");
    let remedy = "Write an expression that both read alike, or choose one with --cron-dialect of the controller \
                  (docs/use/schedules.md#which-cron).";
    Some(ON.warn(text, remedy))
}

/// Why a schedule makes no backups.
fn problem(schedule: &Schedule, places: &Places, namespace: &str, now: Timestamp) -> Option<Finding> {
    let name = schedule.name_any();
    let last = schedule.status.last_backup.as_ref();
    let last = last.map_or_else(
        || "it has made none yet".to_owned(),
        |at| format!("its last one was made {}", ago(at.0, now)),
    );
    match &schedule.status.phase {
        Some(SchedulePhase::FailedValidation) => {
            let why: Vec<String> = schedule.status.validation_errors.iter().map(|text| plain(text)).collect();
            let text = format!("{name} is not valid, so it makes no backups ({last}): {}", why.join("; "));
            return Some(ON.bad(text, correct(namespace, &name)));
        }
        _ if schedule.spec.paused => {
            let text = format!("{name} is paused, so it makes no backups ({last})");
            return Some(ON.warn(text, format!("kubectl backup schedules unpause {name}")));
        }
        None | Some(SchedulePhase::New) => {
            let created = schedule.metadata.creation_timestamp.as_ref();
            if created.is_some_and(|at| seconds(at.0, now) > NOT_LOOKED_AT_SECONDS) {
                let remedy =
                    format!("kubectl -n {namespace} get pods -l app.kubernetes.io/name=backup-controller");
                let text = format!("{name} was never looked at by the controller, so it makes no backups");
                return Some(ON.bad(text, remedy));
            }
        }
        Some(_) => {}
    }
    let reading = schedule.annotations().get(CRON_ANNOTATION).and_then(|text| text.parse::<Reading>().ok());
    let cron = reading.unwrap_or_default().cron(&schedule.spec.schedule).ok();
    if cron.is_some_and(|cron| cron.next(now).is_none()) {
        let text = format!("{name} is never due: no day fits {:?}", plain(&schedule.spec.schedule));
        return Some(ON.bad(text, correct(namespace, &name)));
    }
    let named = schedule.spec.template.storage_location.as_ref().filter(|name| !name.is_empty());
    let place = plain(named.or(places.default.as_ref())?);
    let why = match places.read_only.get(&place) {
        Some(false) => return None,
        Some(true) => {
            format!("{name} stores in location {place}, which is read-only: each backup of it is refused")
        }
        None => {
            format!("{name} stores in location {place}, which does not exist: each backup of it is refused")
        }
    };
    Some(ON.bad(why, format!("See `kubectl backup locations`. {}", correct(namespace, &name))))
}
