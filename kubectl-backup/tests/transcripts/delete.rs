use crate::prelude::*;

const REQUEST: &str = "nightly-uid-of-n";

pub fn request(phase: &str, errors: &[&str]) -> serde_json::Value {
    json!({
        "apiVersion": "velero.io/v1", "kind": "DeleteBackupRequest",
        "metadata": {"name": REQUEST, "namespace": "velero", "uid": "old", "resourceVersion": "3", "labels": {"velero.io/backup-name": "nightly", "velero.io/backup-uid": "uid-of-nightly"}},
        "spec": {"backupName": "nightly"}, "status": {"phase": phase, "errors": errors},
    })
}

#[tokio::test]
async fn deleting_a_backup_twice_makes_one_request() {
    let api = FakeApi::with([completed_backup("nightly")]).await;
    let person = Person::at(&api);
    transcript!(person, "delete nightly --yes");
    let stored = api.stored("deletebackuprequests", REQUEST).unwrap();
    assert_eq!(stored["spec"], json!({"backupName": "nightly"}));
    assert_eq!(
        stored["metadata"]["labels"],
        json!({"velero.io/backup-name": "nightly", "velero.io/backup-uid": "uid-of-nightly"})
    );
    assert_says!(person.types("delete nightly --yes").await, "--- exit 0\n");
    assert_eq!(api.stored("deletebackuprequests", REQUEST), Some(stored));
}

#[tokio::test]
async fn a_request_that_failed_before_is_made_anew() {
    let api = FakeApi::with([
        completed_backup("nightly"),
        request("Processed", &["the bucket is away"]),
    ])
    .await;
    assert_says!(
        Person::at(&api).types("delete nightly --yes").await,
        "--- exit 0\n"
    );
    assert_ne!(
        api.stored("deletebackuprequests", REQUEST).unwrap()["metadata"]["uid"],
        "old"
    );
}

#[tokio::test]
async fn waiting_for_a_deletion_ends_when_the_backup_is_gone() {
    let api = FakeApi::with([completed_backup("nightly")]).await;
    api.becomes("/backups/nightly", ["nightly"; 2].map(completed_backup));
    api.on_get("/backups/nightly", Fault::Vanishes);
    transcript!(Person::at(&api), "delete nightly --yes --wait");
}

#[tokio::test]
async fn a_deletion_that_fails_is_told_with_its_errors() {
    let api = FakeApi::with([completed_backup("nightly")]).await;
    let failed = request(
        "Processed",
        &["the bucket refuses:\nobject lock", "and more"],
    );
    api.becomes(&format!("/{REQUEST}"), [failed]);
    transcript!(Person::at(&api), "delete nightly --yes --wait");
    let api = FakeApi::with([completed_backup("nightly")]).await;
    api.meets(
        &Method::GET,
        &format!("/{REQUEST}"),
        vec![Fault::Vanishes; 4],
    );
    transcript!(Person::at(&api), "delete nightly --yes --wait");
}

#[tokio::test]
async fn nothing_is_deleted_without_a_yes() {
    let api = FakeApi::with([
        completed_backup("nightly"),
        completed_restore("r", "nightly"),
    ])
    .await;
    transcript!(Person::at(&api), "delete nightly");
    transcript!(Person::at(&api).at_terminal("n\n"), "delete nightly");
    transcript!(Person::at(&api).at_terminal("\n"), "restore delete r");
    assert!(
        api.seen().iter().all(|request| request.starts_with("GET")),
        "{:?}",
        api.seen()
    );
    transcript!(Person::at(&api).at_terminal("y\n"), "delete nightly");
    assert!(api.stored("deletebackuprequests", REQUEST).is_some());
}

#[tokio::test]
async fn one_that_is_missing_does_not_keep_the_others() {
    let api = FakeApi::with([
        completed_restore("a", "nightly"),
        completed_restore("c", "nightly"),
    ])
    .await;
    transcript!(Person::at(&api), "restore delete a b c --yes --wait");
    assert!(api.stored("restores", "a").is_none() && api.stored("restores", "c").is_none());
}

