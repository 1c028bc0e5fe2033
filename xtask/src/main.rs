//! `cargo xtask demo · test · matrix · bench · histories · volume-histories · soak · fuzz ·
//! mutants · velero · rules · generate · release`: what a developer runs.

mod bench;
mod demo;
mod fuzz;
mod generate;
mod histories;
mod links;
mod matrix;
mod messages;
mod mutants;
mod release;
mod rules;
mod soak;
mod style;
mod test;
mod velero;
mod volume_histories;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Tasks of the project.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Shows the main job on a real control plane: backup, loss, restore, refusal.
    Demo {
        /// On a real node: what is shipped is installed as a user would, and pods come back. Linux,
        /// root, and what docs/evidence/tests.md names.
        #[arg(long)]
        node: bool,
        /// Leave everything running at the end, and say how to reach it; with --node, a shell.
        #[arg(long)]
        keep: bool,
        /// A flag for the controller, such as --plugin-dir=FOLDER. Can be repeated.
        #[arg(
            long,
            value_name = "FLAG",
            allow_hyphen_values = true,
            conflicts_with = "node"
        )]
        controller_arg: Vec<String>,
    },
    /// Runs every check and every test.
    Test {
        /// Only the end-to-end tests whose name contains this text.
        #[arg(long)]
        only: Option<String>,
    },
    /// Runs the main job, collisions, policies, installing and removing on each version of
    /// Kubernetes that the kit can build.
    Matrix(matrix::Args),
    /// Measures time and memory, beside a floor measured in the same run.
    Bench(bench::Args),
    /// Plays histories: clients side by side while things go wrong, judged by what the design
    /// promises.
    Histories(histories::Args),
    /// Plays histories of a repository of volume data: backups, restores, deletions, maintenances
    /// and crashes.
    VolumeHistories(volume_histories::Args),
    /// Lets all programs work for a while, as users would use them, while everything that can goes
    /// wrong.
    Soak(soak::Args),
    /// Gives to whatever reads texts of others what is nearly right.
    Fuzz(fuzz::Args),
    /// Changes the code that decides in one place at a time: a test has to fail. Needs
    /// cargo-mutants, and hours.
    Mutants(mutants::Args),
    /// Compares our definitions and flags with Velero's newest version that the Go proxy has.
    Velero,
    /// Checks that each rule of docs/evidence/rules.md has a test, each message of
    /// docs/operate/troubleshooting.md a source, and each link a target.
    Rules,
    /// Counts what makes code dense. Fails above the bounds.
    Style,
    /// Writes the generated files: definitions, profiles, alerts and Helm chart in deploy, pages and
    /// the recording of the demo in docs. What is in the programs of deploy/ follows in a build, so
    /// a change there takes a second run.
    Generate {
        /// Write nothing; fail when a file differs.
        #[arg(long)]
        check: bool,
    },
    /// Makes all files of a release: programs and images for the platforms that can be built here,
    /// lists of what they are made of, chart, manifest for krew, checksums and signatures.
    /// Publishes nothing.
    Release(release::Args),
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        // Without a backtrace: CI shows the end of the output, and that is to be what failed.
        Err(error) => {
            eprintln!("Error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<()> {
    if test::is_rustdoc() {
        return test::rustdoc();
    }
    match Args::parse().task {
        Task::Demo {
            node: true, keep, ..
        } => block_on(demo::node::run(keep)),
        Task::Demo {
            keep,
            controller_arg,
            ..
        } => block_on(demo::run(keep, &controller_arg)),
        Task::Test { only } => test::run(only.as_deref()),
        Task::Matrix(args) => matrix::run(&args.only),
        Task::Bench(args) => block_on(bench::run(&args)),
        Task::Histories(args) => block_on(histories::run(args)),
        Task::VolumeHistories(args) => volume_histories::run(&args),
        Task::Soak(args) => block_on(soak::run(args)),
        Task::Fuzz(args) => fuzz::run(&args),
        Task::Mutants(args) => mutants::run(&args),
        Task::Velero => velero::check(),
        Task::Rules => rules::check()
            .and_then(|()| messages::check())
            .and_then(|()| links::check()),
        Task::Style => style::check(),
        Task::Generate { check } => generate::run(check),
        Task::Release(args) => release::run(args),
    }
}

fn block_on(task: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?
        .block_on(task)
}
