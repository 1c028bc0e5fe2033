//! Errors of a store, with messages that tell the user what to do.

use std::{error::Error, fmt::Display, io};

use backup_core::text::{causes, shortened};

use crate::{
    http_failure::HttpFailure,
    object_plugin::{Fault, PluginFault},
};

/// What to do about a store that is full.
const FULL_ADVICE: &str =
    "; the store is full, or a quota of it is used up: free space there, or raise the quota";

/// A failure of the object store, or of its contents.
///
/// The variants hold text only, so that an error can be kept and shown again; none of them ever
/// holds a credential.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    #[error("{what} does not exist: {remedy}")]
    NotFound { what: String, remedy: String },
    /// The store understood the request and refused it; a retry will not help until something is
    /// changed.
    #[error("the store refused to {action} {url}: {detail}")]
    Denied {
        action: String,
        url: String,
        detail: String,
    },
    /// No usable answer from the store: network, timeout, or an error on its side. May be
    /// temporary.
    #[error("could not {action} {url}: {detail}")]
    Unreachable {
        action: String,
        url: String,
        detail: String,
    },
    /// The key already holds something else, which is left unchanged.
    #[error("{url} exists already: {detail}")]
    Exists { url: String, detail: String },
    /// Uploaded and committed data is missing from the store before it became visible.
    #[error("{url} cannot be finished: {detail}")]
    Lost { url: String, detail: String },
    #[error("{url} cannot be used: {detail}")]
    Corrupt {
        url: String,
        /// The part that is wrong, and what to do.
        detail: String,
    },
    /// This item cannot be stored. Only this item: the writer still works.
    #[error("item {path} cannot be stored: {detail}")]
    Item { path: String, detail: String },
    /// This item of a stored backup is unusable. Only this item.
    #[error("item {path} of the backup cannot be read: {detail}")]
    UnreadableItem { path: String, detail: String },
    /// A setting of the BackupStorageLocation, or an argument, is wrong.
    #[error("{field}: {message}")]
    Config {
        /// The field at fault, for example `spec.config[s3Url]`.
        field: String,
        /// What is wrong with it and what is expected.
        message: String,
    },
    /// The disk for temporary files is full; space is freed only when other work ends.
    #[error(
        "could not {action}: the disk at /tmp is full; give the controller a larger one (the emptyDir in deploy/), and try again"
    )]
    DiskFull { action: String },
    /// The local disk or the local process failed.
    #[error("could not {action}: {detail}")]
    Io { action: String, detail: String },
}

