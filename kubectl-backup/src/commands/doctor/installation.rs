//! Whether a controller does the work, and whether there is a location to store backups in.

use backup_core::{
    api::backup_storage_location::{AccessMode, LocationPhase},
    bucket::Facts,
    labels::{BUCKET_ANNOTATION, annotation},
};
use k8s_openapi::api::coordination::v1::Lease;

use super::{Finding, Topic};
use crate::{
    commands::{known_profiles::known_profiles, prelude::*},
    print::ago,
    view::retention,
};

const LEASE: &str = "backup-controller";
/// Oldest acceptable renewal of the lease (seconds); it is renewed every few seconds.
const MAX_RENEWAL_AGE_SECS: i64 = 60;

pub(super) async fn controller(session: &Session, now: Timestamp) -> Result<Vec<Finding>, Problem> {
    let on = Topic("controller");
    let remedy = format!(
        "kubectl -n {} get pods -l app.kubernetes.io/name=backup-controller",
        session.namespace
    );
    let Some(lease) = optional(session.get::<Lease>(LEASE).await)? else {
        let text = "no controller has ever led here: nothing is backed up or restored";
        return Ok(vec![on.bad(text, remedy)]);
    };
    let lease = lease.spec.unwrap_or_default();
    let holder = plain(lease.holder_identity.as_deref().unwrap_or_default());
    if holder.is_empty() {
        let text = "no controller leads: the last one has left";
        return Ok(vec![on.bad(text, remedy)]);
    }
    let Some(renewed) = lease.renew_time.map(|at| at.0) else {
        let text = format!("{holder} has never renewed its lease");
        return Ok(vec![on.bad(text, remedy)]);
    };
    if now.as_second() - renewed.as_second() > MAX_RENEWAL_AGE_SECS {
        let text = format!(
            "{holder} renewed its lease {}: nothing is backed up or restored",
            ago(renewed, now)
        );
        return Ok(vec![on.bad(text, remedy)]);
    }
    Ok(vec![on.good(format!("{holder} leads"))])
}

/// Profiles that are not built in; a profile that cannot be used is reported.
pub(super) async fn profiles(session: &Session) -> Result<Vec<Finding>, Problem> {
    let on = Topic("profiles");
    let remedy = format!(
        "Correct the file until `kubectl backup profiles check` takes it, then: kubectl -n {} rollout restart deployment \
         backup-webhook backup-controller",
        session.namespace
    );
    let known = known_profiles(session).await;
    let mut findings = Vec::new();
    for unusable in &known.unusable {
        let name = plain(&unusable.name);
        let why = plain(&unusable.why);
        findings.push(on.bad(
            format!("{name} cannot be used, and what it is about is refused: {why}"),
            remedy.clone(),
        ));
    }
    Ok(findings)
}

const LOCATIONS: Topic = Topic("locations");
/// Oldest acceptable validation (seconds); the default period is a minute.
const MAX_VALIDATION_AGE_SECS: i64 = 60 * 60;

pub(super) async fn locations(session: &Session, now: Timestamp) -> Result<Vec<Finding>, Problem> {
    let on = LOCATIONS;
    let api: Api<DeserializeGuard<BackupStorageLocation>> = session.api();
    let about = About::of::<BackupStorageLocation>("list", "");
    let all = session
        .list(about, &api, ListParams::default(), |item| {
            Some(judge(session, item, now))
        })
        .await?;
    if all.is_empty() {
        let text = format!(
            "there is none in namespace {}: nothing can be stored",
            session.namespace
        );
        return Ok(vec![on.bad(
            text,
            "Create a BackupStorageLocation: README.md shows one.",
        )]);
    }
    let has_default = all.iter().any(|one| one.is_default);
    let no_writes = all.iter().all(|one| one.is_read_only);
    let mut findings: Vec<Finding> = all.into_iter().flat_map(|one| one.findings).collect();
    if no_writes {
        let remedy = "After a restore from another cluster's bucket: kubectl backup locations set NAME --access-mode=ReadWrite";
        findings.push(on.warn("all are read-only: no backup can be stored", remedy));
    }
    if !has_default {
        let remedy = "Set spec.default of one to true, or name one with --storage-location.";
        findings.push(on.warn("none is the default: a backup has to name one", remedy));
    }
    Ok(findings)
}