#[tokio::test]
async fn those_with_a_label_or_all_are_named_before_they_are_deleted() {
    let api = FakeApi::start().await;
    let of = |schedule: &str| json!({ "metadata": { "labels": { "velero.io/schedule-name": schedule } } });
    for (name, schedule) in [
        ("nightly-1", "nightly"),
        ("nightly-2", "nightly"),
        ("weekly-1", "weekly"),
    ] {
        api.has(with(completed_backup(name), &of(schedule)));
    }
    for number in 0..25 {
        api.has(completed_restore(&format!("r{number:02}"), "nightly-1"));
    }
    let person = Person::at(&api).at_terminal("n\n");
    let mut all = person
        .types("delete -l velero.io/schedule-name=nightly")
        .await;
    all += &person.types("restore delete --all").await;
    let person = Person::at(&api);
    all += &person
        .types("delete -l velero.io/schedule-name=none --yes")
        .await;
    all += &person.types("delete weekly-1 --all --yes").await;
    all += &person.types_words(&["delete", "-l", "", "--yes"]).await;
    assert_eq!(api.stored("deletebackuprequests", REQUEST), None);
    all += &person
        .types("delete -l velero.io/schedule-name=nightly --yes")
        .await;
    assert_snapshot!(all);
}

/// In a separate process: an interrupt would reach all tests.
#[tokio::test]
async fn one_interrupt_ends_the_deletion_of_all() {
    let api = FakeApi::with(["a", "b", "c"].map(completed_backup)).await;
    let person = Person::at(&api);
    let command = std::process::Command::new(env!("CARGO_BIN_EXE_kubectl-backup"))
        .args(["delete", "--all", "--yes", "--wait"])
        .env("HOME", person.home.path())
        .env_remove("KUBECONFIG")
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let waits_for_the_first = async {
        while !api
            .seen()
            .iter()
            .any(|line| line.starts_with("GET") && line.contains("/deletebackuprequests/"))
        {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_mins(1), waits_for_the_first)
        .await
        .unwrap();
    let kill = std::process::Command::new("kill")
        .args(["-INT", &command.id().to_string()])
        .status()
        .unwrap();
    assert!(kill.success());
    let ended = tokio::task::spawn_blocking(|| command.wait_with_output())
        .await
        .unwrap()
        .unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(130), "{said}");
    assert_eq!(
        said,
        "warning: c is the last good backup of what it protects\n\
         The restores from it that have ended go with it, and their logs.\n\
         interrupted: deletion of backup a continues in the cluster\ninterrupted: nothing was done about b, c\n"
    );
    assert_eq!(api.all("deletebackuprequests").len(), 1);
}

#[tokio::test]
async fn one_that_has_not_begun_is_deleted_at_once_and_one_that_runs_is_refused() {
    let in_phase =
        |name: &str, phase: &str| with(new_backup(name), &json!({"status": {"phase": phase}}));
    let api = FakeApi::with([
        in_phase("queued", "Queued"),
        in_phase("running", "InProgress"),
    ])
    .await;
    transcript!(Person::at(&api), "delete queued running --yes");
    assert!(
        api.stored("backups", "queued").is_none() && api.stored("backups", "running").is_some()
    );
    assert!(api.all("deletebackuprequests").is_empty());
}

#[tokio::test]
async fn the_last_good_backup_is_named_before_it_is_deleted() {
    let api = FakeApi::with([completed_backup("old"), location("Available", "")]).await;
    let newer = json!({"metadata": {"creationTimestamp": "2026-11-03T04:00:00Z"},
        "status": {"startTimestamp": "2026-11-03T04:00:00Z"}});
    api.has(with(completed_backup("new"), &newer));
    let last = "warning: new is the last good backup of what it protects\n";
    let person = Person::at(&api);
    let seen = person.types("delete old --yes").await;
    assert!(!seen.contains("last good"), "{seen}");
    assert_says!(person.types("delete new --yes").await, last, "--- exit 0\n");
    let seen = Person::at(&api)
        .at_terminal("n\n")
        .types("delete new")
        .await;
    assert_says!(seen, last, "nothing was deleted");
    let both = person.types("delete old new --yes").await;
    assert_says!(both, last);
    let other = json!({"spec": {"includedNamespaces": ["db"], "excludedNamespaces": null}});
    api.has(with(completed_backup("other"), &other));
    let protects_other =
        json!({"spec": {"includedNamespaces": ["shop"], "excludedNamespaces": null}});
    for name in ["old", "new"] {
        let object = api.stored("backups", name).unwrap();
        api.has(with(object, &protects_other));
    }
    assert_says!(
        person.types("delete old new other --yes").await,
        "warning: new, other are the last good backups of what they protect\n"
    );
    let forbidden = "backups.velero.io is forbidden: User \"jane\" cannot list resource";
    api.next(Method::GET, "/backups", Fault::forbidden(forbidden));
    assert_says!(
        person.types("delete new --yes").await,
        "warning: whether the last good backup of something is among them is not known",
        "--- exit 0\n"
    );
}
