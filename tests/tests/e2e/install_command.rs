//! `kubectl backup install`, `upgrade` and `uninstall`, and Helm, each in a separate cluster. There
//! is no node, so no program becomes ready here; `tests/node` has one.

use backup_core::api::{DeleteBackupRequest, VolumeSnapshotLocation};
use backup_deploy::{Options, id, kind};
use backup_tests::{KubectlBackup, control_plane::ControlPlane, helm::Helm, snapshots};
use k8s_openapi::api::{
    admissionregistration::v1::ValidatingWebhookConfiguration, apps::v1::Deployment,
    coordination::v1::Lease, core::v1::Namespace,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Client;

use crate::prelude::*;

crate::tests! {
    the_command_installs_upgrades_and_removes,
    a_guard_leaves_what_is_the_other_servers,
    snapshots_are_taken_where_the_cluster_has_what_they_need,
    a_release_of_helm_stays_helms,
}

const DEFINITION: &str = "apiextensions.k8s.io/v1";

/// An empty cluster.
pub(crate) struct Cluster {
    plane: ControlPlane,
    pub(crate) client: Client,
    pub(crate) plugin: KubectlBackup,
    pub(crate) folder: std::path::PathBuf,
}

pub(crate) async fn cluster(world: &World, name: &str) -> anyhow::Result<Cluster> {
    if std::env::var_os("KUBECONFIG_FOR_TESTS").is_some() {
        return Err(Skip("it needs a cluster of its own, without definitions").into());
    }
    let folder = world.folder().join(name);
    std::fs::create_dir_all(&folder)?;
    let plane = ControlPlane::start(&folder, 1, &[]).await?;
    let (client, plugin) = (plane.admin().await?, world.kubectl_backup_in(&plane));
    Ok(Cluster {
        plane,
        client,
        plugin,
        folder,
    })
}

impl Cluster {
    /// The names of the webhook's registrations.
    async fn registrations(&self) -> anyhow::Result<Vec<String>> {
        let api: Api<ValidatingWebhookConfiguration> = Api::all(self.client.clone());
        Ok(api.names().await?)
    }

    /// The arguments of a program.
    pub(crate) async fn args(&self, program: &str) -> anyhow::Result<Vec<String>> {
        let api: Api<Deployment> = Api::namespaced(self.client.clone(), NAMESPACE);
        let spec = api.get(program).await?.spec.context("no spec")?;
        let pod = spec.template.spec.context("no pod")?;
        Ok(pod
            .containers
            .into_iter()
            .flat_map(|container| container.args.unwrap_or_default())
            .collect())
    }

    fn definitions(&self) -> Api<DynamicObject> {
        all_objects(&self.client, DEFINITION, "CustomResourceDefinition")
    }

    /// A definition as another server would have installed it.
    async fn has_foreign(&self, plural: &str, kind: &str) -> anyhow::Result<()> {
        let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        let definition = json!({ "apiVersion": DEFINITION, "kind": "CustomResourceDefinition",
            "metadata": { "name": format!("{plural}.velero.io"), "labels": { "component": "velero" } },
            "spec": { "group": "velero.io", "scope": "Namespaced",
                "names": { "plural": plural, "singular": kind.to_lowercase(), "kind": kind },
                "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } }] } });
        self.definitions().create_json(definition).await?;
        Ok(())
    }

    async fn backups(&self) -> anyhow::Result<Api<Backup>> {
        let backups: Api<Backup> = Api::namespaced(self.client.clone(), NAMESPACE);
        eventually("backups are served", TIMEOUT, async || {
            backups.list_all().await.map(|_| Probe::Ready(()))
        })
        .await?;
        Ok(backups)
    }
}

async fn the_command_installs_upgrades_and_removes(world: &mut World) -> TestResult {
    let cluster = cluster(world, "command").await?;
    let plugin = &cluster.plugin;
    cluster.has_foreign("backups", "Backup").await?;
    let refused = plugin.fails(1, &["install"]).await?;
    says(
        &refused.stderr,
        &[
            "1 are not ours",
            "--replace-definitions",
            "Nothing was changed.",
        ],
    )?;
    // A dry run reads the cluster, which has no node, and stores nothing.
    let dry_run = [
        "install",
        "--replace-definitions",
        "--dry-run",
        "-o",
        "name",
    ];
    let planned = plugin.succeeds(&dry_run).await?;
    says(
        &planned.stderr,
        &[
            "an unknown platform (Kubernetes v",
            "2 of each program; no node takes pods yet",
            "engine: no namespace has a Velero server",
            "off: the cluster does not serve PodMonitors",
        ],
    )?;
    says(&planned.stdout, &["deployment.apps/backup-webhook"])?;
    ensure!(
        cluster.registrations().await?.is_empty(),
        "something was installed"
    );

    plugin
        .succeeds(&["install", "--replace-definitions", "--wait=false"])
        .await?;
    let discovery = kube::Discovery::new(cluster.client.clone())
        .run_aggregated()
        .await?;
    let wanted = [
        backup_deploy::once(NAMESPACE)?,
        backup_deploy::programs(NAMESPACE, &Options::default())?,
    ]
    .concat();
    for object in &wanted {
        let typed: DynamicObject = serde_json::from_value(object.clone())?;
        let api = backup_tests::install::api_of(&cluster.client, &discovery, &typed)?;
        let (kind, name) = id(object);
        ensure!(api.exists(name).await?, "{kind} {name} is not there");
    }
    says(
        &plugin.fails(1, &["install"]).await?.stderr,
        &["already", "kubectl backup upgrade"],
    )?;

    // The message says why it is not ready, and what to do.
    let late = plugin.fails(124, &["upgrade", "--timeout=5s"]).await?;
    says(
        &late.stderr,
        &[
            "backup-webhook",
            "0 of 2 ready",
            "is not ready after 5s",
            "kubectl backup upgrade",
        ],
    )?;

    let flags = [
        "upgrade",
        "--profile=percona-ps",
        "--features=EnableCSI",
        "--wait=false",
    ];
    plugin.succeeds(&flags).await?;
    let args = cluster.args("backup-controller").await?.join(" ");
    says(&args, &["--guard=percona-ps", "--features=EnableCSI"])?;
    ensure!(
        cluster
            .registrations()
            .await?
            .contains(&"backup-webhook-percona-ps".to_owned()),
        "no registration"
    );
    // Omitted options are kept, removed objects are deleted, and a repetition changes nothing.
    plugin
        .succeeds(&["upgrade", "--profile=none", "--wait=false"])
        .await?;
    let args = cluster.args("backup-controller").await?.join(" ");
    ensure!(
        args.contains("--features=EnableCSI") && !args.contains("--guard"),
        "{args}"
    );
    ensure!(cluster.registrations().await? == ["backup-webhook"]);
    let again = plugin.succeeds(&["upgrade", "--wait=false"]).await?;
    ensure!(
        !again.stderr.contains("created") && !again.stderr.contains(" changed"),
        "{}",
        again.stderr
    );

    removes(&cluster).await
}

async fn snapshots_are_taken_where_the_cluster_has_what_they_need(world: &mut World) -> TestResult {
    let cluster = cluster(world, "snapshots").await?;
    let (plugin, client) = (&cluster.plugin, &cluster.client);
    snapshots::install_definitions(client).await?;
    snapshots::claim(client, "shop", "data", "none").await?;
    snapshots::host_path_claim(client, "shop", "files", "/data").await?;
    // The claim names a class that does not exist, and there is no default.
    let off = plugin.succeeds(&["install", "--wait=false"]).await?.stderr;
    says(
        &off,
        &[
            "snapshots of CSI volumes stay off: there is no VolumeSnapshotClass of the driver disk.example.com",
        ],
    )?;
    says(
        &off,
        &[
            "1 of 2 volumes: shop/data; there is no",
            "1 of 2 volumes: shop/files; a volume that is not of a CSI",
        ],
    )?;
    let args = cluster.args("backup-controller").await?.join(" ");
    ensure!(!args.contains("EnableCSI"), "{args}");
    let doctor = plugin.fails(1, &["doctor"]).await?.stdout;
    says(
        &doctor,
        &[
            "a backup would not hold the data of 1 of 2 volumes: shop/data; there is no VolumeSnapshotClass",
        ],
    )?;

    snapshots::class(client, "fast", snapshots::Behaviour::NeverReady, false).await?;
    let kept = plugin.succeeds(&["upgrade", "--wait=false"]).await?.stderr;
    says(
        &kept,
        &[
            "1 of 2 volumes: shop/data; snapshots of CSI volumes are off",
            "kubectl backup upgrade --snapshots",
        ],
    )?;
    plugin.succeeds(&["uninstall", "--yes"]).await?;
    let on = plugin.succeeds(&["install", "--wait=false"]).await?.stderr;
    says(
        &on,
        &["snapshots of CSI volumes are turned on; there are classes for disk.example.com"],
    )?;
    let args = cluster.args("backup-controller").await?.join(" ");
    says(&args, &["--features=EnableCSI"])?;
    let doctor = plugin.fails(1, &["doctor"]).await?.stdout;
    says(
        &doctor,
        &[
            "not known: whether snapshots of 1 of 2 volumes become ready",
            "shop/files; a volume that is not of a CSI driver",
        ],
    )?;
    let api: Api<Lease> = Api::namespaced(client.clone(), "kube-system");
    let lease = serde_json::from_value(
        json!({ "metadata": { "name": "snapshot-controller-leader" },
        "spec": { "holderIdentity": "one", "renewTime": MicroTime(jiff::Timestamp::now()) } }),
    )?;
    api.create(&kube::api::PostParams::default(), &lease)
        .await?;
    let locations: Api<VolumeSnapshotLocation> = Api::namespaced(client.clone(), NAMESPACE);
    let location = serde_json::from_value(
        json!({ "apiVersion": "velero.io/v1", "kind": "VolumeSnapshotLocation",
        "metadata": { "name": "east" }, "spec": { "provider": "acme", "credential": { "name": "cloud", "key": "acme" } } }),
    )?;
    locations
        .create(&kube::api::PostParams::default(), &location)
        .await?;
    let doctor = plugin.fails(1, &["doctor"]).await?.stdout;
    says(
        &doctor,
        &[
            "whether a plugin takes snapshots of 1 of 2 volumes (locations: east): shop/files",
            "a backup takes snapshots of 1 of 2 volumes",
            "whether the controller has plugins for locations of snapshots",
            "Secret cloud of the snapshot location east does not exist",
        ],
    )?;
    plugin
        .succeeds(&["upgrade", "--snapshots=false", "--wait=false"])
        .await?;
    let args = cluster.args("backup-controller").await?.join(" ");
    ensure!(!args.contains("EnableCSI"), "{args}");
    Ok(())
}

/// Without a working webhook no Backup can be created, so this removes everything first, including
/// the registration.
async fn removes(cluster: &Cluster) -> anyhow::Result<()> {
    let plugin = &cluster.plugin;
    let listed = plugin
        .succeeds(&["uninstall", "--dry-run=client", "-o", "name"])
        .await?;
    let listed: Vec<&str> = listed.stdout.lines().collect();
    ensure!(
        listed
            .first()
            .is_some_and(|name| name.starts_with("validatingwebhookconfiguration")),
        "{listed:?}"
    );
    for kept in [
        "namespace/",
        "customresourcedefinition",
        "secret/",
        "lease",
        "velero.io/",
    ] {
        ensure!(
            !listed.iter().any(|name| name.starts_with(kept)),
            "{kept} in {listed:?}"
        );
    }
    plugin.fails(2, &["uninstall"]).await?;
    let removed = plugin.succeeds(&["uninstall", "--yes"]).await?;
    says(
        &removed.stderr,
        &[
            "Stayed: namespace velero",
            "the definitions",
            "--with-definitions",
        ],
    )?;
    for object in backup_deploy::everything(NAMESPACE)? {
        let (name_of_kind, name) = id(&object);
        let Some(kind) = kind(name_of_kind).filter(|kind| kind.group != "monitoring.coreos.com")
        else {
            continue;
        };
        let version = if kind.group.is_empty() {
            "v1".to_owned()
        } else {
            format!("{}/{}", kind.group, kind.version)
        };
        let api = if kind.namespaced {
            objects_in(&cluster.client, NAMESPACE, &version, kind.kind)
        } else {
            all_objects(&cluster.client, &version, kind.kind)
        };
        until(
            &format!("{name_of_kind} {name} is gone"),
            TIMEOUT,
            async || anyhow::Ok(!api.exists(name).await?),
        )
        .await?;
    }

    // Running work would hang without a controller. No policy or webhook is left to refuse.
    let backups = cluster.backups().await?;
    let mut running = Backup::new("running", BackupSpec::default());
    running.metadata.finalizers = Some(vec!["backup-controller.velero.io/work".to_owned()]);
    backups
        .create(&kube::api::PostParams::default(), &running)
        .await?;
    plugin.succeeds(&["install", "--wait=false"]).await?;
    let kept = backups.get("running").await?;
    ensure!(
        kept.metadata.deletion_timestamp.is_none(),
        "the Backup is going"
    );
    says(
        &plugin.fails(1, &["uninstall", "--yes"]).await?.stderr,
        &["1 backup runs", "--force"],
    )?;
    plugin.succeeds(&["uninstall", "--yes", "--force"]).await?;

    // An API server (1.34) may never remove a definition created seconds ago whose objects were
    // never requested ("storage is (re)initializing"). In a real cluster the controllers have
    // requested them.
    for definition in cluster.definitions().list_all().await? {
        let spec = &definition.data["spec"];
        let kind = spec["names"]["kind"].as_str().context("no kind")?;
        let version = spec["versions"][0]["name"].as_str().context("no version")?;
        let objects = all_objects(&cluster.client, &format!("velero.io/{version}"), kind);
        let what = format!("{kind} is served");
        eventually(&what, TIMEOUT, async || {
            objects.list_all().await.map(|_| Probe::Ready(()))
        })
        .await?;
    }
    // Finalizers would keep definitions and namespace. The command waits until all of it is gone.
    let all = [
        "uninstall",
        "--yes",
        "--force",
        "--with-ledgers",
        "--with-definitions",
        "--with-namespace",
    ];
    let removed = plugin.run(&[&all[..], &["--timeout=2m"]].concat()).await?;
    let definitions = cluster.definitions().list_all().await?;
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    let namespace = namespaces.get_opt(NAMESPACE).await?;
    let left: Vec<_> = definitions
        .iter()
        .map(|one| (one.name_any(), &one.data["status"]["conditions"]))
        .collect();
    ensure!(
        left.is_empty() && namespace.is_none(),
        "left: {left:?} {namespace:?} {removed:?}"
    );
    removed.expect_code(0).map(drop)
}

async fn a_guard_leaves_what_is_the_other_servers(world: &mut World) -> TestResult {
    let cluster = cluster(world, "guard").await?;
    let plugin = &cluster.plugin;
    says(
        &plugin.fails(1, &["install", "--mode=guard"]).await?.stderr,
        &["Install Velero first"],
    )?;
    for (plural, kind) in [
        ("backups", "Backup"),
        ("restores", "Restore"),
        ("deletebackuprequests", "DeleteBackupRequest"),
    ] {
        cluster.has_foreign(plural, kind).await?;
    }
    ensure_namespace(&cluster.client, NAMESPACE).await?;
    let deployments = objects_in(&cluster.client, NAMESPACE, "apps/v1", "Deployment");
    let labels = json!({ "deploy": "velero" });
    deployments
        .create_json(json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "velero" },
            "spec": { "selector": { "matchLabels": labels }, "template": { "metadata": { "labels": labels }, "spec": {
                "containers": [{ "name": "velero", "image": "velero/velero:v1.18.0", "command": ["/velero"],
                    "args": ["server"] }] } } } }))
        .await?;
    let before = cluster.definitions().list_all().await?;
    let refused = plugin
        .fails(1, &["install", "--replace-definitions"])
        .await?;
    says(
        &refused.stderr,
        &["each backup would be run twice", "--mode=guard"],
    )?;

    plugin
        .succeeds(&["install", "--mode=guard", "--wait=false"])
        .await?;
    says(
        &cluster.args("backup-webhook").await?.join(" "),
        &["--guard=velero"],
    )?;
    let other = plugin
        .fails(1, &["upgrade", "--mode=engine", "--wait=false"])
        .await?;
    says(&other.stderr, &["an upgrade does not change that"])?;
    plugin
        .fails(2, &["uninstall", "--yes", "--with-definitions"])
        .await?;
    plugin
        .succeeds(&["uninstall", "--yes", "--with-ledgers"])
        .await?;
    let after = cluster.definitions().list_all().await?;
    // Their status is written by the API server.
    let specified = |all: &[DynamicObject]| -> Vec<_> {
        all.iter()
            .map(|one| {
                (
                    one.name_any(),
                    one.metadata.generation,
                    one.labels().clone(),
                )
            })
            .collect()
    };
    ensure!(
        specified(&before) == specified(&after),
        "the other server's definitions were changed"
    );
    ensure!(
        deployments.exists("velero").await?,
        "the other server is gone"
    );
    let requests: Api<DeleteBackupRequest> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    requests.list_all().await?;
    Ok(())
}

async fn a_release_of_helm_stays_helms(world: &mut World) -> TestResult {
    world.helm()?;
    let cluster = cluster(world, "helm").await?;
    let helm = Helm::new(cluster.plane.admin_kubeconfig(), &cluster.folder)?;
    let chart = Helm::chart();
    helm.succeeds(&[
        "install",
        "backup",
        &chart,
        "--namespace",
        NAMESPACE,
        "--create-namespace",
    ])
    .await?;
    ensure!(
        cluster.registrations().await? == ["backup-webhook"],
        "not registered"
    );
    let plugin = &cluster.plugin;
    says(
        &plugin.fails(1, &["install"]).await?.stderr,
        &["release of Helm"],
    )?;
    says(
        &plugin.fails(1, &["upgrade", "--mode=engine"]).await?.stderr,
        &["helm upgrade"],
    )?;
    says(
        &plugin.fails(1, &["uninstall", "--yes"]).await?.stderr,
        &["helm uninstall"],
    )?;
    let set = [
        "upgrade",
        "backup",
        &chart,
        "--namespace",
        NAMESPACE,
        "--set",
        "profiles={percona-ps}",
    ];
    helm.succeeds(&set).await?;
    says(
        &cluster.args("backup-webhook").await?.join(" "),
        &["--guard=percona-ps"],
    )?;

    let backups = cluster.backups().await?;
    helm.succeeds(&["uninstall", "backup", "--namespace", NAMESPACE])
        .await?;
    ensure!(
        cluster.registrations().await?.is_empty(),
        "still registered"
    );
    backups.list_all().await?;
    ensure!(
        cluster.definitions().list_all().await?.len() == 13,
        "definitions are gone"
    );
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    ensure!(namespaces.exists(NAMESPACE).await?, "the namespace is gone");
    Ok(())
}
