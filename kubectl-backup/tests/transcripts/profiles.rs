use crate::prelude::*;

fn kinds(plurals: [&str; 2]) -> Value {
    plurals.map(|plural| json!({"name": plural, "singularName": "", "kind": "Any", "namespaced": true, "verbs": ["list"]})).into()
}

fn webhook(args: &[&str]) -> Value {
    let container = json!({"name": "webhook", "args": args});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "backup-webhook", "namespace": "velero"},
        "spec": {"selector": {}, "template": {"spec": {"containers": [container]}}},
    })
}

async fn cluster(args: &[&str]) -> FakeApi {
    let api = FakeApi::start().await;
    api.serves("velero.io/v1", &kinds(["backups", "restores"])).has(webhook(args));
    api
}

#[tokio::test]
async fn profiles_are_listed_with_the_policy_in_force() {
    let api = cluster(&["--listen=0.0.0.0:9443"]).await;
    let mut all = Person::at(&api).types("profiles").await;
    let api = cluster(&[
        "--guard=percona-ps",
        "--mode",
        "warn",
        "--on-conflict-restore=queue",
        "--intent=30s",
        "--profiles=/etc/profiles",
    ])
    .await;
    api.serves("ps.percona.com/v1", &kinds(["perconaservermysqlbackups", "perconaservermysqlrestores"]));
    all += &Person::at(&api)
        .types_all([
            "profiles",
            "profiles -o wide --no-headers",
            "profiles -o name",
            "profiles percona-ps",
            "profiles -o jsonpath={.profiles[*].policyFrom}",
            "profiles -o custom-columns=NAME:.name,INTENT:.policy.intentSeconds",
            "profiles acme",
        ])
        .await;
    assert_snapshot!(all);
}

/// The webhook reads profiles from a ConfigMap.
async fn with_own_profiles(files: &Value) -> FakeApi {
    let mut webhook = webhook(&["--guard=acme", "--profiles=/etc/backup-profiles"]);
    let pod = &mut webhook["spec"]["template"]["spec"];
    pod["containers"][0]["volumeMounts"] = json!([{"name": "profiles", "mountPath": "/etc/backup-profiles"}]);
    pod["volumes"] = json!([{"name": "profiles", "configMap": {"name": "backup-profiles"}}]);
    let api = FakeApi::start().await;
    let map = json!({"kind": "ConfigMap", "metadata": {"name": "backup-profiles", "namespace": "velero"}, "data": files});
    api.has(webhook).has(map);
    api.serves("velero.io/v1", &kinds(["backups", "restores"]));
    api.serves("acme.example/v1", &kinds(["dumps", "loads"]));
    api
}

/// A profile that is not built in.
const ACME: &str = "
name: acme
group: acme.example
version: v1
scope: { field: { backup: spec.cluster, restore: spec.cluster } }
backup: { kind: Dump, plural: dumps, statusSubresource: true, phase: status.phase, active: [Dumping], over: { in: { path: status.phase, values: [Done] } } }
restore: { kind: Load, plural: loads, statusSubresource: true, phase: status.phase, active: [Loading], over: { in: { path: status.phase, values: [Done] } } }
";

#[tokio::test]
async fn profiles_of_the_webhooks_config_map_are_known() {
    let api = with_own_profiles(&json!({"acme.yaml": ACME, "notes.txt": "not: a profile"})).await;
    let dump = json!({"apiVersion": "acme.example/v1", "kind": "Dump", "metadata": {"name": "night", "namespace": "db", "uid": "u", "creationTimestamp": "2026-11-03T05:00:00Z"}, "spec": {"cluster": "main"}, "status": {"phase": "Dumping"}});
    api.has(dump);
    transcript!(Person::at(&api), "profiles", "get --kind=dump", "describe --kind=dumps db/night", "locks");
}

#[tokio::test]
async fn profiles_that_cannot_be_read_are_named() {
    let api = with_own_profiles(&json!({"acme.yaml": "name: acme\ncolour: blue\n"})).await;
    let seen = Person::at(&api).types("doctor").await;
    assert!(
        seen.contains(
            "profiles               acme cannot be used, and what it is about is refused: acme.yaml"
        ),
        "{seen}"
    );
    let mut all = Person::at(&api).types_all(["profiles -o name", "get --kind=dump", "profiles acme"]).await;
    let no = "configmaps \"backup-profiles\" is forbidden: User \"jane\" cannot get resource";
    api.on_get("/configmaps/backup-profiles", Fault::forbidden(no));
    all += &Person::at(&api).types("profiles -o name").await;
    assert_snapshot!(all);
}

#[tokio::test]
async fn profiles_are_checked_before_they_are_rolled_out() {
    let person = Person::without_cluster();
    person.writes("acme.yaml", ACME);
    person.writes("again.yml", ACME);
    person.writes("broken.yaml", "name: broken\ncolour: blue\n");
    transcript!(
        person,
        "profiles check ~/acme.yaml",
        "profiles check ~/acme.yaml ~/broken.yaml",
        "profiles check ~/acme.yaml ~/again.yml",
        "profiles check ~/nowhere.yaml",
        "profiles check",
    );
}

#[tokio::test]
async fn what_of_a_policy_cannot_be_known_says_so() {
    let api = FakeApi::start().await;
    let no = "deployments.apps \"backup-webhook\" is forbidden: User \"jane\" cannot get resource";
    api.on_get("/deployments/backup-webhook", Fault::forbidden(no));
    let mut all = Person::at(&api).types("profiles").await;
    all += &Person::at(&api).types("profiles").await;
    let hidden = "forbidden: User \"jane\" cannot get path";
    api.on_get("/apis/ps.percona.com/v1", Fault::forbidden(hidden));
    all += &Person::at(&api).types("profiles percona-ps -o yaml").await;
    assert_snapshot!(all);
}
