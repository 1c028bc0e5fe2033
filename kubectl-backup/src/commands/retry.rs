//! `--retry-for`: a creation that is refused because somebody is in the way is tried again, at the pace that the refusal names.

use std::time::Duration;

use backup_core::api::GoDuration;
use tokio::time::{Instant, sleep_until};

use super::{create::create_only, listed::Listed, pause::pause};
use crate::{Terminal, client::Session, error::Problem};

/// Where trouble that passes does not say for how long.
const UNTOLD: Duration = Duration::from_secs(5);
/// However long a refusal asks for: the place may be free much earlier.
const CAP: Duration = Duration::from_mins(1);

/// Creates an object. A refusal that will not pass (without a time) ends it at once.
pub async fn create<K: Listed>(
    session: &Session,
    object: &K,
    dry_run: bool,
    retry_for: Option<GoDuration>,
    terminal: &mut Terminal,
) -> Result<K, Problem> {
    let Some(after) = retry_for else { return create_only(session, object, dry_run).await };
    let deadline = Instant::now() + after.as_std();
    loop {
        let problem = match create_only(session, object, dry_run).await {
            Err(problem) => problem,
            created => return created,
        };
        let Some(wait) = worth(&problem) else { return Err(problem) };
        let now = Instant::now();
        if now >= deadline {
            return Err(Problem::StillRefused { last: problem.to_string(), after });
        }
        // As long as was asked for and up to a third more, so that many who were refused at once do not come back at once;
        // one last try at the end.
        let next = (now + pause(0, wait.min(CAP) * 4 / 3, CAP * 2)).min(deadline);
        terminal.say(&format!("{problem}; trying again in {}s", (next - now).as_secs().max(1)));
        sleep_until(next).await;
    }
}

/// After how long another try is worth it; none if it will not pass.
const fn worth(problem: &Problem) -> Option<Duration> {
    match problem {
        Problem::Refused { retry_after, .. } => *retry_after,
        problem if problem.is_transient() => Some(UNTOLD),
        _ => None,
    }
}
