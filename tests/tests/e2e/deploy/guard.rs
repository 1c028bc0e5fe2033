//! Beside another server: none of that server's objects are installed, and none can be written.

use backup_core::labels::LEDGER_ANNOTATION;
use backup_tests::{binaries::Programs, install, process::Process};
use k8s_openapi::api::{authorization::v1::SubjectAccessReview, coordination::v1::Lease};
use kube::Discovery;

use super::{of_kind, render};
use crate::prelude::*;

crate::tests! {
    what_the_webhook_guards_is_published,
    a_guard_keeps_its_ledger_with_rights_to_read_only,
}

const CONTROLLER: &str = "system:serviceaccount:velero:backup-controller";

async fn what_the_webhook_guards_is_published(world: &mut World) -> TestResult {
    let person = world
        .kubectl_backup_as("viewer", Some("backup-lock-view"))
        .await?;
    let velero = eventually(
        "the webhook publishes what it guards",
        TIMEOUT,
        async || {
            let seen = person.stdout(&["profiles", "velero", "-o", "json"]).await?;
            let velero = serde_json::from_str::<Value>(&seen)?["profiles"][0].clone();
            anyhow::Ok(match velero["isGuarded"].as_bool() {
                Some(_) => Probe::Ready(velero),
                None => Probe::NotYet(seen),
            })
        },
    )
    .await?;
    ensure!(
        velero["isGuarded"] == true && velero["policyFrom"] == json!(["profile"]),
        "{velero}"
    );
    ensure!(
        velero["definition"]["engine"] == false,
        "a guard runs nothing: {velero}"
    );
    Ok(())
}

async fn a_guard_keeps_its_ledger_with_rights_to_read_only(world: &mut World) -> TestResult {
    let objects = render(
        world,
        "resources: [DEPLOY]\ncomponents: [DEPLOY/modes/guard]\n",
    )
    .await?;
    for kind in ["CustomResourceDefinition", "Namespace"] {
        ensure!(
            of_kind(&objects, kind).next().is_none(),
            "a guard brings a {kind}"
        );
    }
    // The kit has installed an engine: its controller gets the roles of a guard's controller.
    let discovery = Discovery::new(world.client.clone())
        .run_aggregated()
        .await?;
    for kind in ["ClusterRole", "Role"] {
        for role in
            of_kind(&objects, kind).filter(|role| role["metadata"]["name"] == "backup-controller")
        {
            let role: DynamicObject = serde_json::from_value(role.clone())?;
            let api = install::api_of(&world.client, &discovery, &role)?;
            api.apply_object("backup-controller", &role).await?;
        }
    }
    may(world, "create", "", "configmaps", "default", false).await?;
    for (verb, group, resource, namespace, allowed) in [
        ("list", "velero.io", "backups", "anywhere", true),
        ("watch", "velero.io", "restores", "anywhere", true),
        ("get", "", "namespaces", "", true),
        ("update", "coordination.k8s.io", "leases", NAMESPACE, true),
        ("create", "events.k8s.io", "events", "anywhere", true),
        ("update", "velero.io", "backups/status", NAMESPACE, false),
        ("patch", "velero.io", "backups", NAMESPACE, false),
        ("delete", "velero.io", "backups", NAMESPACE, false),
        (
            "create",
            "velero.io",
            "deletebackuprequests",
            NAMESPACE,
            false,
        ),
        ("get", "velero.io", "downloadrequests", NAMESPACE, false),
        ("update", "coordination.k8s.io", "leases", "default", false),
        ("get", "", "secrets", NAMESPACE, false),
        ("get", "", "secrets", "default", false),
        ("get", "", "pods", "default", false),
        ("create", "", "pods/exec", "default", false),
        ("create", "apps", "deployments", "default", false),
        (
            "patch",
            "apiextensions.k8s.io",
            "customresourcedefinitions",
            "",
            false,
        ),
        (
            "escalate",
            "rbac.authorization.k8s.io",
            "clusterroles",
            "",
            false,
        ),
        (
            "bind",
            "rbac.authorization.k8s.io",
            "clusterroles",
            "",
            false,
        ),
    ] {
        may(world, verb, group, resource, namespace, allowed).await?;
    }

    // With these rights the controller starts, leads, and frees the claim of an object that is
    // gone.
    let kubeconfig = world.person("backup-controller", None).await?;
    let program = &Programs::build("dev")?.controller;
    let args = [
        "--namespace=velero",
        "--guard=velero",
        "--metrics-address=127.0.0.1:0",
        "--orphan-grace=1s",
    ];
    let args = args.map(str::to_owned).to_vec();
    let controller = Process::start_program("guard", program, args, &kubeconfig, world.folder())?;
    world
        .backups()
        .create_object(&Backup::new("guarded", of_namespaces(&["default"])))
        .await?;
    holds(world, true).await?;
    world.backups().delete_object("guarded").await?;
    holds(world, false).await?;
    let log = controller.log();
    let refused: Vec<_> = log
        .lines()
        .filter(|line| line.contains("forbidden"))
        .collect();
    ensure!(refused.is_empty(), "{refused:?}");
    Ok(())
}

/// Waits until the API server gives this answer about a right.
async fn may(
    world: &World,
    verb: &str,
    group: &str,
    resource: &str,
    namespace: &str,
    allowed: bool,
) -> anyhow::Result<()> {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let review: SubjectAccessReview = serde_json::from_value(
        json!({ "spec": { "user": CONTROLLER,
        "groups": ["system:serviceaccounts", "system:serviceaccounts:velero", "system:authenticated"],
        "resourceAttributes": { "namespace": namespace, "verb": verb, "group": group, "resource": resource,
            "subresource": subresource } } }),
    )?;
    let reviews = Api::<SubjectAccessReview>::all(world.client.clone());
    let what = format!(
        "{verb} {resource}/{subresource} of {group:?} in {namespace:?} is allowed: {allowed}"
    );
    eventually(&what, TIMEOUT, async || {
        let status = reviews.create_object(&review).await?.status;
        anyhow::Ok(when(
            status.is_some_and(|status| status.allowed == allowed),
            "the opposite",
        ))
    })
    .await
}

/// Waits until the ledger has a claim of the backup, or until it has none.
async fn holds(world: &World, expected: bool) -> anyhow::Result<()> {
    let leases: Api<Lease> = world.api();
    eventually(
        &format!("the ledger holds the backup: {expected}"),
        TIMEOUT,
        async || {
            let lease = leases.get("backup-lock-velero").await?;
            let ledger = lease
                .annotations()
                .get(LEDGER_ANNOTATION)
                .cloned()
                .unwrap_or_default();
            anyhow::Ok(when(ledger.contains("guarded") == expected, ledger))
        },
    )
    .await
}
