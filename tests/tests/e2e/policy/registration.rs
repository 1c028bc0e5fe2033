//! Requests for which the webhook is called, and those that never depend on it: the registrations
//! of `deploy/`, with a counting webhook.

use backup_tests::{
    binaries::root,
    install, naive,
    people::{CONTROLLER, EDITOR, People, refused, velero},
    pki::Pki,
    served::Served,
};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::api::{DeleteParams, GetParams, ListParams, Patch, PatchParams, PostParams};
use tokio::net::TcpStream;

use crate::prelude::*;

crate::tests! {
    only_what_may_begin_or_grow_is_asked_about,
    schedules_are_asked_about_when_their_spec_is_new,
    only_deletions_of_what_can_be_restored_from_are_asked_about,
    nothing_but_beginnings_waits_for_a_webhook_that_is_down,
    a_profiles_kinds_are_asked_about_when_they_begin,
    odd_objects_are_asked_about_and_none_is_locked_in,
    large_objects_and_long_users_are_judged,
}

async fn only_what_may_begin_or_grow_is_asked_about(world: &mut World) -> TestResult {
    let asked = Asked::register(world, "deploy/base").await?;
    for kind in ["Backup", "Restore"] {
        let api = by_controller(world, kind).await?;
        let spec = if kind == "Restore" {
            json!({ "backupName": "some" })
        } else {
            json!({ "includedNamespaces": ["a"] })
        };
        let new = json!({ "apiVersion": "velero.io/v1", "kind": kind, "metadata": { "name": "asked" }, "spec": spec });
        let mut ended = new.clone();
        ended["status"] = json!({ "phase": "Completed" });
        asked
            .times(0, "arrives ended", asked.create(&api, &ended))
            .await?;
        for (times, what, patch) in [
            (
                0,
                "a label",
                json!({ "metadata": { "labels": { "a": "b" } } }),
            ),
            (
                0,
                "its spec",
                json!({ "spec": { "includedNamespaces": ["b"] } }),
            ),
            (1, "comes back", json!({ "status": { "phase": "New" } })),
            (
                0,
                "a label",
                json!({ "metadata": { "labels": { "a": "c" } } }),
            ),
            (
                0,
                "a finalizer",
                json!({ "metadata": { "finalizers": ["a/b"] } }),
            ),
            (0, "none", json!({ "metadata": { "finalizers": null } })),
            (0, "begins", json!({ "status": { "phase": "InProgress" } })),
            (
                0,
                "progress",
                json!({ "status": { "progress": { "totalItems": 3 } } }),
            ),
            (
                1,
                "wants more",
                json!({ "spec": { "includedNamespaces": ["c"] } }),
            ),
            (0, "ends", json!({ "status": { "phase": "Failed" } })),
            (1, "comes back", json!({ "status": null })),
        ] {
            asked.times(times, what, asked.patch(&api, patch)).await?;
        }
        asked.times(0, "is deleted", asked.delete(&api)).await?;
        asked
            .times(1, "is created", asked.create(&api, &new))
            .await?;
        asked
            .times(
                0,
                "a copy in the same words",
                asked.patch(&api, json!({ "spec": spec })),
            )
            .await?;
        asked.times(0, "is deleted", asked.delete(&api)).await?;
        let apply = PatchParams::apply("pipeline").force();
        asked
            .times(1, "is applied", async {
                seen(
                    &api,
                    &api.patch("asked", &apply, &Patch::Apply(&new)).await?,
                )
                .await
            })
            .await?;
        asked.times(0, "is deleted", asked.delete(&api)).await?;
    }
    asked.end().await
}

