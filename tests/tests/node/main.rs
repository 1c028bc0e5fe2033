//! The shipped files on a real node: images of the Dockerfile, and `deploy/` unchanged.
//!
//! The tests run one after another on one node, and each continues from the state that the one
//! before has left: installed, used, disturbed, removed. If no node can be made, they are skipped
//! with the reason. Arguments choose tests by parts of their names; the tests of a release, the last
//! two, begin with a cluster without an installation, and can be chosen alone.

mod creations;
mod database;
mod dead_node;
mod disturbances;
mod drill_volumes;
mod drills;
mod faults;
mod in_place;
mod installation;
mod published;
mod rollouts;
mod steps;
mod volumes;
mod writer;

use std::{
    process::{ExitCode, Stdio},
    time::Instant,
};

use backup_tests::{
    Skip,
    node::{Node, build_registry_programs, machine},
};
use futures::future::LocalBoxFuture;

/// A test: its name, which states a promise, and its function.
type Test = (
    &'static str,
    for<'n> fn(&'n mut Node) -> LocalBoxFuture<'n, anyhow::Result<()>>,
);

/// A list of tests over functions `async fn(&mut Node) -> anyhow::Result<()>`.
macro_rules! tests {
    ($($module:ident::$name:ident),* $(,)?) => {
        &[$((stringify!($name), |node| Box::pin($module::$name(node)))),*]
    };
}

const TESTS: &[Test] = tests![
    installation::both_programs_become_ready_as_they_are_installed,
    installation::a_namespace_with_running_pods_comes_back,
    installation::replicas_are_found_by_their_name,
    database::a_database_that_is_written_to_comes_back_with_all_committed_rows,
    database::a_block_volume_comes_back_byte_for_byte,
    volumes::the_data_of_volumes_comes_back_after_the_namespace_is_lost,
    volumes::a_second_backup_stores_only_what_has_changed,
    volumes::restic_reads_what_the_backups_wrote,
    volumes::a_controller_that_is_killed_while_data_moves_goes_on,
    faults::a_pod_that_is_lost_while_data_moves_is_made_once_more,
    faults::a_bucket_that_is_away_for_a_while_only_delays_a_restore,
    faults::a_mover_that_is_killed_twice_fails_its_volume,
    faults::transfers_that_cannot_start_end_in_time_and_say_why,
    faults::a_wrong_password_is_named,
    faults::damaged_data_fails_its_volume_until_it_is_whole_again,
    in_place::data_is_restored_into_claims_that_exist_once_no_pod_uses_them,
    dead_node::transfers_of_a_dead_node_end_in_time_or_once_it_is_back,
    volumes::a_deleted_backup_leaves_no_data_in_the_repository,
    drills::a_backup_is_restored_on_trial_until_its_pods_are_ready,
    drills::a_check_that_exits_with_another_code_fails_the_drill,
    drills::nothing_is_left_of_a_drill_whose_controllers_are_killed,
    drill_volumes::the_data_of_volumes_is_restored_on_trial_and_no_volume_is_left,
    disturbances::a_killed_webhook_is_out_of_the_way_within_seconds,
    disturbances::a_kubelet_that_is_killed_takes_no_pod_along,
    disturbances::a_rollout_of_both_fails_no_creation,
    rollouts::a_rollout_to_another_tag_and_back_keeps_holds_and_the_queue,
    disturbances::large_requests_by_the_hundred_take_no_webhook_beyond_its_limit,
    disturbances::a_backup_outlives_controllers_that_run_out_of_memory,
    disturbances::a_drain_waits_until_another_replica_is_ready,
    installation::an_upgrade_that_cannot_start_says_why_and_another_goes_on,
    installation::removal_leaves_what_the_programs_worked_on,
    installation::kustomize_installs_and_removes_the_same,
    published::a_release_is_signed_and_installed_from_a_registry,
    rollouts::from_the_last_release_to_this_version_and_back_no_work_fails,
];

fn main() -> anyhow::Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let tests = chosen(&arguments);
    if arguments.iter().any(|argument| argument == "--list") {
        for (name, _) in &tests {
            println!("{name}: test");
        }
        return Ok(ExitCode::SUCCESS);
    }
    if machine::is_inside() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()?;
        return runtime.block_on(run(&tests));
    }
    if let Some(reason) = machine::missing()? {
        for (name, _) in &tests {
            println!("test {name} ... skipped: {reason}");
        }
        return Ok(ExitCode::SUCCESS);
    }
    build_registry_programs()?;
    Ok(if machine::run_inside(&arguments, Stdio::null())? {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The tests whose names contain one of the arguments; without arguments, all.
fn chosen(arguments: &[String]) -> Vec<Test> {
    let parts = arguments.iter().filter(|one| !one.starts_with('-'));
    let parts: Vec<&String> = parts.collect();
    let tests = TESTS.iter().copied().filter(|(name, _)| {
        parts.is_empty() || parts.iter().any(|part| name.contains(part.as_str()))
    });
    tests.collect()
}

async fn run(tests: &[Test]) -> anyhow::Result<ExitCode> {
    let start = Instant::now();
    let mut node = Node::start().await?;
    println!("a node is ready ({:.1} s)", start.elapsed().as_secs_f64());
    let mut failed = Vec::new();
    let mut skipped = 0;
    for (name, test) in tests {
        let start = Instant::now();
        match test(&mut node).await {
            Ok(()) => println!(
                "test {name} ... ok ({:.1} s)",
                start.elapsed().as_secs_f64()
            ),
            Err(error) if error.is::<Skip>() => {
                println!("test {name} ... skipped: {error}");
                skipped += 1;
            }
            Err(error) => {
                println!("test {name} ... FAILED\n{error:?}\n{}", node.logs(12));
                failed.push(*name);
            }
        }
    }
    for name in &failed {
        println!("FAILED {name}");
    }
    let verdict = if failed.is_empty() { "ok" } else { "FAILED" };
    let passed = tests.len() - failed.len() - skipped;
    println!(
        "test result: {verdict}. {passed} passed; {} failed; {skipped} skipped; {} s",
        failed.len(),
        start.elapsed().as_secs()
    );
    Ok(if failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
