//! The kubectl plugin against a real control plane: its output, and its exit codes.

use std::path::Path;

use backup_core::api::{LocationPhase, VolumeSnapshotLocation};
use backup_tests::{faulty_s3::Mood, kubectl_backup::KubectlBackup};

use crate::prelude::*;

crate::tests! {
    create_get_describe_restore_and_delete_do_what_they_say,
    schedules_locations_and_waiting_do_what_they_say,
    a_bucket_is_tried_before_its_location_is_stored,
    locations_of_snapshots_need_no_manifest,
    without_files_of_the_controller_urls_of_the_store_are_read,
    the_doctor_finds_what_is_broken_and_nothing_else,
    a_backup_that_does_not_complete_ends_with_code_3,
    waiting_too_long_ends_with_code_124,
    wrong_usage_ends_with_code_2,
    where_and_as_whom_may_be_said_by_flags_alone,
    a_refusal_is_shown_as_it_is_and_ends_with_code_1,
    a_refused_creation_is_retried_until_the_restore_has_ended,
}

async fn create_get_describe_restore_and_delete_do_what_they_say(world: &mut World) -> TestResult {
    world.config_maps("cli", 10).await?;
    let plugin = world.kubectl_backup();
    plugin
        .succeeds(&["create", "cli", "--include-namespaces", "cli", "--wait"])
        .await?;

    let table = plugin.stdout(&["get"]).await?;
    let completed = |line: &str| line.starts_with("cli ") && line.contains("Completed");
    ensure!(
        table.starts_with("NAME") && table.lines().any(completed),
        "{table}"
    );
    let names = plugin.stdout(&["get", "cli", "-o", "name"]).await?;
    ensure!(names.trim() == "backup.velero.io/cli", "{names}");
    let json: serde_json::Value =
        serde_json::from_str(&plugin.stdout(&["get", "cli", "-o", "json"]).await?)?;
    ensure!(
        json["metadata"]["name"] == "cli" && json["status"]["phase"] == "Completed",
        "{json}"
    );
    let row = plugin.succeeds(&["get", "cli", "--no-headers"]).await?;
    ensure!(
        row.stdout.starts_with("cli ") && row.stdout.lines().count() == 1,
        "{row:?}"
    );
    let held = plugin
        .stdout(&["get", "--containing=cli", "-o", "name"])
        .await?;
    ensure!(held == "backup.velero.io/cli\n", "{held:?}");
    let typed = plugin.stdout(&["__complete", "describe", "cl"]).await?;
    ensure!(
        typed.starts_with("cli\n") && typed.ends_with("\n:4\n"),
        "{typed:?}"
    );
    let versions = plugin.stdout(&["version"]).await?;
    says(
        &versions,
        &["Controller  backup-controller v", "API server  v1."],
    )?;

    let described = plugin.stdout(&["describe", "cli"]).await?;
    says(&described, &["Completed", "cli"])?;
    ensure!(
        described.lines().count() < 40,
        "more than a screen:\n{described}"
    );

    world.delete_namespace("cli").await?;
    plugin
        .succeeds(&["restore", "--from-backup", "cli", "--name", "cli", "--wait"])
        .await?;
    // The ten ConfigMaps, and the one that the cluster puts into every namespace.
    ensure!(world.count_config_maps("cli").await? >= 10, "not restored");
    let described = plugin.stdout(&["restore", "describe", "cli"]).await?;
    says(&described, &["Completed"])?;
    plugin.succeeds(&["restore", "get"]).await?;

    plugin
        .succeeds(&["delete", "cli", "--wait", "--yes"])
        .await?;
    ensure!(
        world.backups().get_opt("cli").await?.is_none(),
        "the Backup is still there"
    );
    let left: Vec<String> = world
        .s3()?
        .keys(BUCKET)
        .await?
        .into_iter()
        .filter(|key| key.starts_with("backups/cli/"))
        .collect();
    ensure!(left.is_empty(), "left in the bucket: {left:?}");
    let gone = plugin.fails(1, &["describe", "cli"]).await?;
    ensure!(
        gone.stderr.contains("cli") && gone.stdout.is_empty(),
        "{gone:?}"
    );
    Ok(())
}

async fn without_files_of_the_controller_urls_of_the_store_are_read(
    world: &mut World,
) -> TestResult {
    let name = "cli-urls";
    world.config_maps(name, 3).await?;
    let plugin = world.kubectl_backup();
    plugin
        .succeeds(&["create", name, "--include-namespaces", name, "--wait"])
        .await?;
    let seen = plugin.stdout(&["describe", name]).await?;
    ensure!(
        seen.contains("4 ConfigMap") && !seen.contains("unavailable"),
        "{seen}"
    );
    let log = plugin.stdout(&["logs", name]).await?;
    says(&log, &["collecting"])?;
    plugin.succeeds(&["verify", name]).await?;
    Ok(())
}

