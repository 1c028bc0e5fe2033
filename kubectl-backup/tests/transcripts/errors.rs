use crate::prelude::*;

#[tokio::test]
async fn a_kubeconfig_that_cannot_be_used_is_told_with_its_remedy() {
    let mut all = Person::without_cluster().types("kubectl backup get").await;
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
async fn a_cluster_that_cannot_be_reached_is_told_with_its_remedy() {
    let person = Person::at_url("http://127.0.0.1:1");
    transcript!(person, "kubectl backup get");
    let api = FakeApi::start().await;
    api.next(Method::GET, "/backups", Fault::Hang);
    transcript!(Person::at(&api), "kubectl backup get --request-timeout=50ms");
}

#[tokio::test]
async fn every_answer_of_the_api_server_is_told_with_its_remedy() {
    let api = FakeApi::start().await;
    let person = Person::at(&api);
    let mut all = String::new();
    let no_kind = Fault::refused(404, "NotFound", "the server could not find the requested resource");
    let forbidden = Fault::refused_with(
        403,
        "Forbidden",
        "backups.velero.io is forbidden: User \"jane\" cannot list resource \"backups\" in API group \"velero.io\" in the namespace \"velero\"",
        json!({"group": "velero.io", "kind": "backups"}),
    );
    for fault in [no_kind, forbidden, Fault::refused(401, "Unauthorized", "Unauthorized")] {
        api.next(Method::GET, "/backups", fault);
        all += &person.types("kubectl backup get").await;
    }
    all += &person
        .types_all([
            "kubectl backup get nightly",
            "kubectl backup describe nightly",
            "kubectl backup delete nightly --yes",
            "kubectl backup restore --from-backup=nightly",
            "kubectl backup restore describe back-again",
            "kubectl backup create --from-schedule=nightly",
        ])
        .await;
    api.has("backups", new_backup("nightly"));
    all += &person.types("kubectl backup create nightly").await;
    let details = json!({"name": "velero", "kind": "namespaces"});
    let no_namespace = Fault::refused_with(404, "NotFound", "namespaces \"velero\" not found", details);
    api.next(Method::POST, "/backups", no_namespace);
    all += &person.types("kubectl backup create other").await;
    api.has("backups", with(new_backup("by-another-hand"), &json!({"spec": {"ttl": "tomorrow"}})));
    all += &person.types("kubectl backup describe by-another-hand").await;
    all += &person.types("kubectl backup delete by-another-hand --yes").await;
    assert_snapshot!(all);
}

#[tokio::test]
async fn the_installations_namespace_is_found_as_velero_finds_it() {
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
