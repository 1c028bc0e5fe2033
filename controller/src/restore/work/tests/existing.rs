//! Items that exist already.

use super::*;

/// Forty ConfigMaps, so large that a page of a list holds a few.
fn forty(value: &str) -> Vec<(&'static str, Option<&'static str>, Value)> {
    let map = |number| {
        let mut map = item("v1", "ConfigMap", &format!("c{number:02}"));
        map["data"] = json!({ "value": value, "filling": "x".repeat(300_000) });
        ("configmaps", Some("a"), map)
    };
    (0..40).map(map).collect()
}

const MAPS: &str = "/api/v1/namespaces/a/configmaps";

#[tokio::test]
async fn what_is_there_is_found_by_listing_and_not_one_by_one() {
    for policy in ["none", "update"] {
        let fake = fake::server();
        fake.put("/api/v1/namespaces/a", item("v1", "Namespace", "a"));
        let there: Vec<_> = forty("as stored").into_iter().take(30).collect();
        restored_in(&fake, &there, json!({})).await;
        for name in ["c03", "c29"] {
            fake.edit(&format!("{MAPS}/{name}"), |map| {
                map["data"]["value"] = json!("changed");
            });
        }
        // Further objects that are not compared.
        for number in 0..20 {
            let name = format!("other{number}");
            fake.put(&format!("{MAPS}/{name}"), item("v1", "ConfigMap", &name));
        }
        let before = fake.log().len();
        let report = restored_in(
            &fake,
            &forty("as stored"),
            json!({ "existingResourcePolicy": policy }),
        )
        .await;
        let update = policy == "update";
        assert_eq!(report.counts(), (if update { 0 } else { 2 }, 0));
        let requests = fake.log().split_off(before);
        let count = |line: &str| {
            requests
                .iter()
                .filter(|request| request.starts_with(line))
                .count()
        };
        assert_eq!(count(&format!("POST {MAPS}")), 10, "{requests:?}");
        assert_eq!(count(&format!("GET {MAPS}/")), 0);
        assert!(count(&format!("GET {MAPS}")) > 2);
        assert_eq!(count("PATCH"), if update { 2 } else { 0 });
        assert_eq!(
            fake.get(&format!("{MAPS}/c03")).unwrap()["data"]["value"] == "as stored",
            update
        );
        assert_eq!(report.into_files().resource_list.len(), 41);
    }
}

#[tokio::test]
async fn a_restore_that_is_taken_up_again_lists_what_it_has_created() {
    let fake = fake::server();
    let there: Vec<_> = forty("1").into_iter().take(36).collect();
    restored_in(&fake, &there, json!({})).await;
    fake.edit(&format!("{MAPS}/c03"), |map| {
        map["data"]["value"] = json!("changed by its controller");
    });
    let before = fake.log().len();
    let report = resumed_in(&fake, &forty("1")).await;
    assert_eq!(report.counts(), (0, 0));
    assert_eq!(
        posts(&fake).iter().filter(|path| *path == MAPS).count(),
        40,
        "each once"
    );
    let requests = fake.log().split_off(before);
    assert!(
        !requests
            .iter()
            .any(|line| line.starts_with(&format!("GET {MAPS}/"))),
        "{requests:?}"
    );
    assert_eq!(report.into_files().resource_list.len(), 41);
}
