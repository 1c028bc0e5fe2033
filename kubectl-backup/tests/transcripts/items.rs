use crate::{prelude::*, verify::tar_of};

const APPLIED: &str = r#"{"kind":"Secret","data":{"password":"c2VjcmV0"}}"#;

/// A backup of a shop with its database.
async fn stored() -> FakeApi {
    let api = FakeApi::start().await;
    let config = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "web", "namespace": "shop" },
        "data": { "colour": "blue", "size": "1" } });
    let secret = json!({ "apiVersion": "v1", "kind": "Secret",
        "metadata": { "name": "password", "namespace": "shop", "annotations": { "kubectl.kubernetes.io/last-applied-configuration": APPLIED } },
        "data": { "password": "c2VjcmV0" } });
    let deployment = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web", "namespace": "shop" } });
    let volume =
        json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": "pv-1" } });
    let database = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "pg", "namespace": "db" } });
    let items = [
        ("resources/configmaps/namespaces/shop/web.json", &config),
        ("resources/configmaps/namespaces/db/pg.json", &database),
        ("resources/secrets/namespaces/shop/password.json", &secret),
        (
            "resources/deployments.apps/namespaces/shop/web.json",
            &deployment,
        ),
        ("resources/persistentvolumes/cluster/pv-1.json", &volume),
    ]
    .map(|(path, object)| (path.to_owned(), object.clone()));
    let list = json!({ "v1/ConfigMap": ["db/pg", "shop/web"], "v1/Secret": ["shop/password"],
        "apps/v1/Deployment": ["shop/web"], "v1/PersistentVolume": ["pv-1"] });
    let same = json!({});
    let older = json!({ "status": { "startTimestamp": "2026-11-02T03:00:00Z" } });
    for (name, list) in [
        ("nightly", &list),
        ("older", &list),
        ("other", &json!({ "v1/ConfigMap": ["db/pg"] })),
    ] {
        api.has(with(
            completed_backup(name),
            if name == "older" { &older } else { &same },
        ))
        .has_bytes("BackupContents", name, tar_of(&items))
        .has_file("BackupResourceList", name, list);
    }
    let given = json!({ "metadata": { "uid": "u", "resourceVersion": "7" }, "data": { "colour": "green", "more": "x" } });
    api.has_at(
        "/api/v1/namespaces/shop/configmaps/web",
        with(config, &given),
    );
    api
}

#[tokio::test]
async fn what_is_in_a_backup_is_listed_level_by_level() {
    let person = Person::at(&stored().await);
    transcript!(
        person,
        "ls nightly",
        "ls nightly shop",
        "ls nightly shop/configmap",
        "ls nightly shop/cm",
        "ls nightly shop/deploy",
        "ls nightly shop/configmapz",
        "ls nightly .",
        "ls nightly shop -o json",
        "ls nightly shop/secrets -o name",
        "ls nightly elsewhere",
        "ls gone"
    );
}

#[tokio::test]
async fn an_item_is_printed_and_secrets_stay_secret() {
    let person = Person::at(&stored().await);
    transcript!(
        person,
        "cat nightly shop/configmaps/web",
        "cat nightly persistentvolumes/pv-1 -o json",
        "cat nightly shop/secret/password",
        "cat nightly shop/configmaps/gone",
        "cat nightly shop/configmapz/web",
        "cat nightly web"
    );
    let short = person.types("cat nightly shop/cm/web").await;
    assert_says!(short, "colour: blue");
    let hidden = person.types("cat nightly shop/secrets/password").await;
    assert!(!hidden.contains("c2VjcmV0"), "{hidden}");
    let shown = person
        .types("cat nightly shop/secrets/password --show-secrets")
        .await;
    assert_says!(shown, "password: c2VjcmV0");
}