async fn schedules_locations_and_waiting_do_what_they_say(world: &mut World) -> TestResult {
    world.config_maps("cli-times", 3).await?;
    let plugin = world.kubectl_backup();
    let create = [
        "schedules",
        "create",
        "yearly",
        "--schedule=@yearly",
        "--include-namespaces=cli-times",
        "--ttl=9000h",
    ];
    plugin.succeeds(&create).await?;
    let triggered = plugin
        .stdout(&["schedules", "trigger", "yearly", "-o", "name"])
        .await?;
    let backup = triggered
        .trim()
        .trim_start_matches("backup.velero.io/")
        .to_owned();
    plugin.succeeds(&["wait", &backup, "--timeout=1m"]).await?;
    let described = plugin.stdout(&["schedules", "describe", "yearly"]).await?;
    says(&described, &[&backup, "Completed"])?;
    let status = of_namespace(&plugin, "cli-times").await?;
    ensure!(
        status["protected"] == true && status["lastGood"]["name"] == backup.as_str(),
        "{status}"
    );
    plugin.succeeds(&["schedules", "pause", "yearly"]).await?;
    let status = of_namespace(&plugin, "cli-times").await?;
    ensure!(
        status["reasons"] == json!(["schedule yearly is paused"]),
        "{status}"
    );
    let table = plugin.stdout(&["schedules"]).await?;
    ensure!(
        table
            .lines()
            .any(|line| line.starts_with("yearly ") && line.contains("Paused")),
        "{table}"
    );
    plugin
        .succeeds(&["schedules", "delete", "yearly", "--yes"])
        .await?;

    let locations = plugin.stdout(&["locations"]).await?;
    let available = |line: &str| line.starts_with("default ") && line.contains("Available");
    ensure!(locations.lines().any(available), "{locations}");
    plugin
        .succeeds(&["locations", "describe", "default"])
        .await?;
    let free = [
        "wait",
        "--for=free",
        "--namespaces=cli-times",
        "--timeout=1m",
    ];
    plugin.succeeds(&free).await?;
    plugin
        .fails(3, &["wait", &backup, "--for=phase=Failed"])
        .await?;
    Ok(())
}

/// The tried location is removed, and the others are unchanged.
async fn a_bucket_is_tried_before_its_location_is_stored(world: &mut World) -> TestResult {
    let (plugin, name) = (world.kubectl_backup(), "cli-tried");
    let names = async || {
        let all = world.locations().list_all().await?;
        anyhow::Ok(
            all.iter()
                .map(ResourceExt::name_any)
                .filter(|one| one.starts_with(name))
                .collect::<Vec<_>>(),
        )
    };
    let front = world.faulty_s3().await?;
    let config = |url: &str| format!("--config=region=us-east-1,s3ForcePathStyle=true,s3Url={url}");
    let (config, held) = (config(&world.s3()?.url()), config(&front.url()));
    let create = [
        "locations",
        "create",
        name,
        "--provider=aws",
        "--bucket=cli-tried",
    ];
    let create = [&create[..], &["--credential=cloud-credentials=cloud"]].concat();

    let refused = plugin
        .fails(1, &[&create[..], &[&config, "--default"]].concat())
        .await?;
    says(
        &refused.stderr,
        &[
            "would be Unavailable, so nothing was created",
            "does not exist",
        ],
    )?;
    ensure!(names().await?.is_empty(), "left: {:?}", names().await?);
    ensure!(
        world.locations().get("default").await?.spec.default == Some(true),
        "no longer the default"
    );

    front.rule(|_| Mood::Held);
    let is_tried = front.wait_for_request("the bucket is tried", Duration::from_secs(30), |_| true);
    let ran = plugin
        .interrupted(&[&create[..], &[&held]].concat(), is_tried)
        .await?
        .expect_code(130)?;
    says(&ran.stderr, &["interrupted: nothing was created"])?;
    ensure!(!ran.stderr.contains("left"), "{ran:?}");
    ensure!(names().await?.is_empty(), "left: {:?}", names().await?);
    front.calm();

    world.s3()?.create_bucket(name).await?;
    plugin.succeeds(&[&create[..], &[&config]].concat()).await?;
    world.location_available(name).await?;
    ensure!(names().await? == [name], "left: {:?}", names().await?);
    let spec = world.locations().get(name).await?.spec;
    let wrong = plugin
        .fails(
            1,
            &["locations", "set", name, "--credential=cli-wrong=cloud"],
        )
        .await?;
    says(&wrong.stderr, &["so nothing was changed", "cli-wrong"])?;
    ensure!(
        world.locations().get(name).await?.spec == spec,
        "it was changed"
    );
    plugin.succeeds(&["locations", "set", name, &held]).await?;
    ensure!(names().await? == [name], "left: {:?}", names().await?);
    let config = world.locations().get(name).await?.spec.config;
    ensure!(config["s3Url"] == front.url(), "{config:?}");
    plugin
        .succeeds(&["locations", "delete", name, "--yes"])
        .await?;
    Ok(())
}

