//! Damage of repositories that have the data of last good backups. Pure.

use super::BackupFacts;
use crate::view::repository::DamagedRepository;

/// That the data of volumes of a namespace may not come back whole with its last good backup.
pub(super) fn remark(
    namespace: &str,
    good: &BackupFacts,
    damaged: &[DamagedRepository],
) -> Option<String> {
    let is_damaged = damaged
        .iter()
        .any(|one| one.namespace == namespace && one.location == good.evidence.location);
    (good.moves_data && is_damaged).then(|| {
        format!(
            "the data of its volumes in its last good backup may rely on data that is damaged: `kubectl backup describe {}` \
             says more",
            good.name
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn damage_of_the_repository_with_the_data_of_the_last_good_backup_is_worth_a_look() {
        for (moves, namespace, location, is_named) in [
            (true, "shop", "default", true),
            (false, "shop", "default", false),
            (true, "db", "default", false),
            (true, "shop", "second", false),
        ] {
            let good = json!({ "metadata": { "name": "b" },
                "spec": { "storageLocation": "default", "snapshotMoveData": moves } });
            let good = serde_json::from_value(good).unwrap();
            let good = BackupFacts::of(&good, jiff::Timestamp::UNIX_EPOCH);
            let damaged = DamagedRepository {
                namespace: namespace.to_owned(),
                location: location.to_owned(),
                folder: format!("restic/{namespace}"),
                damage: "a pack is missing".to_owned(),
            };
            let found = remark("shop", &good, &[damaged]);
            let found = found.is_some_and(|text| text.contains("`kubectl backup describe b`"));
            assert_eq!(found, is_named, "{moves} {namespace} {location}");
        }
    }
}
