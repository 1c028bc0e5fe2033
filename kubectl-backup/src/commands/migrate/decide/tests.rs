use std::collections::{BTreeMap, BTreeSet};

use backup_actions::restore::ConfigMapData;
use backup_core::api::{
    Backup, BackupStorageLocation, DataUpload, PodVolumeBackup, Restore, Schedule,
    VolumeSnapshotLocation,
};
use serde_json::{Value, json};

use super::*;
use crate::commands::migrate::{
    consequence::Effect::{self, Changes, Lost, Stays, Unknown},
    installation::{BackupState, RepositoryVolume, Stored, UnfinishedWork, Unread, pod_to_copy},
    server::{Manager, NodeAgent, SecretEntry, Server},
};

fn installation() -> VeleroInstallation {
    VeleroInstallation {
        namespace: "velero".to_owned(),
        server: Server {
            name: "velero".to_owned(),
            version: Some("v1.18.2".to_owned()),
            replicas: 1,
            ..Server::default()
        },
        ..VeleroInstallation::default()
    }
}

fn decided(installation: &VeleroInstallation) -> Vec<Consequence> {
    // A Tuesday.
    let now = "2026-11-03T05:14:12Z".parse().unwrap();
    let translation = Translation::of(&installation.server, &installation.namespace);
    consequences(installation, &translation, now)
}

/// Asserts that one of the consequences has this effect and these parts.
fn assert_has(all: &[Consequence], effect: Effect, subject: &str, parts: &[&str]) {
    let found = all.iter().any(|one| {
        let text = format!("{} {}", one.text, one.remedy.as_deref().unwrap_or_default());
        one.effect == effect
            && one.subject == subject
            && parts.iter().all(|part| text.contains(part))
    });
    assert!(found, "{effect:?} {subject} {parts:?} is not in {all:#?}");
}

#[test]
fn an_empty_server_loses_nothing() {
    let all = decided(&installation());
    let effects: Vec<Effect> = all.iter().map(|one| one.effect).collect();
    assert_eq!(effects, [Stays, Stays, Changes], "{all:#?}");
    assert_has(
        &all,
        Changes,
        "flags",
        &["snapshots of CSI volumes are off"],
    );
}

#[test]
fn what_would_start_the_server_again_is_named() {
    for (manager, part) in [
        (
            Manager::Helm("backups".to_owned()),
            "release backups of Helm",
        ),
        (Manager::ArgoCd, "by Argo CD"),
        (
            Manager::Owner("DataProtectionApplication dpa".to_owned()),
            "DataProtectionApplication dpa",
        ),
    ] {
        let mut installation = installation();
        installation.server.manager = Some(manager);
        installation.server.extras = vec!["nodeSelector".to_owned()];
        let all = decided(&installation);
        assert_has(&all, Changes, "server", &[part, "starts the server again"]);
        assert_has(&all, Changes, "server", &["its pod has nodeSelector"]);
    }
}

#[test]
fn variables_are_copied_unless_they_may_be_secrets() {
    let mut installation = installation();
    installation.server.variables = vec![
        json!({ "name": "VELERO_SCRATCH_DIR", "value": "/scratch" }),
        json!({ "name": "AWS_SHARED_CREDENTIALS_FILE", "value": "/credentials/cloud" }),
        json!({ "name": "TZ", "value": "Europe/Paris" }),
        json!({ "name": "TOKEN", "valueFrom": { "secretKeyRef": { "name": "s", "key": "k" } } }),
        json!({ "name": "HTTPS_PROXY", "value": "http://user:word@proxy" }),
    ];
    installation.server.variable_sources = vec![json!({ "secretRef": { "name": "more" } })];
    let all = decided(&installation);
    assert_has(&all, Stays, "environment", &["TZ, TOKEN"]);
    assert_has(&all, Stays, "environment", &["envFrom"]);
    assert_has(
        &all,
        Changes,
        "environment",
        &["HTTPS_PROXY is left out", "set env"],
    );
    let text = format!("{all:?}");
    assert!(
        !text.contains("word@") && !text.contains("SCRATCH"),
        "{text}"
    );
    let carried = surroundings::carried_variables(&installation.server);
    assert_eq!(carried.len(), 2, "{carried:?}");
}