async fn schedules_are_asked_about_when_their_spec_is_new(world: &mut World) -> TestResult {
    let mut asked = Asked::register(world, "deploy/base").await?;
    let api = by_controller(world, "Schedule").await?;
    // Paused, so that it creates no backups here.
    let new = json!({ "apiVersion": "velero.io/v1", "kind": "Schedule", "metadata": { "name": "asked" },
        "spec": { "schedule": "@yearly", "paused": true, "template": {} } });
    asked
        .times(1, "is created", asked.create(&api, &new))
        .await?;
    for (times, what, patch) in [
        (
            0,
            "a label",
            json!({ "metadata": { "labels": { "a": "b" } } }),
        ),
        (
            0,
            "a finalizer",
            json!({ "metadata": { "finalizers": ["a/b"] } }),
        ),
        (0, "none", json!({ "metadata": { "finalizers": null } })),
        (
            0,
            "its status",
            json!({ "status": { "phase": "FailedValidation" } }),
        ),
        (
            0,
            "the same spec",
            json!({ "spec": { "schedule": "@yearly" } }),
        ),
        (
            1,
            "another spec",
            json!({ "spec": { "schedule": "@monthly" } }),
        ),
    ] {
        asked.times(times, what, asked.patch(&api, patch)).await?;
    }
    asked.times(0, "is deleted", asked.delete(&api)).await?;
    asked.stop().await?;
    asked
        .create(&api, &new)
        .await
        .context("it waits for a webhook that is down")?;
    asked
        .patch(&api, json!({ "spec": { "schedule": "@monthly" } }))
        .await
        .context("its change waits")?;
    asked.delete(&api).await?;
    asked.end().await
}

async fn only_deletions_of_what_can_be_restored_from_are_asked_about(
    world: &mut World,
) -> TestResult {
    let asked = Asked::register(world, "deploy/base").await?;
    let api = by_controller(world, "Backup").await?;
    let by_admin = objects_in(&world.client, NAMESPACE, "velero.io/v1", "Backup");
    for (phase, times) in [
        ("Completed", 1),
        ("PartiallyFailed", 1),
        ("Failed", 0),
        ("FailedValidation", 0),
        ("Deleting", 0),
    ] {
        let backup = json!({ "apiVersion": "velero.io/v1", "kind": "Backup", "metadata": { "name": "asked",
            "labels": { "test": "asked" } }, "spec": {}, "status": { "phase": phase } });
        asked.create(&api, &backup).await?;
        asked.times(times, phase, asked.delete(&api)).await?;
        // Deletes a collection, so the request has no name.
        asked.create(&api, &backup).await?;
        let collection = ListParams::default().labels("test=asked");
        asked
            .times(times, phase, async {
                by_admin
                    .delete_collection(&DeleteParams::default(), &collection)
                    .await?;
                Ok(())
            })
            .await?;
    }
    let requests = by_controller(world, "DeleteBackupRequest").await?;
    let request = json!({ "apiVersion": "velero.io/v1", "kind": "DeleteBackupRequest",
        "metadata": { "name": "asked" }, "spec": { "backupName": "some" } });
    asked
        .times(1, "a request", asked.create(&requests, &request))
        .await?;
    let begins = json!({ "status": { "phase": "InProgress" } });
    asked
        .times(0, "its progress", asked.patch(&requests, begins))
        .await?;
    let other = json!({ "spec": { "backupName": "other" } });
    asked
        .times(1, "another backup", asked.patch(&requests, other))
        .await?;
    asked
        .times(0, "is deleted", asked.delete(&requests))
        .await?;
    asked.end().await
}

