//! `-o`, `--sort-by`, `-A`, `-w`: the options that kubectl's users expect of every list.

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
async fn every_form_of_kubectl_is_taken() {
    let person = Person::at(&cluster().await);
    let mut all = String::new();
    for line in [
        "get -o jsonpath={.items[*].metadata.name}",
        r#"get -o jsonpath={range.items[*]}{.metadata.name}{"\n"}{end}"#,
        r#"get -o jsonpath={.items[?(@.status.phase=="PartiallyFailed")].metadata.name}"#,
        "get alpha -o jsonpath={.status.errors}",
        "get -o custom-columns=NAME:.metadata.name,ERRORS:.status.errors,TTL:.spec.ttl,LABELS:.metadata.labels.text",
        "get -o custom-columns=NAME:.metadata.name --no-headers",
        "get --sort-by=.status.errors",
        "get --sort-by={.metadata.name} -o name",
        "get -A --show-labels",
        "get nobody -o jsonpath={.metadata.name}",
    ] {
        all += &person
            .types(&line.replace("{range.", "{range\u{a0}."))
            .await
            .replace('\u{a0}', " ");
        all += "\n";
    }
    assert_snapshot!(all);
}

#[tokio::test]
async fn what_is_printed_of_documents_can_be_chosen_too() {
    let api = FakeApi::with([location("Available", "")]).await;
    transcript!(
        Person::at(&api),
        "locations sync -o jsonpath={.locations[*].phase}",
        "locations sync -o custom-columns=WHERE:.name,HOW:.phase",
        "locations sync --no-headers",
        "locks -o jsonpath={.kind}"
    );
}

#[tokio::test]
async fn a_terminal_is_not_steered_by_what_a_template_brings() {
    let person = Person::at(&cluster().await).at_terminal("");
    let seen = person
        .types("get delta -o jsonpath={.metadata.labels.text}")
        .await;
    assert!(seen.contains("a?[2J") && !seen.contains('␛'), "{seen}");
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
    // A separate cluster for each watch: one that was stopped may still send requests.
    let cluster = async || {
        FakeApi::with([
            version("before-the-great-upgrade", "1", &none),
            version("b", "2", &none),
        ])
        .await
    };
    let api = cluster().await;
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
    let api = cluster().await;
    api.on_get(
        "/backups?watch",
        events(&[("MODIFIED", version("b", "3", &running))]),
    );
    assert_snapshot!(
        "watch columns",
        Person::at(&api)
            .watches(
                "get -w -o custom-columns=NAME:.metadata.name,PHASE:.status.phase",
                "InProgress"
            )
            .await
    );
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
    assert!(
        seen.contains("cannot watch backups: backups.velero.io is forbidden")
            && seen.ends_with("--- exit 1\n"),
        "{seen}"
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
