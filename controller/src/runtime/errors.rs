//! Errors of the API server: what they mean for the next step, and how a person wants to read them.

use std::error::Error;

/// What went wrong, once and without the structures around it: the message of the API server, or the innermost cause of
/// a request that did not get there. For `#[error("…: {}", plain(.source))]`.
pub fn plain(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error {
        let message = status.message.trim();
        return match (message.is_empty(), status.code) {
            (true, code) => format!("the API server answered {code} {}", status.reason),
            (false, 404) if status.details.is_none() => format!("{message} (404 from the API server)"),
            (false, _) => message.to_owned(),
        };
    }
    let mut innermost: &dyn Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

/// Whether the same request may succeed later without anyone doing anything: the server is overloaded, down or
/// unreachable.
pub fn is_transient(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code == 429 || status.code >= 500,
        kube::Error::HyperError(_)
        | kube::Error::Service(_)
        | kube::Error::ReadEvents(_)
        | kube::Error::Auth(_) => true,
        _ => false,
    }
}

/// Whether the API server says that the object *of this name* is not there. A kind that is not served is "not found" too,
/// and says nothing about the object.
pub fn is_gone(error: &kube::Error, name: &str) -> bool {
    matches!(error, kube::Error::Api(status)
        if status.is_not_found() && status.details.as_ref().is_some_and(|details| details.name == name))
}

/// Whether the object has another resourceVersion (or uid) than the request asked for.
pub fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

/// Malformed, too large or invalid: repeating it changes nothing. A denial (401, 403) can pass: tokens and rules change.
pub fn is_final(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 400 | 405 | 413 | 415 | 422))
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
            (api("secrets \"s3\" is forbidden", "Forbidden", 403), "secrets \"s3\" is forbidden"),
            (api("", "Conflict", 409), "the API server answered 409 Conflict"),
            (api("404 page not found\n", "", 404), "404 page not found (404 from the API server)"),
            (kube::Error::Service("connection refused".into()), "connection refused"),
        ] {
            assert_eq!(plain(&error), expected);
        }
    }
}
