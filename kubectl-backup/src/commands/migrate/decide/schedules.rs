//! Schedules: when they run, whether their backups are accepted, and how the data of volumes is saved.

use backup_core::{
    api::{BackupSpec, Schedule},
    cron::{Dialect, Reading},
    resource_policy::{self, VolumeActionKind},
    validate,
};
use jiff::Timestamp;

use super::{
    actions::sentences,
    locations::{dropped_fields, unreadable},
};
use crate::{
    commands::migrate::{
        consequence::{Consequence, Subject},
        installation::VeleroInstallation,
        server::Flag,
    },
    print::plain,
};

const ON: Subject = Subject("schedules");
/// Flag of Velero's server and of ours: backups move data unless they say otherwise.
const MOVED_BY_DEFAULT: &str = "default-snapshot-move-data";

pub(crate) fn consequences(installation: &VeleroInstallation, now: Timestamp) -> Vec<Consequence> {
    let mut all = Vec::new();
    for stored in &installation.schedules {
        all.extend(unreadable(ON, stored, &installation.namespace));
        all.extend(dropped_fields(ON, stored));
        if let Ok(schedule) = &stored.object {
            all.extend(of_schedule(&stored.name, schedule, installation, now));
        }
    }
    all
}

fn of_schedule(
    name: &str,
    schedule: &Schedule,
    installation: &VeleroInstallation,
    now: Timestamp,
) -> Vec<Consequence> {
    let template = &schedule.spec.template;
    let dialect = installation.server.dialect();
    let dialects = dialect.map_or(Dialect::ALL.to_vec(), |dialect| vec![dialect]);
    let refused = validate::engine_schedule(&schedule.spec, &dialects);
    if !refused.is_empty() {
        let remedy = format!(
            "Change it before the move: kubectl -n {} edit schedules.velero.io {name}",
            installation.namespace
        );
        let refused = sentences(&refused);
        let text = format!("backups of {name} are refused here: {refused}");
        return vec![ON.lost(text, remedy)];
    }
    let expression = plain(&schedule.spec.schedule);
    let ttl = template.ttl.filter(|ttl| !ttl.is_zero());
    let kept = ttl.map_or_else(|| "the default time".to_owned(), |ttl| ttl.to_string());
    let state = if schedule.spec.paused {
        "is paused, and stays so"
    } else {
        "makes its backups here"
    };
    let mut all = vec![ON.stays(format!("{name} ({expression}, kept for {kept}) {state}"))];
    all.extend(days(name, &expression, schedule, installation, now));
    all.extend(policy(name, template, installation));
    let by_default = installation
        .server
        .flag(MOVED_BY_DEFAULT)
        .is_some_and(Flag::is_on);
    if template.snapshot_move_data.unwrap_or(by_default) {
        let text = format!(
            "backups of {name} move the data of volumes into repositories of our own: the first one moves all of it"
        );
        let remedy =
            "The namespace has to admit the pods that do it (docs/operate/install.md#volume-data).";
        all.push(ON.changes(text).with_remedy(remedy));
    }
    all
}

/// Whether it runs on the same days: Velero's two libraries read some expressions differently.
fn days(
    name: &str,
    expression: &str,
    schedule: &Schedule,
    installation: &VeleroInstallation,
    now: Timestamp,
) -> Option<Consequence> {
    let server = &installation.server;
    let zone = server.variable("TZ").unwrap_or("UTC");
    let dialect = server.dialect();
    let reading: Reading = format!("{} {zone}", dialect.unwrap_or_default())
        .parse()
        .unwrap_or_default();
    let difference = reading.difference(&schedule.spec.schedule, now)?;
    let difference = plain(&difference.to_string());
    Some(match dialect {
        Some(dialect) => ON.stays(format!(
            "{name} runs on the same days as long as --cron-dialect={dialect} is set: {difference}"
        )),
        None => ON
            .unknown(format!(
                "whether {name} ({expression}) runs on the same days, as the image of the server names no version: \
                 {difference}"
            ))
            .with_remedy("Choose --cron-dialect by the version of Velero (docs/use/schedules.md#which-cron)."),
    })
}

fn policy(
    name: &str,
    template: &BackupSpec,
    installation: &VeleroInstallation,
) -> Option<Consequence> {
    let reference = template.resource_policy.as_ref()?;
    let shown = plain(&reference.name);
    let data = match installation.config_maps.get(&reference.name) {
        Some(Some(data)) => data,
        Some(None) => {
            return Some(ON.lost(
                format!("ConfigMap {shown} with the resource policy of {name} does not exist"),
                "Create it, or remove spec.template.resourcePolicy: its backups fail otherwise.",
            ));
        }
        None => {
            let text = format!(
                "whether the resource policy of {name} (ConfigMap {shown}) can be followed"
            );
            return Some(ON.unknown(text));
        }
    };
    let policy = match resource_policy::read(data) {
        Ok(policy) => policy,
        Err(findings) => {
            let text = format!(
                "the resource policy of {name} (ConfigMap {shown}) cannot be followed: {}",
                sentences(&findings)
            );
            return Some(ON.lost(text, "Correct it before the move."));
        }
    };
    let is_followed = !policy.volumes.iter().any(|rule| {
        matches!(
            rule.action.kind,
            VolumeActionKind::FsBackup | VolumeActionKind::Custom
        )
    });
    Some(if is_followed {
        ON.stays(format!(
            "the resource policy of {name} (ConfigMap {shown}) is followed"
        ))
    } else {
        ON.lost(
            format!(
                "the resource policy of {name} (ConfigMap {shown}) has the action fs-backup or custom, which is an error of \
                 each claim here"
            ),
            "Let it snapshot or skip these volumes (docs/use/volumes.md).",
        )
    })
}
