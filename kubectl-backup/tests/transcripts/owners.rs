//! Namespace owners, who may read no Backup directly: the controller gives them theirs.

use crate::prelude::*;

const PATH: &str = "/api/v1/namespaces/velero/services/https:backup-controller:files/proxy/files/";

/// The refusal of RBAC.
fn forbidden(verb: &str, resource: &str) -> Fault {
    Fault::forbidden(&format!(
        "{resource}.velero.io is forbidden: User \"jane\" cannot {verb} resource \"{resource}\" in API group \"velero.io\" in the namespace \"velero\""
    ))
}

/// The refusal of the webhook.
fn denied(words: &str) -> Fault {
    let message = format!(
        "admission webhook \"owners.backup-webhook.velero.io\" denied the request: {words}"
    );
    Fault::refused_with(403, "Forbidden", &message, json!({}))
}

/// The controller's answer to the request of this number, which the owner may not read.
fn answers(api: &FakeApi, number: usize, objects: &[Value]) {
    let name = format!("read-{number}");
    api.on_get(
        &format!("downloadrequests/{name}"),
        forbidden("get", "downloadrequests"),
    );
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
    api.on_get(
        &format!("{PATH}{name}"),
        Fault::Bytes(200, Vec::new(), list.to_string().into_bytes()),
    );
}

/// What the request of this number asks for.
fn query(api: &FakeApi, number: usize) -> Value {
    let request = api
        .stored("downloadrequests", &format!("read-{number}"))
        .unwrap();
    let query = &request["metadata"]["annotations"]["backup-controller/read-objects"];
    serde_json::from_str(query.as_str().unwrap()).unwrap()
}

#[tokio::test]
async fn an_owner_sees_a_backup_of_the_owner_and_reads_its_log() {
    let api = FakeApi::start().await;
    let person = Person::at(&api);
    let mine = completed_backup("mine");
    for (number, line) in [(0, "get mine"), (1, "describe mine")] {
        api.on_get("/backups/mine", forbidden("get", "backups"));
        answers(&api, number, std::slice::from_ref(&mine));
        let said = person.types(line).await;
        assert_says!(said, "mine", "Completed", "exit 0");
        assert_eq!(
            query(&api, number),
            json!({ "kind": "Backup", "of": { "name": "mine" } })
        );
    }
    let number = api.all("downloadrequests").len();
    api.on_get("/backups/mine", forbidden("get", "backups"));
    answers(&api, number, &[mine]);
    let file = number + 1;
    api.on_get(
        &format!("downloadrequests/read-{file}"),
        forbidden("get", "downloadrequests"),
    );
    api.has_bytes("BackupLog", "mine", packed(b"level=info msg=\"a\"\n"));
    let said = person.types("logs mine").await;
    assert_says!(said, "level=info msg=\"a\"", "exit 0");
}

#[tokio::test]
async fn an_owner_waits_for_what_the_controller_gives() {
    for (phase, exit) in [("Completed", "--- exit 0"), ("Failed", "--- exit 3")] {
        let api = FakeApi::start().await;
        let mine = with(
            completed_backup("mine"),
            &json!({ "status": { "phase": phase } }),
        );
        // The first look, and the one of the waiting.
        for number in 0..2 {
            api.on_get("/backups/mine", forbidden("get", "backups"));
            answers(&api, number, std::slice::from_ref(&mine));
        }
        api.on_get(
            "/backupstoragelocations",
            forbidden("list", "backupstoragelocations"),
        );
        let said = Person::at(&api).types("wait mine").await;
        assert_says!(said, format!("backup mine: {phase}").as_str(), exit);
    }
}

#[tokio::test]
async fn a_list_of_an_owner_is_that_of_the_contexts_namespace_and_says_so() {
    let api = FakeApi::start().await;
    api.on_get("/backups", forbidden("list", "backups"));
    answers(&api, 0, &[completed_backup("mine")]);
    let said = Person::at(&api).types("get").await;
    assert_says!(
        said,
        "mine",
        "You may not list all backups: these are about no other namespace than default"
    );
    assert_eq!(
        query(&api, 0),
        json!({ "kind": "Backup", "of": { "namespaces": ["default"] } })
    );
}