#[test]
fn an_identity_of_the_cloud_has_to_trust_our_accounts() {
    let mut installation = installation();
    installation.account_annotations = BTreeMap::from([
        (
            "eks.amazonaws.com/role-arn".to_owned(),
            "arn:aws:iam::1:role/v".to_owned(),
        ),
        ("example.com/other".to_owned(), "x".to_owned()),
    ]);
    let all = decided(&installation);
    let parts = [
        "role-arn=arn:aws:iam::1:role/v",
        "system:serviceaccount:velero:backup-mover",
    ];
    assert_has(&all, Changes, "identity", &parts);
    assert_eq!(surroundings::identity_annotations(&installation).len(), 1);
}

fn location(name: &str, over: &Value) -> Value {
    let mut location = json!({ "metadata": { "name": name },
        "spec": { "provider": "aws", "objectStorage": { "bucket": "acme-dr" } } });
    json_patch::merge(&mut location, over);
    location
}

#[test]
fn credentials_of_locations_that_name_none_are_those_that_the_server_mounts() {
    let entry = |secret: &str| SecretEntry {
        secret: secret.to_owned(),
        key: "cloud".to_owned(),
    };
    for (mounted, exists, effect, part) in [
        (
            Some(entry("cloud-credentials")),
            true,
            Stays,
            "cloud-credentials is read",
        ),
        (
            Some(entry("s3")),
            false,
            Changes,
            "the server reads Secret s3",
        ),
        (None, true, Changes, "is not mounted by the server"),
        (None, false, Stays, "the identity of the program"),
    ] {
        let mut installation = installation();
        installation.server.credentials = mounted;
        if exists {
            installation.secrets = BTreeSet::from(["cloud-credentials".to_owned()]);
        }
        let own = json!({ "spec": { "credential": { "name": "own", "key": "k" } } });
        installation.locations = Stored::all(vec![
            location("default", &json!({})),
            location("other", &own),
        ]);
        let all = decided(&installation);
        assert_has(&all, effect, "credentials", &[part, "default"]);
        let of_credentials = all.iter().find(|one| one.subject == "credentials").unwrap();
        assert!(!of_credentials.text.contains("other"), "{of_credentials:?}");
    }
}

#[test]
fn each_location_is_used_or_says_why_not() {
    for (over, effect, parts) in [
        (
            json!({ "spec": { "objectStorage": { "prefix": "prod" } } }),
            Stays,
            &["l (acme-dr, prefix prod): provider aws is built in"][..],
        ),
        (
            json!({ "spec": { "provider": "example.com/store" } }),
            Stays,
            &["served by plugin example.com/store"],
        ),
        (
            json!({ "spec": { "config": { "signatureVersion": "1" } } }),
            Lost,
            &["signatureVersion", "--object-store-plugins=aws"],
        ),
        (
            json!({ "spec": { "provider": "gcp", "config": { "kmsKeyName": "k" } } }),
            Lost,
            &["kmsKeyName"],
        ),
        (
            json!({ "spec": { "objectStorage": { "tier": "cold" } } }),
            Lost,
            &["BackupStorageLocation l", "spec.objectStorage.tier"],
        ),
        (
            json!({ "spec": { "validationFrequency": "soon" } }),
            Unknown,
            &[
                "BackupStorageLocation l cannot be read",
                "backupstoragelocations.velero.io l",
            ],
        ),
    ] {
        let mut installation = installation();
        installation.locations = Stored::<BackupStorageLocation>::all(vec![location("l", &over)]);
        assert_has(&decided(&installation), effect, "locations", parts);
    }
}

fn plugin(image: &str) -> Value {
    json!({ "name": "p", "image": image, "env": [{ "name": "PASSWORD", "value": "word" }],
        "volumeMounts": [{ "name": "plugins", "mountPath": "/target" }] })
}

#[test]
fn plugins_are_built_in_or_go_into_our_controller() {
    let east = json!({ "metadata": { "name": "east" }, "spec": { "provider": "velero.io/aws" } });
    for (container, with_snapshots, effect, part, is_carried) in [
        (
            plugin("velero/velero-plugin-for-aws:v1.14.2"),
            false,
            Stays,
            "our controller has its store",
            false,
        ),
        (
            plugin("r:5000/velero-plugin-for-aws@sha256:00"),
            true,
            Changes,
            "locations: east",
            true,
        ),
        (
            plugin("velero/velero-plugin-for-gcp:v1"),
            true,
            Stays,
            "is not needed",
            false,
        ),
        (
            plugin("velero/velero-plugin-for-csi:v0.7.1"),
            false,
            Stays,
            "takes snapshots of CSI",
            false,
        ),
        (
            plugin("acme/actions:v2"),
            false,
            Changes,
            "acme/actions:v2 goes into our controller",
            true,
        ),
        (
            json!({ "name": "wait", "image": "busybox" }),
            false,
            Changes,
            "is no plugin",
            false,
        ),
    ] {
        let mut installation = installation();
        installation.server.init_containers = vec![container];
        if with_snapshots {
            installation.snapshot_locations =
                Stored::<VolumeSnapshotLocation>::all(vec![east.clone()]);
        }
        assert_has(&decided(&installation), effect, "plugins", &[part]);
        let carried = plugins::carried(&installation);
        assert_eq!(carried.len(), usize::from(is_carried), "{part}");
        assert!(!format!("{carried:?}").contains("word"), "{carried:?}");
    }
    // Snapshots of earlier backups are restored by the plugin.
    let mut installation = installation();
    installation.server.init_containers = vec![plugin("velero/velero-plugin-for-aws:v1.14.2")];
    installation.backups = vec![BackupState {
        plugin_snapshots: 2,
        ..BackupState::default()
    }];
    assert_eq!(plugins::carried(&installation).len(), 1);
}

