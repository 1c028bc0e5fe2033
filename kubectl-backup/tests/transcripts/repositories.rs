use crate::prelude::*;

const SECRET: &str = "/api/v1/namespaces/velero/secrets/velero-repo-credentials";

fn repository(name: &str, namespace: &str, status: &Value, annotations: &Value) -> Value {
    json!({
        "apiVersion": "velero.io/v1", "kind": "BackupRepository",
        "metadata": {"name": name, "namespace": "velero", "uid": name, "annotations": annotations},
        "spec": {"volumeNamespace": namespace, "backupStorageLocation": "default", "repositoryType": "restic",
            "maintenanceFrequency": "24h0m0s"},
        "status": status,
    })
}

fn has(api: &FakeApi, repository: Value) {
    let name = repository["metadata"]["name"].as_str().unwrap().to_owned();
    let path = format!("/apis/velero.io/v1/namespaces/velero/backuprepositories/{name}");
    api.has_at(&path, repository);
}

async fn cluster() -> FakeApi {
    let api = FakeApi::start().await;
    let maintained = "2026-11-03T03:14:12Z";
    let check = json!({"checked": "2026-11-02T05:14:12Z", "part": 3}).to_string();
    has(
        &api,
        repository(
            "repository-shop",
            "shop",
            &json!({"phase": "Ready", "lastMaintenanceTime": maintained,
                "recentMaintenance": [{"completeTimestamp": maintained, "result": "Succeeded"}]}),
            &json!({"backup-controller/data-check": check}),
        ),
    );
    has(
        &api,
        repository(
            "repository-db",
            "db",
            &json!({"phase": "NotReady", "message": "the password\u{1b}[2J does not open it"}),
            &json!({}),
        ),
    );
    api
}

#[tokio::test]
async fn a_maintenance_and_a_check_are_requested_now_and_waited_for() {
    let api = cluster().await;
    let person = Person::at(&api);
    let seen = person.types("repositories maintain repository-shop").await;
    assert!(seen.contains("maintenance requested\n"), "{seen}");
    assert!(
        seen.contains("kubectl backup repositories get repository-shop"),
        "{seen}"
    );
    let seen = person
        .types("repositories check repository-shop --read-data --wait=300ms")
        .await;
    assert!(
        seen.contains("the check of repository repository-shop has not ended after 300ms"),
        "{seen}"
    );
    assert!(seen.ends_with("--- exit 124\n"), "{seen}");
    let stored = api.stored("backuprepositories", "repository-shop");
    let stored = stored.unwrap();
    let annotations = &stored["metadata"]["annotations"];
    assert!(annotations["backup-controller/maintenance-request"].is_string());
    let request = annotations["backup-controller/check-request"].as_str();
    assert!(
        request.is_some_and(|text| text.contains(r#""readData":true"#)),
        "{annotations}"
    );
    // The same is requested once.
    let seen = person.types("repositories check repository-shop").await;
    assert!(seen.contains("check requested\n"), "{seen}");
    let patches = api.seen();
    let patches = patches.iter().filter(|line| line.starts_with("PATCH"));
    assert_eq!(patches.count(), 2);
    let missing = person.types("repositories maintain none").await;
    assert!(missing.contains("--- exit 1\n"), "{missing}");
}

fn secret(api: &FakeApi, annotations: &Value) {
    let metadata = json!({
        "name": "velero-repo-credentials", "namespace": "velero", "uid": "u", "annotations": annotations,
    });
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": metadata,
        "data": {"repository-password": "VE9QU0VDUkVU"},
    });
    api.has_at(SECRET, secret);
}

fn stage(name: &str) -> Value {
    let rotation = json!({"stage": name, "since": "2026-11-03T05:00:00Z"}).to_string();
    json!({"backup-controller/password-rotation": rotation})
}

#[tokio::test]
async fn repositories_are_listed_with_what_is_known_of_them() {
    let api = cluster().await;
    // The time from which its first maintenance is counted.
    let made = json!({"phase": "Ready", "lastMaintenanceTime": "2026-11-03T03:14:12Z"});
    has(&api, repository("repository-new", "new", &made, &json!({})));
    let person = Person::at(&api);
    let seen = person.types("repository list").await;
    for part in [
        "NAME              VOLUMES IN   LOCATION   PHASE      MAINTAINED   CHECKED   MESSAGE\n",
        "repository-db     db           default    NotReady   -            -         the password [2J does not open it\n",
        "repository-shop   shop         default    Ready      120m         24h\n",
        "repository-new    new          default    Ready      -            -\n",
    ] {
        assert!(seen.contains(part), "{seen}");
    }
    let wide = person.types("repositories -o wide").await;
    assert!(
        wide.contains("FORMAT") && wide.contains("restic") && wide.contains("3/30"),
        "{wide}"
    );
    let names = person
        .types("repositories get repository-shop -o name")
        .await;
    assert!(
        names.contains("backuprepository.velero.io/repository-shop\n"),
        "{names}"
    );
    let list = person.reads("repositories -o json").await;
    assert_eq!(list["items"][0]["spec"]["repositoryType"], "restic");
    let missing = person.types("repositories get none").await;
    assert!(
        missing.contains("`kubectl backup repositories` lists them"),
        "{missing}"
    );
}

#[tokio::test]
async fn a_rotation_of_the_password_is_asked_for_and_its_copy_confirmed() {
    let api = cluster().await;
    let person = Person::at(&api);
    let rotate = "repositories rotate-password";
    let seen = person.types(rotate).await;
    assert!(
        seen.contains("does not exist in namespace velero"),
        "{seen}"
    );

    secret(&api, &json!({}));
    let seen = person.types(&format!("{rotate} --copied")).await;
    assert!(
        seen.contains("no rotation of the password is under way"),
        "{seen}"
    );
    let seen = person.types(rotate).await;
    assert!(seen.contains("rotation requested\n"), "{seen}");
    assert!(seen.contains("kubectl -n velero describe secret"), "{seen}");

    secret(&api, &stage("adding"));
    let seen = person.types(rotate).await;
    assert!(
        seen.contains("rotation adding\n") && seen.contains("0 of 2 repositories"),
        "{seen}"
    );
    let seen = person.types(&format!("{rotate} --copied")).await;
    assert!(
        seen.contains("does not open all repositories yet"),
        "{seen}"
    );

    secret(&api, &stage("switched"));
    let seen = person.types(rotate).await;
    for part in [
        "rotation switched\n",
        "get secret velero-repo-credentials",
        "--copied",
    ] {
        assert!(seen.contains(part), "{seen}");
    }
    let seen = person.types(&format!("{rotate} --copied")).await;
    assert!(seen.contains("rotation removing\n"), "{seen}");
    let patches = api.seen();
    let patches = patches.iter().filter(|line| line.starts_with("PATCH"));
    assert_eq!(patches.count(), 2, "a request and a confirmation");
    assert!(!seen.contains("TOPSECRET") && !seen.contains("VE9QU0VDUkVU"));
}

#[tokio::test]
async fn a_rotation_is_waited_for_to_the_next_step_of_the_user() {
    let api = cluster().await;
    secret(&api, &stage("switched"));
    let person = Person::at(&api);
    let seen = person.types("repositories rotate-password --wait").await;
    assert!(seen.ends_with("--- exit 0\n"), "{seen}");
    let seen = person
        .types("repositories rotate-password --copied --wait=300ms")
        .await;
    assert!(
        seen.contains("is not at its next step after 300ms"),
        "{seen}"
    );
    assert!(seen.ends_with("--- exit 124\n"), "{seen}");
}