impl StoreError {
    /// A short name out of a bounded set, for metrics and for decisions.
    pub fn category(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "not_found",
            Self::Denied { .. } => "denied",
            Self::Unreachable { .. } => "unreachable",
            Self::Exists { .. } => "exists",
            Self::Lost { .. } => "lost",
            Self::Corrupt { .. } | Self::Item { .. } | Self::UnreadableItem { .. } => "corrupt",
            Self::Config { .. } => "config",
            Self::DiskFull { .. } => "disk_full",
            Self::Io { .. } => "io",
        }
    }

    /// Whether the same call may succeed later although nothing was changed.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Io { .. })
    }

    /// Whether only one item is affected, and the writer still works.
    pub fn is_item(&self) -> bool {
        matches!(self, Self::Item { .. })
    }

    pub(crate) fn config(field: &str, message: impl Into<String>) -> Self {
        Self::Config {
            field: field.to_owned(),
            message: message.into(),
        }
    }

    pub(crate) fn io(action: impl Into<String>, detail: impl Display) -> Self {
        Self::Io {
            action: action.into(),
            detail: detail.to_string(),
        }
    }

    /// An error of a temporary file.
    pub(crate) fn temporary(action: &str, error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull {
                action: action.to_owned(),
            },
            _ => Self::io(action, error),
        }
    }

    pub(crate) fn missing_bucket(what: String) -> Self {
        let remedy = "create it, or correct spec.objectStorage.bucket of the BackupStorageLocation";
        Self::NotFound {
            what,
            remedy: remedy.to_owned(),
        }
    }

    /// An error of the object store while we tried to `action` `url`.
    pub fn from_store(action: &str, url: &str, source: &object_store::Error) -> Self {
        use object_store::Error as E;
        let action = action.to_owned();
        let url = url.to_owned();
        let detail = brief(source);
        if let Some(fault) = cause::<PluginFault>(source) {
            return if fault.fault == Fault::Permanent || fault.status().is_some_and(is_final) {
                Self::Denied {
                    action,
                    url,
                    detail,
                }
            } else {
                Self::Unreachable {
                    action,
                    url,
                    detail,
                }
            };
        }
        if is_missing_bucket(source) {
            return Self::missing_bucket(format!("the bucket of {url}"));
        }
        let status = status(source);
        // A 404 with another meaning, such as an unknown user, is no missing key.
        if status == Some(404)
            && (matches!(source, E::NotFound { .. }) || code(source) == "NoSuchKey")
        {
            return Self::NotFound {
                what: url,
                remedy: detail,
            };
        }
        if matches!(status, Some(409 | 412)) {
            return Self::Exists { url, detail };
        }
        // It ends once the clock is right, and waiting for that loses nothing.
        if status == Some(403) && code(source) == "RequestTimeTooSkewed" {
            return Self::Unreachable {
                action,
                url,
                detail: detail + "; set the clock of this node",
            };
        }
        if let Some(advice) = refusal_advice(source) {
            return Self::Denied {
                action,
                url,
                detail: detail + advice,
            };
        }
        if let E::InvalidPath { .. } = source {
            return Self::config("spec.objectStorage.prefix", detail);
        }
        let is_permanent = matches!(
            source,
            E::NotSupported { .. } | E::NotImplemented { .. } | E::UnknownConfigurationKey { .. }
        ) || cause(source).map(io::Error::kind)
            == Some(io::ErrorKind::PermissionDenied);
        if is_permanent {
            Self::Denied {
                action,
                url,
                detail,
            }
        } else {
            let advice = if is_full(source) { FULL_ADVICE } else { "" };
            Self::Unreachable {
                action,
                url,
                detail: detail + advice,
            }
        }
    }
}

/// What the user can check after the store has refused a request; `None` for any other error.
fn refusal_advice(source: &object_store::Error) -> Option<&'static str> {
    let status = status(source);
    if is_full(source) {
        status.is_some_and(is_final).then_some(FULL_ADVICE)
    } else if status == Some(401) {
        Some("; check the Secret in spec.credential of the BackupStorageLocation")
    } else if status == Some(403) {
        Some("; check the rights of the credentials and the policy of the bucket")
    } else if status.is_some_and(is_final) {
        Some("; check the settings and the credentials of the BackupStorageLocation")
    } else if is_refused_deletion(source) {
        Some("; check the rights of the credentials and the policy of the bucket")
    } else {
        None
    }
}

/// The HTTP status of an answer, or the equivalent one for an error of another store.
fn status(source: &object_store::Error) -> Option<u16> {
    use object_store::Error as E;
    match source {
        E::NotFound { .. } => Some(404),
        E::AlreadyExists { .. } => Some(409),
        E::Precondition { .. } => Some(412),
        E::PermissionDenied { .. } => Some(403),
        E::Unauthenticated { .. } => Some(401),
        _ => cause::<HttpFailure>(source)?.status(),
    }
}

/// The store's error code; empty if there is none.
fn code(source: &object_store::Error) -> &str {
    cause::<HttpFailure>(source).map_or("", HttpFailure::code)
}

/// Any error of our own requests to a store, before it becomes a [`StoreError`].
pub(crate) type AnyError = Box<dyn Error + Send + Sync>;

/// The error of this type in the chain of sources, starting with `source` itself.
pub(crate) fn cause<'a, T: Error + 'static>(source: &'a (dyn Error + 'static)) -> Option<&'a T> {
    source.downcast_ref().or_else(|| cause(source.source()?))
}

/// Whether the bucket itself is missing, rather than one key.
pub(crate) fn is_missing_bucket(source: &object_store::Error) -> bool {
    // S3 and Google use the first code, Azure the second.
    matches!(code(source), "NoSuchBucket" | "ContainerNotFound")
}

/// What an error of [`Location::object_store`](crate::Location::object_store) means. Its type does
/// not say so, as answers are read by our own HTTP client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerClass {
    /// The key is missing, but not its bucket.
    MissingKey,
    /// The key exists, or is written by another request.
    Taken,
    /// The store does not support conditional writes.
    Unsupported,
    /// The store is full, or a quota of it is used up.
    Full,
    /// The same request would fail again.
    Final,
    /// The same request may succeed later.
    Transient,
}

