//! Chooses the options that no flag gives, by what the cluster has, and says why. Pure. A part of
//! the cluster that could not be read is reported as not known, and leads to the default that works
//! in every cluster.

#[cfg(test)]
mod tests;

use backup_core::{cluster::RESTRICTED, text::counted};
use backup_deploy::{Mode, Options};

use super::{
    facts::{ARGO_CD, FLUX, Facts},
    platform::Platform,
    preflight::MONITORING,
    snapshots::{self, Decision},
};
use crate::{
    cli::ChoiceArgs,
    commands::{
        finding::{Finding, Topic},
        prelude::*,
    },
    print::Tone,
};

/// Replicas of each program in `deploy/`.
const DEFAULT_REPLICAS: u16 = 2;
/// The section about pods that move volume data.
const VOLUME_DATA_PAGE: &str = "docs/operate/install.md#volume-data";

/// The options of an installation, and the reasons for them.
#[derive(Debug)]
pub(super) struct Choices {
    pub(super) options: Options,
    /// The platform, then a finding for each choice: its value, and why.
    pub(super) findings: Vec<Finding>,
}

pub(super) fn choose(args: &ChoiceArgs, facts: &Facts, namespace: &str) -> Choices {
    let mut options = args.over(Options::default());
    let mut findings = vec![
        platform(facts),
        mode(args, facts, namespace),
        replicas(args, facts, &mut options),
        host_network(args, facts),
    ];
    if options.mode == Mode::Engine {
        let decision = if args.decides_on_snapshots() {
            Decision::Flag
        } else {
            Decision::Open
        };
        findings.extend(snapshots::decide(&facts.snapshots, &mut options, decision));
        findings.push(volume_data(facts, &options, namespace));
    }
    findings.push(monitoring(args, facts, &mut options));
    findings.extend(gitops(facts));
    Choices { options, findings }
}

/// The options of a dry run that asks no cluster, as a sentence.
pub(super) fn without_cluster(options: &Options) -> String {
    let replicas = options.replicas.unwrap_or(DEFAULT_REPLICAS);
    let network = switch(options.host_network);
    let monitoring = switch(options.monitoring);
    let snapshots = match options.mode {
        Mode::Engine => format!(
            ", snapshots of CSI volumes {}",
            switch(options.takes_snapshots())
        ),
        Mode::Guard => String::new(),
    };
    format!(
        "No cluster was asked. Taken: {}, {} of each program, host network {network}, monitoring \
         {monitoring}{snapshots}. --dry-run=server chooses by the cluster.",
        options.mode.as_str(),
        counted(replicas, "replica"),
    )
}

const fn switch(is_on: bool) -> &'static str {
    if is_on { "on" } else { "off" }
}

/// The finding for a choice that a flag has made.
fn as_asked(on: Topic, is_on: bool) -> Finding {
    on.good(format!("{}, as you asked", switch(is_on)))
}

/// The finding for a choice that deserves attention; its text says what to do.
fn note(on: Topic, text: impl Into<String>) -> Finding {
    Finding {
        tone: Tone::Warn,
        ..on.good(text)
    }
}

/// A part that could not be read: its name, and why.
fn unread<T>(name: &str, part: &FetchResult<T>) -> Option<String> {
    match part {
        FetchResult::Known(_) => None,
        FetchResult::Missing { unavailable } => Some(format!("{name} ({unavailable})")),
    }
}

