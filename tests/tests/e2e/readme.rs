//! The examples of README work in the demo, where README says that they can be tried.

use backup_tests::{binaries::root, network};

use crate::prelude::*;

crate::tests! {
    each_command_of_the_readme_works_in_the_demo,
}

/// Commands for objects that the demo already has.
const DONE_BY_THE_DEMO: [&str; 2] = ["install ", "locations create "];
/// The backup in README's example, replaced by one that exists here.
const EXAMPLE: &str = "nightly-20261103030000";

async fn each_command_of_the_readme_works_in_the_demo(world: &mut World) -> TestResult {
    if network::address_of_machine().is_none() {
        return Err(Skip("this machine has no network address but loopback").into());
    }
    world.config_maps("shop", 3).await?;
    let plugin = world.kubectl_backup();
    plugin.succeeds(&["create", "shown", "--wait"]).await?;
    let commands = commands()?;
    ensure!(commands.len() > 7, "README shows {commands:?}");
    for command in commands {
        let words: Vec<&str> = command.split_whitespace().collect();
        let ran = plugin.run(&words).await?;
        // `status` exits with 1 if something is not protected: here nothing is scheduled.
        let good = ran.code == 0 || (words == ["status"] && ran.stderr.is_empty());
        ensure!(good, "kubectl backup {command}: {ran:?}");
        let said = format!("{}{}", ran.stdout, ran.stderr);
        ensure!(
            !said.contains("unavailable: "),
            "kubectl backup {command}: {said}"
        );
    }
    Ok(())
}

/// The commands in README, in order.
fn commands() -> anyhow::Result<Vec<String>> {
    let text = std::fs::read_to_string(root().join("README.md"))?;
    let lines = text
        .lines()
        .map(|line| line.trim().trim_start_matches("$ "));
    let commands = lines.filter_map(|line| line.strip_prefix("kubectl backup "));
    let commands = commands.filter(|command| {
        !DONE_BY_THE_DEMO
            .iter()
            .any(|done| command.starts_with(done))
    });
    Ok(commands
        .map(|command| command.replace(EXAMPLE, "shown"))
        .collect())
}
