use crate::prelude::*;

const UID: &str = "00000001-aaaa-bbbb-cccc-dddddddddddd";

/// The backup `b`, the first that the fake API created, with this status.
#[allow(clippy::needless_pass_by_value)] // statuses are made on the spot
fn b(status: Value) -> Value {
    with(
        new_backup("b"),
        &json!({"metadata": {"uid": UID}, "status": status}),
    )
}

fn items(done: i64) -> Value {
    json!({"phase": "InProgress", "progress": {"totalItems": 300, "itemsBackedUp": done}})
}

#[tokio::test]
async fn waiting_ends_with_the_code_of_every_outcome() {
    for (phase, code) in [
        ("Completed", 0),
        ("PartiallyFailed", 3),
        ("Failed", 3),
        ("FailedValidation", 3),
        ("Deleting", 3),
    ] {
        let api = FakeApi::start().await;
        api.becomes("/b", [b(json!({"phase": phase, "errors": 1}))]);
        let seen = Person::at(&api).types("create b --wait --timeout=1m").await;
        assert!(seen.ends_with(&format!("--- exit {code}\n")), "{seen}");
    }
    let api = FakeApi::start().await;
    api.becomes(
        "/b",
        [b(
            json!({"phase": "PartiallyFailed", "errors": 1, "progress": {"totalItems": 0}}),
        )],
    );
    let seen = Person::at(&api).types("create b --wait --timeout=1m").await;
    assert_says!(
        seen,
        "PartiallyFailed. Nothing was saved (1 error).",
        "--- exit 3\n"
    );
}

#[tokio::test]
async fn every_change_is_a_line_and_an_unknown_phase_is_no_end() {
    let api = FakeApi::start().await;
    let statuses = [
        json!({}),
        json!({"phase": "Queued", "queuePosition": 1}),
        items(10),
        items(20),
        json!({"phase": "Compacting"}),
        json!({"phase": "PartiallyFailed", "errors": 2, "failureReason": "the node went away"}),
    ];
    api.becomes("/b", statuses.map(b));
    transcript!(Person::at(&api), "create b --wait");
}

#[tokio::test]
async fn waiting_survives_an_api_server_that_restarts() {
    let api = FakeApi::start().await;
    let no_rbac_yet = "backups.velero.io \"b\" is forbidden: User \"jane\" cannot get resource";
    api.meets(
        &Method::GET,
        "/b",
        [
            Fault::Becomes(b(json!({"phase": "InProgress"}))),
            Fault::unavailable("apiserver is shutting down"),
            Fault::refused(404, "NotFound", "404 page not found"),
            Fault::forbidden(no_rbac_yet),
            Fault::Becomes(b(json!({"phase": "Completed"}))),
        ],
    );
    transcript!(Person::at(&api), "create b --wait");
}

#[tokio::test]
async fn time_that_runs_out_is_told_with_exit_code_124() {
    let api = FakeApi::start().await;
    transcript!(Person::at(&api), "create b --wait --timeout=300ms");
    // Also if the API server accepts the request and never answers.
    api.on_get("/c", Fault::Hang);
    transcript!(Person::at(&api), "create c --wait --timeout=300ms");
}

#[tokio::test]
async fn waiting_ends_when_the_object_is_deleted_or_replaced() {
    let api = FakeApi::start().await;
    api.on_get("/b", Fault::Becomes(b(json!({"phase": "InProgress"}))))
        .on_get("/b", Fault::Vanishes);
    transcript!(Person::at(&api), "create b --wait");
    api.becomes("/c", [completed_backup("c")]);
    transcript!(Person::at(&api), "create c --wait");
}

#[tokio::test]
async fn a_waited_for_object_is_printed_as_it_ended() {
    let api = FakeApi::start().await;
    api.becomes("/b", [b(json!({"phase": "Completed"}))]);
    transcript!(Person::at(&api), "create b --wait -o yaml");
}

#[tokio::test]
async fn on_a_terminal_one_line_is_written_over() {
    let api = FakeApi::start().await;
    api.becomes(
        "/b",
        [items(10), items(20), json!({"phase": "Completed"})].map(b),
    );
    let seen = Person::at(&api)
        .at_terminal("")
        .types("create b --wait")
        .await;
    assert_snapshot!(seen.replace('\r', "␍"));
}

#[tokio::test]
async fn a_line_that_is_written_over_is_no_wider_than_the_window() {
    let api = FakeApi::start().await;
    api.becomes(
        "/b",
        [items(10), items(20), json!({"phase": "Completed"})].map(b),
    );
    let seen = Person::at(&api)
        .in_window(20, 24)
        .types("create b --wait")
        .await;
    assert!(
        seen.contains("\rbackup b: InProgre…␛[K") && !seen.contains("of 40"),
        "{seen}"
    );
}

#[tokio::test]
async fn an_older_state_is_not_shown_after_a_newer_one() {
    let api = FakeApi::start().await;
    let of = |version: &str, status: Value| {
        Fault::Answer(
            200,
            with(
                b(status),
                &json!({"metadata": {"resourceVersion": version}}),
            ),
        )
    };
    let states = [
        of("100", json!({"phase": "Finalizing"})),
        of("99", json!({"phase": "InProgress"})),
        of("101", json!({"phase": "Completed"})),
    ];
    api.meets(&Method::GET, "/b", states);
    let seen = Person::at(&api).types("create b --wait").await;
    assert!(
        seen.contains("Finalizing") && !seen.contains("InProgress"),
        "{seen}"
    );
    assert_says!(seen, "Completed");
}

/// The results of backup `b`, with one error and as many warnings.
fn with_results(api: &FakeApi, warnings: usize) {
    let warnings: Vec<String> = (1..=warnings).map(|n| format!("warning {n}")).collect();
    let results =
        json!({ "errors": { "velero": ["an error"] }, "warnings": { "velero": warnings } });
    api.has_file("BackupResults", "b", &results);
}

#[tokio::test]
async fn the_first_errors_and_warnings_of_the_end_are_shown() {
    let api = FakeApi::start().await;
    let person = Person::at(&api);
    with_results(&api, 6);
    api.becomes(
        "/b",
        [b(
            json!({"phase": "PartiallyFailed", "errors": 1, "warnings": 6}),
        )],
    );
    let seen = person.types("create b --wait").await;
    let told = "(1 error and 6 warnings); the rest can be restored.\n  ✗ an error\n  ! warning 1\n  ! warning 2\n  ! warning 3\n  ! warning 4\n  \
                and 2 more: kubectl backup describe b --details\n--- exit 3\n";
    assert_says!(seen, told);
    let none = json!({ "errors": {}, "warnings": { "velero": ["warning 1"] } });
    api.has_file("BackupResults", "b", &none);
    api.has(b(json!({"phase": "Completed", "warnings": 1})));
    let seen = person.types("wait b").await;
    let told = "Everything was saved, with 1 warning.\n  ! warning 1\n--- exit 0\n";
    assert_says!(seen, told);
}

#[tokio::test]
async fn warnings_that_cannot_be_read_are_pointed_at() {
    let api = FakeApi::with([b(json!({"phase": "Completed", "warnings": 1}))]).await;
    let seen = Person::at(&api).types("wait b").await;
    assert_says!(
        seen,
        "with 1 warning.\nMore about it: kubectl backup describe b\n--- exit 0\n"
    );
}
