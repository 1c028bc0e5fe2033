use crate::prelude::*;

/// An API server of this version.
async fn cluster() -> FakeApi {
    let api = FakeApi::start().await;
    let version = json!({"major": "1", "minor": "33", "gitVersion": "v1.33.4", "gitCommit": "", "gitTreeState": "", "buildDate": "", "goVersion": "", "compiler": "", "platform": ""});
    api.on_get("/version", Fault::Answer(200, version));
    api
}

#[tokio::test]
async fn versions_are_those_of_all_who_answer() {
    let api = cluster().await;
    let answered = json!({
        "apiVersion": "velero.io/v1", "kind": "ServerStatusRequest", "metadata": {"name": "kubectl-backup-0", "namespace": "velero"}, "spec": {},
        "status": {"phase": "Processed", "serverVersion": "backup-controller v0.1.0", "plugins": [{"name": "velero.io/pod", "kind": "BackupItemAction"}]},
    });
    api.on_get("/kubectl-backup-0", Fault::Becomes(answered));
    let person = Person::at(&api);
    assert_snapshot!("version", neutral(&person.types("version").await));
    assert_snapshot!(
        "version client",
        neutral(&person.types("version --client -o json").await)
    );
}

#[tokio::test]
async fn who_does_not_answer_is_told_in_its_place() {
    let api = cluster().await;
    let seen = Person::at(&api).types("version --timeout=300ms").await;
    assert_snapshot!("version without controller", neutral(&seen));
    let seen = Person::without_cluster().types("version").await;
    assert_snapshot!("version without cluster", neutral(&seen));
}

fn neutral(seen: &str) -> String {
    seen.replace(env!("CARGO_PKG_VERSION"), "VERSION")
}