async fn nothing_but_beginnings_waits_for_a_webhook_that_is_down(world: &mut World) -> TestResult {
    install::ensure_namespace(&world.client, "goes-with-its-backups").await?;
    let doomed = objects_in(
        &world.client,
        "goes-with-its-backups",
        "velero.io/v1",
        "Backup",
    );
    let here = by_controller(world, "Backup").await?;
    let backup = |name: &str, phase: &str| {
        serde_json::from_value::<DynamicObject>(
            json!({ "apiVersion": "velero.io/v1", "kind": "Backup",
            "metadata": { "name": name }, "spec": {}, "status": { "phase": phase } }),
        )
    };
    let post = PostParams::default();
    for name in ["kept", "kept-too"] {
        doomed.create(&post, &backup(name, "Completed")?).await?;
    }
    here.create(&post, &backup("down-completed", "Completed")?)
        .await?;
    here.create(&post, &backup("down-failed", "Failed")?)
        .await?;
    here.create(&post, &backup("down-new", "New")?).await?;

    let mut asked = Asked::register(world, "deploy/base").await?;
    asked.stop().await?;
    let refusal = async |result: kube::Result<()>| match result {
        Err(kube::Error::Api(status)) if status.message.contains("failed calling webhook") => {
            Ok(())
        }
        other => bail!("not refused for the webhook: {other:?}"),
    };
    refusal(
        here.create(&post, &backup("down-created", "New")?)
            .await
            .map(|_| ()),
    )
    .await?;
    refusal(here.delete_object("down-completed").await).await?;

    here.create(&post, &backup("down-synced", "Completed")?)
        .await
        .context("arrives ended")?;
    let patch = |value: Value| async { here.merge_patch("down-new", value).await };
    patch(json!({ "metadata": { "labels": { "a": "b" }, "finalizers": ["a/b"] } }))
        .await
        .context("metadata")?;
    patch(json!({ "status": { "phase": "InProgress" } }))
        .await
        .context("progress")?;
    patch(json!({ "metadata": { "finalizers": null } }))
        .await
        .context("finalizers")?;
    patch(json!({ "status": { "phase": "Failed" } }))
        .await
        .context("an end")?;
    here.delete_object("down-new")
        .await
        .context("what failed is deleted")?;
    here.delete_object("down-failed")
        .await
        .context("what failed is deleted")?;

    world.delete_namespace("goes-with-its-backups").await?;
    asked.end().await?;
    for name in ["down-completed", "down-synced"] {
        here.delete_object(name).await?;
    }
    Ok(())
}

async fn a_profiles_kinds_are_asked_about_when_they_begin(world: &mut World) -> TestResult {
    install::install_test_crds(&world.client, "percona-ps").await?;
    let asked = Asked::register(world, "deploy/profiles/percona-ps").await?;
    for kind in ["PerconaServerMySQLBackup", "PerconaServerMySQLRestore"] {
        let api = percona(world, kind);
        let new = json!({ "apiVersion": "ps.percona.com/v1", "kind": kind, "metadata": { "name": "asked" },
            "spec": { "clusterName": "one" }, "status": { "state": "Succeeded" } });
        // The API server drops a status at creation, so the object cannot pretend to have ended.
        asked
            .times(1, "is created", asked.create(&api, &new))
            .await?;
        let state = |state: &str| json!({ "state": state });
        asked
            .times(0, "begins", asked.status(&api, state("Running")))
            .await?;
        let label = json!({ "metadata": { "labels": { "a": "b" } } });
        asked.times(0, "a label", asked.patch(&api, label)).await?;
        let other = json!({ "spec": { "clusterName": "two" } });
        asked
            .times(1, "another cluster", asked.patch(&api, other))
            .await?;
        for (times, what, status) in [
            (0, "fails", state("Error")),
            (0, "still", json!({ "stateDescription": "x" })),
            (1, "tries again", state("New")),
            (0, "goes on", state("Starting")),
            (0, "ends", state("Succeeded")),
            (1, "comes back", Value::Null),
        ] {
            asked.times(times, what, asked.status(&api, status)).await?;
        }
        asked.times(0, "is deleted", asked.delete(&api)).await?;
    }
    let clusters = percona(world, "PerconaServerMySQL");
    let cluster = json!({ "apiVersion": "ps.percona.com/v1", "kind": "PerconaServerMySQL",
        "metadata": { "name": "asked" }, "spec": {} });
    asked
        .times(0, "a cluster", asked.create(&clusters, &cluster))
        .await?;
    asked.delete(&clusters).await?;
    asked.end().await?;
    // The objects of the profile are accepted and bound, too.
    install::install_profile(&world.client, "percona-ps", "https://127.0.0.1:1", "").await?;
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(world.client.clone());
    configurations
        .delete_object("backup-webhook-percona-ps")
        .await?;
    let reader = world
        .plane
        .impersonate("system:serviceaccount:velero:backup-webhook")
        .await?;
    let backups = all_objects(&reader, PERCONA, "PerconaServerMySQLBackup");
    let leases: Api<k8s_openapi::api::coordination::v1::Lease> = Api::namespaced(reader, "default");
    eventually("the webhook may read what it guards", TIMEOUT, async || {
        backups.list_all().await?;
        let lease = leases.get_opt("restore-lock-one").await?;
        Ok::<_, kube::Error>(when(lease.is_none(), "a Lease that nobody made"))
    })
    .await
}

