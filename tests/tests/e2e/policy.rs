//! Requests that the API server itself refuses: forged ledgers, forged phases, break-glass without
//! the permission; and those that it must not refuse. The world has no programs of ours, only the
//! objects of `deploy/`.

pub mod drills;
pub mod owners;
pub mod phases;
pub mod read_keys;
pub mod registration;
pub mod roles;
pub mod volume_data;

use backup_lock::ledger::FORMAT_VERSION;
use backup_tests::{
    binaries::root,
    install,
    people::{CONTROLLER, EDITOR, OPERATOR, People, STRANGER, VIEWER, WEBHOOK, refused},
};
use k8s_openapi::api::{
    admissionregistration::v1::ValidatingAdmissionPolicy, coordination::v1::Lease,
};
use kube::api::{DeleteParams, ListParams, PostParams};

use crate::prelude::*;

crate::tests! {
    the_policies_have_no_warnings,
    the_policies_know_the_format_of_the_ledger,
    ledgers_and_markers_are_written_by_those_who_may,
    an_editor_deletes_no_ledger_by_deleting_a_collection,
    the_lease_of_the_leader_is_the_controllers,
    other_leases_and_config_maps_are_not_restricted,
    a_ledger_that_is_written_as_it_is_stays_as_it_is,
    the_webhook_writes_nothing_but_ledgers_and_markers,
    a_ledger_only_goes_forward_whoever_writes_it,
    a_namespace_is_deleted_with_its_ledgers_and_markers,
    the_roles_for_people_give_what_they_say,
}

