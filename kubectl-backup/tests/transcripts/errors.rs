use axum::http::Method;
use insta::assert_snapshot;
use serde_json::json;

use crate::{
    fake_api::{FakeApi, Fault, failure},
    person::Person,
    samples::{new_backup, with},
};

#[tokio::test]
async fn a_kubeconfig_that_can_not_be_used_is_told_with_its_remedy() {
    let mut all = String::new();
    all += &Person::without_cluster().types("kubectl backup get").await;
    all += &Person::without_cluster().types("kubectl backup get --kubeconfig=~/nowhere").await;
    all += &Person::without_cluster().with_var("KUBECONFIG", "~/gone").types("kubectl backup get").await;
    let person = Person::at_url("https://127.0.0.1:1");
    person
        .writes("broken", "apiVersion: v1\nclusters: [{name: one, cluster: {server: }\n  token: c2VjcmV0\n");
    all += &person.types("kubectl backup get --kubeconfig=~/broken").await;
    person.writes("empty", "");
    all += &person.types("kubectl backup get --kubeconfig=~/empty").await;
    all += &person.types("kubectl backup get --context=there").await;
    all += &person.types("kubectl backup get --cluster=two").await;
    all += &person.types("kubectl backup get --user=joe").await;
    all += &person.types("kubectl backup get --as-group=admins").await;
    assert!(!all.contains("c2VjcmV0"), "{all}");
    assert_snapshot!(all);
}

#[tokio::test]
async fn a_cluster_that_can_not_be_reached_is_told_with_its_remedy() {
    let person = Person::at_url("http://127.0.0.1:1");
    assert_snapshot!(person.types("kubectl backup get").await);
    let api = FakeApi::start().await;
    api.next(Method::GET, "/backups", Fault::Hang);
    assert_snapshot!(Person::at(&api).types("kubectl backup get --request-timeout=50ms").await);
}

#[tokio::test]
async fn every_answer_of_the_api_server_is_told_with_its_remedy() {
    let api = FakeApi::start().await;
    let person = Person::at(&api);
    let mut all = String::new();
    let no_kind = failure(404, "NotFound", "the server could not find the requested resource", &json!({}));
    let forbidden = failure(
        403,
        "Forbidden",
        "backups.velero.io is forbidden: User \"jane\" cannot list resource \"backups\" in API group \"velero.io\" in the namespace \"velero\"",
        &json!({"group": "velero.io", "kind": "backups"}),
    );
    let unauthorized = failure(401, "Unauthorized", "Unauthorized", &json!({}));
    for (code, body) in [(404, no_kind), (403, forbidden), (401, unauthorized)] {
        api.next(Method::GET, "/backups", Fault::Answer(code, body));
        all += &person.types("kubectl backup get").await;
    }
    for line in [
        "kubectl backup get nightly",
        "kubectl backup describe nightly",
        "kubectl backup delete nightly --yes",
        "kubectl backup restore --from-backup=nightly",
        "kubectl backup restore describe back-again",
        "kubectl backup create --from-schedule=nightly",
    ] {
        all += &person.types(line).await;
    }
    api.has("backups", new_backup("nightly"));
    all += &person.types("kubectl backup create nightly").await;
    let no_namespace = failure(
        404,
        "NotFound",
        "namespaces \"velero\" not found",
        &json!({"name": "velero", "kind": "namespaces"}),
    );
    api.next(Method::POST, "/backups", Fault::Answer(404, no_namespace));
    all += &person.types("kubectl backup create other").await;
    api.has("backups", with(new_backup("by-another-hand"), &json!({"spec": {"ttl": "tomorrow"}})));
    all += &person.types("kubectl backup describe by-another-hand").await;
    all += &person.types("kubectl backup delete by-another-hand --yes").await;
    assert_snapshot!(all);
}

#[tokio::test]
async fn the_namespace_of_the_installation_is_found_as_velero_finds_it() {
    let api = FakeApi::start().await;
    let person = Person::at(&api);
    person.types("kubectl backup get").await;
    let person = person.with_var("VELERO_NAMESPACE", "from-env");
    person.types("kubectl backup get").await;
    person.writes(".config/velero/config.json", r#"{"namespace": "from-file"}"#);
    person.types("kubectl backup get").await;
    person.types("kubectl backup -n from-flag get").await;
    person.types("kubectl backup get -n from-flag").await;
    // The lists; what else is asked looks for a hint in all namespaces.
    let seen = api.seen();
    let lists = seen.iter().filter(|line| line.contains("/backups?"));
    let namespaces: Vec<&str> = lists.map(|line| line.split('/').nth(5).unwrap()).collect();
    assert_eq!(namespaces, ["velero", "from-env", "from-file", "from-flag", "from-flag"]);
}
