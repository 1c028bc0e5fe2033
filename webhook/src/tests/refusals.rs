//! Refusals are counted by kind and reason.

use crate::admit::denial;

use super::*;

#[tokio::test(start_paused = true)]
async fn refusals_are_counted_by_kind_and_reason() {
    let (api, replica) = one_replica();
    let refused = async |kind: &str, uid: &str, spec: Value| {
        let answer = replica
            .create(kind, &format!("name-{uid}"), uid, spec)
            .await;
        assert!(!allowed(&answer), "{answer}");
    };
    replica
        .run(&api, "Restore", "r1", "1", restore_spec())
        .await;
    refused("Backup", "2", backup_spec()).await;
    refused("Backup", "3", backup_spec()).await;
    refused("Backup", "4", json!({ "ttl": "tomorrow" })).await;
    refused("Restore", "5", restore_spec()).await;
    api.fail(|_| true);
    refused("Restore", "6", restore_spec()).await;
    let text = replica.metrics.text(true);
    for (kind, reason, count) in [
        ("Backup", "RestoreInProgress", 2),
        ("Backup", "FieldValueInvalid", 1),
        ("Restore", "RestoreInProgress", 1),
        ("Restore", "ServiceUnavailable", 1),
    ] {
        let line = format!(
            "backup_webhook_refusals_total{{kind=\"{kind}\",reason=\"{reason}\"}} {count}\n"
        );
        assert!(text.contains(&line), "no {line} in {text}");
    }
    assert_eq!(
        text.matches("backup_webhook_refusals_total{").count(),
        4,
        "{text}"
    );
}

#[test]
fn a_refusal_without_a_cause_has_a_reason() {
    let key = ObjectKey::backup("velero", "b");
    for (status, reason) in [
        (
            denial::full("velero.io", &key, "the ledger is full"),
            "LedgerFull",
        ),
        (denial::trouble("no answer", 1), "ServiceUnavailable"),
        (denial::malformed("no object"), "BadRequest"),
        (
            denial::may_not_break("velero.io", &key, "alice"),
            "FieldValueInvalid",
        ),
    ] {
        assert_eq!(denial::reason(&status), reason, "{status:?}");
    }
}
