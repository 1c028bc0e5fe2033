//! Whether the last good backup has the data of the volumes that were there.

use backup_core::{
    restorability::{Evidence, Place, Places},
    volume_data::MissingData,
};

use super::{Finding, Topic};
use crate::{
    commands::{get::places, prelude::*},
    view::related::began,
};

const REMEDY: &str = "Turn snapshots of CSI volumes on with `kubectl backup upgrade --features=EnableCSI`, where the driver has a \
                      VolumeSnapshotClass; or name a location for snapshots by a plugin: kubectl backup locations snapshots create --help";

struct Good {
    name: String,
    began: Option<Timestamp>,
    missing: Option<MissingData>,
}

/// Says nothing where there is no good backup: `status` does.
pub(super) async fn volumes(session: &Session) -> Result<Vec<Finding>, Problem> {
    let places = places(session).await;
    let good = |one: Backup| good(&one, &places);
    let all = session.list_readable(ListParams::default(), good).await?;
    let last = all.into_iter().max_by_key(|one| one.began);
    Ok(last.and_then(|last| judge(&last)).into_iter().collect())
}

fn good(backup: &Backup, places: &Places) -> Option<Good> {
    let evidence = Evidence::of(backup);
    let place = places.find(&evidence.location);
    let is_read = !matches!(place, Place::Unread(_));
    let is_good = evidence.judge(is_read.then_some(&place)).is_good;
    is_good.then(|| Good { name: backup.name_any(), began: began(backup), missing: evidence.missing })
}

fn judge(last: &Good) -> Option<Finding> {
    let missing = last.missing.as_ref()?.sentence("is not in it");
    let text = plain(&format!("the last good backup is {}, and {missing}", last.name));
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
        let found = judged(r#"{"missing":1,"of":2,"volumes":{"shop/data":"snapshots are off"}}"#).unwrap();
        assert_eq!(
            found.text,
            "the last good backup is b, and the data of 1 of 2 volumes is not in it: shop/data (snapshots are off)"
        );
    }
}
