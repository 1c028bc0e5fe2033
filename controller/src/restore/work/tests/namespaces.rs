//! Namespaces that are restored concurrently.

use tokio::time::Instant;

use super::*;

#[tokio::test(start_paused = true)]
async fn namespaces_that_go_away_are_waited_for_side_by_side() {
    let fake = fake::server();
    let names: Vec<String> = (0..10).map(|number| format!("n{number}")).collect();
    for name in &names {
        let body = json!({"metadata": {"name": name}, "status": {"phase": "Terminating"}});
        fake.put(&format!("/api/v1/namespaces/{name}"), body);
    }
    let items: Vec<_> = names
        .iter()
        .map(|name| {
            (
                "configmaps",
                Some(name.as_str()),
                item("v1", "ConfigMap", "c"),
            )
        })
        .collect();
    let begun = Instant::now();
    let report = restored_in(&fake, &items, json!({})).await;
    assert_eq!(report.counts(), (0, 10), "one error for each namespace");
    // The wait for one namespace takes 8 s.
    assert!(
        begun.elapsed() < Duration::from_secs(16),
        "{:?}",
        begun.elapsed()
    );
}
