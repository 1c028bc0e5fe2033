//! Errors of the API server: what they mean for the next step, and how a person wants to read them.

pub use backup_lock::errors::plain;

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

/// What was read of the object of this name; none if the API server says that it is not there.
pub fn found<K>(read: Result<K, kube::Error>, name: &str) -> Result<Option<K>, kube::Error> {
    match read {
        Ok(object) => Ok(Some(object)),
        Err(error) if is_gone(&error, name) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether the object has another resourceVersion (or uid) than the request asked for.
pub fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

/// Malformed, too large or invalid: repeating it changes nothing. A denial (401, 403) can pass: tokens and rules change.
pub fn is_final(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 400 | 405 | 413 | 415 | 422))
}
