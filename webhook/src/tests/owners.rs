//! Namespace owners (ClusterRole `backup-owner`): what they create and read is checked by their own
//! rights.

mod reading;

use super::*;

/// A rule of RBAC: the namespace (empty: the whole cluster), verbs, and types; `*` is any.
type Rule = (&'static str, &'static str, &'static str);

const OWNER: Rule = (
    "velero",
    "create own-namespaces",
    "backups.velero.io restores.velero.io schedules.velero.io downloadrequests.velero.io",
);
const ALL_OF_SHOP: Rule = ("shop", "*", "*");
const READS_SHOP: Rule = ("shop", "get list", "*");
/// A user who may not read Secrets.
const SOME_OF_SHOP: Rule = (
    "shop",
    "get list",
    "configmaps pods services deployments.apps namespaces",
);

fn has(words: &str, word: &str) -> bool {
    words.split(' ').any(|one| one == "*" || one == word)
}

fn allow(api: &FakeApi, rules: &[Rule]) {
    let rules = rules.to_vec();
    api.allow(move |review| {
        let asked = &review["resourceAttributes"];
        let text = |field: &str| asked[field].as_str().unwrap_or_default();
        let mut resource = text("resource").to_owned();
        for (mark, field) in [(".", "group"), ("/", "subresource")] {
            if !text(field).is_empty() {
                resource = format!("{resource}{mark}{}", text(field));
            }
        }
        rules.iter().any(|(namespace, verbs, resources)| {
            (namespace.is_empty() || *namespace == text("namespace"))
                && has(verbs, text("verb"))
                && has(resources, &resource)
        })
    });
}

/// Discovery of a few types, of which each has a short name.
fn serve_types(api: &FakeApi) {
    let group = |name: &str, types: &[(&str, &str, &str, &str)]| {
        let resources: Vec<Value> = types
            .iter()
            .map(|(plural, kind, short, scope)| {
                json!({
                    "resource": plural, "responseKind": {"group": "", "version": "", "kind": kind}, "scope": scope,
                    "singularResource": kind.to_lowercase(), "shortNames": [short],
                    "verbs": ["list", "create", "get", "delete"],
                })
            })
            .collect();
        json!({
            "apiVersion": "apidiscovery.k8s.io/v2", "kind": "APIGroupDiscoveryList", "metadata": {},
            "items": [{
                "metadata": {"name": name},
                "versions": [{"version": "v1", "freshness": "Current", "resources": resources}],
            }],
        })
    };
    let core = [
        ("configmaps", "ConfigMap", "cm", "Namespaced"),
        ("pods", "Pod", "po", "Namespaced"),
        ("secrets", "Secret", "se", "Namespaced"),
        ("services", "Service", "svc", "Namespaced"),
        ("namespaces", "Namespace", "ns", "Cluster"),
        ("persistentvolumes", "PersistentVolume", "pv", "Cluster"),
    ];
    api.put("/api", group("", &core));
    let apps = [("deployments", "Deployment", "deploy", "Namespaced")];
    api.put("/apis", group("apps", &apps));
}

fn owner_with(rules: &[Rule]) -> (FakeApi, Replica) {
    let (api, replica) = one_replica();
    serve_types(&api);
    allow(&api, &[&[OWNER][..], rules].concat());
    (api, replica)
}

/// Fails unless the answer is a refusal with this text; without a text it has to pass.
fn assert_refused(answer: &Value, expected: &str, what: &str) {
    assert_eq!(allowed(answer), expected.is_empty(), "{what}: {answer}");
    if !expected.is_empty() {
        assert!(message(answer).contains(expected), "{what}: {answer}");
        assert_eq!(answer["status"]["code"], 403, "{what}: {answer}");
    }
}

#[allow(clippy::needless_pass_by_value)] // reads better where it is called
fn with(base: &Value, fields: Value) -> Value {
    let mut spec = base.clone();
    json_patch::merge(&mut spec, &fields);
    spec
}

#[tokio::test]
async fn an_owner_backs_up_what_the_owner_may_read() {
    let shop = json!({ "includedNamespaces": ["shop"], "includeClusterResources": false });
    let prod = json!({ "includedNamespaces": ["prod"], "includeClusterResources": false });
    let labels = json!({ "matchLabels": { "mine": "true" } });
    let hooks =
        json!({ "resources": [{ "name": "h", "pre": [{ "exec": { "command": ["true"] } }] }] });
    let policy = json!({ "kind": "configmap", "name": "rules" });
    let scoped = json!({
        "includedNamespaces": ["shop"], "includedNamespaceScopedResources": ["configmaps"],
        "excludedClusterScopedResources": ["*"],
    });
    let everywhere = "get and list everything (*.*) in the whole cluster";
    let volumes = "get and list persistentvolumes in the whole cluster";
    let rows = [
        (&[ALL_OF_SHOP][..], shop.clone(), ""),
        (&[READS_SHOP], shop.clone(), ""),
        (&[], shop.clone(), "secrets in namespace shop"),
        (&[ALL_OF_SHOP], prod.clone(), "secrets in namespace prod"),
        (
            &[ALL_OF_SHOP],
            with(&shop, json!({ "includedNamespaces": ["shop", "prod"] })),
            "secrets in namespace prod",
        ),
        // Which namespaces these are is known only when the backup runs.
        (
            &[ALL_OF_SHOP],
            with(&shop, json!({ "includedNamespaces": ["sho*"] })),
            everywhere,
        ),
        (
            &[ALL_OF_SHOP],
            with(&shop, json!({ "includedNamespaces": ["*"] })),
            everywhere,
        ),
        (
            &[ALL_OF_SHOP],
            json!({ "includeClusterResources": false }),
            everywhere,
        ),
        (
            &[ALL_OF_SHOP],
            json!({ "excludedNamespaces": ["prod"], "includeClusterResources": false }),
            everywhere,
        ),
        (&[("", "get list", "*")], json!({}), ""),
        // Labels are their author's to set.
        (
            &[ALL_OF_SHOP],
            with(&prod, json!({ "labelSelector": labels })),
            "secrets in namespace prod",
        ),
        (
            &[ALL_OF_SHOP],
            with(&prod, json!({ "orLabelSelectors": [labels] })),
            "secrets in namespace prod",
        ),
        // Types.
        (
            &[SOME_OF_SHOP],
            shop.clone(),
            "get and list secrets in namespace shop",
        ),
        (
            &[SOME_OF_SHOP],
            with(&shop, json!({ "excludedResources": ["secrets"] })),
            "",
        ),
        (
            &[SOME_OF_SHOP],
            with(&shop, json!({ "excludedResources": ["se*"] })),
            "",
        ),
        (
            &[SOME_OF_SHOP],
            with(&shop, json!({ "includedResources": ["po", "deployments"] })),
            "",
        ),
        (
            &[SOME_OF_SHOP],
            with(&shop, json!({ "includedResources": ["po", "se"] })),
            "secrets in namespace shop",
        ),
        (
            &[SOME_OF_SHOP],
            with(&shop, json!({ "includedResources": ["*"] })),
            "secrets in namespace shop",
        ),
        (&[SOME_OF_SHOP], scoped.clone(), ""),
        (
            &[("shop", "get", "*")],
            shop.clone(),
            "may not list configmaps in namespace shop",
        ),
        (
            &[("shop", "list", "*")],
            shop.clone(),
            "may not get configmaps in namespace shop",
        ),
        // Cluster-scoped objects come along unless they are excluded.
        (
            &[ALL_OF_SHOP],
            json!({ "includedNamespaces": ["shop"] }),
            volumes,
        ),
        (
            &[ALL_OF_SHOP],
            with(&shop, json!({ "includeClusterResources": true })),
            volumes,
        ),
        (
            &[ALL_OF_SHOP],
            json!({ "includedNamespaces": ["shop"], "includedClusterScopedResources": ["persistentvolumes"] }),
            volumes,
        ),
        (
            &[ALL_OF_SHOP, ("", "get list", "persistentvolumes")],
            json!({ "includedNamespaces": ["shop"] }),
            "",
        ),
        (
            &[SOME_OF_SHOP],
            with(&scoped, json!({ "excludedClusterScopedResources": null })),
            volumes,
        ),
        // Commands, and policies.
        (
            &[READS_SHOP],
            with(&shop, json!({ "hooks": hooks })),
            "may not create pods/exec in namespace shop",
        ),
        (
            &[READS_SHOP, ("shop", "create", "pods/exec")],
            with(&shop, json!({ "hooks": hooks })),
            "",
        ),
        (
            &[ALL_OF_SHOP],
            with(&shop, json!({ "resourcePolicy": policy })),
            "may not get configmaps \"rules\" in namespace velero",
        ),
        (
            &[ALL_OF_SHOP, ("velero", "get", "configmaps")],
            with(&shop, json!({ "resourcePolicy": policy })),
            "",
        ),
        // A policy may add types.
        (
            &[
                SOME_OF_SHOP,
                ("velero", "get", "configmaps"),
                ("", "get list", "persistentvolumes"),
            ],
            with(&scoped, json!({ "resourcePolicy": policy })),
            "secrets in namespace shop",
        ),
    ];
    for (rules, spec, expected) in rows {
        let (_, replica) = owner_with(rules);
        let answer = replica.create("Backup", "b", "1", spec.clone()).await;
        assert_refused(&answer, expected, &format!("{rules:?} {spec}"));
    }
}

#[tokio::test]
async fn a_group_that_does_not_answer_may_hold_anything() {
    let shop = json!({ "includedNamespaces": ["shop"], "includeClusterResources": false, "excludedResources": ["se"] });
    for (rules, expected) in [
        (
            &[SOME_OF_SHOP][..],
            "get and list *.metrics.k8s.io in namespace shop",
        ),
        (
            &[SOME_OF_SHOP, ("shop", "get list", "*.metrics.k8s.io")],
            "",
        ),
    ] {
        let (api, replica) = owner_with(rules);
        api.edit("/apis", |groups| {
            let stale = json!({ "metadata": {"name": "metrics.k8s.io"},
                "versions": [{"version": "v1beta1", "freshness": "Stale", "resources": []}] });
            groups["items"].as_array_mut().unwrap().push(stale);
        });
        let answer = replica.create("Backup", "b", "1", shop.clone()).await;
        assert_refused(&answer, expected, &format!("{rules:?}"));
    }
}

#[tokio::test]
async fn what_is_asked_for_each_type_is_bounded() {
    let (api, replica) = owner_with(&[]);
    let names: Vec<String> = (0..100).map(|n| format!("n{n}")).collect();
    let spec = json!({ "includedNamespaces": names, "includeClusterResources": false });
    let answer = replica.create("Backup", "b", "1", spec).await;
    assert_refused(&answer, "more than 1000 permissions", "100 namespaces");
    assert!(api.log().len() < 1000, "{}", api.log().len());
}

#[tokio::test]
async fn only_who_has_the_role_and_no_more_is_an_owner() {
    let unlimited = ("velero", "all-namespaces", "backups.velero.io");
    for (rules, is_owner) in [
        // As before there was this role.
        (&[][..], false),
        (&[("velero", "create", "backups.velero.io")], false),
        (&[OWNER], true),
        (&[OWNER, unlimited], false),
        // May read every backup, which says nothing about those that are made.
        (
            &[
                OWNER,
                ("velero", "all-namespaces", "downloadrequests.velero.io"),
            ],
            true,
        ),
        (&[("", "*", "*")], false),
    ] {
        let (api, replica) = one_replica();
        serve_types(&api);
        allow(&api, rules);
        let answer = replica.create("Backup", "b", "1", json!({})).await;
        assert_eq!(allowed(&answer), !is_owner, "{rules:?}: {answer}");
    }
    let (api, replica) = owner_with(&[]);
    let mut request = creation("Backup", "b", "1", json!({}));
    request["userInfo"]["username"] = json!("system:serviceaccount:velero:backup-controller");
    assert!(allowed(&replica.review(request).await));
    assert!(
        !api.requests().iter().any(ApiRequest::is_access_review),
        "the controller was asked about"
    );
}

#[tokio::test]
async fn an_owner_restores_where_the_owner_may_do_everything() {
    let mine = json!({ "backupName": "old", "includedNamespaces": ["shop"], "includeClusterResources": false });
    let rows: [(&[Rule], Value, &str); 8] = [
        (&[ALL_OF_SHOP], mine.clone(), ""),
        (
            &[("shop", "get list create update", "*")],
            mine.clone(),
            "in namespace shop",
        ),
        (
            &[ALL_OF_SHOP],
            with(&mine, json!({ "includedNamespaces": ["prod"] })),
            "in namespace prod",
        ),
        (
            &[ALL_OF_SHOP],
            with(&mine, json!({ "namespaceMapping": { "shop": "prod" } })),
            "in namespace prod",
        ),
        // The Secrets of prod would come into a namespace of the owner.
        (
            &[ALL_OF_SHOP],
            with(
                &mine,
                json!({ "includedNamespaces": ["prod"], "namespaceMapping": { "prod": "shop" } }),
            ),
            "in namespace prod",
        ),
        (
            &[ALL_OF_SHOP, ("prod", "*", "*")],
            with(&mine, json!({ "namespaceMapping": { "shop": "prod" } })),
            "",
        ),
        (
            &[ALL_OF_SHOP],
            with(&mine, json!({ "includeClusterResources": null })),
            "in the whole cluster",
        ),
        (
            &[ALL_OF_SHOP],
            with(&mine, json!({ "includedNamespaces": null })),
            "in the whole cluster",
        ),
    ];
    for (rules, spec, expected) in rows {
        let (_, replica) = owner_with(rules);
        let answer = replica.create("Restore", "r", "1", spec.clone()).await;
        assert_refused(&answer, expected, &format!("{rules:?} {spec}"));
    }
    // Without the flag others are not asked.
    let (_, replica) = one_replica();
    assert!(allowed(&replica.create("Restore", "r", "1", mine).await));
}

#[tokio::test]
async fn a_change_of_what_has_not_ended_is_checked_as_a_creation() {
    let (_, replica) = owner_with(&[ALL_OF_SHOP]);
    let prod = json!({ "includedNamespaces": ["prod"], "includeClusterResources": false });
    let mut request = creation("Backup", "b", "1", prod);
    request["operation"] = json!("UPDATE");
    request["oldObject"] = with(&request["object"], json!({ "spec": { "ttl": "1h0m0s" } }));
    let answer = replica.review(request).await;
    assert_refused(&answer, "secrets in namespace prod", "a change");
}

#[tokio::test]
async fn the_template_of_a_schedule_is_checked_as_its_author_could_back_up() {
    let shop = json!({ "includedNamespaces": ["shop"], "includeClusterResources": false });
    let schedule = |template: Value| json!({ "schedule": "@daily", "template": template });
    for (spec, expected) in [
        (schedule(shop.clone()), ""),
        (
            schedule(with(
                &shop,
                json!({ "includedNamespaces": ["shop", "prod"] }),
            )),
            "secrets in namespace prod",
        ),
        (
            schedule(json!({ "includedNamespaces": ["shop"] })),
            "set spec.template.includeClusterResources to false",
        ),
        (schedule(Value::Null), "in the whole cluster"),
        (json!({ "schedule": "@daily" }), "in the whole cluster"),
        (
            with(
                &schedule(shop.clone()),
                json!({ "paused": true, "skipImmediately": true }),
            ),
            "",
        ),
        // A field that is not known to be harmless.
        (
            with(
                &schedule(shop.clone()),
                json!({ "somethingNew": { "to": "elsewhere" } }),
            ),
            "with spec.somethingNew: only an operator sets that",
        ),
    ] {
        let (api, replica) = owner_with(&[ALL_OF_SHOP]);
        let mut request = creation("Schedule", "nightly", "1", spec.clone());
        assert_refused(
            &replica.review(request.clone()).await,
            expected,
            &format!("{spec}"),
        );
        request["operation"] = json!("UPDATE");
        request["oldObject"] = with(&request["object"], json!({ "spec": { "paused": true } }));
        let answer = replica.review(request.clone()).await;
        assert_refused(&answer, expected, &format!("changed to {spec}"));
        allow(&api, &[("velero", "*", "schedules.velero.io")]);
        assert!(
            allowed(&replica.review(request).await),
            "an operator: {spec}"
        );
    }
}
