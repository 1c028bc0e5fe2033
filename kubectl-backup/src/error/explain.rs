//! What an answer of the API server, or none, means for whoever asked.

use std::time::Duration;

use kube::core::Status;

use super::Problem;
use crate::print::table::plain;

/// What a request is about, for the sentences.
#[derive(Clone, Copy, Debug)]
pub struct About<'a> {
    /// What is done: "get", "list", "create", "delete".
    pub verb: &'static str,
    /// Kind in lower case, singular: "backup".
    pub kind: &'static str,
    /// Plural name in the API: "backups".
    pub plural: &'a str,
    /// Name of the object; empty for a list.
    pub name: &'a str,
}

impl About<'_> {
    fn doing(&self) -> String {
        if self.name.is_empty() {
            format!("cannot {} {}", self.verb, self.plural)
        } else {
            format!("cannot {} {} {:?}", self.verb, self.kind, self.name)
        }
    }

    /// The problem for no answer in time.
    pub fn slow(&self, server: &str, after: Duration) -> Problem {
        Problem::Slow { doing: self.doing(), server: server.to_owned(), after }
    }

    /// The problem behind an error of the client.
    pub fn explain(&self, error: kube::Error, server: &str, namespace: &str) -> Problem {
        match error {
            kube::Error::Api(status) => self.answer(&status, server, namespace),
            kube::Error::Auth(error) => Problem::Other {
                message: format!("cannot get credentials for {server}: {}", causes(&error)),
                remedy: Some(
                    "Check the user's exec plugin or token in the kubeconfig, or log in again.".to_owned(),
                ),
            },
            kube::Error::Service(error) => {
                Problem::Unreachable { server: server.to_owned(), why: causes(error.as_ref()) }
            }
            kube::Error::HyperError(error) => {
                Problem::Unreachable { server: server.to_owned(), why: causes(&error) }
            }
            kube::Error::ProxyProtocolDisabled { proxy_url, .. }
            | kube::Error::ProxyProtocolUnsupported { proxy_url } => Problem::Kubeconfig {
                message: format!("the proxy {proxy_url} is of a kind that this build does not support"),
                remedy: "Unset HTTPS_PROXY or the cluster's proxy-url in the kubeconfig.".to_owned(),
            },
            kube::Error::SerdeError(error) if !self.name.is_empty() => Problem::Unreadable {
                kind: self.kind,
                plural: self.plural.to_owned(),
                name: self.name.to_owned(),
                namespace: namespace.to_owned(),
                why: plain(&error.to_string()),
            },
            kube::Error::SerdeError(error) => Problem::Api {
                doing: self.doing(),
                code: 0,
                retry_after: None,
                message: format!("the answer cannot be read: {error}"),
            },
            other => {
                Problem::Api { doing: self.doing(), code: 0, retry_after: None, message: causes(&other) }
            }
        }
    }

    fn answer(&self, status: &Status, server: &str, namespace: &str) -> Problem {
        let kind_in_answer = status.details.as_ref().map_or("", |details| details.kind.as_str());
        let name_in_answer = status.details.as_ref().map_or("", |details| details.name.as_str());
        let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
        let retry_after = (seconds > 0).then(|| Duration::from_secs(seconds.into()));
        let other =
            || Problem::Api { doing: self.doing(), code: status.code, retry_after, message: told(status) };
        match status.code {
            401 => Problem::Unauthorized { server: server.to_owned() },
            404 if kind_in_answer == "namespaces" => Problem::NoNamespace { namespace: namespace.to_owned() },
            // A missing object is named in the answer; a missing kind is not.
            404 if !self.name.is_empty() && name_in_answer == self.name => Problem::NotFound {
                kind: self.kind,
                name: self.name.to_owned(),
                namespace: namespace.to_owned(),
            },
            404 => Problem::NotServed { plural: self.plural.to_owned() },
            409 if status.is_already_exists() => Problem::Exists {
                kind: self.kind,
                name: self.name.to_owned(),
                namespace: namespace.to_owned(),
            },
            // The API server's own retry time for an overload says "not now"; it is no refusal of ours.
            400..500 if status.code != 429 => match refusal(&status.message) {
                Some(message) => Problem::Refused { message, retry_after },
                None if status.code == 403 => {
                    Problem::Forbidden { doing: self.doing(), message: status.message.clone() }
                }
                None => other(),
            },
            _ => other(),
        }
    }
}