/// Kinds without a schema: whatever the state field contains, the webhook is called for a creation,
/// while metadata and deletions pass without it. A list has no fields: such an object is refused,
/// and an existing one can be deleted.
async fn odd_objects_are_asked_about_and_none_is_locked_in(world: &mut World) -> TestResult {
    let (group, version) = ("pxc.percona.com", "pxc.percona.com/v1");
    let kinds = ["PerconaXtraDBClusterBackup", "PerconaXtraDBClusterRestore"];
    for kind in kinds {
        install::define_kind(&world.client, group, kind).await?;
    }
    install::install_profile(&world.client, "percona-pxc", "https://127.0.0.1:1", "").await?;
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(world.client.clone());
    configurations
        .delete_object("backup-webhook-percona-pxc")
        .await?;
    let asked = Asked::register(world, "deploy/profiles/percona-pxc").await?;
    let odd = [
        Value::Null,
        json!("Succeeded"),
        json!(7),
        json!(true),
        json!({}),
        json!({ "state": null }),
        json!({ "state": 7 }),
        json!({ "state": ["Succeeded"] }),
        json!({ "state": { "Succeeded": true } }),
        json!({ "state": "x".repeat(1_000_000) }),
    ];
    let mut wrong = Vec::new();
    for kind in kinds {
        let api = objects_in(&world.client, "default", version, kind);
        for status in &odd {
            let object = json!({ "apiVersion": version, "kind": kind, "metadata": { "name": "asked" },
                "spec": { "pxcCluster": "odd" }, "status": status });
            let text: String = status.to_string().chars().take(40).collect();
            let judged = async {
                asked
                    .times(1, "is created", asked.create(&api, &object))
                    .await?;
                for metadata in [
                    json!({ "labels": { "a": "b" } }),
                    json!({ "finalizers": ["a/b"] }),
                ] {
                    asked
                        .times(
                            0,
                            "metadata",
                            asked.patch(&api, json!({ "metadata": metadata })),
                        )
                        .await?;
                }
                let other = json!({ "spec": { "pxcCluster": "other" } });
                asked
                    .times(1, "another cluster", asked.patch(&api, other))
                    .await?;
                let free = json!({ "metadata": { "finalizers": null } });
                asked
                    .times(0, "the finalizer goes", asked.patch(&api, free))
                    .await?;
                asked.times(0, "is deleted", asked.delete(&api)).await
            };
            if let Err(error) = judged.await {
                wrong.push(format!("{kind} with status {text}: {error:#}"));
                // Bypasses what would prevent the deletion.
                let _ = api
                    .merge_patch(
                        "asked",
                        json!({ "status": {}, "metadata": { "finalizers": null } }),
                    )
                    .await;
                let _ = api.delete_object("asked").await;
                let _ = api.wait_gone("asked", TIMEOUT).await;
            }
        }
    }
    let (api, kind) = (
        objects_in(&world.client, "default", version, kinds[0]),
        kinds[0],
    );
    let listed = json!({ "apiVersion": version, "kind": kind, "metadata": { "name": "asked" },
        "spec": { "pxcCluster": "odd" }, "status": [{ "state": "Succeeded" }] });
    asked
        .times(0, "a list", async {
            refused(api.create_json(listed.clone()).await, "resulted in error").map(drop)
        })
        .await?;
    asked.end().await?;
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    let asked = {
        api.create_json(listed).await?;
        Asked::register(world, "deploy/profiles/percona-pxc").await?
    };
    asked.times(0, "it is deleted", asked.delete(&api)).await?;
    asked.end().await
}