fn schedule(spec: &Value) -> Value {
    let mut schedule = json!({ "metadata": { "name": "nightly" }, "spec": { "schedule": "0 3 * * *", "template": {} } });
    json_patch::merge(&mut schedule["spec"], spec);
    schedule
}

#[test]
fn each_schedule_says_what_becomes_of_its_backups() {
    for (spec, version, effect, parts) in [
        (
            json!({ "template": { "ttl": "240h" } }),
            Some("v1.18.2"),
            Stays,
            &["nightly (0 3 * * *, kept for 240h0m0s) makes its backups here"][..],
        ),
        (
            json!({ "paused": true }),
            Some("v1.18.2"),
            Stays,
            &["the default time) is paused"],
        ),
        (
            json!({ "template": { "defaultVolumesToFsBackup": true } }),
            Some("v1.18.2"),
            Lost,
            &[
                "spec.template.defaultVolumesToFsBackup",
                "edit schedules.velero.io nightly",
            ],
        ),
        (
            json!({ "template": { "snapshotMoveData": true } }),
            Some("v1.18.2"),
            Changes,
            &["repositories of our own"],
        ),
        (
            json!({ "schedule": "0 3 1-7 * 0" }),
            Some("v1.18.2"),
            Stays,
            &["--cron-dialect=robfig", "alone runs it at"],
        ),
        (
            json!({ "schedule": "0 3 1-7 * 0" }),
            Some("v1.18.3"),
            Stays,
            &["--cron-dialect=netresearch"],
        ),
        (
            json!({ "schedule": "0 3 1-7 * 0" }),
            None,
            Unknown,
            &["names no version", "#which-cron"],
        ),
        (
            json!({ "schedule": "0 3 * * 1-7" }),
            Some("v1.18.2"),
            Lost,
            &["spec.schedule"],
        ),
        (
            json!({ "template": { "later": true } }),
            Some("v1.18.2"),
            Lost,
            &["Schedule nightly has fields", "spec.template.later"],
        ),
        (
            json!({ "template": { "ttl": "tomorrow" } }),
            Some("v1.18.2"),
            Unknown,
            &["Schedule nightly cannot be read"],
        ),
    ] {
        let mut installation = installation();
        installation.server.version = version.map(str::to_owned);
        installation.schedules = Stored::<Schedule>::all(vec![schedule(&spec)]);
        assert_has(&decided(&installation), effect, "schedules", parts);
    }
}

#[test]
fn a_resource_policy_is_followed_where_all_of_it_can_be() {
    let policy = |action: &str| {
        let rule = format!(
            "version: v1\nvolumePolicies: [{{conditions: {{}}, action: {{type: {action}}}}}]\n"
        );
        Some(Some(BTreeMap::from([("policy".to_owned(), rule)])))
    };
    for (data, effect, part) in [
        (policy("skip"), Stays, "is followed"),
        (policy("fs-backup"), Lost, "fs-backup or custom"),
        (policy("explode"), Lost, "cannot be followed"),
        (Some(None), Lost, "does not exist"),
        (None, Unknown, "can be followed"),
    ] {
        let mut installation = installation();
        let reference =
            json!({ "template": { "resourcePolicy": { "kind": "configmap", "name": "p" } } });
        installation.schedules = Stored::all(vec![schedule(&reference)]);
        installation
            .config_maps
            .extend(data.map(|data| ("p".to_owned(), data)));
        let parts = ["policy of nightly", "ConfigMap p", part];
        assert_has(&decided(&installation), effect, "schedules", &parts);
    }
}

