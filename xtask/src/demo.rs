//! The main job with explanations: an application is backed up, destroyed and restored, and
//! conflicting requests are refused.

pub(crate) mod node;

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use backup_core::api::BackupPhase;
use backup_tests::{
    KubectlBackup, World, WorldBuilder,
    app::App,
    binaries::{PlanePrograms, Programs},
    listing::{Listing, differences, list},
    network,
    proxy::Fault,
    wait::until,
};

struct Story {
    start: Instant,
}

impl Story {
    fn say(&self, text: &str) {
        println!("\n[{:5.1} s] {text}", self.start.elapsed().as_secs_f64());
    }
}

/// Runs all steps, with these additional flags for the controller; everything is stopped at the end
/// unless `keep`.
pub async fn run(keep: bool, controller_args: &[String]) -> anyhow::Result<()> {
    let programs = build()?;
    let story = Story {
        start: Instant::now(),
    };
    story.say("Starting etcd, kube-apiserver, kube-controller-manager and an S3 server; installing from deploy/;\n          two webhook replicas and the controller, each under its own ServiceAccount.");
    let args: Vec<&str> = controller_args.iter().map(String::as_str).collect();
    let world = WorldBuilder::of_demo()
        .programs(programs)
        .controller_args(&args)
        .start()
        .await?;
    let result = tokio::select! {
        result = play(&world, &story) => result,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
    };
    if let Err(error) = result {
        eprintln!("{}", world.logs(12));
        return Err(error);
    }
    if keep {
        let kubeconfig = world.plane.admin_kubeconfig().to_owned();
        story.say("Left running until you press Ctrl-C. In another terminal:");
        println!("  export KUBECONFIG={}", kubeconfig.display());
        println!(
            "  export PATH={}:$PATH",
            world
                .kubectl_backup()
                .program()
                .parent()
                .context("no folder")?
                .display()
        );
        println!("  kubectl backup get");
        tokio::signal::ctrl_c().await?;
    }
    drop(world);
    story.say("Everything is stopped.");
    Ok(())
}

/// Builds everything before the clock starts: the first build takes minutes, later ones almost no
/// time. Go and Rust programs side by side, because the end of each build uses one core. The
/// control plane starts no pods, so the data mover is not needed.
fn build() -> anyhow::Result<Programs> {
    let plane = std::thread::spawn(|| PlanePrograms::find().map(drop));
    let programs = Programs::build_without_mover("dev")?;
    plane
        .join()
        .map_err(|_| anyhow::anyhow!("the build of the control plane panicked"))??;
    Ok(programs)
}

async fn play(world: &World, story: &Story) -> anyhow::Result<()> {
    let client = &world.client;
    let plugin = world.kubectl_backup();
    let app = App::new("shop", 700);
    let count = app.create(client).await?;
    let namespaces = app.namespaces();
    let names = namespaces.each_ref().map(String::as_str);
    let before = listing(world, &names).await?;
    story.say(&format!(
        "An application in {} is running: {count} objects were created, {} are listed.",
        names.join(", "),
        before.len()
    ));

    story.say("Backing up the whole cluster.");
    show(&plugin, &["create", "demo", "--wait"], 0).await?;
    show(&plugin, &["describe", "demo"], 0).await?;
    if network::address_of_machine().is_some() {
        story.say("What a restore of it would do now: nothing, as all of it is there.");
        show(
            &plugin,
            &[
                "restore",
                "demo",
                "--include-namespaces",
                &names.join(","),
                "--plan",
            ],
            0,
        )
        .await?;
    }

    story.say(
        "A restore is refused while a backup runs. The bucket is made slow, so that one does.",
    );
    let s3 = world.s3.as_ref().context("no S3 server")?;
    s3.front.set(Fault::Delay(Duration::from_millis(500)));
    show(&plugin, &["create", "second"], 0).await?;
    let refused = show(
        &plugin,
        &["restore", "--from-backup", "demo", "--name", "too-early"],
        1,
    )
    .await?;
    ensure!(
        refused.contains("second"),
        "the refusal does not name the backup that holds the scope"
    );
    s3.front.set(Fault::None);
    let second = world.backup_ended("second").await?;
    ensure!(
        second.phase() == BackupPhase::Completed,
        "the second backup ended {}",
        second.phase()
    );

    story.say(&format!(
        "Disaster: {} and the custom resource definition {} are deleted.",
        names.join(", "),
        app.crd()
    ));
    app.destroy(client).await?;
    ensure!(
        listing(world, &names).await?.is_empty(),
        "something of the application is left"
    );
    println!("  nothing is left");

    story.say("Restoring. A backup is refused while the restore runs.");
    let included = names.join(",");
    let restore = [
        "restore",
        "--from-backup",
        "demo",
        "--name",
        "rescue",
        "--include-namespaces",
        &included,
        "--include-cluster-resources=true",
    ];
    show(&plugin, &restore, 0).await?;
    let refused = show(&plugin, &["create", "third"], 1).await?;
    ensure!(
        refused.contains("rescue"),
        "the refusal does not name the restore that holds the scope"
    );
    world.restore_ended("rescue").await?;
    show(&plugin, &["restore", "describe", "rescue"], 0).await?;

    story.say("Proof: a plain listing of the API server, object by object.");
    let after = settled(world, &names, &before).await?;
    let different = differences(&before, &after);
    ensure!(
        different.is_empty(),
        "what came back is not what was there:\n{}",
        different.join("\n")
    );
    println!(
        "  {} objects before, {} after, all equal",
        before.len(),
        after.len()
    );
    Ok(())
}

/// Runs the plugin and prints what a user would see.
async fn show(plugin: &KubectlBackup, args: &[&str], code: i32) -> anyhow::Result<String> {
    println!("  $ kubectl backup {}", args.join(" "));
    let ran = plugin.run(args).await?.expect_code(code)?;
    let text = format!("{}{}", ran.stdout, ran.stderr);
    for line in text.lines() {
        println!("  {line}");
    }
    Ok(text)
}

async fn listing(world: &World, names: &[&str]) -> anyhow::Result<Listing> {
    list(&world.client, names, &["shop"]).await
}

/// The cluster's controllers need a moment to adopt restored objects.
async fn settled(world: &World, names: &[&str], before: &Listing) -> anyhow::Result<Listing> {
    let _ = until("the cluster settles", Duration::from_secs(20), async || {
        anyhow::Ok(listing(world, names).await? == *before)
    })
    .await;
    listing(world, names).await
}