/// The cost of conditions grows with the size of their input, and the API server aborts too
/// expensive ones.
async fn large_objects_and_long_users_are_judged(world: &mut World) -> TestResult {
    let cast = People::of(world).await?;
    let asked = Asked::register(world, "deploy/base").await?;
    let api = by_controller(world, "Backup").await?;
    let finalizers: Vec<String> = (0..20_000).map(|n| format!("test.example/{n}")).collect();
    let names: Vec<String> = (0..40_000).map(|n| format!("namespace-{n}")).collect();
    for (what, metadata, spec) in [
        (
            "annotations",
            json!({ "annotations": { "a": "x".repeat(250_000) } }),
            json!({}),
        ),
        ("finalizers", json!({ "finalizers": finalizers }), json!({})),
        ("a spec", json!({}), json!({ "includedNamespaces": names })),
    ] {
        let mut object = json!({ "apiVersion": "velero.io/v1", "kind": "Backup", "metadata": metadata, "spec": spec });
        object["metadata"]["name"] = json!("asked");
        asked.times(1, what, asked.create(&api, &object)).await?;
        let label = json!({ "metadata": { "labels": { "a": "b" } } });
        asked.times(0, what, asked.patch(&api, label)).await?;
        // By a user whose writes are checked completely.
        let theirs = cast.objects(EDITOR, "Backup").await?;
        let free = json!({ "metadata": { "finalizers": null } });
        asked.times(0, what, asked.patch(&theirs, free)).await?;
        let begins = json!({ "status": { "phase": "InProgress" } });
        refused(
            theirs.merge_patch("asked", begins).await,
            "only backup-controller moves the phase",
        )?;
        asked.times(0, what, asked.delete(&api)).await?;
    }
    // Extra data from an authenticator about a user is not evaluated, whatever its size.
    let body = json!({ "apiVersion": "velero.io/v1", "kind": "Backup", "metadata": { "name": "asked" }, "spec": {} });
    let mut request = http::Request::post("/apis/velero.io/v1/namespaces/velero/backups")
        .header("content-type", "application/json")
        .header("impersonate-user", "u".repeat(5_000))
        .header("impersonate-group", "system:masters");
    for n in 0..200 {
        request = request.header(format!("impersonate-extra-deep%2f{n}"), "x".repeat(2_000));
    }
    let request = request.body(serde_json::to_vec(&body)?)?;
    asked
        .times(1, "a long user", async {
            Ok(world.client.request::<Value>(request).await.map(drop)?)
        })
        .await?;
    asked.times(0, "is deleted", asked.delete(&api)).await?;
    asked.end().await
}

fn percona(world: &World, kind: &str) -> Api<DynamicObject> {
    objects_in(&world.client, "default", PERCONA, kind)
}

/// Objects of the installation, written as the controller: the policies allow that.
async fn by_controller(world: &World, kind: &str) -> anyhow::Result<Api<DynamicObject>> {
    Ok(Api::namespaced_with(
        world.plane.impersonate(CONTROLLER).await?,
        NAMESPACE,
        &velero(kind),
    ))
}

const PERCONA: &str = "ps.percona.com/v1";

/// A counting webhook, registered like in `deploy/`.
struct Asked {
    naive: Option<Served>,
    configurations: Api<ValidatingWebhookConfiguration>,
    names: Vec<String>,
    /// Where a dry run of this object calls the webhook.
    probe: Api<DynamicObject>,
    probed: DynamicObject,
}

