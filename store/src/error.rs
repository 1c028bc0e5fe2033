//! What can go wrong with a store, told so that a person knows what to do.

use crate::{Fault, PluginFault};

/// A failure of the object store, or of what is stored in it.
///
/// The variants hold text only, so that an error can be kept and shown again; none of them ever holds a credential.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The bucket, folder or key is not there.
    #[error("{what} does not exist: {remedy}")]
    NotFound {
        /// What is missing, with its place.
        what: String,
        /// What to do about it.
        remedy: String,
    },
    /// The store understood the request and refused it; trying again will not help until somebody changes something.
    #[error("the store refused to {action} {url}: {detail}")]
    Denied {
        /// What was tried, for example "write".
        action: String,
        /// The key or bucket.
        url: String,
        /// What the store said, and what to check.
        detail: String,
    },
    /// No usable answer from the store: network, time-out, or trouble on its side. May pass by itself.
    #[error("could not {action} {url}: {detail}")]
    Unreachable {
        /// What was tried, for example "write".
        action: String,
        /// The key or bucket.
        url: String,
        /// What was seen.
        detail: String,
    },
    /// The key is taken by something else, which is left alone.
    #[error("{url} exists already: {detail}")]
    Exists {
        /// The key or folder.
        url: String,
        /// Whose it is, and what to do.
        detail: String,
    },
    /// What was uploaded and decided is not in the store any more, before it became visible.
    #[error("{url} can not be finished: {detail}")]
    Lost {
        /// The key.
        url: String,
        /// What is gone, and why that may be.
        detail: String,
    },
    /// What is stored can not be used.
    #[error("{url} can not be used: {detail}")]
    Corrupt {
        /// The key.
        url: String,
        /// Which part is wrong, and what to do.
        detail: String,
    },
    /// This item can not be stored. Only this item: the writer goes on to work.
    #[error("item {path} can not be stored: {detail}")]
    Item {
        /// The item's path in the tarball.
        path: String,
        /// Why.
        detail: String,
    },
    /// A setting of the BackupStorageLocation, or an argument, is wrong.
    #[error("{field}: {message}")]
    Config {
        /// The field at fault, for example `spec.config[s3Url]`.
        field: String,
        /// What is wrong with it and what is expected.
        message: String,
    },
    /// The local disk or the local process failed.
    #[error("could not {action}: {detail}")]
    Io {
        /// What was tried.
        action: String,
        /// What the system said.
        detail: String,
    },
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
            Self::Corrupt { .. } | Self::Item { .. } => "corrupt",
            Self::Config { .. } => "config",
            Self::Io { .. } => "io",
        }
    }

    /// Whether the same call may succeed later without anybody doing something.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Io { .. })
    }

    /// Whether only one item is concerned, and the writer still works.
    pub fn is_item(&self) -> bool {
        matches!(self, Self::Item { .. })
    }

    /// What the store said, on one short line.
    pub(crate) fn brief(source: &object_store::Error) -> String {
        brief(source)
    }

    /// A failure of the local disk or process.
    pub(crate) fn io(action: &str, source: &dyn std::error::Error) -> Self {
        Self::Io { action: action.to_owned(), detail: source.to_string() }
    }

    /// Translates an error of the object store that happened while we tried to `action` `url`.
    pub(crate) fn from_store(action: &str, url: &str, source: &object_store::Error) -> Self {
        use object_store::Error as E;
        let (action, url) = (action.to_owned(), url.to_owned());
        let detail = brief(source);
        if let Some(fault) = PluginFault::of(source) {
            let is_refused = fault.fault == Fault::Lasting || fault.status().is_some_and(is_final);
            return if is_refused {
                Self::Denied { action, url, detail }
            } else {
                Self::Unreachable { action, url, detail }
            };
        }
        match source {
            _ if is_missing_bucket(source) => Self::NotFound {
                what: format!("the bucket of {url}"),
                remedy: "create it, or correct spec.objectStorage.bucket of the BackupStorageLocation"
                    .to_owned(),
            },
            E::NotFound { .. } => Self::NotFound { what: url, remedy: detail },
            E::AlreadyExists { .. } | E::Precondition { .. } => Self::Exists { url, detail },
            E::PermissionDenied { .. } => Self::Denied {
                action,
                url,
                detail: format!("{detail}; check the rights of the credentials and the policy of the bucket"),
            },
            E::Unauthenticated { .. } => Self::Denied {
                action,
                url,
                detail: format!("{detail}; check the Secret in spec.credential of the BackupStorageLocation"),
            },
            E::InvalidPath { .. } => {
                Self::Config { field: "spec.objectStorage.prefix".to_owned(), message: detail }
            }
            E::NotSupported { .. } | E::NotImplemented { .. } | E::UnknownConfigurationKey { .. } => {
                Self::Denied { action, url, detail }
            }
            // Listings and other answers of the 4xx kind (a missing checksum, a wrong region, an immutable object) arrive
            // as Generic with the status in the text, as the client's own error type is private.
            _ if status(&chain(source)).is_some_and(|code| matches!(code, 401 | 403)) => Self::Denied {
                action,
                url,
                detail: format!(
                    "{detail}; check the credentials (spec.credential) and the policy of the bucket"
                ),
            },
            _ if status(&chain(source)).is_some_and(is_final) => Self::Denied {
                action,
                url,
                detail: format!(
                    "{detail}; check the settings and the credentials of the BackupStorageLocation"
                ),
            },
            _ if is_refused_deletion(&chain(source)) => Self::Denied {
                action,
                url,
                detail: format!("{detail}; check the rights of the credentials and the policy of the bucket"),
            },
            _ if local_io(source).is_some_and(|kind| kind == std::io::ErrorKind::PermissionDenied) => {
                Self::Denied { action, url, detail }
            }
            _ => Self::Unreachable { action, url, detail },
        }
    }
}

