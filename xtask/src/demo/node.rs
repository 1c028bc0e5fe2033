//! The main job on a real node: the command installs the images, and an application with running
//! pods is restored with the data of its volume.

use std::{
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{bail, ensure};
use backup_tests::{
    kubectl::Kubectl,
    node::{Node, machine},
    wait::until,
    world::BUCKET,
};
use tokio::{
    signal::unix::{SignalKind, signal},
    task::block_in_place,
};

use super::{Story, show};

/// Lists the files in the volume with checksum, mode, owner and time.
const LIST_FILES: [&str; 8] = [
    "exec",
    "--namespace=shop",
    "deployment/orders",
    "--",
    "busybox",
    "sh",
    "-c",
    "cd /orders; find . -type f | sort | xargs md5sum; ls -ln | tail -n +2",
];

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
    show(&plugin, &["install", "--replicas=2", "--timeout=90s"], 0).await?;
    node.create_location().await?;
    show(&plugin, &["doctor"], 0).await?;

    story.say("An application runs in namespace shop: two pods that serve, and one that keeps files in a volume.");
    node.create_shop().await?;
    node.add_orders().await?;
    node.wait_for_shop().await?;
    let before = show_kubectl(&kubectl, &LIST_FILES).await?;

    story.say(
        "Backing it up, with the data of its volume, which is read from a CSI snapshot by a pod.",
    );
    let create = [
        "create",
        "first",
        "--include-namespaces=shop",
        "--snapshot-move-data",
        "--wait",
    ];
    show(&plugin, &create, 0).await?;
    show(&plugin, &["volumes", "first"], 0).await?;
    let mut keys = node.s3.keys(BUCKET).await?;
    keys.retain(|key| key.starts_with("restic/shop/"));
    println!(
        "  The repository of the namespace, restic/shop, has {} objects in the bucket.",
        keys.len()
    );

    story.say("Disaster: its namespace is deleted, and with it the volume.");
    show_kubectl(&kubectl, &["delete", "namespace", "shop", "--timeout=60s"]).await?;
    until(
        "the volume is removed",
        Duration::from_mins(1),
        async || anyhow::Ok(node.csi.volumes()?.is_empty()),
    )
    .await?;
    println!("  The storage system has no volume.");

    story.say("Restoring.");
    show(&plugin, &["restore", "first", "--name=rescue", "--wait"], 0).await?;
    show(&plugin, &["restore", "describe", "rescue"], 0).await?;
    node.wait_for_shop().await?;
    node.wait_for_orders().await?;

    story.say("Its pods run again, and each file has its contents, time, mode and owner.");
    show_kubectl(&kubectl, &["get", "pods", "--namespace=shop"]).await?;
    let after = show_kubectl(&kubectl, &LIST_FILES).await?;
    ensure!(
        before == after,
        "what came back is not what was there: {before} before, {after} after"
    );
    Ok(())
}

/// Runs kubectl and prints what a user would see.
async fn show_kubectl(kubectl: &Kubectl, args: &[&str]) -> anyhow::Result<String> {
    print!("  $ kubectl");
    for arg in args {
        let quote = if arg.contains(' ') { "'" } else { "" };
        print!(" {quote}{arg}{quote}");
    }
    println!();
    let ran = kubectl.succeeds(args).await?;
    for line in ran.stdout.lines() {
        println!("  {line}");
    }
    Ok(ran.stdout)
}
