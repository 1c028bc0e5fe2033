//! Error answers of a store.

use std::fmt;

use http::{StatusCode, Uri};
use serde::Deserialize;

/// An answer of a store other than success, or none at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) struct HttpFailure {
    /// Without the query, which may hold a signature.
    url: String,
    status: Option<StatusCode>,
    /// The store's error code; empty if there is none.
    code: String,
    message: String,
}

/// The error body of S3, Google and Azure; the token service of AWS wraps it once more.
#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct ErrorBody {
    code: String,
    message: String,
    error: Option<Box<ErrorBody>>,
}

impl HttpFailure {
    pub(crate) fn new(uri: &Uri, status: Option<StatusCode>, code: &str, message: &str) -> Self {
        let url = uri.to_string();
        let url = url.split('?').next().unwrap_or_default().to_owned();
        Self {
            url,
            status,
            code: code.to_owned(),
            message: message.to_owned(),
        }
    }

    pub(crate) fn answered(uri: &Uri, status: StatusCode, body: &str) -> Self {
        let error: ErrorBody = quick_xml::de::from_str(body).unwrap_or_default();
        let error = error.error.map_or(
            ErrorBody {
                error: None,
                ..error
            },
            |inner| *inner,
        );
        if error.code.is_empty() {
            return Self::new(uri, Some(status), "", body);
        }
        // Azure adds lines with an id and a time, which differ with every attempt.
        let message = error.message.lines().next().unwrap_or_default();
        Self::new(uri, Some(status), &error.code, message)
    }

    pub(crate) fn status(&self) -> Option<u16> {
        self.status.map(|status| status.as_u16())
    }

    pub(crate) fn code(&self) -> &str {
        &self.code
    }
}

impl fmt::Display for HttpFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            url,
            status,
            code,
            message,
        } = self;
        match status {
            Some(status) if !code.is_empty() => write!(f, "{} {code}: {message}", status.as_u16()),
            Some(status) => write!(f, "no usable answer from {url}: {status} {message}"),
            None => write!(f, "no usable answer from {url}: {message}"),
        }
    }
}
