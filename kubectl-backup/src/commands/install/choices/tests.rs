//! What is chosen on each platform, by a user's flags, and where parts of the cluster are not known.

use std::collections::BTreeSet;

use super::*;
use crate::{
    commands::{
        install::{
            facts::{OPENSHIFT, StorageClassFacts},
            platform::NodeFacts,
        },
        volumes::Why,
    },
    print::Style,
};

/// Maximum number of lines with the title.
const MAX_LINES: usize = 10;
const CSI: &str = "EnableCSI";

fn known<T>(value: T) -> FetchResult<T> {
    FetchResult::Known(value)
}

fn worker() -> NodeFacts {
    NodeFacts {
        takes_pods: true,
        ..NodeFacts::default()
    }
}

/// A cluster with nodes for pods, and a class of each kind for the driver.
fn cluster(version: &str, nodes: Vec<NodeFacts>, driver: &str) -> Facts {
    Facts {
        version: known(version.to_owned()),
        nodes: known(nodes),
        definitions: known(BTreeSet::new()),
        has_vpc_network: known(false),
        pod_security: known("privileged".to_owned()),
        storage_classes: known(vec![StorageClassFacts {
            name: "fast".to_owned(),
            provisioner: driver.to_owned(),
        }]),
        velero: known(Vec::new()),
        snapshots: known(Ok(vec![driver.to_owned()])),
    }
}

/// A cluster of kubeadm or the like, without anything special.
fn plain_cluster() -> Facts {
    let control_plane = NodeFacts {
        is_control_plane: true,
        ..NodeFacts::default()
    };
    cluster(
        "v1.34.4",
        vec![worker(), worker(), control_plane],
        "disk.example.com",
    )
}

/// The lines of the findings, as they are printed.
fn lines(choices: &Choices) -> Vec<String> {
    let style = Style::new(false);
    let text: String = choices
        .findings
        .iter()
        .map(|finding| finding.lines(style))
        .collect();
    text.lines().map(str::to_owned).collect()
}

/// The line of a topic.
fn line(choices: &Choices, topic: &str) -> String {
    let found = choices
        .findings
        .iter()
        .find(|finding| finding.check == topic);
    found.map_or_else(String::new, |finding| finding.lines(Style::new(false)))
}

fn choose_in(facts: &Facts) -> Choices {
    choose(&ChoiceArgs::default(), facts, "velero")
}

/// The options with snapshots, which every platform below can take.
fn with_snapshots() -> Options {
    Options {
        features: vec![CSI.to_owned()],
        ..Options::default()
    }
}

fn on_platform(platform: Platform) -> NodeFacts {
    NodeFacts {
        platform: Some(platform),
        ..worker()
    }
}

