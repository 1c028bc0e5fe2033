//! Explains an answer of the API server, or its absence, to the user.

use std::{borrow::Cow, time::Duration};

use backup_core::text::causes;
use kube::{Resource, core::Status};

use super::{Problem, ProblemKind as Kind, Role};
use crate::print::plain;

/// The subject of a request, for messages.
#[derive(Clone, Debug)]
pub(crate) struct About<'a> {
    /// "get", "list", "create", "delete".
    pub(crate) verb: &'static str,
    /// Kind in lower case, singular: "backup".
    pub(crate) kind: Cow<'a, str>,
    /// Plural name in the API: "backups".
    pub(crate) plural: Cow<'a, str>,
    /// Name of the object; empty for a list.
    pub(crate) name: &'a str,
}

impl<'a> About<'a> {
    pub(crate) fn of<K: Resource<DynamicType = ()>>(verb: &'static str, name: &'a str) -> Self {
        Self {
            verb,
            kind: K::kind(&()).to_lowercase().into(),
            plural: K::plural(&()),
            name,
        }
    }

    pub(crate) fn called(
        verb: &'static str,
        kind: &'a str,
        plural: &'a str,
        name: &'a str,
    ) -> Self {
        Self {
            verb,
            kind: kind.into(),
            plural: plural.into(),
            name,
        }
    }

    fn doing(&self) -> String {
        if self.name.is_empty() {
            format!("cannot {} {}", self.verb, self.plural)
        } else {
            format!("cannot {} {} {:?}", self.verb, self.kind, self.name)
        }
    }

    pub(crate) fn slow(&self, server: &str, after: Duration) -> Problem {
        slow(&self.doing(), server, after)
    }

    pub(crate) fn explain(&self, error: kube::Error, server: &str, namespace: &str) -> Problem {
        match error {
            kube::Error::Api(status) => self.answer(&status, server, namespace),
            kube::Error::Auth(error) => no_credentials(server, &error),
            kube::Error::Service(error) => unreachable(server, &causes(error.as_ref())),
            kube::Error::HyperError(error) => unreachable(server, &causes(&error)),
            kube::Error::ProxyProtocolDisabled { proxy_url, .. }
            | kube::Error::ProxyProtocolUnsupported { proxy_url } => Problem::other(format!(
                "the proxy {proxy_url} is of a kind that this build does not support"
            ))
            .with_remedy("Unset HTTPS_PROXY or the cluster's proxy-url in the kubeconfig."),
            kube::Error::SerdeError(error) if !self.name.is_empty() => {
                let Self {
                    kind, plural, name, ..
                } = self;
                Problem::other(format!(
                    "{kind} {name:?} cannot be read: {}",
                    plain(&error.to_string())
                ))
                .with_remedy(format!(
                    "Correct it: kubectl -n {namespace} edit {plural}.velero.io {name}"
                ))
            }
            kube::Error::SerdeError(error) => {
                self.failed(0, None, format!("the answer cannot be read: {error}"))
            }
            other => self.failed(0, None, causes(&other)),
        }
    }

    fn answer(&self, status: &Status, server: &str, namespace: &str) -> Problem {
        let details = status.details.as_ref();
        let seconds = details.map_or(0, |details| details.retry_after_seconds);
        let retry_after = (seconds > 0).then(|| Duration::from_secs(seconds.into()));
        match status.code {
            401 => {
                let message = format!("the cluster at {server} did not accept your credentials");
                Problem::new(Kind::Unauthorized, message)
                    .with_remedy("Log in again, or choose another user with --user or --context.")
            }
            404 => self.missing(status, retry_after, namespace),
            409 if status.is_already_exists() => self.exists(namespace),
            // A 429 with a retry time is an overload of the API server, not a refusal by our
            // webhook.
            400..500 if status.code != 429 => self.refused(status, retry_after, namespace),
            _ => self.unexpected(status, retry_after),
        }
    }

    /// The problem for a 404: the namespace, the object or the kind is missing, or another server
    /// has answered.
    fn missing(&self, status: &Status, retry_after: Option<Duration>, namespace: &str) -> Problem {
        let details = status.details.as_ref();
        if details.is_some_and(|details| details.kind == "namespaces") {
            return Problem::new(
                Kind::NoNamespace,
                format!("namespace {namespace} does not exist"),
            )
            .with_remedy(
                "Install first (kubectl backup install), or choose the installation's namespace with -n.",
            );
        }
        // The answer names a missing object, but not a missing kind.
        if !self.name.is_empty() && details.is_some_and(|details| details.name == self.name) {
            return self.not_found(namespace);
        }
        if !is_unknown_path(status) {
            let remedy =
                "Check that --server, or the kubeconfig, names the API server of a cluster.";
            return Problem {
                remedy: Some(remedy.to_owned()),
                ..self.unexpected(status, retry_after)
            };
        }
        let message = format!(
            "velero.io/v1 {} are not served by this cluster",
            self.plural
        );
        Problem::new(Kind::NotServed, message).with_remedy(
            "Install first (kubectl backup install), or choose another cluster with --context.",
        )
    }

