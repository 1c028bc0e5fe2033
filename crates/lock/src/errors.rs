//! Errors of the API server, worded for users.

use std::error::Error;

/// Whether the API server refused a request itself, so that it will refuse it again: a status 4xx
/// other than 429.
pub(crate) fn is_refusal(code: u16) -> bool {
    (400..500).contains(&code) && code != 429
}

/// The cause of an error, once and without the structures around it: the message of the API server,
/// or the innermost cause of a request that did not get there. For `#[error("…: {}",
/// plain(.source))]`.
pub fn plain(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error {
        let message = status.message.trim();
        return match (message.is_empty(), status.code) {
            (true, code) => format!("the API server answered {code} {}", status.reason),
            (false, 404) if status.details.is_none() => {
                format!("{message} (404 from the API server)")
            }
            (false, _) => message.to_owned(),
        };
    }
    let mut innermost: &dyn Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn only_the_message_is_shown() {
        let api = |message: &str, reason: &str, code| {
            kube::Error::Api(Status::failure(message, reason).with_code(code).boxed())
        };
        for (error, expected) in [
            (
                api("secrets \"s3\" is forbidden", "Forbidden", 403),
                "secrets \"s3\" is forbidden",
            ),
            (
                api("", "Conflict", 409),
                "the API server answered 409 Conflict",
            ),
            (
                api("404 page not found\n", "", 404),
                "404 page not found (404 from the API server)",
            ),
            (
                kube::Error::Service("connection refused".into()),
                "connection refused",
            ),
        ] {
            assert_eq!(plain(&error), expected);
        }
    }
}
