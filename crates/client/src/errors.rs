//! Errors of the API server: what they mean for the next step, and their text for users.

use std::error::Error;

use kube::core::Status;

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

/// Whether the same request may succeed later without any intervention: the server is overloaded,
/// down, unreachable, or has just started.
pub fn is_transient(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code == 429 || status.code >= 500 || is_of_start(status),
        kube::Error::HyperError(_)
        | kube::Error::Service(_)
        | kube::Error::ReadEvents(_)
        | kube::Error::Auth(_) => true,
        _ => false,
    }
}

/// The same for reading, which no admission webhook refuses. An API server that has just started
/// forbids everything until it has loaded the bindings, and does not say that this is temporary;
/// and missing permissions may be granted while work waits for them.
pub fn may_be_read_later(error: &kube::Error) -> bool {
    is_transient(error)
        || matches!(error, kube::Error::Api(status) if matches!(status.code, 401 | 403))
}

/// Whether an API server forbids what it will allow soon: it knows the bindings, and has not loaded
/// the roles yet (Kubernetes `plugin/pkg/auth/authorizer/rbac/rbac.go`, `Authorize`). A binding to
/// a missing role looks the same.
pub fn is_of_start(status: &Status) -> bool {
    status.code == 403 && status.message.contains("RBAC: ") && status.message.contains(" not found")
}

/// Whether the API server says that the object *of this name* does not exist. A kind that is not
/// served is "not found" too, and says nothing about the object.
pub fn is_gone(error: &kube::Error, name: &str) -> bool {
    matches!(error, kube::Error::Api(status)
        if status.is_not_found() && status.details.as_ref().is_some_and(|details| details.name == name))
}

/// The result of reading this name; `None` if the API server says that the object does not exist.
pub fn found<K>(read: Result<K, kube::Error>, name: &str) -> Result<Option<K>, kube::Error> {
    match read {
        Ok(object) => Ok(Some(object)),
        Err(error) if is_gone(&error, name) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether the object's resourceVersion (or uid) differs from the one in the request.
pub fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

/// Malformed, too large or invalid: a retry changes nothing. A denial (401, 403) can be temporary:
/// tokens and rules change.
pub fn is_final(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 400 | 405 | 413 | 415 | 422))
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn an_api_server_that_has_not_loaded_its_roles_will_answer_soon() {
        let forbidden =
            "backups.velero.io \"b\" is forbidden: User \"u\" cannot get resource \"backups\"";
        let role = "clusterrole.rbac.authorization.k8s.io \"backup-controller\" not found";
        for (message, code, expected) in [
            (format!("{forbidden}: RBAC: {role}"), 403, true),
            (format!("{forbidden}: RBAC: [{role}, {role}]"), 403, true),
            (forbidden.to_owned(), 403, false),
            (format!("{forbidden}: RBAC: {role}"), 404, false),
        ] {
            let status = Status::failure(&message, "Forbidden").with_code(code);
            assert_eq!(
                is_transient(&kube::Error::Api(Box::new(status))),
                expected,
                "{code} {message}"
            );
        }
    }
}
