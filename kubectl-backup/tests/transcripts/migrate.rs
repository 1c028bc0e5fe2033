use crate::prelude::*;

const HOME: &str = "/apis/apps/v1/namespaces/velero";

/// The Deployment of a Velero server, as `velero install` makes it.
fn server(args: &[&str], plugins: &[&str]) -> Value {
    let plugins: Vec<Value> = plugins
        .iter()
        .map(|image| {
            json!({ "name": "plugin", "image": image, "volumeMounts": [{ "name": "plugins", "mountPath": "/target" }] })
        })
        .collect();
    let args: Vec<&str> = std::iter::once("server")
        .chain(args.iter().copied())
        .collect();
    json!({
        "metadata": { "name": "velero", "namespace": "velero", "labels": { "component": "velero" } },
        "spec": { "replicas": 1, "selector": { "matchLabels": { "deploy": "velero" } }, "template": {
            "metadata": { "labels": { "component": "velero", "deploy": "velero" } },
            "spec": {
                "serviceAccountName": "velero",
                "initContainers": plugins,
                "containers": [{ "name": "velero", "image": "velero/velero:v1.18.3", "command": ["/velero"], "args": args,
                    "env": [
                        { "name": "VELERO_SCRATCH_DIR", "value": "/scratch" },
                        { "name": "AWS_SHARED_CREDENTIALS_FILE", "value": "/credentials/cloud" },
                        { "name": "AWS_REGION", "value": "eu-west-1" },
                    ],
                    "volumeMounts": [
                        { "name": "plugins", "mountPath": "/plugins" },
                        { "name": "cloud-credentials", "mountPath": "/credentials" },
                    ] }],
                "volumes": [
                    { "name": "plugins", "emptyDir": {} },
                    { "name": "cloud-credentials", "secret": { "secretName": "cloud-credentials" } },
                ],
            } } },
    })
}

fn schedule(name: &str, spec: &Value) -> Value {
    let base = json!({ "apiVersion": "velero.io/v1", "kind": "Schedule",
        "metadata": { "name": name, "namespace": "velero" }, "spec": { "schedule": "0 3 * * *", "template": {} } });
    with(base, &json!({ "spec": spec }))
}

fn secret(api: &FakeApi, name: &str) {
    api.has_at(
        &format!("/api/v1/namespaces/velero/secrets/{name}"),
        json!({ "metadata": { "name": name, "namespace": "velero" } }),
    );
}

/// A server whose configuration works here unchanged.
async fn plain_installation() -> FakeApi {
    let api = FakeApi::with([
        location("Available", ""),
        schedule("nightly", &json!({ "template": { "ttl": "240h" } })),
    ])
    .await;
    let aws = "velero/velero-plugin-for-aws:v1.14.2";
    let args = ["--features=EnableCSI", "--default-backup-ttl=480h"];
    api.has_at(&format!("{HOME}/deployments/velero"), server(&args, &[aws]));
    secret(&api, "cloud-credentials");
    api
}

