//! Whether the last good backup has the data of the volumes that existed then, and whether the next
//! backup would.

use backup_core::{
    restorability::{Evidence, Place, Places},
    volume_data::MissingData,
};
use backup_deploy::{PROGRAMS, enables_snapshots};
use k8s_openapi::api::apps::v1::Deployment;

use super::{Finding, Topic};
use crate::{
    commands::{
        get::places,
        prelude::*,
        volumes::{Snapshots, observe},
    },
    view::related::began,
};

const REMEDY: &str = "`kubectl backup describe` shows all of them; the next lines say whether the next backup would hold their data.";

struct Good {
    name: String,
    began: Option<Timestamp>,
    missing: Option<MissingData>,
}

/// Reports nothing if there is no good backup: `status` reports that.
pub(super) async fn saved(session: &Session) -> Result<Vec<Finding>, Problem> {
    let places = places(session).await;
    let all = session
        .list_readable(ListParams::default(), |one: Backup| good(&one, &places))
        .await?;
    let last = all.into_iter().max_by_key(|one| one.began);
    Ok(last.and_then(|last| judge(&last)).into_iter().collect())
}

/// Judges by the volumes that are bound to claims now. In guard mode our controller makes no
/// backups.
pub(super) async fn would_be_saved(
    session: &Session,
    now: Timestamp,
) -> Result<Vec<Finding>, Problem> {
    let (snapshots, volumes) = futures::join!(snapshots(session), observe(session, now));
    Ok(match snapshots {
        Some(snapshots) => volumes?.findings(snapshots),
        None => Vec::new(),
    })
}

/// Whether the controller takes snapshots; `None` if it makes no backups.
async fn snapshots(session: &Session) -> Option<Snapshots> {
    let Some(args) = controller_args(session).await else {
        return Some(Snapshots::Unknown);
    };
    let is_guard = args.iter().any(|arg| arg == "--guard=velero");
    (!is_guard).then(|| {
        if enables_snapshots(&args) {
            Snapshots::On
        } else {
            Snapshots::Off
        }
    })
}

/// The arguments of the controller; `None` if they cannot be read.
pub(super) async fn controller_args(session: &Session) -> Option<Vec<String>> {
    let [_, controller] = PROGRAMS;
    let deployment = session.get::<Deployment>(controller).await.ok()?;
    let containers = deployment.spec?.template.spec?.containers;
    let args = containers
        .into_iter()
        .filter_map(|container| container.args);
    Some(args.flatten().collect())
}

fn good(backup: &Backup, places: &Places) -> Option<Good> {
    let evidence = Evidence::of(backup);
    let place = places.of_backup(&evidence);
    let is_read = !matches!(place, Place::Unread(_));
    let is_good = evidence.judge(is_read.then_some(&place)).is_good;
    is_good.then(|| Good {
        name: backup.name_any(),
        began: began(backup),
        missing: evidence.missing,
    })
}

fn judge(last: &Good) -> Option<Finding> {
    let missing = last.missing.as_ref()?.sentence("is not in it");
    let text = plain(&format!(
        "the last good backup is {}, and {missing}",
        last.name
    ));
    Some(Topic("volumes").warn(text, REMEDY))
}

#[cfg(test)]
mod tests {
    use backup_core::labels::MISSING_DATA_ANNOTATION;

    use super::*;

    #[test]
    fn a_last_backup_without_the_data_of_volumes_is_worth_a_look() {
        let backup = |missing: &str| -> Backup {
            serde_json::from_value(json!({ "apiVersion": "velero.io/v1", "kind": "Backup",
                "metadata": { "name": "b", "creationTimestamp": "2026-11-03T03:00:00Z",
                    "annotations": { MISSING_DATA_ANNOTATION: missing } },
                "spec": { "storageLocation": "default" },
                "status": { "phase": "Completed", "startTimestamp": "2026-11-03T03:00:00Z" } }))
            .unwrap()
        };
        let unread = Places(Err("forbidden".to_owned()));
        let judged = |missing: &str| judge(&good(&backup(missing), &unread).unwrap());
        assert_eq!(judged(r#"{"missing":0,"of":1,"volumes":{}}"#), None);
        let found =
            judged(r#"{"missing":1,"of":2,"volumes":{"shop/data":"snapshots are off"}}"#).unwrap();
        assert_eq!(
            found.text,
            "the last good backup is b, and the data of 1 of 2 volumes is not in it: shop/data (snapshots are off)"
        );
    }
}