/// Whether the store says that the bucket itself is missing, rather than one key.
pub(crate) fn is_missing_bucket(source: &object_store::Error) -> bool {
    chain(source).contains("<Code>NoSuchBucket</Code>")
}

/// Whether the store says that it does not have an upload, or its parts, any more: S3 and Google answer 404, S3 400
/// `InvalidPart` for a part that was replaced, Azure 400 `InvalidBlockList`.
pub(crate) fn is_lost_upload(source: &object_store::Error) -> bool {
    let text = chain(source);
    let gone = matches!(source, object_store::Error::NotFound { .. }) || status(&text) == Some(404);
    (gone && !is_missing_bucket(source))
        || [
            "NoSuchUpload",
            "InvalidPart<",
            "InvalidPartOrder",
            "InvalidBlockList",
            "MultipartUpload not found",
        ]
        .iter()
        .any(|word| text.contains(word))
}

/// Whether S3 refuses the deletion of one key in a list of many: the answer as a whole is a success, and says for each key
/// what came of it.
fn is_refused_deletion(text: &str) -> bool {
    text.contains("DeleteObjects request failed for key ")
        && text.rsplit_once("(code: ").is_some_and(|(_, code)| !is_passing(code))
}

/// Whether S3's word for why one key in a list was not deleted, or a text that begins with it, is of a trouble that passes.
pub(crate) fn is_passing(code: &str) -> bool {
    const PASSING: [&str; 6] = [
        "InternalError",
        "SlowDown",
        "ServiceUnavailable",
        "RequestTimeout",
        "OperationAborted",
        "TooManyRequests",
    ];
    PASSING.iter().any(|word| code.starts_with(word))
}

/// Whether the same request will get the same answer: any 4xx but time-out, conflict and throttling.
pub(crate) fn is_final(status: u16) -> bool {
    (400..500).contains(&status) && !matches!(status, 408 | 409 | 429)
}

/// Whether the store says that it does not know conditional writes.
pub(crate) fn is_unsupported(source: &object_store::Error) -> bool {
    matches!(source, object_store::Error::NotImplemented { .. } | object_store::Error::NotSupported { .. })
        || status(&chain(source)) == Some(501)
}

/// What the store said, short and on one line, and the same each time: the text ends up in statuses and annotations,
/// which must not change with every try.
fn brief(source: &object_store::Error) -> String {
    let text = PluginFault::of(source).map_or_else(|| chain(source), PluginFault::steady);
    let line = answer(&text).or_else(|| no_answer(&text)).unwrap_or(text);
    let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(600) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}

/// S3 answers with XML, of which the code and the message count.
fn answer(text: &str) -> Option<String> {
    let element = |name: &str| between(text, &format!("<{name}>"), &format!("</{name}>"));
    Some(format!("{} {}: {}", status(text)?, element("Code")?, element("Message").unwrap_or_default()))
}

/// Without an answer the client says `Error performing <method> <url> in <time>, after <n> retries, … - <cause>`.
fn no_answer(text: &str) -> Option<String> {
    // The innermost of several that say so.
    let (_, request) = text.rsplit_once("Error performing ")?;
    let (_method, request) = request.split_once(' ')?;
    let (url, _) = request.split_once(" in ")?;
    let (_, cause) = text.rsplit_once(" - ")?;
    Some(format!("no usable answer from {}: {cause}", url.split('?').next().unwrap_or_default()))
}