async fn locations_of_snapshots_need_no_manifest(world: &mut World) -> TestResult {
    let (plugin, name) = (world.kubectl_backup(), "cli-disks");
    let of = |what| ["locations", "snapshots", what, name];
    let create = [
        "--provider=acme.example/disks",
        "--config=region=e1,pool=a",
        "--credential=cloud-credentials=cloud",
    ];
    plugin
        .succeeds(&[&of("create")[..], &create].concat())
        .await?;
    plugin
        .succeeds(&[&of("set")[..], &["--config=region=e2,pool="]].concat())
        .await?;
    let spec = world.api::<VolumeSnapshotLocation>().get(name).await?.spec;
    let expected = json!({ "provider": "acme.example/disks", "config": { "region": "e2" },
        "credential": { "name": "cloud-credentials", "key": "cloud" } });
    ensure!(serde_json::to_value(&spec)? == expected, "{spec:?}");
    plugin
        .succeeds(&[&of("delete")[..], &["--yes"]].concat())
        .await?;
    plugin.fails(1, &["locations", "snapshots", name]).await?;
    Ok(())
}

/// The status of a namespace in `status`, which fails because others are not protected.
async fn of_namespace(plugin: &KubectlBackup, name: &str) -> anyhow::Result<Value> {
    let seen = plugin.fails(1, &["status", "-o", "json"]).await?.stdout;
    let status: Value = serde_json::from_str(&seen)?;
    let all = status["namespaces"].as_array();
    Ok(all
        .into_iter()
        .flatten()
        .find(|one| one["name"] == name)
        .cloned()
        .unwrap_or_default())
}

async fn the_doctor_finds_what_is_broken_and_nothing_else(world: &mut World) -> TestResult {
    // Other tests of this world have created unusable locations.
    let all = world.locations().list_all().await?;
    let broken: Vec<String> = all
        .into_iter()
        .filter(|location| location.status.phase == Some(LocationPhase::Unavailable))
        .map(|location| {
            format!(
                "✗ {:<23}{} is Unavailable",
                "locations",
                location.name_any()
            )
        })
        .collect();
    let seen = world
        .kubectl_backup()
        .run(&["doctor"])
        .await?
        .expect_code(i32::from(!broken.is_empty()))?
        .stdout;
    for check in [
        "API server",
        "CRDs",
        "webhook configuration",
        "certificate",
        "webhook",
        "controller",
        "lock",
    ] {
        let good = seen
            .lines()
            .any(|line| line.starts_with(&format!("✓ {check} ")));
        ensure!(good, "{check}:\n{seen}");
    }
    for line in seen.lines().filter(|line| line.starts_with('✗')) {
        ensure!(
            broken.iter().any(|one| line.starts_with(one)),
            "{line}\n{broken:?}"
        );
    }
    Ok(())
}

async fn a_backup_that_does_not_complete_ends_with_code_3(world: &mut World) -> TestResult {
    let args = [
        "create",
        "code-3",
        "--include-namespaces=default",
        "--storage-location=there-is-none",
        "--wait",
    ];
    let ran = world.kubectl_backup().fails(3, &args).await?;
    ensure!(
        ran.stderr.contains("FailedValidation") && ran.stderr.contains("there-is-none"),
        "{ran:?}"
    );
    Ok(())
}

async fn waiting_too_long_ends_with_code_124(world: &mut World) -> TestResult {
    world.controllers[0].pause()?;
    let create = [
        "create",
        "code-124",
        "--include-namespaces=default",
        "--wait",
        "--timeout=2s",
    ];
    let ran = world.kubectl_backup().run(&create).await;
    world.controllers[0].resume()?;
    ran?.expect_code(124)?;
    world.backup_ended("code-124").await?;
    Ok(())
}

async fn wrong_usage_ends_with_code_2(world: &mut World) -> TestResult {
    for args in [
        &["create", "--no-such-flag"][..],
        &["no-such-command"],
        &["create", "x", "--ttl", "tomorrow"],
    ] {
        let ran = world.kubectl_backup().fails(2, args).await?;
        ensure!(ran.stdout.is_empty() && !ran.stderr.is_empty(), "{ran:?}");
    }
    Ok(())
}