impl Asked {
    async fn register(world: &World, folder: &str) -> anyhow::Result<Self> {
        let pki_folder = world.folder().join("counting");
        std::fs::create_dir_all(&pki_folder)?;
        let pki = Pki::new(&pki_folder)?;
        let naive = naive::start(world.client.clone(), &pki.server("counting")?).await?;
        let url = format!("https://{}", naive.address());
        let configurations: Api<ValidatingWebhookConfiguration> = Api::all(world.client.clone());
        let mut names = Vec::new();
        for configuration in install::registrations(&root().join(folder), &url, &pki.ca_pem())? {
            configurations.create_object(&configuration).await?;
            names.push(configuration.name_any());
        }
        let (version, kind) = match folder {
            "deploy/base" => ("velero.io/v1", "Backup"),
            "deploy/profiles/percona-pxc" => ("pxc.percona.com/v1", "PerconaXtraDBClusterBackup"),
            _ => (PERCONA, "PerconaServerMySQLBackup"),
        };
        let probe = objects_in(&world.client, "default", version, kind);
        let probed = serde_json::from_value(json!({ "apiVersion": version, "kind": kind,
            "metadata": { "name": "probe" }, "spec": { "clusterName": "probe" } }))?;
        let asked = Self {
            naive: Some(naive),
            configurations,
            names,
            probe,
            probed,
        };
        until("the counting webhook is asked", TIMEOUT, async || {
            asked.probe.create(&dry_run(), &asked.probed).await?;
            anyhow::Ok(asked.calls() > 0)
        })
        .await?;
        // The API server sees all webhooks of one configuration at once.
        Ok(asked)
    }

    fn calls(&self) -> u64 {
        self.naive.as_ref().map_or(0, Served::calls)
    }

    /// Does something for which the webhook must be called this many times.
    async fn times(
        &self,
        times: u64,
        what: &str,
        action: impl Future<Output = anyhow::Result<()>>,
    ) -> anyhow::Result<()> {
        let before = self.calls();
        action.await.with_context(|| what.to_owned())?;
        let asked = self.calls() - before;
        ensure!(
            asked == times,
            "{what}: the webhook was asked {asked} times and not {times}"
        );
        Ok(())
    }

    async fn create(&self, api: &Api<DynamicObject>, object: &Value) -> anyhow::Result<()> {
        let object = serde_json::from_value(object.clone())?;
        seen(api, &api.create_object(&object).await?).await
    }

    async fn patch(&self, api: &Api<DynamicObject>, patch: Value) -> anyhow::Result<()> {
        seen(api, &api.merge_patch("asked", patch).await?).await
    }

    async fn status(&self, api: &Api<DynamicObject>, status: Value) -> anyhow::Result<()> {
        seen(api, &api.merge_patch_status("asked", status).await?).await
    }

    async fn delete(&self, api: &Api<DynamicObject>) -> anyhow::Result<()> {
        api.delete_object("asked").await?;
        api.wait_gone("asked", Duration::from_secs(20)).await
    }

    /// Stops answering; the registration is kept.
    async fn stop(&mut self) -> anyhow::Result<()> {
        let Some(naive) = self.naive.take() else {
            return Ok(());
        };
        let address = naive.address();
        drop(naive);
        let refused = async || anyhow::Ok(TcpStream::connect(address).await.is_err());
        until("the counting webhook is down", TIMEOUT, refused).await
    }

    /// Removes the registration, and waits until the webhook is no longer called.
    async fn end(self) -> anyhow::Result<()> {
        for name in &self.names {
            self.configurations.delete_object(name).await?;
        }
        // The API server continues to call it for a moment; later steps must not depend on which
        // webhook answers.
        until("nothing is asked any more", TIMEOUT, async || {
            let before = self.calls();
            self.probe.create(&dry_run(), &self.probed).await?;
            anyhow::Ok(self.calls() == before)
        })
        .await
    }
}

/// Waits until the API server's cache has this version. An update takes the old object from the
/// cache, and calls the webhook again if that was too old.
async fn seen(api: &Api<DynamicObject>, written: &DynamicObject) -> anyhow::Result<()> {
    eventually("seen by the cache", TIMEOUT, async || {
        let cached = api.get_with(&written.name_any(), &GetParams::any()).await?;
        let same = cached.metadata.resource_version == written.metadata.resource_version;
        Ok::<_, kube::Error>(when(same, "an older one"))
    })
    .await
}
