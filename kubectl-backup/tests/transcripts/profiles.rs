use axum::http::Method;
use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::{
    fake_api::{FakeApi, Fault, failure},
    person::Person,
};

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
    api.serves("velero.io/v1", &kinds(["backups", "restores"])).has("deployments", webhook(args));
    api
}

#[tokio::test]
async fn profiles_are_listed_with_what_is_installed_and_the_policy_in_force() {
    let api = cluster(&["--listen=0.0.0.0:9443"]).await;
    let mut all = Person::at(&api).types("kubectl backup profiles").await;
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
    let person = Person::at(&api);
    for line in [
        "kubectl backup profiles",
        "kubectl backup profiles -o wide --no-headers",
        "kubectl backup profiles -o name",
        "kubectl backup profiles percona-ps",
        "kubectl backup profiles -o jsonpath={.profiles[*].policyFrom}",
        "kubectl backup profiles -o custom-columns=NAME:.name,INTENT:.policy.intentSeconds",
        "kubectl backup profiles acme",
    ] {
        all = all + &person.types(line).await + "\n";
    }
    assert_snapshot!(all);
}

#[tokio::test]
async fn what_of_a_policy_can_not_be_known_says_so() {
    let api = FakeApi::start().await;
    let no = failure(
        403,
        "Forbidden",
        "deployments.apps \"backup-webhook\" is forbidden: User \"jane\" cannot get resource",
        &json!({}),
    );
    api.next(Method::GET, "/deployments/backup-webhook", Fault::Answer(403, no));
    let mut all = Person::at(&api).types("kubectl backup profiles").await;
    all += &Person::at(&api).types("kubectl backup profiles").await;
    let hidden = failure(403, "Forbidden", "forbidden: User \"jane\" cannot get path", &json!({}));
    api.next(Method::GET, "/apis/ps.percona.com/v1", Fault::Answer(403, hidden));
    all += &Person::at(&api).types("kubectl backup profiles percona-ps -o yaml").await;
    assert_snapshot!(all);
}