    /// The problem for a refusal: by a webhook or a policy, by RBAC, or for another reason.
    fn refused(&self, status: &Status, retry_after: Option<Duration>, namespace: &str) -> Problem {
        if let Some(message) = refusal(&status.message) {
            return Problem::new(Kind::Refused { retry_after }, message);
        }
        if status.code != 403 {
            return self.unexpected(status, retry_after);
        }
        let remedy = match Role::for_refusal(&status.message) {
            Some(role) => role.remedy(namespace),
            None => "Ask an administrator of the cluster for this permission, or choose another user with --user or --as.".to_owned(),
        };
        Problem {
            doing: self.doing(),
            ..Problem::new(Kind::Forbidden, status.message.clone()).with_remedy(remedy)
        }
    }

    /// The problem for a status that has no sentence of its own.
    fn unexpected(&self, status: &Status, retry_after: Option<Duration>) -> Problem {
        self.failed(status.code, retry_after, message_of(status))
    }

    fn not_found(&self, namespace: &str) -> Problem {
        let Self { kind, name, .. } = self;
        let lists = match kind.as_ref() {
            "restore" => "`kubectl backup restore get` lists the restores",
            "backupstoragelocation" => "`kubectl backup locations` lists them",
            "volumesnapshotlocation" => "`kubectl backup locations snapshots` lists them",
            "schedule" => "`kubectl backup schedules` lists them",
            "backuprepository" => "`kubectl backup repositories` lists them",
            _ => "`kubectl backup get` lists the backups",
        };
        let message = format!("{kind} {name:?} was not found in namespace {namespace}");
        Problem::new(Kind::NotFound, message)
            .with_remedy(format!("{lists}; -n chooses another installation."))
    }

    /// The problem for a name that is already in use.
    pub(crate) fn exists(&self, namespace: &str) -> Problem {
        let Self { kind, name, .. } = self;
        let shows = match kind.as_ref() {
            "restore" => "restore describe",
            "schedule" => "schedules describe",
            "backupstoragelocation" => "locations describe",
            "volumesnapshotlocation" => "locations snapshots",
            _ => "describe",
        };
        let remedy =
            format!("Choose another name, or see what it is with `kubectl backup {shows} {name}`.");
        Problem::new(
            Kind::Exists,
            format!("{kind} {name:?} already exists in namespace {namespace}"),
        )
        .with_remedy(remedy)
    }

    /// The problem for any other answer; code 0 means no answer.
    pub(crate) fn failed(
        &self,
        code: u16,
        retry_after: Option<Duration>,
        message: String,
    ) -> Problem {
        let remedy = match code {
            500.. if message.contains("failed calling webhook") => {
                Some("See what is wrong with it: kubectl backup doctor")
            }
            500.. => {
                Some("The API server or a webhook has a problem of its own: try again in a moment.")
            }
            _ => None,
        };
        Problem {
            kind: Kind::Api { code, retry_after },
            doing: self.doing(),
            message,
            remedy: remedy.map(str::to_owned),
        }
    }
}

