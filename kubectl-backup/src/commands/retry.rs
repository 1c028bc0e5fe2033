//! `--retry-for`: a creation that is refused because somebody is in the way is tried again, at the pace that the refusal names.

use std::time::Duration;

use backup_core::api::GoDuration;
use tokio::time::{Instant, sleep};

use super::{create::create_only, listed::Listed, pause::pause};
use crate::{Terminal, client::Session, error::Problem};

/// Where trouble that passes does not say for how long.
const UNTOLD: Duration = Duration::from_secs(5);

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
        let left = deadline.saturating_duration_since(Instant::now());
        let Some(wait) = wait(&problem, left) else { return Err(problem) };
        if left.is_zero() {
            return Err(Problem::StillRefused { last: problem.to_string(), after });
        }
        terminal.say(&format!("{problem}; trying again in {}s", wait.as_secs().max(1)));
        sleep(wait).await;
    }
}

/// After how long the next try comes, where so much time is left; none if it will not pass. As long as was asked for and up to a
/// third more, so that many who were refused at once do not come back at once; one last try at the end.
fn wait(problem: &Problem, left: Duration) -> Option<Duration> {
    let asked = match problem {
        Problem::Refused { retry_after, .. } => (*retry_after)?,
        Problem::Api { retry_after, .. } if problem.is_transient() => retry_after.unwrap_or(UNTOLD),
        problem if problem.is_transient() => UNTOLD,
        _ => return None,
    };
    let most = asked.min(left) * 4 / 3;
    Some(pause(0, most, most).min(left))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seconds_that_an_answer_names_are_waited_for_unless_the_time_ends_before() {
        let refused = |seconds: Option<u64>| Problem::Refused {
            message: "r".to_owned(),
            retry_after: seconds.map(Duration::from_secs),
        };
        let api = |code, seconds: Option<u64>| Problem::Api {
            doing: "d".to_owned(),
            code,
            retry_after: seconds.map(Duration::from_secs),
            message: "m".to_owned(),
        };
        let left = Duration::from_mins(10);
        for (problem, seconds) in [
            (refused(Some(30)), Some(30)),
            (refused(Some(300)), Some(300)),
            (refused(None), None),
            (api(429, Some(7)), Some(7)),
            (api(503, Some(120)), Some(120)),
            (api(503, None), Some(5)),
            (api(422, Some(7)), None),
            (refused(Some(u64::MAX)), Some(600)),
        ] {
            let waited = wait(&problem, left);
            let Some(asked) = seconds.map(Duration::from_secs) else {
                assert_eq!(waited, None, "{problem:?}");
                continue;
            };
            assert!(
                waited.is_some_and(|waited| asked <= waited && waited <= asked * 4 / 3),
                "{problem:?}: {waited:?}"
            );
            assert!(wait(&problem, Duration::from_secs(1)) == Some(Duration::from_secs(1)), "{problem:?}");
        }
    }
}
