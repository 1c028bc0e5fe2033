//! `wait` and `restore wait`.

use backup_core::api::GoDuration;
use clap::Args;

use super::{EXIT_CODES, duration};

const EXAMPLES: &str = "\
Examples:
  # Until two backups have ended; with 3 unless both are Completed
  kubectl backup wait before-upgrade nightly-20261103030000 --timeout=1h

  # Until one has begun
  kubectl backup wait before-upgrade --for=phase=InProgress

  # Until nothing holds or waits for two namespaces
  kubectl backup wait --for=free --namespaces=shop,db";

pub(super) const RESTORE_EXAMPLES: &str = "\
Examples:
  # Until a restore has ended; with 3 unless it is Completed
  kubectl backup restore wait back-again --timeout=1h

  # Until it has begun
  kubectl backup restore wait back-again --for=phase=InProgress";

#[derive(Args, Debug)]
#[command(after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub(crate) struct WaitForArgs {
    #[command(flatten)]
    pub(crate) until: UntilArgs,
    /// With --for=free: scope that is to be free
    #[arg(long, value_name = "SCOPE", default_value = backup_lock::VELERO_SCOPE)]
    pub(crate) scope: String,
    /// With --for=free: namespaces that are to be free, with wildcards [default: all]
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub(crate) namespaces: Vec<String>,
}

#[derive(Args, Debug)]
pub(crate) struct UntilArgs {
    /// Names
    pub(crate) names: Vec<String>,
    /// What to wait for: end, phase=PHASE, or (for no name) free: that nobody holds a scope
    #[arg(long = "for", value_name = "WHAT", value_parser = until, default_value = "end")]
    pub(crate) until: Until,
    /// How long to wait at most; exit with 124 then
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "12h")]
    pub(crate) timeout: GoDuration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// The end of an object.
    End,
    /// A phase of an object.
    Phase(String),
    /// That nobody holds a scope.
    Free,
}

fn until(text: &str) -> Result<Until, String> {
    match text.split_once('=') {
        Some(("phase", phase)) if !phase.is_empty() => Ok(Until::Phase(phase.to_owned())),
        None if text == "end" => Ok(Until::End),
        None if text == "free" => Ok(Until::Free),
        // Phases begin with a capital.
        None if text.starts_with(|first: char| first.is_ascii_uppercase()) => {
            Ok(Until::Phase(text.to_owned()))
        }
        _ => Err("expected end, phase=PHASE or free".to_owned()),
    }
}