/// A shortcut admits the usual write of a ledger; a later format would lose it unnoticed.
async fn the_policies_know_the_format_of_the_ledger(_: &mut World) -> anyhow::Result<()> {
    let policies = std::fs::read_to_string(root().join("deploy/base/policies.yaml"))?;
    let head = format!(r#".matches("^\\{{\"v\":{FORMAT_VERSION},")"#);
    ensure!(
        policies.matches(&head).count() == 2,
        "{head} is not what the conditions of backup-lock-ledger ask for"
    );
    let by_people = format!(r#"variables.ledger.matches("^\\{{\"v\":[0-{FORMAT_VERSION}],")"#);
    ensure!(
        policies.contains(&by_people),
        "{by_people} is not what people may write"
    );
    Ok(())
}

/// The API server has compiled the policies against their kinds, without warnings.
async fn the_policies_have_no_warnings(world: &mut World) -> TestResult {
    People::of(world).await?;
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(world.client.clone());
    for name in [
        "backup-lock-writers",
        "backup-lock-ledger",
        "backup-lock-break-glass",
        "backup-controller-drills",
        "backup-owners",
        "backup-engine-phases",
        "backup-read-keys",
        "backup-volume-data",
    ] {
        let checked = |policy: &ValidatingAdmissionPolicy| {
            policy.status.as_ref().is_some_and(|status| {
                status.type_checking.is_some()
                    && status.observed_generation == policy.metadata.generation
            })
        };
        let status = policies
            .wait_until(name, "is checked", TIMEOUT, checked)
            .await?
            .status;
        let warnings = status.and_then(|status| status.type_checking?.expression_warnings);
        ensure!(
            warnings.is_none_or(|warnings| warnings.is_empty()),
            "{name} has warnings"
        );
    }
    Ok(())
}

async fn ledgers_and_markers_are_written_by_those_who_may(world: &mut World) -> TestResult {
    let cast = People::of(world).await?;
    for writer in [WEBHOOK, CONTROLLER, OPERATOR] {
        let (leases, markers) = (cast.leases(writer).await?, cast.config_maps(writer).await?);
        let post = PostParams::default();
        let lease = leases
            .create(&post, &ledger("backup-lock-written", 1)?)
            .await
            .context(writer)?;
        markers
            .create(&post, &marker("backup-lock-written")?)
            .await
            .context(writer)?;
        for stranger in [EDITOR, STRANGER] {
            let (leases, markers) = (
                cast.leases(stranger).await?,
                cast.config_maps(stranger).await?,
            );
            let needle = "kubectl backup locks";
            refused(
                leases
                    .create(&post, &ledger("backup-lock-forged", 1)?)
                    .await,
                needle,
            )?;
            refused(
                markers.create(&post, &marker("backup-lock-forged")?).await,
                needle,
            )?;
            let next = changed(
                &lease,
                &json!({ "metadata": { "annotations": { "backup-lock/serial": "2" } } }),
            )?;
            refused(
                leases.replace("backup-lock-written", &post, &next).await,
                needle,
            )?;
            let label = json!({ "metadata": { "labels": { "mine": "true" } } });
            refused(
                leases.merge_patch("backup-lock-written", label).await,
                needle,
            )?;
            let data = json!({ "data": { "epoch": "0" } });
            refused(
                markers.merge_patch("backup-lock-written", data).await,
                needle,
            )?;
            let frozen = json!({ "immutable": true });
            refused(
                markers.merge_patch("backup-lock-written", frozen).await,
                needle,
            )?;
            refused(leases.delete_object("backup-lock-written").await, needle)?;
            refused(markers.delete_object("backup-lock-written").await, needle)?;
        }
        let next = changed(
            &lease,
            &json!({ "metadata": { "annotations": { "backup-lock/serial": "2" } } }),
        )?;
        leases
            .replace("backup-lock-written", &post, &next)
            .await
            .context(writer)?;
        leases
            .delete_object("backup-lock-written")
            .await
            .context(writer)?;
        markers
            .delete_object("backup-lock-written")
            .await
            .context(writer)?;
    }
    Ok(())
}

async fn an_editor_deletes_no_ledger_by_deleting_a_collection(world: &mut World) -> TestResult {
    let cast = People::of(world).await?;
    let ours = cast.leases(WEBHOOK).await?;
    ours.create_object(&ledger("backup-lock-collected", 1)?)
        .await?;
    let labelled = ListParams::default().labels("test=collected");
    let theirs = cast.leases(EDITOR).await?;
    refused(
        theirs
            .delete_collection(&DeleteParams::default(), &labelled)
            .await,
        "kubectl backup locks",
    )?;
    ensure!(
        ours.get_opt("backup-lock-collected").await?.is_some(),
        "it is gone"
    );
    ours.delete_object("backup-lock-collected").await?;
    Ok(())
}

/// Two controllers would work at once if it were deleted. Dry runs, as other tests have a leader.
async fn the_lease_of_the_leader_is_the_controllers(world: &mut World) -> TestResult {
    let cast = People::of(world).await?;
    // In a namespace without a leader, with the bindings of an overlay.
    let namespace = "has-a-leader";
    install::ensure_namespace(&world.client, namespace).await?;
    cast.bind_policies_to(namespace).await?;
    let controller = format!("system:serviceaccount:{namespace}:backup-controller");
    cast.grant(namespace, &[EDITOR, STRANGER, &controller])
        .await?;
    let by =
        async |who: &str| anyhow::Ok(Api::<Lease>::namespaced(cast.client(who).await?, namespace));
    let (ours, editor) = (by(&controller).await?, by(EDITOR).await?);
    let needle = "says which controller works";
    let probe = eventually(
        "the policies hold in the other namespace",
        TIMEOUT,
        async || {
            let created = editor
                .create(&dry_run(), &bare_lease("backup-controller")?)
                .await;
            refused(created, needle).map(Probe::Ready)
        },
    );
    probe.await?;
    let lease = ours
        .create_object(&bare_lease("backup-controller")?)
        .await?;
    let taken = changed(&lease, &json!({ "spec": { "holderIdentity": "mine" } }))?;
    for who in [
        EDITOR,
        STRANGER,
        &controller.replace("backup-controller", "backup-webhook"),
    ] {
        let theirs = by(who).await?;
        refused(
            theirs.replace_object("backup-controller", &taken).await,
            needle,
        )?;
        refused(theirs.delete_object("backup-controller").await, needle)?;
    }
    refused(
        editor
            .delete_collection(&DeleteParams::default(), &ListParams::default())
            .await,
        needle,
    )?;
    ours.replace_object("backup-controller", &taken)
        .await
        .context("the controller")?;
    // A ConfigMap of that name has no such role.
    let maps: Api<ConfigMap> = Api::namespaced(cast.client(EDITOR).await?, namespace);
    maps.create_object(&marker("backup-controller")?)
        .await
        .context("a ConfigMap")?;
    ours.delete_object("backup-controller")
        .await
        .context("the controller")?;
    Ok(())
}

async fn other_leases_and_config_maps_are_not_restricted(world: &mut World) -> TestResult {
    let cast = People::of(world).await?;
    let (leases, maps) = (cast.leases(EDITOR).await?, cast.config_maps(EDITOR).await?);
    for name in ["backup-controller-copy", "a-backup-lock"] {
        leases
            .create_object(&bare_lease(name)?)
            .await
            .context(name)?;
        leases.delete_object(name).await.context(name)?;
        maps.create_object(&marker(name)?).await.context(name)?;
        maps.delete_object(name).await.context(name)?;
    }
    // A prefix has no meaning in another namespace either.
    install::ensure_namespace(&world.client, "elsewhere").await?;
    let elsewhere: Api<ConfigMap> = Api::namespaced(world.client.clone(), "elsewhere");
    elsewhere
        .create_object(&marker("backup-lock-elsewhere")?)
        .await?;
    Ok(())
}

/// As during a rotation of encryption keys.
async fn a_ledger_that_is_written_as_it_is_stays_as_it_is(world: &mut World) -> TestResult {
    let cast = People::of(world).await?;
    let post = PostParams::default();
    let (leases, markers) = (
        cast.leases(WEBHOOK).await?,
        cast.config_maps(WEBHOOK).await?,
    );
    leases
        .create(&post, &ledger("backup-lock-same", 1)?)
        .await?;
    markers.create(&post, &marker("backup-lock-same")?).await?;
    for who in [EDITOR, WEBHOOK] {
        let (theirs, maps) = (cast.leases(who).await?, cast.config_maps(who).await?);
        theirs
            .replace(
                "backup-lock-same",
                &post,
                &theirs.get("backup-lock-same").await?,
            )
            .await
            .context(who)?;
        maps.replace(
            "backup-lock-same",
            &post,
            &maps.get("backup-lock-same").await?,
        )
        .await
        .context(who)?;
    }
    leases.delete_object("backup-lock-same").await?;
    markers.delete_object("backup-lock-same").await?;
    Ok(())
}

async fn the_webhook_writes_nothing_but_ledgers_and_markers(world: &mut World) -> TestResult {
    let cast = People::of(world).await?;
    let (leases, maps) = (
        cast.leases(WEBHOOK).await?,
        cast.config_maps(WEBHOOK).await?,
    );
    let needle = "writes no Leases and ConfigMaps but";
    refused(
        leases.create_object(&bare_lease("who-leads")?).await,
        needle,
    )?;
    refused(maps.create_object(&marker("settings")?).await, needle)?;
    let admin: Api<Lease> = world.api();
    let lease = admin.create_object(&bare_lease("who-leads")?).await?;
    let stolen = changed(&lease, &json!({ "spec": { "holderIdentity": "webhook" } }))?;
    refused(leases.replace_object("who-leads", &stolen).await, needle)?;
    refused(leases.delete_object("who-leads").await, needle)?;
    admin.delete_object("who-leads").await?;
    Ok(())
}

async fn a_ledger_only_goes_forward_whoever_writes_it(world: &mut World) -> TestResult {
    let cast = People::of(world).await?;
    let annotation =
        |key: &str, value: Value| json!({ "metadata": { "annotations": { key: value } } });
    let with_serial = |mut change: Value| {
        change["metadata"]["annotations"]["backup-lock/serial"] = json!("8");
        change
    };
    let of_size = |bytes: usize| {
        format!(
            "{{\"v\":{FORMAT_VERSION},\"x\":\"{}\"}}",
            "x".repeat(bytes - 14)
        )
    };
    let at_most = of_size(245_760);
    ensure!(at_most.len() == 245_760, "{}", at_most.len());
    // The change, and the refusal; `None` if it passes. The ledger before: our format, epoch 5,
    // serial 7.
    let table: Vec<(&str, Value, Option<&str>)> = vec![
        ("the next serial", with_serial(json!({})), None),
        (
            "a far serial",
            annotation("backup-lock/serial", json!("700")),
            None,
        ),
        (
            "the next epoch",
            with_serial(json!({ "spec": { "leaseTransitions": 6 } })),
            None,
        ),
        (
            "the largest ledger",
            with_serial(annotation("backup-lock/ledger", json!(at_most))),
            None,
        ),
        (
            "too large",
            with_serial(annotation("backup-lock/ledger", json!(of_size(245_761)))),
            Some("larger than the 245760 bytes"),
        ),
        // Five two-byte letters instead of one-byte ones: the allowed number of letters, but more
        // bytes.
        (
            "too many bytes",
            with_serial(annotation(
                "backup-lock/ledger",
                json!(at_most.replacen("xxxxx", "ééééé", 1)),
            )),
            Some("larger than the 245760 bytes"),
        ),
        (
            "an older format",
            with_serial(annotation(
                "backup-lock/ledger",
                json!("{\"v\":0,\"c\":[]}"),
            )),
            Some("newer format"),
        ),
        (
            "no ledger",
            with_serial(annotation("backup-lock/ledger", Value::Null)),
            Some("lose its claims"),
        ),
        (
            "an emptied ledger",
            with_serial(annotation("backup-lock/ledger", json!(""))),
            Some("lose its claims"),
        ),
        (
            "no format",
            with_serial(annotation("backup-lock/ledger", json!("{\"c\":[]}"))),
            Some("lose its claims"),
        ),
        (
            "an older epoch",
            with_serial(json!({ "spec": { "leaseTransitions": 4 } })),
            Some("would go back"),
        ),
        (
            "no epoch",
            with_serial(json!({ "spec": { "leaseTransitions": null } })),
            Some("would go back"),
        ),
        (
            "no spec",
            with_serial(json!({ "spec": null })),
            Some("would go back"),
        ),
        (
            "the same serial",
            json!({ "spec": { "holderIdentity": "me" } }),
            Some("serial"),
        ),
        (
            "an older serial",
            annotation("backup-lock/serial", json!("6")),
            Some("serial"),
        ),
        (
            "no serial",
            annotation("backup-lock/serial", Value::Null),
            Some("serial"),
        ),
        (
            "a serial that is no number",
            annotation("backup-lock/serial", json!("8a")),
            Some("serial"),
        ),
        (
            "another scope",
            with_serial(annotation("backup-lock/scope", json!("other"))),
            Some("scope"),
        ),
        (
            "no scope",
            with_serial(annotation("backup-lock/scope", Value::Null)),
            Some("scope"),
        ),
        (
            "a label with the same serial",
            json!({ "metadata": { "labels": { "x": "y" } } }),
            Some("serial"),
        ),
    ];
    for writer in [WEBHOOK, CONTROLLER, OPERATOR] {
        let leases = cast.leases(writer).await?;
        let post = PostParams::default();
        let first = leases
            .create(&post, &ledger("backup-lock-forward", 7)?)
            .await?;
        let dry = dry_run();
        for (what, change, expected) in &table {
            let result = leases
                .replace("backup-lock-forward", &dry, &changed(&first, change)?)
                .await;
            match expected {
                None => result
                    .map(|_| ())
                    .with_context(|| format!("{writer}: {what}"))?,
                Some(needle) => {
                    refused(result, needle).with_context(|| format!("{writer}: {what}"))?;
                }
            }
        }
        let newer = with_serial(annotation(
            "backup-lock/ledger",
            json!("{\"v\":10,\"c\":[]}"),
        ));
        let newer = leases
            .replace("backup-lock-forward", &dry, &changed(&first, &newer)?)
            .await;
        if writer == OPERATOR {
            refused(newer, "only newer programs read").context("a person writes a newer format")?;
        } else {
            newer.with_context(|| format!("{writer}: a newer format"))?;
        }
        leases.delete_object("backup-lock-forward").await?;
    }
    // A new Lease of the lock must contain a ledger.
    let leases = cast.leases(WEBHOOK).await?;
    refused(
        leases
            .create_object(&bare_lease("backup-lock-empty")?)
            .await,
        "lose its claims",
    )?;
    Ok(())
}

/// The bindings name the namespace; here they are bound to another one, like in an overlay.
async fn a_namespace_is_deleted_with_its_ledgers_and_markers(world: &mut World) -> TestResult {
    let cast = People::of(world).await?;
    let namespace = "goes-with-its-ledgers";
    cast.bind_policies_to(namespace).await?;
    let writer = format!("system:serviceaccount:{namespace}:backup-webhook");
    let client = cast.client(&writer).await?;
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let markers: Api<ConfigMap> = Api::namespaced(client, namespace);
    let others: Api<ConfigMap> = Api::namespaced(cast.client(WEBHOOK).await?, namespace);
    let probe = eventually(
        "the policies hold in the other namespace",
        TIMEOUT,
        async || {
            let created = others.create(&dry_run(), &marker("backup-lock-x")?).await;
            refused(created, "kubectl backup locks").map(Probe::Ready)
        },
    );
    probe.await?;
    for name in ["backup-lock-one", "backup-lock-two", "backup-lock-three"] {
        leases
            .create_object(&ledger(name, 1)?)
            .await
            .context(name)?;
        markers.create_object(&marker(name)?).await.context(name)?;
    }
    // Foreground deletion sets a finalizer on the Lease, which the garbage collector removes.
    leases
        .delete("backup-lock-one", &DeleteParams::foreground())
        .await?;
    leases.wait_gone("backup-lock-one", TIMEOUT).await?;
    world.delete_namespace(namespace).await
}

async fn the_roles_for_people_give_what_they_say(world: &mut World) -> TestResult {
    let cast = People::of(world).await?;
    let leases = cast.leases(WEBHOOK).await?;
    let lease = leases
        .create_object(&ledger("backup-lock-roles", 1)?)
        .await?;
    let viewer = cast.leases(VIEWER).await?;
    ensure!(
        viewer.list_all().await?.iter().any(|seen| seen == &lease),
        "not listed"
    );
    let next = changed(
        &lease,
        &json!({ "metadata": { "annotations": { "backup-lock/serial": "2" } } }),
    )?;
    refused(
        viewer.replace_object("backup-lock-roles", &next).await,
        "cannot update",
    )?;
    // The writes of `kubectl backup locks hold`, with this role only; it allows neither patch nor
    // delete.
    let operator = cast.leases(backup_tests::people::BARE_OPERATOR).await?;
    let label = json!({ "metadata": { "labels": { "mine": "true" } } });
    refused(
        operator.merge_patch("backup-lock-roles", label).await,
        "cannot patch",
    )?;
    refused(
        operator.delete_object("backup-lock-roles").await,
        "cannot delete",
    )?;
    operator.replace_object("backup-lock-roles", &next).await?;
    leases.delete_object("backup-lock-roles").await?;
    Ok(())
}

/// A ledger: our format, epoch 5.
fn ledger(name: &str, serial: u32) -> anyhow::Result<Lease> {
    Ok(serde_json::from_value(json!({
        "metadata": { "name": name, "labels": { "test": "collected" }, "annotations": {
            "backup-lock/ledger": format!("{{\"v\":{FORMAT_VERSION},\"c\":[]}}"), "backup-lock/scope": "velero.io",
            "backup-lock/serial": serial.to_string() } },
        "spec": { "leaseTransitions": 5 } }))?)
}

fn bare_lease(name: &str) -> anyhow::Result<Lease> {
    Ok(serde_json::from_value(
        json!({ "metadata": { "name": name } }),
    )?)
}

fn marker(name: &str) -> anyhow::Result<ConfigMap> {
    Ok(serde_json::from_value(
        json!({ "metadata": { "name": name }, "data": { "scope": "velero.io", "epoch": "5" } }),
    )?)
}

/// The object with a JSON merge patch applied.
fn changed(lease: &Lease, patch: &Value) -> anyhow::Result<Lease> {
    let mut value = serde_json::to_value(lease)?;
    json_patch::merge(&mut value, patch);
    Ok(serde_json::from_value(value)?)
}
