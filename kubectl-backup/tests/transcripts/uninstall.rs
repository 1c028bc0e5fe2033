use crate::{
    install::{deployment, empty},
    prelude::*,
};

const OURS: &str = "app.kubernetes.io/part-of";

/// An installation with the objects that an uninstallation needs.
async fn installed(args: &[&str]) -> FakeApi {
    let api = empty("34").await;
    for program in ["backup-webhook", "backup-controller"] {
        let args = json!({ "spec": { "template": { "spec": { "containers": [
            { "name": "x", "image": "backup-webhook:v0.1.0", "args": args }] } } } });
        api.has(deployment(program, &args));
    }
    let admission = "/apis/admissionregistration.k8s.io/v1";
    for path in [
        format!("{admission}/validatingwebhookconfigurations/backup-webhook"),
        format!("{admission}/validatingadmissionpolicies/backup-lock-writers"),
        format!("{admission}/validatingadmissionpolicybindings/backup-lock-writers"),
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/backup-controller".to_owned(),
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/backup-of-somebody".to_owned(),
        "/api/v1/namespaces/velero/serviceaccounts/backup-webhook".to_owned(),
    ] {
        let name = path.rsplit('/').next().unwrap();
        api.has_at(
            &path,
            json!({ "metadata": { "name": name, "labels": { OURS: "backup" } } }),
        );
    }
    api.has(completed_backup("nightly"))
        .has(location("Available", ""));
    api
}

/// The deleted objects, in order.
fn deleted(api: &FakeApi) -> Vec<String> {
    let seen = api
        .seen()
        .into_iter()
        .filter(|line| line.starts_with("DELETE"));
    seen.map(|line| {
        line.rsplit('/')
            .take(2)
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
            .collect::<Vec<_>>()
            .join("/")
    })
    .collect()
}

#[tokio::test]
async fn removal_begins_at_the_registration_and_says_what_stays() {
    let api = installed(&[]).await;
    transcript!(Person::at(&api).at_terminal("y\n"), "uninstall");
    assert_eq!(
        deleted(&api),
        [
            "validatingwebhookconfigurations/backup-webhook",
            "validatingadmissionpolicybindings/backup-lock-writers",
            "validatingadmissionpolicies/backup-lock-writers",
            "deployments/backup-controller",
            "deployments/backup-webhook",
            "serviceaccounts/backup-webhook",
            "clusterroles/backup-controller",
        ]
        .map(str::to_owned)
    );
}

#[tokio::test]
async fn nothing_is_removed_while_work_runs_or_without_a_yes() {
    let api = installed(&[]).await;
    let mut all = Person::at(&api).types("uninstall").await;
    all += "\n";
    all += &Person::at(&api)
        .at_terminal("n\n")
        .types("uninstall --with-definitions --with-namespace")
        .await;
    let finalizers = json!(["backup-controller.velero.io/work"]);
    api.has(with(
        new_backup("now"),
        &json!({ "metadata": { "finalizers": finalizers } }),
    ));
    all += "\n";
    all += &Person::at(&api).types("uninstall --yes").await;
    all += "\n";
    all += &Person::at(&installed(&["--guard=velero"]).await)
        .types("uninstall --yes --with-definitions")
        .await;
    all += "\n";
    all += &Person::at(&FakeApi::start().await)
        .types("uninstall --yes")
        .await;
    assert_snapshot!(all);
    assert_eq!(deleted(&api), [""; 0]);
}

/// Its Restore has ended, and its volume is not given back to its claim yet.
#[tokio::test]
async fn nothing_is_removed_before_a_transfer_of_volume_data_is_cleaned_up() {
    let api = installed(&[]).await;
    api.has_at(
        "/apis/velero.io/v2alpha1/namespaces/velero/datadownloads/download-data-1",
        json!({
            "apiVersion": "velero.io/v2alpha1", "kind": "DataDownload",
            "metadata": { "name": "download-data-1", "namespace": "velero",
                "finalizers": ["velero.io/data-upload-download-finalizer"] },
            "spec": {
                "targetVolume": { "pvc": "data", "pv": "pv-1", "namespace": "shop" },
                "backupStorageLocation": "default", "snapshotID": "4f1c0a7d", "sourceNamespace": "shop",
                "operationTimeout": "10m0s", "restoreType": "full",
            },
            "status": { "phase": "Failed" },
        }),
    );
    let seen = Person::at(&api).types("uninstall --yes").await;
    let refusal = "1 data transfer runs in namespace velero";
    assert!(seen.contains(refusal) && seen.contains("--force"), "{seen}");
    assert_eq!(deleted(&api), [""; 0]);
}

#[tokio::test]
async fn what_would_be_removed_is_listed() {
    let api = installed(&[]).await;
    transcript!(Person::at(&api), "uninstall --dry-run=client");
    assert_eq!(deleted(&api), [""; 0]);
}

#[tokio::test]
async fn all_of_it_goes_where_it_is_asked_for() {
    let api = installed(&[]).await;
    transcript!(
        Person::at(&api),
        "uninstall --yes --with-ledgers --with-definitions --with-namespace"
    );
    let deleted = deleted(&api);
    assert!(
        deleted.contains(&"customresourcedefinitions/backups.velero.io".to_owned()),
        "{deleted:?}"
    );
    assert_eq!(deleted.last().unwrap(), "namespaces/velero");
}

#[tokio::test]
async fn a_password_that_would_be_lost_is_named_before_the_question() {
    let api = installed(&[]).await;
    api.has_at(
        "/api/v1/namespaces/velero/secrets/velero-repo-credentials",
        json!({ "metadata": { "name": "velero-repo-credentials", "namespace": "velero" } }),
    );
    let seen = Person::at(&api)
        .at_terminal("n\n")
        .types("uninstall --with-namespace")
        .await;
    let said = "The namespace holds the password of the volume data in buckets";
    assert_says!(seen, said);
    let seen = Person::at(&api).at_terminal("n\n").types("uninstall").await;
    assert!(!seen.contains(said), "{seen}");
    assert_eq!(deleted(&api), [""; 0]);
}

#[tokio::test]
async fn rights_stay_until_the_pods_are_gone() {
    let api = installed(&[]).await;
    api.has_at(
        "/api/v1/namespaces/velero/pods/backup-controller-1",
        json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "backup-controller-1",
            "labels": { OURS: "backup", "app.kubernetes.io/name": "backup-controller" } } }),
    );
    transcript!(Person::at(&api), "uninstall --yes --timeout=1s");
    assert!(
        !deleted(&api)
            .iter()
            .any(|name| name.contains("clusterroles")),
        "{:?}",
        deleted(&api)
    );
}