fn told(status: &Status) -> String {
    let message = refusal(&status.message).unwrap_or_else(|| status.message.trim().to_owned());
    if message.is_empty() {
        format!("the API server answered {} {}", status.code, status.reason)
    } else {
        message
    }
}

/// The refusal's own words, without what the API server puts before those of a webhook
/// (`apiserver/pkg/admission/plugin/webhook/errors/statuserror.go`) or a policy (`.../policy/validating/plugin.go`).
fn refusal(message: &str) -> Option<String> {
    for mark in ["denied the request: ", "denied request: "] {
        if let Some((before, words)) = message.split_once(mark)
            && (before.contains("admission webhook ") || before.contains("ValidatingAdmissionPolicy "))
        {
            return Some(words.trim().to_owned());
        }
    }
    None
}

/// An error and its causes, without repeating what is in the text already.
pub fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABOUT: About<'static> =
        About { verb: "create", kind: "backup", plural: "backups", name: "nightly" };

    fn explain(code: u16, reason: &str, message: &str, details: &serde_json::Value) -> Problem {
        let status: Status = serde_json::from_value(serde_json::json!({
            "code": code, "reason": reason, "message": message, "details": details,
        }))
        .unwrap();
        ABOUT.explain(kube::Error::Api(Box::new(status)), "https://cluster:6443", "velero")
    }

    #[test]
    fn every_answer_has_its_sentence() {
        let none = serde_json::json!({});
        for (code, reason, message, details, category, text) in [
            (
                403,
                "Forbidden",
                "admission webhook \"claims.backup-webhook.velero.io\" denied the request: Restore velero/r1 is running.",
                &none,
                "refused",
                "Restore velero/r1 is running.",
            ),
            (
                403,
                "Forbidden",
                "backups.velero.io \"nightly\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: hands off",
                &none,
                "refused",
                "hands off",
            ),
            (
                403,
                "Forbidden",
                "backups.velero.io is forbidden: User \"jane\" cannot create resource",
                &none,
                "forbidden",
                "cannot create backup \"nightly\": backups.velero.io is forbidden: User \"jane\" cannot create resource",
            ),
            (
                404,
                "NotFound",
                "404 page not found",
                &none,
                "not_served",
                "velero.io/v1 backups are not served by this cluster",
            ),
            (
                404,
                "NotFound",
                "the server could not find the requested resource",
                &none,
                "not_served",
                "velero.io/v1 backups are not served by this cluster",
            ),
            (
                404,
                "NotFound",
                "backups.velero.io \"nightly\" not found",
                &serde_json::json!({"name": "nightly", "kind": "backups"}),
                "not_found",
                "backup \"nightly\" was not found in namespace velero",
            ),
            (
                404,
                "NotFound",
                "namespaces \"velero\" not found",
                &serde_json::json!({"name": "velero", "kind": "namespaces"}),
                "no_namespace",
                "namespace velero does not exist",
            ),
            (
                409,
                "AlreadyExists",
                "…",
                &none,
                "exists",
                "backup \"nightly\" already exists in namespace velero",
            ),
            (
                401,
                "Unauthorized",
                "Unauthorized",
                &none,
                "unauthorized",
                "the cluster at https://cluster:6443 did not accept your credentials",
            ),
            (
                503,
                "ServiceUnavailable",
                "admission webhook \"claims.backup-webhook.velero.io\" denied the request: the ledger is busy",
                &none,
                "api",
                "cannot create backup \"nightly\": the ledger is busy",
            ),
            (
                422,
                "Invalid",
                "Backup.velero.io \"nightly\" is invalid: spec.ttl: …",
                &none,
                "api",
                "cannot create backup \"nightly\": Backup.velero.io \"nightly\" is invalid: spec.ttl: …",
            ),
        ] {
            let problem = explain(code, reason, message, details);
            assert_eq!((problem.category(), problem.to_string().as_str()), (category, text));
            assert_eq!(problem.is_transient(), code >= 500, "{problem}");
        }
    }
}