fn platform(facts: &Facts) -> Finding {
    let on = Topic("platform");
    let platform = facts.platform();
    let name = platform.as_str();
    let parts = [
        unread("the version", &facts.version),
        unread("the nodes", &facts.nodes),
        unread("the definitions", &facts.definitions),
    ];
    let missing: Vec<String> = parts.into_iter().flatten().collect();
    if !missing.is_empty() {
        return on.unknown(&format!("{}; taken: {name}", missing.join(", ")), None);
    }
    let version = facts.version.known().map_or("", String::as_str);
    let text = format!(
        "{name} (Kubernetes {}), pods can run on {}",
        plain(version),
        counted(nodes_for_pods(facts).unwrap_or(0), "node")
    );
    if platform == Platform::GkeAutopilot {
        let limit = "it gives a pod at most 10 GiB of disk, and the controller may use 21";
        return note(
            on,
            format!("{text}; {limit}: docs/operate/install.md#memory-and-disk"),
        );
    }
    on.good(text)
}

/// Number of nodes on which pods of the programs can run; `None` if the nodes could not be read.
fn nodes_for_pods(facts: &Facts) -> Option<usize> {
    let nodes = facts.nodes.known()?;
    Some(nodes.iter().filter(|node| node.takes_pods).count())
}

/// Guard mode is never chosen here: whether a Velero server is to be replaced or guarded is the
/// user's decision, and the checks refuse an engine beside one.
fn mode(args: &ChoiceArgs, facts: &Facts, namespace: &str) -> Finding {
    let on = Topic("mode");
    if let Some(mode) = args.mode {
        return on.good(format!("{}, as you asked", mode.as_str()));
    }
    let servers = match &facts.velero {
        FetchResult::Known(servers) => servers,
        FetchResult::Missing { unavailable } => {
            let text =
                format!("whether a Velero server runs elsewhere ({unavailable}); taken: engine");
            return on.unknown(&text, None);
        }
    };
    if servers.iter().any(|server| server == namespace) {
        return note(
            on,
            format!(
                "engine, and a Velero server runs in {namespace}: stop it, or choose --mode=guard"
            ),
        );
    }
    match servers.first() {
        Some(other) => note(
            on,
            format!(
                "engine; the Velero server in namespace {other} is not kept apart from it: for that, \
                 -n {other} --mode=guard"
            ),
        ),
        None => on.good("engine: no namespace has a Velero server, by its Deployment velero"),
    }
}

fn replicas(args: &ChoiceArgs, facts: &Facts, options: &mut Options) -> Finding {
    let on = Topic("replicas");
    if let Some(count) = args.replicas {
        return on.good(format!("{count} of each program, as you asked"));
    }
    let default = format!("{DEFAULT_REPLICAS} of each program");
    if let Some(why) = unread("the number of nodes", &facts.nodes) {
        return on.unknown(&format!("{why}; taken: {default}"), None);
    }
    match nodes_for_pods(facts).unwrap_or(0) {
        0 => note(on, format!("{default}; no node takes pods yet")),
        1 => {
            options.replicas = Some(1);
            on.good("1 of each program, for 1 node; with more: kubectl backup upgrade --replicas=2")
        }
        nodes => on.good(format!("{default}, for {nodes} nodes")),
    }
}

fn host_network(args: &ChoiceArgs, facts: &Facts) -> Finding {
    let on = Topic("host network");
    if let Some(is_on) = args.host_network {
        return as_asked(on, is_on);
    }
    match reach(facts) {
        Ok(why) => on.good(format!("off: {why}")),
        Err(why) => on.unknown(
            &format!(
                "whether the control plane reaches pods ({why}); taken: off. If the webhook does \
                 not answer: kubectl backup upgrade --host-network"
            ),
            None,
        ),
    }
}

/// Why the control plane reaches the network of pods, or why that is not known.
fn reach(facts: &Facts) -> Result<String, String> {
    let nodes = facts.nodes.known().map_or(&[][..], Vec::as_slice);
    match facts.platform() {
        Platform::Eks => {
            let is_known = nodes.iter().any(|node| node.is_in_vpc)
                || facts.has_vpc_network.known() == Some(&true);
            if is_known {
                return Ok(
                    "pods have addresses of the VPC, which the control plane reaches".to_owned(),
                );
            }
            Err(
                unread("the network of EKS", &facts.has_vpc_network).unwrap_or_else(|| {
                    "no DaemonSet aws-node gives pods addresses of the VPC".to_owned()
                }),
            )
        }
        Platform::Other => {
            if nodes.iter().any(|node| node.is_control_plane) {
                return Ok("the control plane runs on nodes of this cluster".to_owned());
            }
            Err(unread("the nodes", &facts.nodes)
                .unwrap_or_else(|| "it runs on no node of this cluster".to_owned()))
        }
        known => Ok(format!(
            "by the rules of {} the control plane reaches pods on port 10250",
            known.as_str()
        )),
    }
}

