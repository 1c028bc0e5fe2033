//! Findings of the checks before an installation. Pure.

use backup_core::cluster::{self, POD_SECURITY_LABEL, RESTRICTED, pod_security};
use backup_deploy::{Mode, Stage, id, is_ours, kind};

use super::{
    objects::{full_name_of, is_of_helm},
    plan::Plan,
    preflight::{ClusterState, GUARDED},
};
use crate::{
    commands::finding::{Finding, Topic},
    print::plain,
};

pub(super) fn judge(
    plan: &Plan,
    observed: &ClusterState,
    replace_definitions: bool,
    namespace: &str,
) -> Vec<Finding> {
    let mut all = vec![
        version(observed),
        definitions(plan, observed, replace_definitions),
        place(plan, observed, namespace),
        velero(plan, observed, namespace),
        others(plan, observed),
        permissions(observed),
    ];
    if plan.options.monitoring && !observed.has_monitoring {
        let text = "the cluster does not know PodMonitors and PrometheusRules";
        all.push(Topic("monitoring").bad(
            text,
            "Install Prometheus' operator first, or leave out --monitoring.",
        ));
    }
    all
}

fn version(observed: &ClusterState) -> Finding {
    let on = Topic("API server");
    let version = &observed.version;
    let text = format!("Kubernetes {}", plain(&version.git_version));
    if cluster::is_new_enough(&version.major, &version.minor) {
        return on.good(text);
    }
    on.bad(
        format!("{text}, and 1.{} or later is needed", cluster::OLDEST_MINOR),
        "Upgrade the cluster.",
    )
}

fn definitions(plan: &Plan, observed: &ClusterState, replace: bool) -> Finding {
    let on = Topic("definitions");
    let definition = "CustomResourceDefinition";
    if plan.options.mode == Mode::Guard {
        let missing: Vec<&str> = GUARDED
            .into_iter()
            .filter(|name| observed.get(definition, name).is_none())
            .collect();
        return if missing.is_empty() {
            on.good("those of the Velero server are there, and stay as they are")
        } else {
            let text = format!(
                "a guard needs those of the Velero server; missing: {}",
                missing.join(", ")
            );
            on.bad(text, "Install Velero first, or this without --mode=guard.")
        };
    }
    let names = plan.names(definition);
    let there: Vec<&str> = names
        .into_iter()
        .filter(|name| observed.get(definition, name).is_some())
        .collect();
    if there.is_empty() {
        return on.good("none are there; they will be created");
    }
    let ours = there
        .iter()
        .filter_map(|name| observed.get(definition, name))
        .filter(|meta| is_ours(meta.labels.as_ref()))
        .count();
    let foreign = there.len() - ours;
    if foreign == 0 {
        on.good("ours are there")
    } else if replace {
        on.warn(
            format!("{foreign} are not ours and will be changed into ours, as you asked"),
            "Objects stay. To go back, apply the other server's definitions again.",
        )
    } else {
        on.bad(
            format!("{foreign} are not ours: they were installed by a Velero server, or by hand"),
            "If no Velero server uses them, add --replace-definitions; beside a running one, --mode=guard.",
        )
    }
}

/// Judges the namespace, and its restrictions for pods.
fn place(plan: &Plan, observed: &ClusterState, namespace: &str) -> Finding {
    let on = Topic("namespace");
    let Some(found) = observed.get("Namespace", namespace) else {
        return match plan.options.mode {
            Mode::Engine => on.good(format!("{namespace} will be created")),
            Mode::Guard => on.bad(
                format!(
                    "{namespace} does not exist, and a guard is installed in the namespace of the Velero server"
                ),
                "Choose that namespace with -n.",
            ),
        };
    };
    if found.deletion_timestamp.is_some() {
        return on.bad(
            format!("{namespace} is being deleted"),
            "Wait until it is gone.",
        );
    }
    let enforced = pod_security(found.labels.as_ref());
    if plan.options.host_network && enforced != "privileged" {
        return on.bad(
            format!("{namespace} keeps pods to {enforced} (Pod Security), which refuses the network of nodes"),
            format!("kubectl label --overwrite namespace {namespace} {POD_SECURITY_LABEL}=privileged; or leave out --host-network."),
        );
    }
    let moves = plan.options.mode == Mode::Engine && !plan.options.without_data_mover;
    if moves && enforced == RESTRICTED {
        return on.warn(
            format!(
                "{namespace} admits our programs, and not the pods that move volume data (snapshotMoveData): Pod Security \
                 keeps it to restricted"
            ),
            format!("kubectl label --overwrite namespace {namespace} {POD_SECURITY_LABEL}=baseline; or add --data-mover=false."),
        );
    }
    on.good(format!(
        "{namespace} is there, and admits our pods (Pod Security {})",
        plain(enforced)
    ))
}

fn velero(plan: &Plan, observed: &ClusterState, namespace: &str) -> Finding {
    let on = Topic("Velero");
    match (&observed.velero, plan.options.mode) {
        (None, Mode::Engine) => on.good(format!("no Velero server runs in {namespace}")),
        (Some(name), Mode::Guard) => on.good(format!("the server {name} runs backups and restores, and is guarded")),
        (Some(name), Mode::Engine) => on.bad(
            format!("the server {name} runs in {namespace}: each backup would be run twice"),
            format!("Stop it (kubectl -n {namespace} scale deployment {name} --replicas=0), or install with --mode=guard."),
        ),
        (None, Mode::Guard) => on.warn(
            format!("no Velero server runs in {namespace}: nothing would run backups and restores"),
            "Choose its namespace with -n, or install without --mode=guard.",
        ),
    }
}

/// Existing objects with our names that belong to other programs.
fn others(plan: &Plan, observed: &ClusterState) -> Finding {
    let on = Topic("names");
    let mut foreign = Vec::new();
    let mut of_helm = false;
    for object in &plan.objects {
        let is_kept = kind(id(object).0).is_none_or(|kind| kind.stage == Stage::Once);
        let Some(found) = observed.found(object).filter(|_| !is_kept) else {
            continue;
        };
        of_helm |= is_of_helm(found);
        if !is_ours(found.labels.as_ref()) {
            foreign.push(full_name_of(object));
        }
    }
    if of_helm {
        return on.bad(
            "a release of Helm has objects of this installation",
            "Use Helm for it: helm upgrade. `helm list -A` shows the release.",
        );
    }
    if foreign.is_empty() {
        return on.good("nothing else has the names of our objects");
    }
    on.bad(
        format!("not of an installation of ours: {}", foreign.join(", ")),
        "Remove or rename them; they would be overwritten.",
    )
}

fn permissions(observed: &ClusterState) -> Finding {
    let on = Topic("permissions");
    if observed.lacking.is_empty() {
        return on.good("you may apply all of it");
    }
    on.bad(
        format!("you may not {}", observed.lacking.join(", ")),
        "Installing takes an administrator of the cluster (ClusterRole cluster-admin).",
    )
}
