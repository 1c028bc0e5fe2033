use insta::assert_snapshot;
use serde_json::json;

use crate::{
    fake_api::FakeApi,
    person::Person,
    samples::{completed_backup, new_backup, with},
};

#[tokio::test]
async fn a_restore_is_created_with_and_without_the_word() {
    let api = FakeApi::start().await;
    api.has("backups", completed_backup("nightly"));
    let person = Person::at(&api);
    assert_snapshot!(person.types("kubectl backup restore --from-backup=nightly --include-namespaces=shop --namespace-mappings=shop:copy,db:db-copy --existing-resource-policy=update").await);
    assert_eq!(
        api.stored("restores", "nightly-20261103051412").unwrap()["spec"],
        json!({"backupName": "nightly", "includedNamespaces": ["shop"], "namespaceMapping": {"shop": "copy", "db": "db-copy"}, "existingResourcePolicy": "update"})
    );
    assert_snapshot!(person.types("kubectl backup restore create again --from-backup=nightly").await);
    assert_snapshot!(person.types("kubectl backup restore create --from-schedule=nightly --name=newest --restore-volumes=false -o name").await);
    assert_eq!(
        api.stored("restores", "newest").unwrap()["spec"],
        json!({"scheduleName": "nightly", "restorePVs": false})
    );
}

#[tokio::test]
async fn a_backup_that_can_not_be_restored_is_told_at_once() {
    let api = FakeApi::start().await;
    api.has("backups", new_backup("early"))
        .has("backups", with(completed_backup("broken"), &json!({"status": {"phase": "Failed"}})))
        .has("backups", with(completed_backup("newer"), &json!({"status": {"phase": "Compacting"}})));
    let person = Person::at(&api);
    let mut all = String::new();
    for name in ["early", "broken", "newer"] {
        all += &person.types(&format!("kubectl backup restore --from-backup={name}")).await;
    }
    assert_snapshot!(all);
}