/// Whether data of volumes can be moved into the bucket. The image of the mover is installed in any
/// case but that of a flag: a backup has to ask for it.
fn volume_data(facts: &Facts, options: &Options, namespace: &str) -> Finding {
    let on = Topic("volume data");
    if options.without_data_mover {
        return as_asked(on, false);
    }
    let what = "whether it can be moved into the bucket";
    if let FetchResult::Missing { unavailable } = &facts.snapshots {
        return on.unknown(&format!("{what} ({unavailable})"), None);
    }
    let drivers = match &facts.snapshots {
        FetchResult::Known(Ok(drivers)) if options.takes_snapshots() => drivers.as_slice(),
        _ => &[],
    };
    if drivers.is_empty() {
        return note(on, "it cannot be moved into the bucket without snapshots");
    }
    let missing = unread("StorageClasses", &facts.storage_classes)
        .or_else(|| unread("Pod Security", &facts.pod_security));
    if let Some(missing) = missing {
        return on.unknown(&format!("{what}: {missing}"), None);
    }
    let mut classes = facts.storage_classes.known().into_iter().flatten();
    let Some(class) = classes.find(|class| drivers.contains(&class.provisioner)) else {
        let drivers = drivers.join(", ");
        let text = format!("it cannot be moved into the bucket: no StorageClass is of {drivers}");
        return note(on, text);
    };
    if facts.platform() == Platform::OpenShift {
        return note(
            on,
            format!(
                "it can be moved into the bucket once the pods have a SecurityContextConstraints: \
                 {VOLUME_DATA_PAGE}"
            ),
        );
    }
    if facts
        .pod_security
        .known()
        .is_some_and(|level| level == RESTRICTED)
    {
        return note(
            on,
            format!(
                "it can be moved into the bucket for claims that name the application's user only: \
                 Pod Security keeps {namespace} to {RESTRICTED}"
            ),
        );
    }
    on.good(format!(
        "it can be moved into the bucket (snapshotMoveData), with StorageClass {} of {}",
        class.name, class.provisioner
    ))
}

fn monitoring(args: &ChoiceArgs, facts: &Facts, options: &mut Options) -> Finding {
    let on = Topic("monitoring");
    if let Some(is_on) = args.monitoring {
        return as_asked(on, is_on);
    }
    if let Some(why) = unread("the definitions", &facts.definitions) {
        return on.unknown(&format!("{why}; taken: off"), None);
    }
    options.monitoring = MONITORING.iter().all(|name| facts.has(name));
    let verb = if options.monitoring {
        "serves"
    } else {
        "does not serve"
    };
    on.good(format!(
        "{}: the cluster {verb} PodMonitors and PrometheusRules",
        switch(options.monitoring)
    ))
}

fn gitops(facts: &Facts) -> Option<Finding> {
    let tools = [(ARGO_CD, "Argo CD"), (FLUX, "Flux")]
        .into_iter()
        .filter(|(definition, _)| facts.has(definition))
        .map(|(_, name)| name);
    let tools: Vec<&str> = tools.collect();
    if tools.is_empty() {
        return None;
    }
    Some(Topic("GitOps").good(format!(
        "{} found: to install by Git, commit what --dry-run -o yaml prints (docs/use/gitops.md)",
        tools.join(" and ")
    )))
}
