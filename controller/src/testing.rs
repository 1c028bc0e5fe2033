//! Replacements for a cluster, for unit tests of the controllers.

use std::{path::Path, time::Duration};

use backup_core::{
    api::{Backup, BackupPhase, BackupSpec, BackupStorageLocation, BackupStorageLocationSpec},
    resources::ResourceType,
};
use backup_plugins::Host;
use backup_runtime::{
    Cluster,
    events::Events,
    leader::Leadership,
    watch::{Decoded, Undecodable, WatchEvent},
};
use backup_store::{AllowedPlaces, JobFiles, LogFile};
use kube::Client;
use serde_json::{Value, json};

use crate::{
    location::Locations,
    metrics::Metrics,
    volumes::data_mover::{DataMover, MoverSettings},
};

/// Always leader; a patch is given up after two seconds.
pub(crate) fn cluster(client: Client) -> Cluster {
    Cluster {
        client: client.clone(),
        namespace: "velero".to_owned(),
        leadership: Leadership::always(),
        events: Events::new(client, "test"),
        patch_budget: Duration::from_secs(2),
        page_size: 500,
    }
}

/// Without plugins.
pub(crate) fn locations(cluster: &Cluster) -> Locations {
    Locations::new(
        cluster.client.clone(),
        &cluster.namespace,
        "default",
        Host::none(),
        &[],
        AllowedPlaces::default(),
    )
}

pub(crate) fn mover_settings() -> MoverSettings {
    MoverSettings {
        image: "i".to_owned(),
        memory_limit: "512Mi".to_owned(),
        upload_limit: None,
        download_limit: None,
        prepare_timeout: Duration::from_mins(30),
        concurrency: 2,
    }
}

/// With [`locations`] and [`mover_settings`].
pub(crate) fn data_mover(cluster: Cluster) -> DataMover {
    let locations = locations(&cluster);
    DataMover::new(cluster, locations, mover_settings())
}

/// The location `default` in a folder.
pub(crate) fn local_location(folder: &Path) -> BackupStorageLocation {
    let mut spec = BackupStorageLocationSpec {
        provider: "local".to_owned(),
        ..Default::default()
    };
    spec.object_storage.bucket = folder.to_str().unwrap().to_owned();
    BackupStorageLocation::new("default", spec)
}

/// A type that can be backed up.
pub(crate) fn resource(group: &str, plural: &str, kind: &str, namespaced: bool) -> ResourceType {
    ResourceType {
        group: group.to_owned(),
        version: "v1".to_owned(),
        plural: plural.to_owned(),
        kind: kind.to_owned(),
        namespaced,
        verbs: ["list", "create", "get", "delete"]
            .map(str::to_owned)
            .to_vec(),
        status_is_data: false,
    }
}

/// An object of `velero.io` with uid `uid-<name>`.
pub(crate) fn velero(kind: &str, name: &str, spec: Value, status: Value) -> Value {
    let mut object = json!({
        "apiVersion": "velero.io/v1", "kind": kind,
        "metadata": {"name": name, "namespace": "velero", "uid": format!("uid-{name}"),
            "creationTimestamp": "2026-01-01T00:00:00Z"},
    });
    (object["spec"], object["status"]) = (spec, status);
    object
}

/// The end of a list in which a watch has shown the objects of these names.
pub(crate) fn listed<K>(names: &[&str]) -> WatchEvent<Decoded<K>> {
    WatchEvent::Listed(names.iter().map(|name| (*name).to_owned()).collect())
}

/// What a watch says about such an object that cannot be decoded.
pub(crate) fn undecodable(kind: &str, name: &str) -> Undecodable {
    Undecodable {
        kind: kind.to_owned(),
        api_version: "velero.io/v1".to_owned(),
        name: name.to_owned(),
        namespace: "velero".to_owned(),
        uid: format!("uid-{name}"),
        resource_version: None,
        error: "not a duration".to_owned(),
    }
}

/// Aggregated discovery of types of one group: plural, kind, scope.
pub(crate) fn discovery(group: &str, types: &[(&str, &str, &str)]) -> Value {
    let resource = |(plural, kind, scope): &(&str, &str, &str)| {
        json!({
            "resource": plural, "responseKind": {"group": "", "version": "", "kind": kind}, "scope": scope,
            "singularResource": kind.to_lowercase(), "verbs": ["list", "create", "get", "delete"],
        })
    };
    let resources: Vec<_> = types.iter().map(resource).collect();
    json!({
        "apiVersion": "apidiscovery.k8s.io/v2", "kind": "APIGroupDiscoveryList", "metadata": {},
        "items": [{
            "metadata": {"name": group},
            "versions": [{"version": "v1", "freshness": "Current", "resources": resources}],
        }],
    })
}

/// Backup `b` with uid `u`.
pub(crate) fn backup(phase: BackupPhase) -> Backup {
    let mut backup = Backup::new("b", BackupSpec::default());
    backup.metadata.uid = Some("u".to_owned());
    backup.status.phase = Some(phase);
    backup
}

/// Empty files of a backup or restore.
pub(crate) fn no_files() -> JobFiles {
    JobFiles::new(LogFile::new().unwrap())
}

/// The claimant of a folder for an object of this uid.
pub(crate) fn claimant(uid: &str) -> backup_store::Claimant {
    backup_store::Claimant {
        uid: uid.to_owned(),
        installation: "cluster/velero".to_owned(),
    }
}

/// Fails unless the exported metrics have these lines.
pub(crate) fn assert_exported(metrics: &Metrics, lines: &[&str]) {
    let text = metrics.encode();
    for line in lines {
        assert!(
            text.lines().any(|found| found == *line),
            "{line} not in\n{text}"
        );
    }
}