/// What stands between two words.
pub(crate) fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    text.split_once(before)?.1.split_once(after).map(|(found, _)| found)
}

fn chain(source: &object_store::Error) -> String {
    let mut text = source.to_string();
    let mut cause = std::error::Error::source(source);
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text
}

/// The HTTP status in the text of an error of the object store's client.
fn status(text: &str) -> Option<u16> {
    let at = text.find("status code: ")?;
    text[at + "status code: ".len()..].get(..3)?.parse().ok()
}

fn local_io(source: &object_store::Error) -> Option<std::io::ErrorKind> {
    let mut cause = std::error::Error::source(source);
    while let Some(error) = cause {
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            return Some(io.kind());
        }
        cause = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(text: &str) -> object_store::Error {
        object_store::Error::Generic { store: "S3", source: text.to_owned().into() }
    }

    #[test]
    fn a_final_refusal_is_told_from_a_passing_one() {
        let table = [
            (
                generic("Server returned non-2xx status code: 400 Bad Request: <Code>InvalidRequest</Code>"),
                "denied",
                false,
            ),
            (generic("Server returned non-2xx status code: 429 Too Many Requests"), "unreachable", true),
            (
                generic("Server returned non-2xx status code: 503 Service Unavailable: SlowDown"),
                "unreachable",
                true,
            ),
            (generic("error sending request: connection refused"), "unreachable", true),
            (
                object_store::Error::PermissionDenied { path: "x".into(), source: "403".into() },
                "denied",
                false,
            ),
            (
                object_store::Error::NotFound { path: "x".into(), source: "NoSuchKey".into() },
                "not_found",
                false,
            ),
            (object_store::Error::AlreadyExists { path: "x".into(), source: "412".into() }, "exists", false),
        ];
        for (source, category, transient) in table {
            let error = StoreError::from_store("write", "s3://b/k", &source);
            assert_eq!((error.category(), error.is_transient()), (category, transient), "{error}");
        }
    }

    #[test]
    fn one_key_of_many_that_may_not_be_deleted_is_a_refusal() {
        for (code, category) in [
            ("AccessDenied", "denied"),
            ("InvalidRequest", "denied"),
            ("InternalError", "unreachable"),
            ("SlowDown", "unreachable"),
        ] {
            let text = format!("DeleteObjects request failed for key p/k: Sorry. (code: {code})");
            assert_eq!(
                StoreError::from_store("delete", "s3://b/p/k", &generic(&text)).category(),
                category,
                "{code}"
            );
        }
    }

    #[test]
    fn a_missing_bucket_is_not_a_missing_key() {
        let body = "status code: 404 Not Found: <Error><Code>NoSuchBucket</Code><Message>m</Message></Error>";
        let not_found = object_store::Error::NotFound { path: "x".into(), source: body.into() };
        for source in [generic(body), not_found] {
            assert!(is_missing_bucket(&source));
            let text = StoreError::from_store("list", "s3://b", &source).to_string();
            assert!(text.contains("bucket of s3://b does not exist"), "{text}");
            assert!(text.contains("spec.objectStorage.bucket"), "{text}");
        }
    }

    #[test]
    fn an_answer_in_xml_is_told_by_its_code_and_message() {
        let body = "Server returned non-2xx status code: 403 Forbidden: <?xml?> <Error><Code>AccessDenied</Code>\
                    <Message>No.</Message><AWSAccessKeyId>AKIA</AWSAccessKeyId></Error>";
        let error = StoreError::from_store("list", "s3://b", &generic(body));
        assert_eq!(error.category(), "denied");
        let text = error.to_string();
        assert!(text.starts_with("the store refused to list s3://b: 403 AccessDenied: No.; check"), "{text}");
        assert!(!text.contains("AKIA"), "{text}");
    }

    #[test]
    fn a_silent_store_is_told_with_the_same_words_each_time() {
        let text = |seconds: &str, method: &str| {
            let text = format!(
                "Error performing list request: Error performing {method} http://minio:9000/b?list-type=2 in {seconds}s, after \
                 10 retries, max_retries: 10, retry_timeout: 30s - HTTP error: error sending request: Connection refused"
            );
            StoreError::from_store("list", "s3://b", &generic(&text)).to_string()
        };
        assert_eq!(text("1.2", "HEAD"), text("3.4", "DELETE"));
        let expected = "could not list s3://b: no usable answer from http://minio:9000/b: HTTP error: error sending \
                        request: Connection refused";
        assert_eq!(text("1", "GET"), expected);
    }

    #[test]
    fn a_long_answer_is_shortened() {
        let text = StoreError::from_store("write", "u", &generic(&"é".repeat(5000))).to_string();
        assert!(text.len() < 2000);
    }
}
