//! One location is the default: if several are marked, the newest stays marked (Velero
//! `backup_storage_location_controller.go`, v1.18).

use backup_core::{api::BackupStorageLocation, event_reason::EventReason};
use backup_runtime::{
    Cluster,
    retry::{self, PatchOutcome},
};
use kube::ResourceExt as _;
use serde_json::json;

use crate::{
    error::ReconcileError,
    location::{Locations, choose_default},
};

/// Unmarks all but the newest, if this location and another one are marked. Returns whether this
/// one was unmarked.
pub(super) async fn keep_one(
    cluster: &Cluster,
    locations: &Locations,
    location: &BackupStorageLocation,
) -> Result<bool, ReconcileError> {
    if !is_marked(location) {
        return Ok(false);
    }
    let all = locations.all().await?;
    let Some((newest, others)) = overruled(&all) else {
        return Ok(false);
    };
    let mut lost = false;
    for other in others {
        // Only in the listed version: a later change starts another reconcile, and the newest may
        // be gone by then.
        let outcome = retry::status_patch(cluster, other, |current| {
            (current.resource_version() == other.resource_version())
                .then(|| json!({"spec": {"default": false}}))
        })
        .await?;
        if !matches!(outcome, PatchOutcome::Written(_)) {
            continue;
        }
        let name = other.name_any();
        lost |= name == location.name_any();
        let note = format!(
            "{name} and {newest} both had spec.default: true; {newest} is newer and stays the default, spec.default of {name} \
             was set to false. If it is to be the other way round, set that of {newest} to false first"
        );
        cluster
            .events
            .warning(other, EventReason::NotDefault, &note);
        tracing::warn!(
            location = name,
            default = newest,
            "two locations were marked as the default"
        );
    }
    Ok(lost)
}

/// The newest marked location, and the other marked ones.
fn overruled(all: &[BackupStorageLocation]) -> Option<(String, Vec<&BackupStorageLocation>)> {
    let newest = choose_default(all, "").filter(|_| all.iter().any(is_marked))?;
    let others = all
        .iter()
        .filter(|location| is_marked(location) && location.name_any() != newest)
        .collect();
    Some((newest, others))
}

fn is_marked(location: &BackupStorageLocation) -> bool {
    location.spec.default == Some(true)
}

#[cfg(test)]
mod tests {
    use backup_testkit::{FakeApi, velero_path};

    use super::*;
    use crate::{location::tests::location, testing};

    #[test]
    fn those_that_say_so_and_are_not_the_newest_are_overruled() {
        let (old, new) = (
            location("old", Some(true), 1),
            location("new", Some(true), 2),
        );
        let (plain, newest) = (
            location("plain", None, 3),
            location("newest", Some(false), 4),
        );
        let all = [old.clone(), new.clone(), plain.clone(), newest.clone()];
        assert_eq!(overruled(&all), Some(("new".to_owned(), vec![&old])));
        assert_eq!(
            overruled(&[old.clone(), plain.clone()]),
            Some(("old".to_owned(), vec![]))
        );
        assert_eq!(overruled(&[plain, newest]), None, "nobody says so");
    }

    #[rstest::rstest]
    #[case::while_both_stay(false, false)]
    #[case::when_the_newest_goes_and_it_is_marked_again(true, true)]
    #[tokio::test]
    async fn the_mark_is_taken_off_what_was_listed_with_the_newest_and_nothing_later(
        #[case] newest_goes: bool,
        #[case] stays: bool,
    ) {
        let api = FakeApi::new();
        let path = |name: &str| velero_path("BackupStorageLocation", name);
        let location = |name: &str, created: &str| {
            json!({
                "apiVersion": "velero.io/v1", "kind": "BackupStorageLocation",
                "metadata": {"name": name, "namespace": "velero", "uid": name, "creationTimestamp": created},
                "spec": {"provider": "aws", "objectStorage": {"bucket": "b"}, "default": true},
            })
        };
        api.put(&path("old"), location("old", "2026-01-01T00:00:00Z"));
        api.put(&path("new"), location("new", "2026-01-02T00:00:00Z"));
        if newest_goes {
            let (old, new) = (path("old"), path("new"));
            api.before("PATCH", &path("old"), move |api| {
                api.delete(&new);
                api.edit(&old, |old| old["spec"]["default"] = json!(true));
            });
        }
        let seen = serde_json::from_value(api.get(&path("old")).unwrap()).unwrap();
        let cluster = testing::cluster(api.client());
        let locations = testing::locations(&cluster);
        let lost = keep_one(&cluster, &locations, &seen).await.unwrap();
        assert_eq!(lost, !stays);
        assert_eq!(
            api.get(&path("old")).unwrap()["spec"]["default"],
            json!(stays)
        );
    }
}
