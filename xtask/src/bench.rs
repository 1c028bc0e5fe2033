//! What is measured: always beside a floor or a control of the same run, because only the ratios mean something on a
//! machine that nobody else has.

mod admission;
mod objects;

use clap::{Args as ClapArgs, Subcommand};

/// What to measure; without a name, backup and restore of many objects.
#[derive(ClapArgs)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    what: Option<What>,
    /// How many objects to back up and restore.
    #[arg(long, default_value_t = 10_000)]
    objects: usize,
}

#[derive(Subcommand)]
enum What {
    /// What the lock adds to a creation, beside a webhook that only answers "allowed" and beside naive ones.
    Admission(admission::Args),
}

/// Measures, and prints a table.
pub async fn run(args: Args) -> anyhow::Result<()> {
    match args.what {
        None => objects::run(args.objects).await,
        Some(What::Admission(args)) => admission::run(&args).await,
    }
}
