use std::time::Duration;

use super::*;
use backup_store::Limits;

use crate::restore::tests::fake::{self, FakeApi, Fault, backup};

fn rules() -> RestoreRules {
    RestoreRules {
        backup_label: "b".to_owned(),
        restore_label: "r".to_owned(),
        namespaces: Arc::new([("old".to_owned(), "new".to_owned())].into()),
        ..RestoreRules::default()
    }
}

fn policy(rules: &RestoreRules) -> Policy<'_> {
    Policy {
        rules,
        update: false,
        own: "velero",
        restore_created: None,
        resumed: false,
    }
}

async fn ensured(fake: &FakeApi, namespaces: &Namespaces, name: &str) -> Option<ItemResult> {
    let (_folder, location, _) = backup::stored(&[]).await;
    let contents = location.read_contents("b", Limits::DEFAULT).await.unwrap();
    namespaces
        .ensure(&fake::calls(fake), name, &contents, policy(&rules()))
        .await
        .unwrap()
}

#[tokio::test]
async fn a_namespace_is_created_once_under_its_new_name() {
    let fake = fake::server();
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "old", "annotations": {"a": "1"}, "labels": {"team": "web"}}});
    let (_folder, location, _) = backup::stored(&[("namespaces", None, body)]).await;
    let contents = location.read_contents("b", Limits::DEFAULT).await.unwrap();
    let namespaces = Namespaces::new(
        [("new".to_owned(), contents.items("namespaces")[0])].into(),
        BTreeSet::new(),
    );
    let ensured = async |namespaces: &Namespaces, name| {
        namespaces
            .ensure(&fake::calls(&fake), name, &contents, policy(&rules()))
            .await
            .unwrap()
    };
    let done = ensured(&namespaces, "new").await.unwrap();
    assert_eq!(done, ItemResult::quiet(Outcome::Created));
    let made = fake.get("/api/v1/namespaces/new").unwrap();
    assert_eq!(
        (&made["metadata"]["annotations"]["a"], &made["kind"]),
        (&json!("1"), &json!("Namespace"))
    );
    let labels =
        json!({"team": "web", "velero.io/backup-name": "b", "velero.io/restore-name": "r"});
    assert_eq!(made["metadata"]["labels"], labels);
    assert_eq!(ensured(&namespaces, "new").await, None);
}

#[tokio::test]
async fn a_namespace_that_the_backup_does_not_hold_is_made_blank() {
    let fake = fake::server();
    let namespaces = Namespaces::default();
    ensured(&fake, &namespaces, "plain").await;
    let made = fake.get("/api/v1/namespaces/plain").unwrap();
    assert_eq!(made["metadata"]["labels"]["velero.io/restore-name"], "r");
}

#[tokio::test]
async fn a_namespace_that_is_there_is_used_as_it_is() {
    let fake = fake::server();
    fake.put(
        "/api/v1/namespaces/plain",
        json!({"metadata": {"name": "plain"}, "status": {"phase": "Active"}}),
    );
    let done = ensured(&fake, &Namespaces::default(), "plain").await;
    assert_eq!(done, Some(ItemResult::quiet(Outcome::Skipped)));
}

#[tokio::test]
async fn a_namespace_that_is_there_and_selected_is_compared() {
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": {"enforce": "restricted"}}});
    let (_folder, location, _) = backup::stored(&[("namespaces", None, body)]).await;
    let contents = location.read_contents("b", Limits::DEFAULT).await.unwrap();
    let at = "/api/v1/namespaces/shop";
    for (selected, update, expected) in [
        (true, false, Outcome::Skipped),
        (true, true, Outcome::Updated),
        (false, true, Outcome::Skipped),
    ] {
        let fake = fake::server();
        fake.put(
            at,
            json!({"metadata": {"name": "shop", "labels": {"own": "1"}}, "status": {"phase": "Active"}}),
        );
        let stored = [("shop".to_owned(), contents.items("namespaces")[0])].into();
        let selected_names = selected.then(|| "shop".to_owned()).into_iter().collect();
        let namespaces = Namespaces::new(stored, selected_names);
        let rules = rules();
        let policy = Policy {
            update,
            ..policy(&rules)
        };
        let done = namespaces
            .ensure(&fake::calls(&fake), "shop", &contents, policy)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(done.outcome, expected);
        assert_eq!(
            done.warning.is_some(),
            selected && !update,
            "{:?}",
            done.warning
        );
        let labels = &fake.get(at).unwrap()["metadata"]["labels"];
        assert_eq!(labels["own"], "1");
        assert_eq!(labels["enforce"] == "restricted", selected && update);
        assert!(namespaces.was_there("shop"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_goes_away_is_waited_for_and_then_made() {
    let fake = fake::server();
    let at = "/api/v1/namespaces/plain";
    fake.put(
        at,
        json!({"metadata": {"name": "plain"}, "status": {"phase": "Terminating"}}),
    );
    let other = fake.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(3)).await;
        other.delete(at);
    });
    let done = ensured(&fake, &Namespaces::default(), "plain").await;
    assert_eq!(done, Some(ItemResult::quiet(Outcome::Created)));
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_stays_too_long_is_one_error() {
    let fake = fake::server();
    let body = json!({"metadata": {"name": "plain", "deletionTimestamp": "2026-01-01T00:00:00Z"}});
    fake.put("/api/v1/namespaces/plain", body);
    let namespaces = Namespaces::default();
    let done = ensured(&fake, &namespaces, "plain").await.unwrap();
    assert_says!(done.error.unwrap(), "still going away");
    assert_eq!(ensured(&fake, &namespaces, "plain").await, None);
    assert!(namespaces.has_failed("plain"));
}

#[tokio::test]
async fn a_refused_namespace_is_an_error() {
    let fake = fake::faulty(|_| Some(Fault::refuse(403, "Forbidden", "no")));
    let done = ensured(&fake, &Namespaces::default(), "plain")
        .await
        .unwrap();
    assert_says!(
        done.error.unwrap(),
        "namespace \"plain\" could not be created"
    );
}