#[test]
fn config_maps_that_flags_and_actions_name_are_read() {
    let mut installation = installation();
    let flags = [
        ("global-backup-volume-policies-configmap", "volumes"),
        ("default-resource-modifier-configmap", "modifiers"),
    ];
    installation.server.flags = flags
        .iter()
        .map(|(name, value)| crate::commands::migrate::server::Flag {
            name: (*name).to_owned(),
            value: Some((*value).to_owned()),
        })
        .collect();
    let text = |text: &str| Some(BTreeMap::from([("k".to_owned(), text.to_owned())]));
    installation.config_maps = BTreeMap::from([
        ("volumes".to_owned(), text("version: v1\n")),
        ("modifiers".to_owned(), text("version: v9\n")),
    ]);
    let map = |name: &str, label: &str, data: &[(&str, &str)]| ConfigMapData {
        name: name.to_owned(),
        labels: ["velero.io/plugin-config", label]
            .map(|label| (label.to_owned(), "RestoreItemAction".to_owned()))
            .into(),
        data: data
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect(),
    };
    installation.action_settings = vec![
        map("classes", "velero.io/change-storage-class", &[("old", "")]),
        map("helper", "velero.io/pod-volume-restore", &[]),
    ];
    let all = decided(&installation);
    assert_has(
        &all,
        Stays,
        "config maps",
        &["ConfigMap volumes are followed"],
    );
    assert_has(
        &all,
        Lost,
        "config maps",
        &["ConfigMap modifiers cannot be followed"],
    );
    assert_has(
        &all,
        Changes,
        "config maps",
        &["ConfigMap helper is not read"],
    );
    assert_has(
        &all,
        Lost,
        "config maps",
        &["settings of actions", "mapped to nothing"],
    );
}

#[test]
fn settings_of_node_agents_are_replaced_or_lost() {
    let mut installation = installation();
    installation.node_agents = vec![NodeAgent {
        name: "node-agent".to_owned(),
        config_map: Some("agents".to_owned()),
    }];
    assert_has(
        &decided(&installation),
        Unknown,
        "node agents",
        &["ConfigMap agents"],
    );
    let settings = r#"{ "loadConcurrency": { "globalConfig": 2 }, "loadAffinity": [{}], "privilegedFsBackup": false }"#;
    let data = BTreeMap::from([("node-agent-config.json".to_owned(), settings.to_owned())]);
    installation.config_maps = BTreeMap::from([("agents".to_owned(), Some(data))]);
    let all = decided(&installation);
    assert_has(
        &all,
        Changes,
        "node agents",
        &["DaemonSet node-agent is stopped"],
    );
    assert_has(&all, Changes, "node agents", &["--data-mover-concurrency"]);
    assert_has(
        &all,
        Lost,
        "node agents",
        &["ConfigMap agents sets: loadAffinity"],
    );
    assert!(
        !format!("{all:?}").contains("privilegedFsBackup"),
        "{all:?}"
    );
}

fn stored_volume(backup: &str, mover: &str, snapshot: &str) -> Option<RepositoryVolume> {
    let upload = json!({ "metadata": { "name": "u", "labels": { "velero.io/backup-name": backup } },
        "spec": { "snapshotType": "CSI", "sourcePVC": "c", "backupStorageLocation": "default", "sourceNamespace": "shop",
            "datamover": mover, "operationTimeout": "10m" },
        "status": { "phase": "Completed", "snapshotID": snapshot } });
    let upload: DataUpload = serde_json::from_value(upload).unwrap();
    RepositoryVolume::of_upload(&upload)
}

