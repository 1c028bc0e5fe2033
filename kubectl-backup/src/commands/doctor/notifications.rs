//! Whether the controller can send its notifications.

use backup_core::notifications::SECRET_KEY;
use backup_deploy::PROGRAMS;

use super::{Finding, Topic, secrets, volumes::controller_args};
use crate::commands::prelude::*;

const ON: Topic = Topic("notifications");
/// Flag of the controller: the Secret for the authorization.
const SECRET_FLAG: &str = "--notify-secret";

/// Reports nothing if no Secret is named.
pub(super) async fn authorization(session: &Session) -> Result<Vec<Finding>, Problem> {
    let Some(args) = controller_args(session).await else {
        let [_, controller] = PROGRAMS;
        let namespace = plain(&session.namespace);
        let why = format!(
            "the arguments of the controller could not be read (Deployment {controller} in namespace {namespace})"
        );
        return Ok(vec![ON.unknown(&why, None)]);
    };
    let Some(name) = secret_of(&args) else {
        return Ok(Vec::new());
    };
    let user = format!("of {SECRET_FLAG}, without which no notification is sent,");
    let problem = secrets::problem(session, ON, &user, (name, SECRET_KEY)).await;
    Ok(problem.into_iter().collect())
}

/// The value of the flag, as a part of its argument or as the next one.
fn secret_of(args: &[String]) -> Option<&str> {
    let mut args = args.iter();
    let found = args.find_map(|arg| {
        let value = arg.strip_prefix(SECRET_FLAG)?;
        (value.is_empty() || value.starts_with('=')).then_some(value)
    })?;
    let name = match found.strip_prefix('=') {
        Some(value) => value,
        None => args.next()?.as_str(),
    };
    Some(name).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_is_read_from_both_forms_of_the_flag() {
        for (args, expected) in [
            (
                &["--notify-url=https://a", "--notify-secret=hook"][..],
                Some("hook"),
            ),
            (&["--notify-secret", "hook", "--leader"], Some("hook")),
            (&["--notify-secret="], None),
            (&["--notify-secret"], None),
            (&["--notify-secrets=hook", "--notify-url=https://a"], None),
            (&[], None),
        ] {
            let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
            assert_eq!(secret_of(&args), expected, "{args:?}");
        }
    }
}