#[test]
fn the_defaults_fit_each_platform() {
    let three = |node: NodeFacts| vec![node.clone(), node.clone(), node];
    let one_replica = Options {
        replicas: Some(1),
        ..with_snapshots()
    };
    let eks = cluster("v1.33.4-eks-ba24e9c", three(worker()), "ebs.csi.aws.com");
    let openshift = cluster("v1.31.9+38674d3", three(worker()), "ebs.csi.aws.com");
    let with_monitoring = Options {
        monitoring: true,
        ..with_snapshots()
    };
    let rules = |name: &str| {
        format!(
            "✓ host network           off: by the rules of {name} the control plane reaches pods"
        )
    };
    let vpc = "✓ host network           off: pods have addresses of the VPC".to_owned();
    let moved = "✓ volume data            it can be moved into the bucket (snapshotMoveData)";
    for (facts, options, platform, network, data) in [
        (
            Facts {
                has_vpc_network: known(true),
                ..eks.clone()
            },
            with_snapshots(),
            "✓ platform               EKS (Kubernetes v1.33.4-eks-ba24e9c), pods can run on 3 nodes\n",
            vpc.clone(),
            moved,
        ),
        (
            // EKS Auto Mode, whose network no DaemonSet shows.
            Facts {
                nodes: known(three(NodeFacts {
                    is_in_vpc: true,
                    ..worker()
                })),
                ..eks.clone()
            },
            with_snapshots(),
            "✓ platform               EKS",
            vpc,
            moved,
        ),
        (
            // EKS with an overlay network, or with another one that gives addresses of the VPC.
            eks,
            with_snapshots(),
            "✓ platform               EKS",
            "? host network           not known: whether the control plane reaches pods (no DaemonSet aws-node".to_owned(),
            moved,
        ),
        (
            cluster("v1.33.2-gke.1240000", three(worker()), "pd.csi.storage.gke.io"),
            with_snapshots(),
            "✓ platform               GKE (",
            rules("GKE"),
            moved,
        ),
        (
            cluster(
                "v1.33.2-gke.1240000",
                three(on_platform(Platform::GkeAutopilot)),
                "pd.csi.storage.gke.io",
            ),
            with_snapshots(),
            "! platform               GKE Autopilot (Kubernetes v1.33.2-gke.1240000), pods can run on 3 nodes; it gives a pod at \
             most 10 GiB of disk",
            rules("GKE Autopilot"),
            moved,
        ),
        (
            cluster("v1.33.3", three(on_platform(Platform::Aks)), "disk.csi.azure.com"),
            with_snapshots(),
            "✓ platform               AKS (",
            rules("AKS"),
            moved,
        ),
        (
            Facts {
                definitions: known([OPENSHIFT].into_iter().chain(MONITORING).collect()),
                ..openshift
            },
            with_monitoring,
            "✓ platform               OpenShift (",
            rules("OpenShift"),
            "! volume data            it can be moved into the bucket once the pods have a SecurityContextConstraints",
        ),
        (
            cluster("v1.33.1+k3s1", vec![worker()], "driver.longhorn.io"),
            one_replica.clone(),
            "✓ platform               k3s (Kubernetes v1.33.1+k3s1), pods can run on 1 node\n",
            rules("k3s"),
            moved,
        ),
        (
            cluster("v1.34.0", vec![on_platform(Platform::Kind)], "hostpath.csi.k8s.io"),
            one_replica,
            "✓ platform               kind (",
            rules("kind"),
            moved,
        ),
        (
            plain_cluster(),
            with_snapshots(),
            "✓ platform               an unknown platform (Kubernetes v1.34.4), pods can run on 2 nodes\n",
            "✓ host network           off: the control plane runs on nodes of this cluster\n".to_owned(),
            moved,
        ),
    ] {
        let choices = choose_in(&facts);
        assert_eq!(choices.options, options, "{platform}");
        let all = lines(&choices);
        assert!(all.len() < MAX_LINES, "{all:#?}");
        for (topic, expected) in [
            ("platform", platform),
            ("host network", network.as_str()),
            ("volume data", data),
        ] {
            let line = line(&choices, topic);
            assert!(line.starts_with(expected), "{line:?} is not {expected:?}");
        }
    }
}

#[test]
fn what_cannot_be_read_is_said_and_the_defaults_are_taken() {
    fn none<T>() -> FetchResult<T> {
        FetchResult::missing("forbidden")
    }
    let nothing = Facts {
        version: none(),
        nodes: none(),
        definitions: none(),
        has_vpc_network: none(),
        pod_security: none(),
        storage_classes: none(),
        velero: none(),
        snapshots: none(),
    };
    let choices = choose_in(&nothing);
    assert_eq!(choices.options, Options::default());
    assert_eq!(
        lines(&choices),
        [
            "? platform               not known: the version (forbidden), the nodes (forbidden), the definitions (forbidden); \
             taken: an unknown platform",
            "? mode                   not known: whether a Velero server runs elsewhere (forbidden); taken: engine",
            "? replicas               not known: the number of nodes (forbidden); taken: 2 of each program",
            "? host network           not known: whether the control plane reaches pods (the nodes (forbidden)); taken: off. If \
             the webhook does not answer: kubectl backup upgrade --host-network",
            "? snapshots              not known: whether snapshots can be taken; forbidden",
            "                         They can be turned on: kubectl backup upgrade --snapshots",
            "? volume data            not known: whether it can be moved into the bucket (forbidden)",
            "? monitoring             not known: the definitions (forbidden); taken: off",
        ]
    );
}

#[test]
fn each_flag_goes_over_the_cluster() {
    let mut facts = plain_cluster();
    facts.definitions = known(MONITORING.into_iter().collect());
    facts.nodes = known(vec![worker()]);
    let args = ChoiceArgs {
        mode: Some(Mode::Engine),
        replicas: Some(3),
        host_network: Some(true),
        monitoring: Some(false),
        snapshots: Some(false),
        data_mover: Some(false),
        ..ChoiceArgs::default()
    };
    let choices = choose(&args, &facts, "velero");
    let expected = Options {
        replicas: Some(3),
        host_network: true,
        without_data_mover: true,
        ..Options::default()
    };
    assert_eq!(choices.options, expected);
    assert_eq!(
        lines(&choices)[1..],
        [
            "✓ mode                   engine, as you asked",
            "✓ replicas               3 of each program, as you asked",
            "✓ host network           on, as you asked",
            "✓ snapshots              snapshots of CSI volumes are off, as you asked",
            "✓ volume data            off, as you asked",
            "✓ monitoring             off, as you asked",
        ]
    );
}