impl AnswerClass {
    pub fn of(error: &object_store::Error) -> Self {
        if is_missing_key(error) {
            Self::MissingKey
        } else if is_taken(error) {
            Self::Taken
        } else if is_unsupported(error) {
            Self::Unsupported
        } else if is_full(error) {
            Self::Full
        } else if StoreError::from_store("", "", error).is_transient() {
            Self::Transient
        } else {
            Self::Final
        }
    }
}

/// Whether the key is missing, but not its bucket.
pub(crate) fn is_missing_key(source: &object_store::Error) -> bool {
    status(source) == Some(404) && !is_missing_bucket(source)
}

/// Whether the store refuses because the key exists.
pub(crate) fn is_taken(source: &object_store::Error) -> bool {
    matches!(status(source), Some(409 | 412))
}

/// Whether an upload or its parts no longer exist: S3 and Google answer 404, S3 400 for a part that
/// was replaced, Azure 400 `InvalidBlockList`.
pub(crate) fn is_lost_upload(source: &object_store::Error) -> bool {
    is_missing_key(source)
        || matches!(
            code(source),
            "NoSuchUpload" | "InvalidPart" | "InvalidPartOrder" | "InvalidBlockList"
        )
}

/// Whether the store does not support conditional writes.
pub(crate) fn is_unsupported(source: &object_store::Error) -> bool {
    matches!(
        source,
        object_store::Error::NotImplemented { .. } | object_store::Error::NotSupported { .. }
    ) || status(source) == Some(501)
}

/// Whether the store has no room for an object.
fn is_full(source: &object_store::Error) -> bool {
    // The first two are MinIO's, the last is Ceph's.
    const CODES: [&str; 3] = [
        "XMinioStorageFull",
        "XMinioAdminBucketQuotaExceeded",
        "QuotaExceeded",
    ];
    let disk = cause(source).map(io::Error::kind);
    status(source) == Some(507)
        || CODES.contains(&code(source))
        || matches!(
            disk,
            Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
        )
}

/// Whether S3 or Azure refuses the deletion of one key in a list of many.
///
/// The answer as a whole is a success with a result for each key, which object_store (0.14) has in
/// an error of a private type. So this is the only result that is parsed from a text. S3 gives a
/// code, Azure a status: 409 for a blob that a policy of its container keeps.
fn is_refused_deletion(source: &object_store::Error) -> bool {
    let text = source.to_string();
    let Some((_, code)) = text.rsplit_once("(code: ") else {
        return false;
    };
    if text.contains("DeleteObjects request failed for key ") {
        return !is_retryable(code);
    }
    let status = code.trim_end_matches(')').parse().ok();
    text.contains("Bulk delete request failed for key ")
        && status.is_some_and(|status| status == 409 || is_final(status))
}

/// Whether the deletion of one key in a list of many may succeed later, after S3 has refused it
/// with this code.
pub(crate) fn is_retryable(code: &str) -> bool {
    // Prefixes: some servers extend the codes, as in SlowDownRead.
    const RETRYABLE: [&str; 6] = [
        "InternalError",
        "SlowDown",
        "ServiceUnavailable",
        "RequestTimeout",
        "OperationAborted",
        "TooManyRequests",
    ];
    RETRYABLE.iter().any(|word| code.starts_with(word))
}

/// Whether the same request will get the same answer: any 4xx but timeout, conflict and throttling.
pub(crate) fn is_final(status: u16) -> bool {
    (400..500).contains(&status) && !matches!(status, 408 | 409 | 429)
}