/// A server with node agents, a plugin of its own, a pod whose files are copied, and data in a
/// repository.
async fn installation() -> FakeApi {
    let api = FakeApi::with([
        completed_backup("nightly-20261103030000"),
        schedule("nightly", &json!({ "template": { "ttl": "240h" } })),
        schedule("weekly", &json!({ "schedule": "0 3 1-7 * 0" })),
        schedule("yearly", &json!({ "schedule": "@yearly", "paused": true })),
    ])
    .await;
    let plugins = ["velero/velero-plugin-for-aws:v1.14.2", "acme/actions:v2"];
    let args = [
        "--features=EnableCSI",
        "--uploader-type=kopia",
        "--default-backup-ttl=480h",
        "--default-volumes-to-fs-backup=true",
    ];
    api.has_at(
        &format!("{HOME}/deployments/velero"),
        server(&args, &plugins),
    );
    api.has_at(
        &format!("{HOME}/daemonsets/node-agent"),
        json!({ "metadata": { "name": "node-agent", "namespace": "velero" }, "spec": { "template": { "spec": {
            "containers": [{ "name": "node-agent", "image": "velero/velero:v1.18.3", "command": ["/velero"],
                "args": ["node-agent", "server"] }] } } } }),
    );
    api.has_at(
        "/apis/velero.io/v2alpha1/namespaces/velero/datauploads/data",
        json!({
            "metadata": { "name": "data", "namespace": "velero", "labels": { "velero.io/backup-name": "nightly-20261103030000" } },
            "spec": { "snapshotType": "CSI", "sourcePVC": "data", "backupStorageLocation": "default", "sourceNamespace": "shop",
                "operationTimeout": "10m0s" },
            "status": { "phase": "Completed", "snapshotID": "id" },
        }),
    );
    api.has_at(
        "/apis/velero.io/v1/namespaces/velero/backuprepositories/shop-default-kopia",
        json!({ "metadata": { "name": "shop-default-kopia", "namespace": "velero" },
            "spec": { "volumeNamespace": "shop", "backupStorageLocation": "default", "repositoryType": "kopia",
                "maintenanceFrequency": "1h0m0s" } }),
    );
    secret(&api, "cloud-credentials");
    let annotations = json!({ "backup.velero.io/backup-volumes": "data" });
    api.has_at(
        "/api/v1/namespaces/shop/pods/web-0",
        json!({ "metadata": { "name": "web-0", "namespace": "shop", "annotations": annotations } }),
    );
    secret(&api, "velero-repo-credentials");
    api
}

#[tokio::test]
async fn what_stays_changes_and_is_lost_is_said_line_by_line() {
    let api = installation().await;
    let person = Person::at(&api);
    transcript!("migrate check" => person, "migrate --check");
    let seen = api.seen();
    assert!(seen.iter().all(|line| line.starts_with("GET")), "{seen:#?}");
}

#[tokio::test]
async fn an_installation_that_loses_nothing_ends_with_exit_code_0() {
    let person = Person::at(&plain_installation().await);
    transcript!("migrate check plain" => person, "migrate --check");
    let report = person.reads("migrate --check -o json").await;
    assert_eq!(report["kind"], "MigrationReport");
    assert_eq!(
        (&report["lossless"], &report["veleroVersion"]),
        (&json!(true), &json!("v1.18.3"))
    );
    assert_eq!(report["consequences"][0]["effect"], "stays");
}

#[tokio::test]
async fn the_files_of_a_move_are_printed_and_written_once() {
    let api = installation().await;
    let person = Person::at(&api);
    transcript!("migrate dry run" => person, "migrate --dry-run --registry=registry.example.com/backup");
    let folder = person.home.path().join("move");
    let line = format!("migrate --output-dir={}", folder.display());
    transcript!("migrate" => person, &line);
    let script = std::fs::read_to_string(folder.join("migrate.sh")).unwrap();
    assert_says!(script, "kubectl backup install --replace-definitions");
    let again = person.types(&line).await;
    assert_says!(again, "values.yaml exists", "--output-dir", "--- exit 1");
    let seen = api.seen();
    assert!(seen.iter().all(|line| line.starts_with("GET")), "{seen:#?}");
}

#[tokio::test]
async fn commands_are_for_the_cluster_that_was_read() {
    let api = plain_installation().await;
    let seen = Person::at(&api)
        .types("migrate --dry-run --context=here -n velero")
        .await;
    assert_says!(
        seen,
        "kubectl --context=here -n velero scale deployment velero --replicas=0",
        "kubectl backup --context=here -n velero install --replace-definitions"
    );
}

#[tokio::test]
async fn what_cannot_be_read_is_not_known_and_a_missing_server_is_an_error() {
    let api = plain_installation().await;
    let forbidden =
        "daemonsets.apps is forbidden: User \"jane\" cannot list resource \"daemonsets\"";
    api.on_get("/daemonsets", Fault::forbidden(forbidden));
    let seen = Person::at(&api).types("migrate --check").await;
    assert_says!(
        seen,
        "Not known",
        "? cluster                cannot list daemonsets: daemonsets.apps is forbidden",
        "Not known: 1.",
        "--- exit 1"
    );
    let empty = FakeApi::start().await;
    let seen = Person::at(&empty).types("migrate --check").await;
    assert_says!(
        seen,
        "no Velero server was found in namespace velero",
        "-n",
        "--- exit 1"
    );
}
