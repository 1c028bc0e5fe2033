use crate::prelude::*;

#[tokio::test]
async fn a_restore_is_created_with_and_without_the_word() {
    let api = FakeApi::with([completed_backup("nightly")]).await;
    let person = Person::at(&api);
    transcript!(
        person,
        "restore --from-backup=nightly --include-namespaces=shop --namespace-mappings=shop:copy,db:db-copy --existing-resource-policy=update"
    );
    assert_eq!(
        api.stored("restores", "nightly-20261103051412").unwrap()["spec"],
        json!({"backupName": "nightly", "includedNamespaces": ["shop"], "namespaceMapping": {"shop": "copy", "db": "db-copy"}, "existingResourcePolicy": "update"})
    );
    transcript!(person, "restore create again --from-backup=nightly");
    transcript!(
        person,
        "restore create --from-schedule=nightly --name=newest --restore-volumes=false -o name"
    );
    assert_eq!(
        api.stored("restores", "newest").unwrap()["spec"],
        json!({"scheduleName": "nightly", "restorePVs": false})
    );
}

#[tokio::test]
async fn a_backup_that_cannot_be_restored_is_told_at_once() {
    let api = FakeApi::with([
        new_backup("early"),
        with(completed_backup("broken"), &json!({"status": {"phase": "Failed"}})),
        with(completed_backup("newer"), &json!({"status": {"phase": "Compacting"}})),
    ])
    .await;
    transcript!(
        Person::at(&api),
        "restore --from-backup=early",
        "restore --from-backup=broken",
        "restore --from-backup=newer"
    );
}