async fn where_and_as_whom_may_be_said_by_flags_alone(world: &mut World) -> TestResult {
    let read = |file: &Path| anyhow::Ok(serde_json::from_slice::<Value>(&std::fs::read(file)?)?);
    let admin = read(world.plane.admin_kubeconfig())?;
    let reader = read(&world.person("by-flags", Some("backup-reader")).await?)?;
    let text = |of: &Value, at: &str| {
        of.pointer(at)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let cluster = |field: &str| text(&admin, &format!("/clusters/0/cluster/{field}"));
    let user = |of: &Value, field: &str| text(of, &format!("/users/0/user/{field}"));
    let empty = world.folder().join("empty.kubeconfig");
    std::fs::write(&empty, "{}")?;

    let plugin = world.kubectl_backup();
    let at = |more: &[String], words: &[&str]| {
        let place = [
            format!("--kubeconfig={}", empty.display()),
            format!("--server={}", cluster("server")),
            format!(
                "--certificate-authority={}",
                cluster("certificate-authority")
            ),
        ];
        let line: Vec<String> = place
            .iter()
            .chain(more)
            .cloned()
            .chain(words.iter().map(ToString::to_string))
            .collect();
        let plugin = &plugin;
        async move {
            plugin
                .run(&line.iter().map(String::as_str).collect::<Vec<_>>())
                .await
        }
    };
    let by_certificate = [
        format!(
            "--client-certificate={}",
            user(&admin, "client-certificate")
        ),
        format!("--client-key={}", user(&admin, "client-key")),
    ];
    at(&by_certificate, &["get"]).await?.expect_code(0)?;
    let other_host = at(
        &by_certificate,
        &["get", "--tls-server-name=elsewhere.example"],
    )
    .await?
    .expect_code(1)?;
    ensure!(other_host.stderr.contains("certificate"), "{other_host:?}");
    let as_jane = at(&by_certificate, &["get", "--as=jane", "--as-uid=7"])
        .await?
        .expect_code(1)?;
    ensure!(as_jane.stderr.contains("jane"), "{as_jane:?}");

    let token = format!("--token={}", user(&reader, "token"));
    at(std::slice::from_ref(&token), &["get"])
        .await?
        .expect_code(0)?;
    let nobody = at(&["--token=nobody".to_owned()], &["get"])
        .await?
        .expect_code(1)?;
    ensure!(nobody.stderr.contains("Log in again"), "{nobody:?}");
    // Uses the token, and not the administrator of the kubeconfig.
    let create = plugin
        .fails(1, &["create", "not-theirs", "--dry-run=server", &token])
        .await?;
    ensure!(create.stderr.contains("by-flags"), "{create:?}");
    Ok(())
}

async fn a_refusal_is_shown_as_it_is_and_ends_with_code_1(world: &mut World) -> TestResult {
    world.controllers[0].pause()?;
    let plugin = world.kubectl_backup();
    let result = async {
        plugin
            .succeeds(&["create", "holds-it", "--include-namespaces", "default"])
            .await?;
        let restore = [
            "restore",
            "--from-backup",
            "holds-it",
            "--name",
            "refused",
            "--include-namespaces",
            "default",
        ];
        plugin.run(&restore).await?.expect_code(1)
    }
    .await;
    world.controllers[0].resume()?;
    let ran = result?;
    ensure!(ran.stderr.contains("holds-it"), "{ran:?}");
    world.backup_ended("holds-it").await?;
    Ok(())
}

async fn a_refused_creation_is_retried_until_the_restore_has_ended(
    world: &mut World,
) -> TestResult {
    let name = "retried";
    world.config_maps(name, 3).await?;
    let plugin = world.kubectl_backup();
    let namespaces = format!("--include-namespaces={name}");
    plugin
        .succeeds(&["create", name, &namespaces, "--wait"])
        .await?;
    // Restores start, and end, only while the controller runs.
    world.controllers[0].pause()?;
    let restore = [
        "restore",
        "--from-backup=retried",
        "--name=in-the-way",
        &namespaces,
    ];
    let begun = plugin
        .run(&restore)
        .await
        .and_then(|ran| ran.expect_code(0));
    let create = [
        "create",
        "retried-again",
        &namespaces,
        "--retry-for=2m",
        "--wait",
    ];
    let (ran, resumed) = tokio::join!(plugin.run(&create), async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        world.controllers[0].resume()
    });
    begun?;
    resumed?;
    let ran = ran?.expect_code(0)?;
    let told = &ran.stderr;
    ensure!(
        told.contains("in-the-way") && told.contains("; trying again in "),
        "{ran:?}"
    );
    ensure!(
        ran.stdout == "backup.velero.io/retried-again created\n",
        "{ran:?}"
    );
    ensure!(
        world.backup_ended("retried-again").await?.phase() == BackupPhase::Completed,
        "{ran:?}"
    );
    Ok(())
}
