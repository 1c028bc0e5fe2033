use crate::{describe::has_files, prelude::*};

fn waiting(completed: u32) -> Value {
    let status = json!({"status": {"phase": "WaitingForPluginOperations", "backupItemOperationsAttempted": 4, "backupItemOperationsCompleted": completed}});
    with(new_backup("nightly"), &status)
}

#[tokio::test]
async fn operations_are_shown_with_progress_failed_ones_first() {
    let api = FakeApi::start().await;
    has_files(&api, "Backup", "nightly");
    has_files(&api, "Restore", "back-again");
    let attempted = json!({"status": {"restoreItemOperationsAttempted": 4}});
    api.has(waiting(1))
        .has(completed_backup("small"))
        .has(with(completed_restore("back-again", "nightly"), &attempted));
    transcript!(
        Person::at(&api),
        "operations nightly",
        "operations nightly -o wide --no-headers",
        "restore operations back-again",
        "operations small",
        "operations gone"
    );
    transcript!("operations json" => Person::at(&api), "operations nightly -o json");
}

#[tokio::test]
async fn each_change_of_an_operation_is_a_line() {
    let api = FakeApi::start().await;
    has_files(&api, "Backup", "nightly");
    let begun = with(
        waiting(0),
        &json!({"status": {"phase": "InProgress", "backupItemOperationsAttempted": 0}}),
    );
    let ended = with(waiting(4), &json!({"status": {"phase": "Completed"}}));
    let operation = |phase: &str| {
        json!([{ "spec": { "backupItemAction": "velero.io/csi", "operationID": "vs-1",
            "resourceIdentifier": { "Group": "", "Resource": "persistentvolumeclaims", "Namespace": "db", "Name": "pgdata" } },
            "status": { "phase": phase, "created": "2026-11-03T05:14:00Z" } }])
    };
    api.has_file("BackupItemOperations", "nightly", &operation("New"))
        .has(begun.clone());
    api.becomes("/backups/nightly", [begun, waiting(0), waiting(0), ended]);
    let person = Person::at(&api);
    let watching = person.types("operations nightly --watch");
    let further = async {
        while api.all("downloadrequests").len() < 2 {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        api.has_file("BackupItemOperations", "nightly", &operation("Completed"));
    };
    assert_snapshot!(tokio::join!(watching, further).0);
}

#[tokio::test]
async fn watching_them_ends_with_the_code_of_the_backup() {
    let api = FakeApi::start().await;
    has_files(&api, "Backup", "nightly");
    for (phase, code) in [("Completed", 0), ("PartiallyFailed", 3), ("Failed", 3)] {
        api.has(with(waiting(4), &json!({"status": {"phase": phase}})));
        let seen = Person::at(&api).types("operations nightly -w").await;
        assert!(
            seen.ends_with(&format!("--- exit {code}\n")),
            "{phase}: {seen}"
        );
    }
}
