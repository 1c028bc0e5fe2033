//! The mover of volume data. All code is in the library.

use std::io::Write as _;

use anyhow::Context as _;
use clap::Parser as _;

fn main() -> anyhow::Result<()> {
    backup_mover::install();
    let args = backup_mover::Args::parse();
    // The work itself runs on blocking threads; these serve connections and timers.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("the runtime cannot be started")?;
    let code = runtime.block_on(backup_mover::run(args));
    std::io::stdout()
        .flush()
        .context("stdout cannot be written")?;
    // Without waiting for threads of work that was cancelled.
    std::process::exit(code.into())
}