#[test]
fn data_that_only_velero_restores_is_counted_by_backup() {
    assert_eq!(stored_volume("b", "backup-mover", "id"), None);
    assert_eq!(stored_volume("b", "", ""), None);
    let of_pod = json!({ "metadata": { "name": "p", "labels": { "velero.io/backup-name": "b" } },
        "spec": { "pod": {}, "volume": "v", "backupStorageLocation": "default", "repoIdentifier": "", "node": "n" },
        "status": { "snapshotID": "id" } });
    let of_pod: PodVolumeBackup = serde_json::from_value(of_pod).unwrap();
    let of_pod = RepositoryVolume::of_pod_volume(&of_pod).unwrap();
    assert_eq!(of_pod.format, "restic");

    let backup = |name: &str, expires: &str| {
        let backup = json!({ "metadata": { "name": name }, "spec": { "snapshotMoveData": true },
            "status": { "phase": "Completed", "expiration": expires } });
        BackupState::of(&serde_json::from_value::<Backup>(backup).unwrap())
    };
    let long = "a".repeat(70);
    let mut installation = installation();
    installation.backups = vec![
        backup("b", "2026-12-01T00:00:00Z"),
        backup(&long, "2026-12-03T00:00:00Z"),
        backup("synced", "2026-12-09T00:00:00Z"),
    ];
    let label = backup_core::labels::valid_value(&long);
    installation.volumes = [
        stored_volume("b", "", "one"),
        stored_volume(&label, "velero", "two"),
        stored_volume("gone", "", "three"),
        stored_volume("b", "acme", "four"),
    ]
    .into_iter()
    .flatten()
    .collect();
    let all = decided(&installation);
    assert_has(
        &all,
        Lost,
        "repositories",
        &["Kopia: ", "2 volumes in 2 backups", "expires on 2026-12-03"],
    );
    assert_has(
        &all,
        Lost,
        "repositories",
        &["acme: ", "1 volume in 1 backup (b)"],
    );
    assert_has(
        &all,
        Unknown,
        "repositories",
        &["1 backup may have", "synced"],
    );
    assert_has(&all, Stays, "backups", &["3 backups"]);
}

#[test]
fn pods_that_ask_for_copies_of_files_are_named() {
    for (annotations, expected) in [
        (
            json!({ "backup.velero.io/backup-volumes": "data" }),
            Some("shop/web"),
        ),
        (json!({ "backup.velero.io/backup-volumes": "" }), None),
        (
            json!({ "backup.velero.io/backup-volumes-excludes": "cache" }),
            None,
        ),
    ] {
        let pod = json!({ "metadata": { "name": "web", "namespace": "shop", "annotations": annotations } });
        let found = pod_to_copy(&serde_json::from_value(pod).unwrap());
        assert_eq!(found.as_deref(), expected, "{annotations}");
        let mut installation = installation();
        installation.pods_to_copy.extend(found);
        let all = decided(&installation);
        let is_named = all.iter().any(|one| one.subject == "pods");
        assert_eq!(is_named, expected.is_some(), "{all:#?}");
        if let Some(name) = expected {
            assert_has(&all, Lost, "pods", &["of 1 pod (", name]);
        }
    }
}

#[test]
fn the_password_of_velero_is_kept_only_for_restic() {
    let mut installation = installation();
    installation.secrets = BTreeSet::from(["velero-repo-credentials".to_owned()]);
    installation.repositories = vec!["Kopia".to_owned()];
    let all = decided(&installation);
    assert_has(
        &all,
        Changes,
        "repositories",
        &["1 repository of Velero (Kopia)"],
    );
    assert_has(
        &all,
        Changes,
        "repositories",
        &["default is public", "delete secret"],
    );
    installation.repositories.push("restic".to_owned());
    let all = decided(&installation);
    assert_has(
        &all,
        Changes,
        "repositories",
        &["2 repositories of Velero (Kopia, restic)"],
    );
    assert_has(&all, Stays, "repositories", &["need its password"]);
}

#[test]
fn work_that_has_not_ended_is_named() {
    let backup = |phase: &str| -> Backup {
        let backup = json!({ "metadata": { "name": "b" }, "status": { "phase": phase } });
        serde_json::from_value(backup).unwrap()
    };
    for (phase, expected) in [
        ("Completed", None),
        ("Deleting", None),
        ("InProgress", Some((Changes, "Backup b (InProgress)"))),
        ("Finalizing", Some((Lost, "Backup b (Finalizing)"))),
    ] {
        let mut installation = installation();
        let work = UnfinishedWork::of_backup(&backup(phase));
        assert_eq!(work.is_some(), expected.is_some(), "{phase}");
        installation.unfinished.extend(work);
        if let Some((effect, part)) = expected {
            assert_has(&decided(&installation), effect, "work", &[part]);
        }
    }
    let restore: Restore =
        serde_json::from_value(json!({ "metadata": { "name": "r" }, "spec": {} })).unwrap();
    let work = UnfinishedWork::of_restore(&restore).unwrap();
    assert_eq!(work.name, "Restore r (New)");
}

#[test]
fn what_could_not_be_read_is_not_known() {
    let mut installation = installation();
    installation.unread = vec![Unread {
        what: "cannot list secrets: forbidden".to_owned(),
        remedy: Some("Ask.".to_owned()),
    }];
    assert_has(
        &decided(&installation),
        Unknown,
        "cluster",
        &["cannot list secrets", "Ask."],
    );
}
