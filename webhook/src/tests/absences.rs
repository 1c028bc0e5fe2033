//! Namespaces that a Backup or Schedule includes, and that do not exist.

use super::*;

fn schedule(included: &[&str]) -> Value {
    json!({"schedule": "@daily", "template": {"includedNamespaces": included}})
}

#[tokio::test]
async fn a_namespace_that_does_not_exist_is_a_warning_and_no_refusal() {
    let (api, replica) = one_replica();
    let shop = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    api.put("/api/v1/namespaces/shop", shop);
    let mut number = 0;
    for (included, warning) in [
        (&["shop"][..], None),
        (&["*"], None),
        (&["team-*"], None),
        (
            &["shop", "shp", "team-*"],
            Some("includes namespace shp, which does not exist: nothing of it is saved"),
        ),
    ] {
        let backup = json!({"includedNamespaces": included});
        for (kind, spec) in [("Backup", backup), ("Schedule", schedule(included))] {
            number += 1;
            let name = format!("x{number}");
            let answer = replica.create(kind, &name, &name, spec).await;
            assert!(allowed(&answer), "{answer}");
            let expected =
                warning.map(|warning| json!([format!("{kind} velero/{name} {warning}")]));
            assert_eq!(answer.get("warnings"), expected.as_ref(), "{answer}");
        }
    }
}

#[tokio::test]
async fn namespaces_are_read_for_users_and_for_names_that_are_new() {
    let (api, replica) = one_replica();
    let mut request = creation("Backup", "b", "1", json!({"includedNamespaces": ["shp"]}));
    request["userInfo"]["username"] = json!("system:serviceaccount:velero:backup-controller");
    let answer = replica.review(request).await;
    assert_eq!(answer.get("warnings"), None, "{answer}");
    let mut update = creation("Schedule", "s", "2", schedule(&["shp", "gone"]));
    update["operation"] = json!("UPDATE");
    update["oldObject"] = update["object"].clone();
    update["oldObject"]["spec"] = schedule(&["shp"]);
    let answer = replica.review(update).await;
    let warning = answer["warnings"][0].as_str().unwrap();
    assert_says!(warning, "includes namespace gone, which does not exist");
    assert_eq!(api.count("GET /api/v1/namespaces/shp"), 0);
}

#[tokio::test]
async fn without_an_answer_about_a_namespace_there_is_no_warning() {
    let (api, replica) = one_replica();
    api.fail(|request| request.path == "/api/v1/namespaces/shp");
    let answer = replica
        .create("Backup", "b", "1", json!({"includedNamespaces": ["shp"]}))
        .await;
    assert_eq!(
        (allowed(&answer), answer.get("warnings")),
        (true, None),
        "{answer}"
    );
}
