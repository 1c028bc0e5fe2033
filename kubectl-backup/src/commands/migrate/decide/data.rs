//! Backups, the data of volumes that only Velero saves or reads, and work that has not ended.

use std::collections::{BTreeMap, BTreeSet};

use backup_core::{
    data_movement::PASSWORD_SECRET,
    labels::{VOLUMES_TO_COPY, valid_value},
    text::counted,
};

use super::some_of;
use crate::{
    commands::migrate::{
        consequence::{Consequence, Subject},
        installation::{BackupState, UnfinishedWork, VeleroInstallation},
    },
    print::{day, plain},
};

const BACKUPS: Subject = Subject("backups");
const PODS: Subject = Subject("pods");
const REPOSITORIES: Subject = Subject("repositories");
const WORK: Subject = Subject("work");
/// The format of our repositories, which is also one of Velero's.
const RESTIC: &str = "restic";

pub(crate) fn consequences(installation: &VeleroInstallation) -> Vec<Consequence> {
    let mut all = Vec::new();
    if !installation.backups.is_empty() {
        let backups = counted(installation.backups.len(), "backup");
        all.push(BACKUPS.stays(format!(
            "{backups} in the cluster: files in the bucket and expiration stay as they are"
        )));
    }
    all.extend(pods_to_copy(installation));
    all.extend(saved_by_velero(installation));
    all.extend(unlisted(installation));
    all.extend(repositories(installation));
    all.extend(password(installation));
    all.extend(work(&installation.unfinished));
    all
}

/// Pods that ask by an annotation for copies of the files of their volumes.
fn pods_to_copy(installation: &VeleroInstallation) -> Option<Consequence> {
    let pods = &installation.pods_to_copy;
    (!pods.is_empty()).then(|| {
        PODS.lost(
            format!(
                "the annotation {VOLUMES_TO_COPY} of {} ({}) is not followed, and is an error of each backup with such a pod",
                counted(pods.len(), "pod"),
                some_of(pods)
            ),
            "Take snapshots of volumes of CSI drivers and move their data, and remove the annotation \
             (docs/use/volumes.md#moved-into-the-bucket). Others: keep Velero for them.",
        )
    })
}

/// Data in repositories, one line for each format.
fn saved_by_velero(installation: &VeleroInstallation) -> Vec<Consequence> {
    // Labels have the names of backups, shortened if they are long.
    let backups: BTreeMap<String, &BackupState> = installation
        .backups
        .iter()
        .map(|backup| (valid_value(&backup.name), backup))
        .collect();
    let formats: BTreeSet<&str> = installation
        .volumes
        .iter()
        .map(|volume| volume.format.as_str())
        .collect();
    let mut all = Vec::new();
    for format in formats {
        let volumes = installation.volumes.iter();
        let of_format = volumes.filter(|volume| volume.format == format);
        let owners: Vec<&BackupState> = of_format
            .filter_map(|volume| backups.get(&volume.backup).copied())
            .collect();
        let names: BTreeSet<String> = owners.iter().map(|owner| plain(&owner.name)).collect();
        let names: Vec<String> = names.into_iter().collect();
        if names.is_empty() {
            continue;
        }
        let volumes = counted(owners.len(), "volume");
        let count = counted(names.len(), "backup");
        let last = owners.iter().filter_map(|owner| owner.expires).max();
        let until = last.map_or_else(String::new, |last| {
            format!("; the last of them expires on {}", day(last))
        });
        let names = some_of(&names);
        all.push(REPOSITORIES.lost(
            format!(
                "{format}: only Velero restores the data of {volumes} in {count} ({names}){until}"
            ),
            "Go back to Velero for restores of them until then (back.sh), or give the data up: kubectl backup delete NAME \
             --forget-data (docs/use/volumes.md#data-in-a-repository).",
        ));
    }
    all
}

/// Backups that ask for data in a repository, of which the cluster has no list: they were made in
/// another cluster, or their data was not saved.
fn unlisted(installation: &VeleroInstallation) -> Option<Consequence> {
    let listed: BTreeSet<&str> = installation
        .volumes
        .iter()
        .map(|volume| volume.backup.as_str())
        .collect();
    let names: Vec<String> = installation
        .backups
        .iter()
        .filter(|backup| {
            let label = valid_value(&backup.name);
            backup.asks_for_repository && !listed.contains(label.as_str())
        })
        .map(|backup| plain(&backup.name))
        .collect();
    let count = counted(names.len(), "backup");
    (!names.is_empty()).then(|| {
        REPOSITORIES
            .unknown(format!(
                "{count} may have data in a repository, and the cluster has no list of it: {}",
                some_of(&names)
            ))
            .with_remedy("See what each has: velero backup describe NAME --details")
    })
}

fn repositories(installation: &VeleroInstallation) -> Option<Consequence> {
    let all = &installation.repositories;
    let formats: BTreeSet<String> = all.iter().cloned().collect();
    let formats: Vec<String> = formats.into_iter().collect();
    let count = if all.len() == 1 {
        "1 repository".to_owned()
    } else {
        format!("{} repositories", all.len())
    };
    (!all.is_empty()).then(|| {
        REPOSITORIES
            .changes(format!(
                "{count} of Velero ({}): nothing maintains them here, so that they grow no more, and are not made smaller",
                formats.join(", ")
            ))
            .with_remedy("Keep them as long as a backup needs them.")
    })
}

fn password(installation: &VeleroInstallation) -> Option<Consequence> {
    if !installation.secrets.contains(PASSWORD_SECRET) {
        return None;
    }
    let namespace = &installation.namespace;
    let has_restic = installation
        .repositories
        .iter()
        .any(|format| format == RESTIC)
        || installation
            .volumes
            .iter()
            .any(|volume| volume.format == RESTIC);
    Some(if has_restic {
        REPOSITORIES.stays(format!(
            "Secret {PASSWORD_SECRET} stays: our repositories lie where Velero has those of restic, and need its password"
        ))
    } else {
        REPOSITORIES
            .changes(format!(
                "the password in Secret {PASSWORD_SECRET} is also that of our repositories; Velero's default is public, so all \
                 readers of the bucket could decrypt the data"
            ))
            .with_remedy(format!(
                "For a random one, keep a copy for Velero, and before the first backup that moves data: kubectl -n {namespace} \
                 delete secret {PASSWORD_SECRET}"
            ))
    })
}

fn work(unfinished: &[UnfinishedWork]) -> Vec<Consequence> {
    let named = |is_tied: bool| -> Vec<String> {
        let some = unfinished.iter().filter(|work| work.is_tied == is_tied);
        some.map(|work| work.name.clone()).collect()
    };
    let mut all = Vec::new();
    let tied = named(true);
    if !tied.is_empty() {
        all.push(WORK.lost(
            format!(
                "only this server knows what these wait for: {}",
                some_of(&tied)
            ),
            "Wait until they have ended.",
        ));
    }
    let others = named(false);
    if !others.is_empty() {
        all.push(
            WORK.changes(format!(
                "these have not ended, and are done again from their beginning: {}",
                some_of(&others)
            ))
            .with_remedy(
                "Wait until they have ended (docs/operate/from-velero.md#what-velero-left-at-work).",
            ),
        );
    }
    all
}