struct LocationCheck {
    is_default: bool,
    is_read_only: bool,
    findings: Vec<Finding>,
}

fn judge(
    session: &Session,
    item: DeserializeGuard<BackupStorageLocation>,
    now: Timestamp,
) -> LocationCheck {
    match item.0 {
        Ok(location) => LocationCheck {
            is_default: location.spec.default.unwrap_or_default(),
            is_read_only: is_read_only(&location),
            findings: [finding(&location, now)]
                .into_iter()
                .chain(kept(&location))
                .chain(retention_stopped(&location))
                .collect(),
        },
        Err(error) => {
            let name = error.metadata.name.unwrap_or_default();
            let namespace = &session.namespace;
            let why = format!("{name} cannot be read: {}", plain(&error.error));
            let remedy = format!(
                "Correct it: kubectl -n {namespace} edit backupstoragelocations.velero.io {name}"
            );
            LocationCheck {
                is_default: false,
                is_read_only: false,
                findings: vec![LOCATIONS.bad(why, remedy)],
            }
        }
    }
}

fn is_read_only(location: &BackupStorageLocation) -> bool {
    location.spec.access_mode == Some(AccessMode::ReadOnly)
}

/// Reports that expired backups stay in the bucket.
fn kept(location: &BackupStorageLocation) -> Option<Finding> {
    let facts = Facts::read(annotation(location, BUCKET_ANNOTATION))?;
    let why = facts.not_removable?;
    let name = location.name_any();
    let text = format!(
        "backups cannot be deleted from {name}, so what has expired stays: {}",
        plain(&why)
    );
    Some(LOCATIONS.warn(text, format!("kubectl backup locations describe {name}")))
}

/// Reports that expired backups stay until a user agrees.
fn retention_stopped(location: &BackupStorageLocation) -> Option<Finding> {
    let why = retention::stopped(location)?;
    let name = location.name_any();
    let remedy = format!("kubectl backup locations retention {name}");
    Some(LOCATIONS.warn(format!("{name}: {why}"), remedy))
}

fn finding(location: &BackupStorageLocation, now: Timestamp) -> Finding {
    let on = LOCATIONS;
    let name = location.name_any();
    let remedy = format!("kubectl backup locations describe {name}");
    let checked = location.status.last_validation_time.as_ref().map(|at| at.0);
    let when = checked.map_or_else(String::new, |at| format!(", checked {}", ago(at, now)));
    match &location.status.phase {
        None => on.warn(
            format!("{name} was not checked yet"),
            "Wait a minute; else look after the controller.",
        ),
        Some(LocationPhase::Available) => {
            let is_overdue = checked
                .is_some_and(|at| now.as_second() - at.as_second() > MAX_VALIDATION_AGE_SECS);
            let message = location.status.message.as_deref();
            if is_overdue {
                on.warn(
                    format!("{name} was Available{when}, and not checked since"),
                    remedy,
                )
            } else if let Some(why) = message.filter(|why| !why.is_empty()) {
                on.warn(
                    format!("{name} is Available{when}, but {}", plain(why)),
                    remedy,
                )
            } else if is_read_only(location) {
                on.good(format!(
                    "{name} is Available{when}, read-only: no backup is stored there"
                ))
            } else {
                on.good(format!("{name} is Available{when}"))
            }
        }
        Some(LocationPhase::Unavailable) => {
            let why = plain(location.status.message.as_deref().unwrap_or_default());
            on.bad(format!("{name} is Unavailable{when}: {why}"), remedy)
        }
        Some(other) => on.unknown(
            &format!("{name} is {}", plain(other.as_str())),
            Some(remedy),
        ),
    }
}
