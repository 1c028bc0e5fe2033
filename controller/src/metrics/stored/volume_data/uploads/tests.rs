use serde_json::json;

use super::*;

/// An upload of a nightly backup: `b2` on day 2. It begins at midnight, and ends a minute later.
fn upload(day: u8, claim: &str, phase: &str) -> DataUpload {
    let (namespace, name) = claim.split_once('/').unwrap();
    let has_ended = matches!(phase, "Completed" | "Failed" | "Canceled");
    let object = json!({
        "apiVersion": "velero.io/v2alpha1", "kind": "DataUpload",
        "metadata": {
            "name": format!("{day}-{namespace}-{name}"),
            "creationTimestamp": format!("2026-01-0{day}T00:00:00Z"),
            "labels": { SCHEDULE_NAME: "nightly", BACKUP_UID: format!("b{day}") },
        },
        "spec": {
            "snapshotType": "CSI", "sourcePVC": name, "sourceNamespace": namespace,
            "backupStorageLocation": "default", "datamover": "backup-mover",
            "operationTimeout": "4h0m0s",
        },
        "status": {
            "phase": phase, "node": "n1", "startTimestamp": format!("2026-01-0{day}T00:00:30Z"),
            "completionTimestamp": has_ended.then(|| format!("2026-01-0{day}T00:01:00Z")),
            "snapshotID": (phase == "Completed").then_some("s"), "incrementalBytes": 5,
            "progress": { "bytesDone": 70, "totalBytes": 70 },
        },
    });
    serde_json::from_value(object).unwrap()
}

fn applied(stored: &mut StoredUploads, metrics: &Metrics, upload: DataUpload) {
    stored.touched(&WatchEvent::Applied(Ok(upload)), metrics);
}

fn listed(stored: &mut StoredUploads, metrics: &Metrics) {
    let names = stored.known.keys().cloned().collect();
    stored.touched(&WatchEvent::Listed(names), metrics);
}

/// The gauges of a namespace: day and minute of the last success, and number of failed volumes.
fn served(metrics: &Metrics, namespace: &str) -> Option<(i64, i64, i64)> {
    let text = metrics.encode();
    let labels = format!("{{schedule=\"nightly\",volume_namespace=\"{namespace}\"}} ");
    let value = |name: &str| {
        let prefix = format!("velero_data_upload_{name}{labels}");
        let line = text.lines().find_map(|line| line.strip_prefix(&prefix));
        line.map(|value| value.parse::<i64>().unwrap())
    };
    let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let minutes = (value("last_success_timestamp_seconds")? - start.as_second()) / 60;
    let failed = value("failed_volumes")?;
    Some((minutes / 1440 + 1, minutes % 1440, failed))
}

#[test]
fn the_volume_that_is_furthest_behind_counts_for_its_namespace() {
    let (metrics, mut stored) = (Metrics::default(), StoredUploads::default());
    for (day, claim, phase) in [
        (1, "shop/a", "Completed"),
        (1, "shop/b", "Completed"),
        (1, "db/a", "Completed"),
        (2, "shop/a", "Completed"),
        (2, "shop/b", "Failed"),
        (2, "db/a", "Canceled"),
        (2, "db/new", "Failed"),
    ] {
        applied(&mut stored, &metrics, upload(day, claim, phase));
    }
    assert_eq!(served(&metrics, "shop"), None, "not all are known yet");
    listed(&mut stored, &metrics);
    assert_eq!(served(&metrics, "shop"), Some((1, 1, 1)));
    assert_eq!(served(&metrics, "db"), Some((1, 1, 1)));
    applied(&mut stored, &metrics, upload(3, "db/new", "Failed"));
    assert_eq!(
        served(&metrics, "db"),
        Some((2, 0, 1)),
        "a volume that was never moved waits since its first upload"
    );
    assert_eq!(served(&metrics, "shop"), None, "not in the last backup");
    applied(&mut stored, &metrics, upload(3, "shop/b", "InProgress"));
    assert_eq!(served(&metrics, "shop"), Some((1, 1, 0)));
    applied(&mut stored, &metrics, upload(3, "shop/b", "Completed"));
    assert_eq!(served(&metrics, "shop"), Some((3, 1, 0)));
}

#[test]
fn a_claim_or_namespace_that_is_no_longer_backed_up_is_forgotten() {
    let (metrics, mut stored) = (Metrics::default(), StoredUploads::default());
    listed(&mut stored, &metrics);
    for claim in ["shop/a", "shop/deleted", "gone/a"] {
        applied(&mut stored, &metrics, upload(1, claim, "Failed"));
    }
    assert_eq!(served(&metrics, "shop"), Some((1, 0, 2)));
    assert_eq!(served(&metrics, "gone"), Some((1, 0, 1)));
    applied(&mut stored, &metrics, upload(2, "shop/a", "Completed"));
    assert_eq!(served(&metrics, "shop"), Some((2, 1, 0)));
    assert_eq!(served(&metrics, "gone"), None);
    // The last backup was deleted, and all uploads but one of the backup before.
    let left = WatchEvent::Listed(["1-gone-a".to_owned()].into());
    stored.touched(&left, &metrics);
    assert_eq!(served(&metrics, "shop"), None);
    assert_eq!(served(&metrics, "gone"), Some((1, 0, 1)));
    stored.touched(&WatchEvent::Listed(BTreeSet::new()), &metrics);
    assert_eq!(served(&metrics, "gone"), None);
}

#[test]
fn the_end_of_an_upload_counts_once_with_its_bytes() {
    let (metrics, mut stored) = (Metrics::default(), StoredUploads::default());
    applied(&mut stored, &metrics, upload(1, "shop/old", "Completed"));
    applied(&mut stored, &metrics, upload(1, "shop/a", "InProgress"));
    listed(&mut stored, &metrics);
    for phase in ["InProgress", "Completed", "Completed"] {
        applied(&mut stored, &metrics, upload(1, "shop/a", phase));
    }
    for (claim, phase) in [("shop/b", "Failed"), ("db/a", "Canceled")] {
        applied(&mut stored, &metrics, upload(1, claim, phase));
    }
    let text = metrics.encode();
    for line in [
        "podVolume_data_upload_success_total{node=\"n1\"} 1",
        "podVolume_data_upload_failure_total{node=\"n1\"} 1",
        "podVolume_data_upload_cancel_total{node=\"n1\"} 1",
        "velero_data_upload_read_bytes_total{volume_namespace=\"shop\"} 70",
        "velero_data_upload_stored_bytes_total{volume_namespace=\"shop\"} 5",
        "velero_data_transfer_duration_seconds_sum{kind=\"DataUpload\"} 30.0",
        "velero_data_transfers_running{kind=\"DataUpload\"} 0",
    ] {
        assert!(
            text.lines().any(|found| found == line),
            "{line} not in\n{text}"
        );
    }
    assert!(!text.contains("velero_data_upload_read_bytes_total{volume_namespace=\"db\"}"));
}