#[test]
fn an_existing_velero_server_is_named_and_never_guarded_unasked() {
    let none: &[&str] = &[];
    for (servers, mode, expected) in [
        (
            none,
            None,
            "✓ mode                   engine: no namespace has a Velero server",
        ),
        (
            &["velero"],
            None,
            "! mode                   engine, and a Velero server runs in velero",
        ),
        (
            &["old"],
            None,
            "! mode                   engine; the Velero server in namespace old",
        ),
        (
            &["velero"],
            Some(Mode::Guard),
            "✓ mode                   guard, as you asked",
        ),
    ] {
        let facts = Facts {
            velero: known(servers.iter().map(|name| (*name).to_owned()).collect()),
            ..plain_cluster()
        };
        let args = ChoiceArgs {
            mode,
            ..ChoiceArgs::default()
        };
        let choices = choose(&args, &facts, "velero");
        assert_eq!(choices.options.mode, mode.unwrap_or_default());
        let line = line(&choices, "mode");
        assert!(line.starts_with(expected), "{line:?} is not {expected:?}");
    }
}

#[test]
fn a_guard_says_nothing_about_volumes() {
    let args = ChoiceArgs {
        mode: Some(Mode::Guard),
        ..ChoiceArgs::default()
    };
    let choices = choose(&args, &plain_cluster(), "velero");
    assert_eq!(choices.options.features, Vec::<String>::new());
    assert_eq!(
        line(&choices, "snapshots") + &line(&choices, "volume data"),
        ""
    );
}

#[test]
fn why_data_cannot_be_moved_is_said() {
    let all = plain_cluster();
    let none = FetchResult::missing("forbidden");
    for (facts, expected) in [
        (
            Facts {
                snapshots: known(Err(Why::NoDriver)),
                ..all.clone()
            },
            "! volume data            it cannot be moved into the bucket without snapshots",
        ),
        (
            Facts {
                storage_classes: known(Vec::new()),
                ..all.clone()
            },
            "! volume data            it cannot be moved into the bucket: no StorageClass is of disk.example.com",
        ),
        (
            Facts {
                pod_security: known("restricted".to_owned()),
                ..all.clone()
            },
            "! volume data            it can be moved into the bucket for claims that name the application's user only: Pod Security \
             keeps velero to restricted",
        ),
        (
            Facts {
                pod_security: none,
                ..all.clone()
            },
            "? volume data            not known: whether it can be moved into the bucket: Pod Security (forbidden)",
        ),
    ] {
        let line = line(&choose_in(&facts), "volume data");
        assert!(line.starts_with(expected), "{line:?} is not {expected:?}");
    }
}

#[test]
fn the_longest_list_has_ten_lines_with_its_title() {
    let facts = Facts {
        definitions: known(BTreeSet::from([ARGO_CD, FLUX])),
        snapshots: known(Err(Why::NoDriver)),
        nodes: known(Vec::new()),
        ..plain_cluster()
    };
    let choices = choose_in(&facts);
    let all = lines(&choices);
    assert!(all.len() < MAX_LINES, "{all:#?}");
    assert_says!(
        line(&choices, "replicas"),
        "2 of each program; no node takes pods yet"
    );
    assert_says!(line(&choices, "GitOps"), "Argo CD and Flux found");
    assert_says!(
        line(&choices, "host network"),
        "it runs on no node of this cluster"
    );
}

#[test]
fn a_dry_run_without_a_cluster_says_what_it_took() {
    let guard = Options {
        mode: Mode::Guard,
        replicas: Some(1),
        ..Options::default()
    };
    assert_eq!(
        without_cluster(&guard),
        "No cluster was asked. Taken: guard, 1 replica of each program, host network off, monitoring off. --dry-run=server \
         chooses by the cluster."
    );
    assert_says!(
        without_cluster(&with_snapshots()),
        "snapshots of CSI volumes on."
    );
}
