//! Time and memory of a program that runs to its end.

use std::{
    fs::File,
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use backup_tests::process::peak_memory_kib;
use tokio::process::Command;

/// Time between two looks at the memory. It never shrinks, so little can be missed at the end.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(10);
/// Linux counts CPU time in this unit on all its architectures.
const TICKS_PER_SECOND: f64 = 100.0;

/// What one run of a program took.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    pub seconds: f64,
    pub cpu_seconds: f64,
    pub peak_kib: u64,
}

/// Runs a program. Returns its cost, and what it printed. Its output is in files of `folder`
/// meanwhile. Fails unless its exit code is 0.
pub async fn run(mut command: Command, folder: &Path) -> anyhow::Result<(Cost, String)> {
    let out = folder.join("stdout");
    let err = folder.join("stderr");
    command
        .stdin(Stdio::null())
        .stdout(File::create(&out)?)
        .stderr(File::create(&err)?)
        .kill_on_drop(true);
    let shown = command.as_std().get_program().display().to_string();
    let cpu_before = children_cpu_seconds()?;
    let start = Instant::now();
    let mut child = command.spawn().with_context(|| shown.clone())?;
    let id = child.id().context("it has no id")?;
    let mut peak_kib = 0;
    let status = loop {
        tokio::select! {
            biased;
            status = child.wait() => break status?,
            () = tokio::time::sleep(SAMPLE_INTERVAL) => {
                peak_kib = peak_memory_kib(id).unwrap_or(peak_kib);
            }
        }
    };
    let seconds = start.elapsed().as_secs_f64();
    let printed = std::fs::read_to_string(&out)?;
    ensure!(
        status.success(),
        "{shown}: {status}\n{printed}\n{}",
        std::fs::read_to_string(&err)?
    );
    let cost = Cost {
        seconds,
        cpu_seconds: children_cpu_seconds()? - cpu_before,
        peak_kib,
    };
    Ok((cost, printed))
}

/// CPU time of all child processes that have ended.
fn children_cpu_seconds() -> anyhow::Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The name of the program is in parentheses, and may contain spaces. The third field follows.
    let (_, fields) = stat
        .rsplit_once(')')
        .context("no name in /proc/self/stat")?;
    // Fields 16 and 17: user and system time of children.
    let times = fields.split_whitespace().skip(13).take(2);
    let ticks: Vec<u32> = times.map(str::parse).collect::<Result<_, _>>()?;
    Ok(f64::from(ticks.iter().sum::<u32>()) / TICKS_PER_SECOND)
}
