//! `-o`, `-A`, `-w`: the options that kubectl's users expect of every list.

use crate::prelude::*;

async fn cluster() -> FakeApi {
    FakeApi::with([
        with(
            completed_backup("alpha"),
            &json!({"status": {"errors": 12, "phase": "PartiallyFailed"}}),
        ),
        with(completed_backup("beta"), &json!({"status": {"errors": 3}})),
        with(
            completed_backup("epsilon"),
            &json!({"metadata": {"namespace": "elsewhere"}}),
        ),
        new_backup("gamma"),
        with(
            new_backup("delta"),
            &json!({"spec": {"ttl": "tomorrow"}, "metadata": {"labels": {"text": "a\u{1b}[2J"}}}),
        ),
    ])
    .await
}

#[tokio::test]
async fn rows_have_headers_namespaces_and_labels_as_asked() {
    transcript!(
        Person::at(&cluster().await),
        "get --no-headers",
        "get -A --show-labels",
        "get nobody -o json"
    );
}

#[tokio::test]
async fn documents_are_printed_for_programs() {
    let api = FakeApi::with([location("Available", "")]).await;
    let person = Person::at(&api);
    let list = person.reads("locations sync -o json").await;
    assert_eq!(list["locations"][0]["phase"], "Available");
    assert_eq!(list["locations"][0]["name"], "default");
    assert_eq!(person.reads("locks -o json").await["kind"], "LockList");
    let rows = person.types("locations sync --no-headers").await;
    assert_says!(rows, "--no-headers\ndefault   Available   60s ago\n");
}

#[tokio::test]
async fn a_terminal_is_not_steered_by_what_an_object_holds() {
    let person = Person::at(&cluster().await).at_terminal("");
    let seen = person.types("get delta -o json").await;
    assert!(
        seen.contains("a\\u001b[2J") && !seen.contains('␛'),
        "{seen}"
    );
    let seen = person.types("get delta -o yaml").await;
    assert!(!seen.contains('␛'), "{seen}");
}

/// The events of a watch, in this order.
pub fn events(all: &[(&str, Value)]) -> Fault {
    let lines = all
        .iter()
        .map(|(kind, object)| json!({"type": kind, "object": object}).to_string() + "\n");
    Fault::Bytes(
        200,
        vec![("content-type", "application/json".to_owned())],
        lines.collect::<String>().into_bytes(),
    )
}

fn version(name: &str, version: &str, over: &Value) -> Value {
    with(
        with(
            new_backup(name),
            &json!({"metadata": {"resourceVersion": version}}),
        ),
        over,
    )
}

#[tokio::test]
async fn watching_appends_a_row_for_every_change() {
    let none = json!({});
    let running =
        json!({"status": {"phase": "InProgress", "startTimestamp": "2026-11-03T05:14:05Z"}});
    let api = FakeApi::with([
        version("before-the-great-upgrade", "1", &none),
        version("b", "2", &none),
    ])
    .await;
    api.on_get(
        "/backups?watch",
        events(&[
            ("MODIFIED", version("b", "3", &running)),
            (
                "ADDED",
                version("c", "4", &json!({"spec": {"ttl": "tomorrow"}})),
            ),
            ("DELETED", version("c", "5", &none)),
        ]),
    );
    assert_snapshot!("watch", Person::at(&api).watches("get -w", "Deleted").await);
}

#[tokio::test]
async fn watching_survives_a_restart_and_shows_only_changes() {
    let api = FakeApi::with([version("a", "1", &json!({})), version("b", "2", &json!({}))]).await;
    let gone = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 410, "reason": "Expired", "message": "too old resource version"});
    let away = Fault::unavailable("apiserver is shutting down");
    api.meets(
        &Method::GET,
        "/backups?watch",
        [away, events(&[("ERROR", gone)])],
    );
    // The objects of the second list.
    let person = Person::at(&api);
    let (seen, ()) = tokio::join!(person.watches("get -w", "Completed"), async {
        while api
            .seen()
            .iter()
            .filter(|one| one.contains("watch="))
            .count()
            < 2
        {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        api.has(version(
            "b",
            "9",
            &json!({"status": {"phase": "Completed"}}),
        ));
    });
    assert_snapshot!(seen);
}

#[tokio::test]
async fn watching_what_cannot_be_listed_ends_with_the_reason() {
    let api = FakeApi::start().await;
    let forbidden =
        Fault::forbidden("backups.velero.io is forbidden: User \"jane\" cannot list resource");
    api.on_get("/backups", forbidden);
    let seen = Person::at(&api).types("get -w").await;
    assert_says!(
        seen,
        "cannot watch backups: backups.velero.io is forbidden",
        "--- exit 1\n"
    );
}

#[tokio::test]
async fn groups_list_in_every_form_without_a_verb() {
    let api = FakeApi::with([location("Available", ""), completed_restore("again", "b")]).await;
    transcript!(
        Person::at(&api),
        "locations -o name",
        "restores -n velero -o name",
        "schedules --no-headers",
        "restores -o name describe again"
    );
}