/// The user's settings in the kubeconfig (exec plugin, token or identity provider) give no
/// credentials.
pub(crate) fn no_credentials(server: &str, error: &(dyn std::error::Error + 'static)) -> Problem {
    Problem::other(format!("cannot get credentials for {server}: {}", causes(error))).with_remedy(
        "Check the user's exec plugin (is it installed?) or token in the kubeconfig, or log in again.",
    )
}

/// The problem for a timeout; `doing` names the request.
pub(crate) fn slow(doing: &str, server: &str, after: Duration) -> Problem {
    Problem {
        doing: doing.to_owned(),
        ..Problem::new(
            Kind::Slow,
            format!("no answer from {server} within {after:?}"),
        )
        .with_remedy(OTHER_CLUSTER)
    }
}

fn unreachable(server: &str, why: &str) -> Problem {
    let remedy = if why.contains("certificate") {
        "Check the cluster's certificate-authority in the kubeconfig, or that --server names the right host."
    } else {
        OTHER_CLUSTER
    };
    Problem::new(
        Kind::Unreachable,
        format!("cannot reach the cluster at {server}: {why}"),
    )
    .with_remedy(remedy)
}

const OTHER_CLUSTER: &str =
    "Check that it runs and that --context, --kubeconfig or --server name the cluster you mean.";

/// Whether the API server itself says that it does not serve the kind. A proxy in front of it, or
/// another server, sends 404 with other words.
fn is_unknown_path(status: &Status) -> bool {
    let message = status.message.trim();
    message == "404 page not found" || message == "the server could not find the requested resource"
}

fn message_of(status: &Status) -> String {
    let message = refusal(&status.message).unwrap_or_else(|| status.message.trim().to_owned());
    if message.is_empty() {
        format!("the API server answered {} {}", status.code, status.reason)
    } else {
        message
    }
}

/// The text of the refusal, without the prefix that the API server adds to refusals by a webhook
/// (`apiserver/pkg/admission/plugin/webhook/errors/statuserror.go`) or a policy
/// (`.../policy/validating/plugin.go`).
fn refusal(message: &str) -> Option<String> {
    for mark in ["denied the request: ", "denied request: "] {
        if let Some((before, words)) = message.split_once(mark)
            && (before.contains("admission webhook ")
                || before.contains("ValidatingAdmissionPolicy "))
        {
            return Some(words.trim().to_owned());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_has_its_sentence() {
        for (status, kind, text) in [
            (
                r#"{"code": 403, "reason": "Forbidden", "message": "admission webhook \"claims.backup-webhook.velero.io\" denied the request: Restore velero/r1 is running."}"#,
                Kind::Refused { retry_after: None },
                "Restore velero/r1 is running.",
            ),
            (
                r#"{"code": 403, "reason": "Forbidden", "message": "backups.velero.io \"nightly\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: hands off"}"#,
                Kind::Refused { retry_after: None },
                "hands off",
            ),
            (
                r#"{"code": 403, "reason": "Forbidden", "message": "backups.velero.io is forbidden: User \"jane\" cannot create resource"}"#,
                Kind::Forbidden,
                "cannot create backup \"nightly\": backups.velero.io is forbidden: User \"jane\" cannot create resource",
            ),
            (
                r#"{"code": 404, "reason": "NotFound", "message": "404 page not found"}"#,
                Kind::NotServed,
                "velero.io/v1 backups are not served by this cluster",
            ),
            (
                r#"{"code": 404, "reason": "NotFound", "message": "the server could not find the requested resource"}"#,
                Kind::NotServed,
                "velero.io/v1 backups are not served by this cluster",
            ),
            (
                r#"{"code": 404, "reason": "NotFound", "message": "backups.velero.io \"nightly\" not found", "details": {"name": "nightly", "kind": "backups"}}"#,
                Kind::NotFound,
                "backup \"nightly\" was not found in namespace velero",
            ),
            (
                r#"{"code": 404, "reason": "NotFound", "message": "namespaces \"velero\" not found", "details": {"name": "velero", "kind": "namespaces"}}"#,
                Kind::NoNamespace,
                "namespace velero does not exist",
            ),
            (
                r#"{"code": 409, "reason": "AlreadyExists", "message": "…"}"#,
                Kind::Exists,
                "backup \"nightly\" already exists in namespace velero",
            ),
            (
                r#"{"code": 401, "reason": "Unauthorized", "message": "Unauthorized"}"#,
                Kind::Unauthorized,
                "the cluster at https://cluster:6443 did not accept your credentials",
            ),
            (
                r#"{"code": 503, "reason": "ServiceUnavailable", "message": "admission webhook \"claims.backup-webhook.velero.io\" denied the request: the ledger is busy"}"#,
                Kind::Api {
                    code: 503,
                    retry_after: None,
                },
                "cannot create backup \"nightly\": the ledger is busy",
            ),
            (
                r#"{"code": 422, "reason": "Invalid", "message": "Backup.velero.io \"nightly\" is invalid: spec.ttl: …"}"#,
                Kind::Api {
                    code: 422,
                    retry_after: None,
                },
                "cannot create backup \"nightly\": Backup.velero.io \"nightly\" is invalid: spec.ttl: …",
            ),
        ] {
            let status: Status = serde_json::from_str(status).unwrap();
            let (code, answer) = (status.code, kube::Error::Api(Box::new(status)));
            let about = About::of::<backup_core::api::Backup>("create", "nightly");
            let problem = about.explain(answer, "https://cluster:6443", "velero");
            assert_eq!((problem.kind, problem.to_string().as_str()), (kind, text));
            assert_eq!(problem.is_transient(), code >= 500, "{problem}");
        }
    }
}
