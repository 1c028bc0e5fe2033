//! The main job on a real node: the command installs the images, and an application with running
//! pods is restored.

use std::{process::Stdio, time::Instant};

use anyhow::{bail, ensure};
use backup_tests::node::{Node, machine};
use tokio::{
    signal::unix::{SignalKind, signal},
    task::block_in_place,
};

use super::{Story, show};

/// Runs the demo in its own Linux namespaces; with `keep` it ends with a shell there, which reads
/// the input of this program. Everything is removed at the end.
pub(crate) async fn run(keep: bool) -> anyhow::Result<()> {
    if machine::is_inside() {
        let mut interrupts = signal(SignalKind::interrupt())?;
        return tokio::select! {
            result = inside(keep) => result,
            _ = interrupts.recv() => bail!("interrupted"),
        };
    }
    if let Some(reason) = machine::missing()? {
        bail!("no node can be made here: {reason}");
    }
    // Ctrl-C is handled by the program inside; then this one removes everything that it created.
    let _interrupts = signal(SignalKind::interrupt())?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let input = if keep {
        Stdio::inherit()
    } else {
        Stdio::null()
    };
    ensure!(
        block_in_place(|| machine::run_inside(&arguments, input))?,
        "the demo failed"
    );
    println!("\nEverything is stopped.");
    Ok(())
}

async fn inside(keep: bool) -> anyhow::Result<()> {
    let story = Story {
        start: Instant::now(),
    };
    story.say("Building the images of the Dockerfile; starting containerd, kubelet, kube-scheduler and kube-proxy\n          beside etcd, kube-apiserver and kube-controller-manager, CoreDNS, and an S3 server with TLS.");
    let node = Node::start().await?;
    let played = play(&node, &story).await;
    if played.is_err() {
        eprintln!("{}", node.logs(12));
    } else if keep {
        story.say("Left running until you leave this shell, which has kubectl and kubectl backup.");
        node.kubectl()?
            .in_shell(node.kubectl_backup().program())?
            .status()
            .await?;
    }
    played
}

async fn play(node: &Node, story: &Story) -> anyhow::Result<()> {
    let kubectl = node.kubectl()?;
    let plugin = node.kubectl_backup();
    story.say(
        "Installing what is shipped: two replicas of webhook and controller in pods, under their own rights.",
    );
    show(&plugin, &["install", "--timeout=90s"], 0).await?;
    node.create_location().await?;
    show(&plugin, &["doctor"], 0).await?;

    story.say("An application of two pods runs in namespace shop. Backing it up.");
    node.create_shop().await?;
    node.wait_for_shop().await?;
    show(
        &plugin,
        &["create", "first", "--include-namespaces=shop", "--wait"],
        0,
    )
    .await?;

    story.say("Disaster: its namespace is deleted. Restoring.");
    kubectl
        .succeeds(&["delete", "namespace", "shop", "--timeout=60s"])
        .await?;
    show(&plugin, &["restore", "first", "--name=rescue", "--wait"], 0).await?;
    node.wait_for_shop().await?;

    story.say("Its pods run again.");
    let pods = kubectl
        .succeeds(&["get", "pods", "--all-namespaces"])
        .await?;
    for line in pods.stdout.lines() {
        println!("  {line}");
    }
    Ok(())
}
