//! The rendered programs: what runs, where, with which users and accounts, and what is left when
//! they are removed.

use std::collections::BTreeMap;

use backup_tests::{binaries::root, install};

use super::{of_kind, render};
use crate::prelude::*;

crate::tests! {
    removing_the_programs_leaves_everything_they_worked_on,
    programs_run_as_whoever_the_cluster_gives_them,
    programs_are_of_a_version_that_can_be_put_back,
    nodes_are_drained_whatever_the_programs_do,
    every_port_is_the_one_that_is_listened_on,
    metrics_are_found_at_every_pod,
}

/// The components that change ports.
const PLATFORMS: [&str; 2] = ["", "components: [DEPLOY/platforms/host-network]\n"];

async fn programs(world: &World, more: &str) -> anyhow::Result<Vec<Value>> {
    render(world, &format!("resources: [DEPLOY]\n{more}")).await
}

/// The two Deployments, by name.
fn deployments(objects: &[Value]) -> anyhow::Result<BTreeMap<&str, &Value>> {
    let found: BTreeMap<_, _> = of_kind(objects, "Deployment")
        .map(|one| (one["metadata"]["name"].as_str().unwrap_or_default(), one))
        .collect();
    ensure!(
        found
            .keys()
            .eq(["backup-controller", "backup-webhook"].iter()),
        "{:?}",
        found.keys()
    );
    Ok(found)
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The command is the one of docs/operate/install.md; the server lists what it would delete.
async fn removing_the_programs_leaves_everything_they_worked_on(world: &mut World) -> TestResult {
    let page = std::fs::read_to_string(root().join("docs/operate/install.md"))?;
    let uninstall = page
        .split("## Uninstall")
        .nth(1)
        .context("no chapter on how to uninstall")?;
    ensure!(
        uninstall.contains("\nkubectl delete -k deploy --ignore-not-found\n"),
        "another command is documented: {uninstall}"
    );
    let deploy = root().join("deploy").display().to_string();
    let args = [
        "delete",
        "-k",
        &deploy,
        "--ignore-not-found",
        "--dry-run=server",
        "-o",
        "name",
    ];
    let ran = world.kubectl()?.run(&args).await?.expect_code(0)?;
    let deleted: Vec<&str> = ran.stdout.lines().collect();
    ensure!(
        deleted
            .iter()
            .any(|name| name.starts_with("serviceaccount/")),
        "nothing is deleted: {deleted:?}"
    );
    for kept in [
        "namespace/",
        "customresourcedefinition",
        "secret/",
        "velero.io/",
        "lease",
        "configmap/",
    ] {
        ensure!(
            !deleted.iter().any(|name| name.starts_with(kept)),
            "{kept} in {deleted:?}"
        );
    }
    // Every object was checked, including kinds that the kit does not install.
    let objects = programs(world, "").await?;
    for kind in ["Namespace", "CustomResourceDefinition", "Secret"] {
        ensure!(
            of_kind(&objects, kind).next().is_none(),
            "deploy holds a {kind}"
        );
    }
    let once = render(world, "resources: [DEPLOY/once]\n").await?;
    let definitions = install::documents(&root().join("deploy/crds"))?.len();
    ensure!(
        of_kind(&once, "CustomResourceDefinition").count() == definitions,
        "not all definitions"
    );
    ensure!(
        of_kind(&once, "Namespace").count() == 1 && once.len() == definitions + 1,
        "{}",
        once.len()
    );
    // Nor do GitOps tools remove them.
    for object in &once {
        let annotations = &object["metadata"]["annotations"];
        let options = annotations["argocd.argoproj.io/sync-options"]
            .as_str()
            .unwrap_or_default();
        let kept = options.contains("Prune=false")
            && annotations["kustomize.toolkit.fluxcd.io/prune"] == "disabled";
        ensure!(
            kept,
            "{} {}: {annotations}",
            object["kind"],
            object["metadata"]["name"]
        );
    }
    Ok(())
}

/// OpenShift assigns users and groups to each namespace, and refuses all others.
async fn programs_run_as_whoever_the_cluster_gives_them(world: &mut World) -> TestResult {
    let objects = programs(world, "").await?;
    for (name, deployment) in deployments(&objects)? {
        let pod = &deployment["spec"]["template"]["spec"];
        for field in ["runAsUser", "runAsGroup", "fsGroup", "supplementalGroups"] {
            ensure!(!pod.to_string().contains(field), "{name} asks for {field}");
        }
        ensure!(
            pod["securityContext"]["runAsNonRoot"] == true,
            "{name} may be root"
        );
        ensure!(
            pod["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault",
            "{name}: {pod}"
        );
        for container in array(&pod["containers"]) {
            let context = &container["securityContext"];
            ensure!(
                context["readOnlyRootFilesystem"] == true,
                "{name}: {context}"
            );
            ensure!(
                context["allowPrivilegeEscalation"] == false,
                "{name}: {context}"
            );
            ensure!(
                context["capabilities"]["drop"] == json!(["ALL"]),
                "{name}: {context}"
            );
        }
    }
    Ok(())
}

async fn programs_are_of_a_version_that_can_be_put_back(world: &mut World) -> TestResult {
    let objects = programs(world, "").await?;
    for (name, deployment) in deployments(&objects)? {
        for container in array(&deployment["spec"]["template"]["spec"]["containers"]) {
            let image = container["image"].as_str().unwrap_or_default();
            ensure!(
                image == format!("{name}:v{}", env!("CARGO_PKG_VERSION")),
                "{name} runs {image}"
            );
            ensure!(
                container["imagePullPolicy"] == "IfNotPresent",
                "{name}: {container}"
            );
        }
    }
    let controller = &deployments(&objects)?["backup-controller"]["spec"]["template"]["spec"];
    let mover = array(&controller["containers"][0]["env"])
        .iter()
        .find(|variable| variable["name"] == "MOVER_IMAGE");
    let image = format!("backup-mover:v{}", env!("CARGO_PKG_VERSION"));
    ensure!(
        mover.is_some_and(|variable| variable["value"] == *image),
        "the pods that move volume data run {mover:?}"
    );
    Ok(())
}

async fn nodes_are_drained_whatever_the_programs_do(world: &mut World) -> TestResult {
    let objects = programs(world, "").await?;
    let classes: Vec<_> = of_kind(&objects, "PriorityClass")
        .map(|class| &class["metadata"]["name"])
        .collect();
    for (name, deployment) in deployments(&objects)? {
        let budget =
            of_kind(&objects, "PodDisruptionBudget").find(|one| one["metadata"]["name"] == name);
        let budget = &budget.with_context(|| format!("{name} has no PodDisruptionBudget"))?["spec"];
        ensure!(
            budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow",
            "{name}: {budget}"
        );
        ensure!(
            budget["maxUnavailable"] == 1 && budget.get("minAvailable").is_none(),
            "{name}: {budget}"
        );
        let (spec, pod) = (&deployment["spec"], &deployment["spec"]["template"]["spec"]);
        ensure!(
            spec["selector"] == budget["selector"],
            "{name}: another budget: {budget}"
        );
        ensure!(
            spec["replicas"].as_u64().is_some_and(|count| count >= 2),
            "{name} has one replica"
        );
        ensure!(
            classes.contains(&&pod["priorityClassName"]),
            "{name}: no class {}",
            pod["priorityClassName"]
        );
        for key in [
            "node.kubernetes.io/not-ready",
            "node.kubernetes.io/unreachable",
        ] {
            let found = array(&pod["tolerations"])
                .iter()
                .find(|one| one["key"] == key);
            let seconds = found.and_then(|one| one["tolerationSeconds"].as_u64());
            ensure!(
                seconds.is_some_and(|seconds| seconds <= 60),
                "{name} stays for {seconds:?} when {key}"
            );
        }
        let spread: Vec<_> = array(&pod["topologySpreadConstraints"])
            .iter()
            .map(|one| {
                (
                    &one["topologyKey"],
                    &one["whenUnsatisfiable"],
                    &one["labelSelector"],
                )
            })
            .collect();
        let anyway = json!("ScheduleAnyway");
        let [host, zone] =
            ["kubernetes.io/hostname", "topology.kubernetes.io/zone"].map(Value::from);
        let wanted = [
            (&host, &anyway, &spec["selector"]),
            (&zone, &anyway, &spec["selector"]),
        ];
        ensure!(spread == wanted, "{name}: {spread:?}");
    }
    Ok(())
}

async fn every_port_is_the_one_that_is_listened_on(world: &mut World) -> TestResult {
    for more in PLATFORMS {
        let objects = programs(world, more).await?;
        let mut named = BTreeMap::new();
        for (name, deployment) in deployments(&objects)? {
            let container = &deployment["spec"]["template"]["spec"]["containers"][0];
            let listened: Vec<u64> = array(&container["args"])
                .iter()
                .filter_map(|arg| arg.as_str()?.split_once("=0.0.0.0:")?.1.parse().ok())
                .collect();
            let mut ports = Vec::new();
            for port in array(&container["ports"]) {
                let number = port["containerPort"]
                    .as_u64()
                    .context("a port without a number")?;
                named.insert((name, port["name"].to_string()), number);
                ports.push(number);
            }
            let (mut one, mut other) = (listened.clone(), ports.clone());
            one.sort_unstable();
            other.sort_unstable();
            ensure!(
                one == other && one.len() == 2,
                "{name} listens on {listened:?}, and has {ports:?}"
            );
        }
        for service in of_kind(&objects, "Service") {
            let of = service["spec"]["selector"]["app.kubernetes.io/name"]
                .as_str()
                .unwrap_or_default();
            for port in array(&service["spec"]["ports"]) {
                let target = named.get(&(of, port["targetPort"].to_string()));
                let target = target.with_context(|| format!("{of} has no port for {port}"))?;
                // A headless Service leads to the port that clients use.
                let headless = service["spec"]["clusterIP"] == "None";
                ensure!(
                    !headless || port["port"] == *target,
                    "{port} and not {target}"
                );
            }
        }
        let reviews = named
            .get(&("backup-webhook", json!("reviews").to_string()))
            .context("no reviews")?;
        let peers = format!("--peer-service=backup-webhook-peers:{reviews}");
        let webhook = deployments(&objects)?["backup-webhook"].to_string();
        ensure!(webhook.contains(&peers), "no {peers}: {webhook}");
    }
    // Without a firewall rule, a private control plane of GKE reaches only 443 and 10250.
    let webhook = programs(world, "").await?;
    let webhook = deployments(&webhook)?["backup-webhook"].to_string();
    says(&webhook, &["--listen=0.0.0.0:10250"])?;
    Ok(())
}

async fn metrics_are_found_at_every_pod(world: &mut World) -> TestResult {
    for more in [
        "components: [DEPLOY/monitoring]\n",
        "components: [DEPLOY/platforms/host-network, DEPLOY/monitoring]\n",
    ] {
        let objects = programs(world, more).await?;
        for (name, deployment) in deployments(&objects)? {
            let template = &deployment["spec"]["template"];
            let ports = array(&template["spec"]["containers"][0]["ports"]);
            let of_name = |port: &Value| ports.iter().find(|one| one["name"] == *port);
            let annotations = &template["metadata"]["annotations"];
            ensure!(
                annotations["prometheus.io/scrape"] == "true",
                "{name}: {annotations}"
            );
            ensure!(
                annotations["prometheus.io/path"] == "/metrics",
                "{name}: {annotations}"
            );
            let monitor =
                of_kind(&objects, "PodMonitor").find(|one| one["metadata"]["name"] == name);
            let monitor = &monitor.with_context(|| format!("{name} has no PodMonitor"))?["spec"];
            ensure!(
                monitor["selector"] == deployment["spec"]["selector"],
                "{name}: {monitor}"
            );
            let endpoint = &monitor["podMetricsEndpoints"][0];
            let port = of_name(&endpoint["port"])
                .with_context(|| format!("{name}: no port for {endpoint}"))?;
            ensure!(endpoint["path"] == "/metrics", "{name}: {endpoint}");
            let number = port["containerPort"].to_string();
            ensure!(
                annotations["prometheus.io/port"] == number,
                "{name}: {annotations}, and not {number}"
            );
            let service = of_kind(&objects, "Service").find(|one| one["metadata"]["name"] == name);
            let service = service.with_context(|| format!("{name} has no Service"))?;
            let metrics = array(&service["spec"]["ports"])
                .iter()
                .find(|one| one["name"] == "metrics");
            ensure!(
                metrics.is_some_and(|one| one["targetPort"] == port["name"]),
                "{name}: {service}"
            );
        }
    }
    Ok(())
}
