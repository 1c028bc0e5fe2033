use crate::prelude::*;

fn second() -> Value {
    with(
        location("Available", ""),
        &json!({ "metadata": { "name": "second" }, "spec": { "default": false } }),
    )
}

#[tokio::test]
async fn a_copy_is_added_to_the_spec_and_described() {
    let api = FakeApi::with([completed_backup("nightly"), second()]).await;
    let person = Person::at(&api);
    let said = person.types("copy nightly --to=second --ttl=90d").await;
    assert_says!(said, "nightly copy to second requested", "--- exit 0");
    let stored = api.stored("backups", "nightly").unwrap();
    let expected = json!([{ "location": "second", "ttl": "2160h0m0s" }]);
    assert_eq!(stored["spec"]["copies"], expected);
    let state = json!([{ "location": "second", "phase": "Completed", "bytes": 2048 }]);
    api.has(with(stored, &json!({ "status": { "copies": state } })));
    let said = person.types("copy nightly --to=second --wait").await;
    assert_says!(
        said,
        "nightly was copied to second before",
        "the files there were not looked for now",
        "--- exit 0"
    );
    let said = person.types("describe nightly").await;
    assert_says!(said, "Copies", "second (2.0 KiB, never expires)");
}

#[tokio::test]
async fn what_cannot_be_copied_says_why() {
    let api = FakeApi::with([completed_backup("nightly"), second()]).await;
    api.has(backup_in("InProgress", "running"));
    let person = Person::at(&api);
    for (line, said) in [
        ("copy nightly --to=missing", "missing"),
        ("copy nightly --to=default", "itself is stored in location"),
        ("copy running --to=second", "is InProgress"),
        ("copy nobody --to=second", "nobody"),
    ] {
        let shown = person.types(line).await;
        assert_says!(shown, said, "--- exit 1");
    }
    let stored = api.stored("backups", "nightly").unwrap();
    assert!(stored["spec"]["copies"].is_null(), "{stored}");
}
