//! Namespaces that a Backup or Schedule includes, and locations of copies, that do not exist.

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

fn locations(api: &FakeApi) {
    for (name, is_default) in [("here", true), ("offsite", false)] {
        let location = json!({"apiVersion": "velero.io/v1", "kind": "BackupStorageLocation",
            "metadata": {"name": name, "namespace": "velero", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"provider": "aws", "default": is_default, "objectStorage": {"bucket": "b"}}});
        let path = format!("/apis/velero.io/v1/namespaces/velero/backupstoragelocations/{name}");
        api.put(&path, location);
    }
}

#[tokio::test]
async fn a_copy_that_is_never_made_is_a_warning_and_no_refusal() {
    let (api, replica) = one_replica();
    locations(&api);
    let absent = "names copies in locations gone, lost, which do not exist: no copy is made there";
    let own = "names a copy in location here, which is the default one, so that of the backup itself: no copy is made there";
    let mut number = 0;
    for (location, copied_to, warning) in [
        (None, &["offsite"][..], None),
        (None, &["here"], Some(own)),
        (Some("offsite"), &["here"], None),
        (Some("here"), &["gone", "offsite", "lost"], Some(absent)),
        (
            None,
            &["gone"],
            Some("names copies in location gone, which does not exist: no copy is made there"),
        ),
    ] {
        let copies: Vec<Value> = copied_to
            .iter()
            .map(|name| json!({ "location": name }))
            .collect();
        let backup = json!({"storageLocation": location, "copies": copies});
        let schedule = json!({"schedule": "@daily", "template": {"storageLocation": location}, "copies": copies});
        let in_template = json!({"schedule": "@daily", "template": backup});
        for (kind, spec) in [
            ("Backup", backup),
            ("Schedule", schedule),
            ("Schedule", in_template),
        ] {
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
async fn without_an_answer_about_locations_there_is_no_warning() {
    let (api, replica) = one_replica();
    api.fail(|request| request.path.ends_with("/backupstoragelocations"));
    let spec = json!({"copies": [{"location": "gone"}]});
    let answer = replica.create("Backup", "b", "1", spec).await;
    assert_eq!(
        (allowed(&answer), answer.get("warnings")),
        (true, None),
        "{answer}"
    );
}