#[tokio::test]
async fn the_status_of_an_owner_is_that_of_the_contexts_namespace() {
    let api = FakeApi::start().await;
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "default" } });
    api.has_at("/api/v1/namespaces/default", namespace);
    let own = json!({ "spec": { "includedNamespaces": ["default"], "excludedNamespaces": null } });
    let schedule = json!({
        "apiVersion": "velero.io/v1", "kind": "Schedule",
        "metadata": { "name": "nightly", "namespace": "velero", "creationTimestamp": "2026-10-01T00:00:00Z" },
        "spec": { "schedule": "0 3 * * *", "template": { "includedNamespaces": ["default"], "storageLocation": "default" } },
        "status": { "phase": "Enabled" },
    });
    api.has_file(
        "BackupResourceList",
        "mine",
        &json!({ "v1/Namespace": ["default"] }),
    );
    let person = Person::at(&api);
    let restricted = || {
        api.on_get("/backups", forbidden("list", "backups"));
        let locations = || forbidden("list", "backupstoragelocations");
        // The first list may be abandoned because of the other refusal.
        api.meets(
            &Method::GET,
            "/backupstoragelocations",
            [locations(), locations()],
        );
    };
    restricted();
    answers(&api, 0, &[with(completed_backup("mine"), &own)]);
    answers(&api, 1, &[]);
    answers(&api, 2, &[schedule]);
    let screen = person.types("status").await;
    assert_says!(
        screen,
        "1 namespace checked, all protected",
        "you may not list all backups: these are about no other namespace than default",
        "PROTECTED",
        "mine",
        "--- exit 0"
    );
    assert!(!screen.contains("there is none"), "{screen}");
    for (number, kind) in [(0, "Backup"), (1, "Restore"), (2, "Schedule")] {
        assert_eq!(
            query(&api, number),
            json!({ "kind": kind, "of": { "namespaces": ["default"] } })
        );
    }
    // A backup of more namespaces may protect it.
    let next = api.all("downloadrequests").len();
    restricted();
    for number in next..next + 3 {
        answers(&api, number, &[]);
    }
    let screen = person.types("status").await;
    assert_says!(
        screen,
        "1 of 1 namespace not checked",
        "NOT CHECKED",
        "there is no backup of all of it",
        "--- exit 1"
    );
}

#[tokio::test]
async fn the_status_tells_who_is_no_owner_which_role_it_takes() {
    let api = FakeApi::start().await;
    api.on_get("/backups", forbidden("list", "backups"));
    api.on_post("/downloadrequests", forbidden("create", "downloadrequests"));
    let said = Person::at(&api).types("status").await;
    assert_says!(said, "cannot list resource \"backups\"", "backup-viewer");
}

#[tokio::test]
async fn what_is_of_others_is_refused_with_the_reason_of_the_webhook() {
    let api = FakeApi::start().await;
    let words = "\"jane\" may not see Backup velero/theirs: that takes the right to get and list secrets in namespace prod";
    for line in ["get theirs", "describe theirs", "logs theirs"] {
        api.on_get("/backups/theirs", forbidden("get", "backups"));
        api.on_post("/downloadrequests", denied(words));
        let said = Person::at(&api).types(line).await;
        assert_says!(said, words, "exit 1");
    }
    // A user who may not even ask is told which role it takes.
    api.on_get("/backups/theirs", forbidden("get", "backups"));
    api.on_post("/downloadrequests", forbidden("create", "downloadrequests"));
    let said = Person::at(&api).types("get theirs").await;
    assert_says!(said, "cannot get resource \"backups\"", "backup-viewer");
}

#[tokio::test]
async fn an_owner_restores_from_a_backup_that_the_owner_may_not_see() {
    let api = FakeApi::start().await;
    api.on_get("/backups/nightly", forbidden("get", "backups"));
    api.on_post(
        "/downloadrequests",
        denied("\"jane\" may not see Backup velero/nightly"),
    );
    let line = "restore create mine --from-backup=nightly --include-namespaces=shop --include-cluster-resources=false";
    let said = Person::at(&api).types(line).await;
    assert_says!(said, "restore.velero.io/mine created", "exit 0");
}

#[tokio::test]
async fn a_user_who_may_not_delete_a_backup_is_told_who_may() {
    let api = FakeApi::start().await;
    let refuse = || {
        api.on_get("/backups", forbidden("list", "backups"));
        api.on_get("/backups/mine", forbidden("get", "backups"));
    };
    refuse();
    answers(&api, 0, &[completed_backup("mine")]);
    let of_owner = Person::at(&api).types("delete mine --yes").await;
    assert_says!(
        of_owner,
        "Owners of namespaces create backups and delete none",
        "backup-operator",
        "exit 1"
    );
    refuse();
    api.on_post("/downloadrequests", forbidden("create", "downloadrequests"));
    let of_others = Person::at(&api).types("delete mine --yes").await;
    assert_says!(
        of_others,
        "It takes the ClusterRole backup-operator",
        "exit 1"
    );
    for said in [of_owner, of_others] {
        assert!(!said.contains("backup-viewer"), "{said}");
    }
}