#[tokio::test]
async fn after_the_first_look_no_more_is_read_than_the_item_that_is_asked_for() {
    let api = stored().await;
    let person = Person::at(&api);
    let reads = || {
        api.seen()
            .iter()
            .filter(|line| line.contains("/proxy/files/"))
            .count()
    };
    let folder = person.home.path().join(".kube/cache/kubectl-backup");
    let index = || {
        std::fs::read_dir(&folder)
            .unwrap()
            .next()
            .unwrap()
            .unwrap()
            .path()
    };

    let first = person.types("ls nightly shop").await;
    assert_eq!((person.types("ls nightly shop").await, reads()), (first, 1));
    let kept = std::fs::read_to_string(index()).unwrap();
    assert!(
        kept.contains("password") && !kept.contains("c2VjcmV0"),
        "names and no contents: {kept}"
    );
    let web = person.types("cat nightly shop/configmaps/web").await;
    assert!(web.contains("colour: blue") && reads() == 2, "{web}");
    assert_says!(api.headers(), "\"range\": \"bytes=0-");

    // If the file was replaced, the output is from the new one.
    let green = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "web", "namespace": "shop" },
        "data": { "colour": "green" } });
    let path = "resources/configmaps/namespaces/shop/web.json".to_owned();
    api.has_bytes("BackupContents", "nightly", tar_of(&[(path, green)]));
    let web = person.types("cat nightly shop/configmaps/web").await;
    assert!(
        web.contains("colour: green") && !web.contains("error"),
        "{web}"
    );

    std::fs::write(index(), "what is this?").unwrap();
    assert_says!(person.types("ls nightly").await, "shop");
    assert!(
        std::fs::read_to_string(index())
            .unwrap()
            .starts_with("{\"members\":")
    );
    let nowhere = Person::at(&api).with_var("KUBECACHEDIR", "~/.kube/config");
    transcript!("nothing is kept" => nowhere, "cat nightly shop/configmaps/web");
}

#[cfg(unix)]
#[tokio::test]
async fn what_is_kept_of_a_backup_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let person = Person::at(&stored().await).with_var("KUBECACHEDIR", "~/cache");
    person.types("ls nightly").await;
    let folder = person.home.path().join("cache/kubectl-backup");
    let mode =
        |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder), 0o700);
    let files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|file| mode(&file.unwrap().path()))
        .collect();
    assert_eq!(files, [0o600]);
}

#[tokio::test]
async fn the_backups_that_have_an_item_are_found_newest_first() {
    let person = Person::at(&stored().await);
    transcript!(
        person,
        "search shop/configmaps/web",
        "search shop/configmap/web --compare",
        "search shop/deployments.apps/web --compare -o name",
        "search persistentvolumes/pv-1 -o json",
        "search shop/cm/web -o name",
        "search shop/configmaps/nowhere",
        "search shop/configmapz/web",
        "search configmap/web -n shop"
    );
}

#[tokio::test]
async fn what_was_not_searched_is_never_no() {
    let api = stored().await;
    let person = Person::at(&api);
    // A backup whose list cannot be read.
    api.has(completed_backup("unread"));
    transcript!(
        person,
        "search shop/cm/web -o json",
        "search shop/cm/nowhere",
        "search shop/configmapz/web",
        "get --containing=nowhere"
    );
    let none = FakeApi::start().await;
    none.has(completed_backup("one"))
        .has(completed_backup("two"));
    transcript!("search none" => Person::at(&none), "search shop/cm/web");
    transcript!("containing none" => Person::at(&none), "get --containing=shop");
}

#[tokio::test]
async fn short_names_of_custom_resources_are_asked_of_discovery() {
    let api = stored().await;
    let group = json!({ "metadata": { "name": "example.com" }, "versions": [{ "version": "v1", "freshness": "Current",
        "resources": [{ "resource": "widgets", "responseKind": { "group": "", "version": "", "kind": "Widget" },
            "scope": "Namespaced", "singularResource": "widget", "shortNames": ["wd"], "verbs": ["get"] }] }] });
    let discovery = |items: Value| json!({ "apiVersion": "apidiscovery.k8s.io/v2", "kind": "APIGroupDiscoveryList", "items": items });
    api.has_at("/apis", discovery(json!([group])))
        .has_at("/api", discovery(json!([])));
    api.has(completed_backup("widgets")).has_file(
        "BackupResourceList",
        "widgets",
        &json!({ "example.com/v1/Widget": ["shop/w"] }),
    );
    transcript!(Person::at(&api), "search shop/wd/w -o name");
}

#[tokio::test]
async fn the_backups_that_hold_a_namespace_are_listed_newest_first() {
    let api = stored().await;
    let person = Person::at(&api);
    // A backup that cannot contain the item is not read: this one has no list.
    let elsewhere = json!({"spec": {"includedNamespaces": ["db"]}});
    api.has(with(completed_backup("elsewhere"), &elsewhere))
        .has(new_backup("early"));
    transcript!(
        person,
        "get --containing=shop",
        "get --containing=shop -o name",
        "get --containing=nowhere",
        "get nightly --containing=shop",
        "get -w --containing=shop"
    );
    let seen = person.reads("get --containing=shop -o json").await;
    assert_eq!(seen["items"].as_array().unwrap().len(), 2);
    api.has(with(
        new_backup("worse"),
        &json!({"spec": {"ttl": "tomorrow"}}),
    ));
    transcript!("get containing unread" => person, "get --containing=db -o name");
}