/// The store's message, short, on one line and the same each time: the text ends up in statuses and
/// annotations, which must not change with every retry.
pub(crate) fn brief(source: &object_store::Error) -> String {
    let text = if let Some(fault) = cause::<PluginFault>(source) {
        fault.steady()
    } else if let Some(failure) = cause::<HttpFailure>(source) {
        failure.to_string()
    } else {
        causes(source)
    };
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    shortened(&line, 600)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::CannedAnswer;

    fn told(source: &object_store::Error) -> StoreError {
        StoreError::from_store("list", "s3://b", source)
    }

    fn answer(status: u16, body: &'static str) -> CannedAnswer {
        CannedAnswer {
            status: Some(status),
            body,
            header: None,
        }
    }

    #[tokio::test]
    async fn a_final_refusal_is_told_from_a_passing_one() {
        let no_answer = CannedAnswer {
            status: None,
            body: "",
            header: None,
        };
        let table = [
            (
                answer(400, "<Error><Code>InvalidRequest</Code></Error>"),
                "denied",
            ),
            (answer(401, ""), "denied"),
            (answer(403, ""), "denied"),
            (
                answer(403, "<Error><Code>RequestTimeTooSkewed</Code></Error>"),
                "unreachable",
            ),
            (
                answer(404, "<Error><Code>NoSuchKey</Code></Error>"),
                "not_found",
            ),
            (
                answer(409, "<Error><Code>OperationAborted</Code></Error>"),
                "exists",
            ),
            (
                answer(412, "<Error><Code>PreconditionFailed</Code></Error>"),
                "exists",
            ),
            (answer(429, ""), "unreachable"),
            (
                answer(503, "<Error><Code>SlowDown</Code></Error>"),
                "unreachable",
            ),
            (no_answer, "unreachable"),
        ];
        for (answer, category) in table {
            for source in answer.clone().errors().await {
                let error = told(&source);
                let expected = (category, category == "unreachable");
                assert_eq!(
                    (error.category(), error.is_transient()),
                    expected,
                    "{answer:?}: {error}"
                );
            }
        }
    }

    #[tokio::test]
    async fn a_full_store_is_told_from_a_refusal_and_from_an_outage() {
        let table = [
            (507, "XMinioStorageFull", true, true),
            (507, "", true, true),
            (400, "XMinioAdminBucketQuotaExceeded", true, false),
            (403, "QuotaExceeded", true, false),
            (403, "AccessDenied", false, false),
            (503, "SlowDown", false, true),
        ];
        for (status, code, is_full, is_transient) in table {
            let body = format!("<Error><Code>{code}</Code><Message>m</Message></Error>");
            for source in answer(status, body.leak()).errors().await {
                let error = told(&source);
                let text = error.to_string();
                assert_eq!(text.contains("raise the quota"), is_full, "{text}");
                assert_eq!(text.contains("check the rights"), code == "AccessDenied");
                assert_eq!(error.is_transient(), is_transient, "{text}");
                assert_eq!(AnswerClass::of(&source) == AnswerClass::Full, is_full);
            }
        }
        let full = object_store::Error::Generic {
            store: "x",
            source: io::Error::from(io::ErrorKind::StorageFull).into(),
        };
        assert!(told(&full).to_string().ends_with(FULL_ADVICE));
        assert_eq!(AnswerClass::of(&full), AnswerClass::Full);
    }

    #[tokio::test]
    async fn a_listing_that_finds_no_user_is_a_refusal() {
        let [listing, ..] = answer(404, "<Error><Code>NoSuchUser</Code></Error>")
            .errors()
            .await;
        assert_eq!(told(&listing).category(), "denied");
    }

    /// Temporary errors, such as errors of another download, are retried; a full disk does not
    /// empty by itself.
    #[test]
    fn a_full_disk_is_told_apart_from_one_that_fails() {
        for (kind, expected) in [
            (io::ErrorKind::StorageFull, ("disk_full", false)),
            (io::ErrorKind::QuotaExceeded, ("disk_full", false)),
            (io::ErrorKind::Interrupted, ("io", true)),
        ] {
            let error = StoreError::temporary("write a temporary file", &kind.into());
            assert_eq!(
                (error.category(), error.is_transient()),
                expected,
                "{error}"
            );
        }
    }

    /// Errors of stores that are no HTTP servers.
    #[test]
    fn errors_that_the_client_tells_apart_are_told_apart() {
        use object_store::Error as E;
        let (path, source) = (|| "x".to_owned(), || "why".into());
        for (error, category) in [
            (
                E::PermissionDenied {
                    path: path(),
                    source: source(),
                },
                "denied",
            ),
            (
                E::Unauthenticated {
                    path: path(),
                    source: source(),
                },
                "denied",
            ),
            (
                E::NotFound {
                    path: path(),
                    source: source(),
                },
                "not_found",
            ),
            (
                E::AlreadyExists {
                    path: path(),
                    source: source(),
                },
                "exists",
            ),
            (E::NotSupported { source: source() }, "denied"),
            (
                E::Generic {
                    store: "x",
                    source: source(),
                },
                "unreachable",
            ),
            (
                E::Generic {
                    store: "x",
                    source: io::Error::from(io::ErrorKind::PermissionDenied).into(),
                },
                "denied",
            ),
        ] {
            assert_eq!(told(&error).category(), category, "{error}");
        }
    }

    #[tokio::test]
    async fn one_key_of_many_that_may_not_be_deleted_is_a_refusal() {
        for (code, category) in [
            ("AccessDenied", "denied"),
            ("InvalidRequest", "denied"),
            ("InternalError", "unreachable"),
            ("SlowDown", "unreachable"),
        ] {
            let body = format!(
                "<DeleteResult><Error><Key>k</Key><Code>{code}</Code><Message>Sorry.</Message></Error></DeleteResult>"
            );
            let error = answer(200, body.leak()).delete_error().await;
            assert_eq!(told(&error).category(), category, "{error}");
        }
    }

    #[tokio::test]
    async fn a_missing_bucket_is_not_a_missing_key() {
        let body = "<Error><Code>NoSuchBucket</Code><Message>m</Message></Error>";
        for source in answer(404, body).errors().await {
            assert!(
                is_missing_bucket(&source) && !is_missing_key(&source),
                "{source}"
            );
            let text = told(&source).to_string();
            assert!(text.contains("bucket of s3://b does not exist"), "{text}");
            assert_says!(text, "spec.objectStorage.bucket");
        }
    }

    #[tokio::test]
    async fn an_upload_that_is_gone_and_a_store_without_conditions_are_known_by_their_answers() {
        for (status, body, is_lost, is_unknown) in [
            (404, "<Error><Code>NoSuchUpload</Code></Error>", true, false),
            (400, "<Error><Code>InvalidPart</Code></Error>", true, false),
            (
                400,
                "<Error><Code>InvalidBlockList</Code></Error>",
                true,
                false,
            ),
            (
                400,
                "<Error><Code>InvalidRequest</Code></Error>",
                false,
                false,
            ),
            (
                404,
                "<Error><Code>NoSuchBucket</Code></Error>",
                false,
                false,
            ),
            (
                501,
                "<Error><Code>NotImplemented</Code></Error>",
                false,
                true,
            ),
            (503, "", false, false),
        ] {
            for source in answer(status, body).errors().await {
                assert_eq!(
                    (is_lost_upload(&source), is_unsupported(&source)),
                    (is_lost, is_unknown),
                    "{source}"
                );
            }
        }
    }

    #[tokio::test]
    async fn an_answer_in_xml_is_told_by_its_code_and_message() {
        let body = "<?xml version=\"1.0\"?> <Error><Code>AccessDenied</Code><Message>No.</Message>\
                    <AWSAccessKeyId>AKIA</AWSAccessKeyId></Error>";
        for source in answer(403, body).errors().await {
            let error = told(&source);
            assert_eq!(error.category(), "denied");
            let text = error.to_string();
            assert!(
                text.starts_with("the store refused to list s3://b: 403 AccessDenied: No.; check"),
                "{text}"
            );
            assert!(!text.contains("AKIA"), "{text}");
        }
        // As returned by the token service of AWS.
        let body = "<ErrorResponse><Error><Type>Sender</Type><Code>ExpiredToken</Code><Message>m</Message></Error>\
                    </ErrorResponse>";
        for source in answer(400, body).errors().await {
            assert_eq!(brief(&source), "400 ExpiredToken: m");
        }
    }

    #[tokio::test]
    async fn a_silent_store_is_told_with_the_same_words_each_time() {
        let silent = CannedAnswer {
            status: None,
            body: "",
            header: None,
        };
        let [first, ..] = silent.clone().errors().await;
        let text = told(&first).to_string();
        let expected = "could not list s3://b: no usable answer from http://minio:9000/b: HTTP error: Connection refused";
        assert_eq!(text, expected);
        for source in silent.errors().await {
            let text = brief(&source);
            assert!(
                text.ends_with(": HTTP error: Connection refused") && !text.contains(" in "),
                "{text}"
            );
        }
    }

    #[tokio::test]
    async fn a_long_answer_is_shortened() {
        let long = "é".repeat(5000).leak();
        for source in answer(400, long).errors().await {
            assert!(told(&source).to_string().len() < 2000);
        }
    }
}
