//! Reading stored files through the API server: the protocol between the controller and its
//! clients.
//!
//! A client creates a random key and a DownloadRequest with the SHA-256 of it, and the uid of the
//! Backup or Restore. The permission to create the request is the permission to read. The answer is
//! a path of the API server's service proxy; the client that sends the key gets the file. The key
//! is never in an object, a path or a log: a user who can read DownloadRequests cannot use the
//! requests of others.

use std::fmt;

use kube::ResourceExt as _;
use serde::{Deserialize, Serialize};

use crate::{
    api::{DownloadRequest, RestoreSpec},
    digest::{hex, sha256},
    labels::{OBJECTS_ANNOTATION, PLAN_ANNOTATION, READ_KEY_ANNOTATION, READ_UID_ANNOTATION},
    names::{is_dns_label, is_object_name},
};

/// The header with the key. A header, because audit logs have paths and queries.
pub const KEY_HEADER: &str = "x-backup-read-key";
pub const PORT: &str = "files";
/// Name of the Service with that port, unless `--files-service` names another one.
pub const SERVICE: &str = "backup-controller";
/// Path under which the controller serves files, each by the name of its request.
pub const FOLDER: &str = "/files";
/// Length of a key (bytes).
pub const KEY_LENGTH: usize = 32;
/// `details.kind` of a Status with which the controller, not the API server, says why there is no
/// file.
pub const STATUS_KIND: &str = "storedfiles";

/// A key. It opens one file once, so it is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(String);

impl Key {
    pub fn new(random: [u8; KEY_LENGTH]) -> Self {
        Self(hex(&random))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The hash of the key, as the request has it.
    pub fn hash(&self) -> String {
        sha256(self.0.as_bytes())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

/// A request for an answer through the API server.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadRequest {
    hash: String,
    pub wanted: RequestedAnswer,
}

#[derive(Clone, Debug, PartialEq)]
pub enum RequestedAnswer {
    /// A stored file of the Backup or Restore with this uid.
    File { uid: String },
    /// The plan of a Restore with this spec.
    Plan(Box<RestoreSpec>),
    /// Objects themselves.
    Objects(ObjectQuery),
}

/// Objects that a user asks for who may not read all of their kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ObjectQuery {
    pub kind: QueriedKind,
    pub of: QueriedObjects,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum QueriedKind {
    Backup,
    Restore,
    Schedule,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum QueriedObjects {
    /// The one of this name.
    Name(String),
    /// All that are about no other namespaces than these.
    Namespaces(Vec<String>),
}

impl fmt::Display for QueriedKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Backup => "Backup",
            Self::Restore => "Restore",
            Self::Schedule => "Schedule",
        })
    }
}

impl ObjectQuery {
    /// Errors: a sentence, if it is not valid.
    fn parse(text: &str) -> Result<Self, String> {
        let query: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        match &query.of {
            QueriedObjects::Name(name) if !is_object_name(name) => {
                Err(format!("{name:?} is not the name of an object"))
            }
            QueriedObjects::Namespaces(names) if names.is_empty() => {
                Err("it names no namespace".to_owned())
            }
            QueriedObjects::Namespaces(names) => {
                match names.iter().find(|name| !is_dns_label(name)) {
                    Some(name) => Err(format!("{name:?} is not the name of a namespace")),
                    None => Ok(query),
                }
            }
            QueriedObjects::Name(_) => Ok(query),
        }
    }
}

impl ReadRequest {
    /// Whether this is the key.
    ///
    /// This compares hashes, one of them public: the duration reveals nothing about the key.
    pub fn is_opened_by(&self, key: &str) -> bool {
        sha256(key.as_bytes()) == self.hash
    }
}

/// How the answer is requested; `None` for a URL of the store, as Velero's clients request it.
/// Errors: a sentence, if its annotations are invalid.
pub fn asked(request: &DownloadRequest) -> Option<Result<ReadRequest, String>> {
    let hash = annotation(request, READ_KEY_ANNOTATION)?;
    let is_hash = hash.len() == 2 * KEY_LENGTH
        && hash
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if !is_hash {
        return Some(Err(format!(
            "metadata.annotations[{READ_KEY_ANNOTATION}] is not the SHA-256 of a key in 64 lower-case hex digits"
        )));
    }
    Some(wanted(request).map(|wanted| ReadRequest {
        hash: hash.to_owned(),
        wanted,
    }))
}

/// Errors: a sentence, if an annotation is invalid.
fn wanted(request: &DownloadRequest) -> Result<RequestedAnswer, String> {
    if let Some(spec) = annotation(request, PLAN_ANNOTATION) {
        let spec = serde_json::from_str(spec).map_err(|error| {
            format!("metadata.annotations[{PLAN_ANNOTATION}] is not the spec of a Restore: {error}")
        })?;
        return Ok(RequestedAnswer::Plan(Box::new(spec)));
    }
    if let Some(query) = annotation(request, OBJECTS_ANNOTATION) {
        let query = ObjectQuery::parse(query).map_err(|why| {
            format!("metadata.annotations[{OBJECTS_ANNOTATION}] does not name objects: {why}")
        })?;
        return Ok(RequestedAnswer::Objects(query));
    }
    let uid = annotation(request, READ_UID_ANNOTATION).ok_or_else(|| {
        format!(
            "metadata.annotations[{READ_UID_ANNOTATION}] is missing: the uid of the Backup or Restore whose file is meant"
        )
    })?;
    Ok(RequestedAnswer::File {
        uid: uid.to_owned(),
    })
}

/// `None` if the annotation is missing or empty.
fn annotation<'a>(request: &'a DownloadRequest, key: &str) -> Option<&'a str> {
    request
        .annotations()
        .get(key)
        .map(String::as_str)
        .filter(|value| !value.is_empty())
}

/// The path of the API server that leads to the file of a request.
pub fn path(namespace: &str, service: &str, request: &str) -> String {
    format!(
        "/api/v1/namespaces/{namespace}/services/https:{service}:{PORT}/proxy{FOLDER}/{request}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::download_request::DownloadRequestSpec;

    #[test]
    fn only_the_key_opens_what_names_its_hash() {
        let key = Key::new([7; KEY_LENGTH]);
        let asked = ReadRequest {
            hash: key.hash(),
            wanted: RequestedAnswer::File { uid: String::new() },
        };
        assert!(asked.is_opened_by(key.as_str()));
        let upper = key.as_str().to_uppercase().replace("07", "7");
        for wrong in [
            "",
            &key.hash(),
            &upper,
            &key.as_str()[1..],
            &format!("{} ", key.as_str()),
        ] {
            assert!(!asked.is_opened_by(wrong), "{wrong:?}");
        }
        assert_eq!(format!("{key:?}"), "Key(…)");
        // Computed with another tool: echo -n 0707… | sha256sum
        assert_eq!(key.hash().len(), 64);
        assert_eq!(
            sha256(b"abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }

    #[test]
    fn a_request_says_how_it_wants_its_file() {
        let (good, upper) = ("ab".repeat(32), "AB".repeat(32));
        for (hash, uid, expected) in [
            (None, Some("u"), None),
            (Some(""), Some("u"), None),
            (Some(good.as_str()), Some("u"), Some(Ok("u"))),
            (Some(&good), None, Some(Err(READ_UID_ANNOTATION))),
            (Some(&good), Some(""), Some(Err(READ_UID_ANNOTATION))),
            (Some(&upper), Some("u"), Some(Err(READ_KEY_ANNOTATION))),
            (Some(&good[1..]), Some("u"), Some(Err(READ_KEY_ANNOTATION))),
        ] {
            let mut request = DownloadRequest::new("r", DownloadRequestSpec::default());
            for (key, value) in [(READ_KEY_ANNOTATION, hash), (READ_UID_ANNOTATION, uid)] {
                if let Some(value) = value {
                    request
                        .annotations_mut()
                        .insert(key.to_owned(), value.to_owned());
                }
            }
            match (asked(&request), expected) {
                (None, None) => {}
                (Some(Ok(asked)), Some(Ok(uid))) => {
                    assert_eq!(
                        asked.wanted,
                        RequestedAnswer::File {
                            uid: uid.to_owned()
                        }
                    );
                }
                (Some(Err(why)), Some(Err(part))) => assert!(why.contains(part), "{why}"),
                (seen, expected) => panic!("{hash:?} {uid:?}: {seen:?}, expected {expected:?}"),
            }
        }
    }

    #[test]
    fn a_request_may_ask_what_a_restore_would_do() {
        let of = |spec: &str| {
            let mut request = DownloadRequest::new("r", DownloadRequestSpec::default());
            for (key, value) in [
                (READ_KEY_ANNOTATION, "ab".repeat(32)),
                (PLAN_ANNOTATION, spec.to_owned()),
            ] {
                request.annotations_mut().insert(key.to_owned(), value);
            }
            asked(&request)
        };
        let Some(Ok(ReadRequest {
            wanted: RequestedAnswer::Plan(spec),
            ..
        })) = of(r#"{"backupName": "b"}"#)
        else {
            panic!("no plan is asked for");
        };
        assert_eq!(spec.backup_name.as_deref(), Some("b"));
        for nonsense in ["{", "[]", r#"{"backupName": 1}"#] {
            let Some(Err(why)) = of(nonsense) else {
                panic!("{nonsense} is taken")
            };
            assert!(why.contains(PLAN_ANNOTATION), "{why}");
        }
    }

    #[test]
    fn a_request_may_ask_for_objects_themselves() {
        let of = |query: &str| {
            let mut request = DownloadRequest::new("r", DownloadRequestSpec::default());
            for (key, value) in [
                (READ_KEY_ANNOTATION, "ab".repeat(32)),
                (OBJECTS_ANNOTATION, query.to_owned()),
            ] {
                request.annotations_mut().insert(key.to_owned(), value);
            }
            asked(&request).unwrap()
        };
        for query in [
            ObjectQuery {
                kind: QueriedKind::Backup,
                of: QueriedObjects::Name("nightly.1".to_owned()),
            },
            ObjectQuery {
                kind: QueriedKind::Schedule,
                of: QueriedObjects::Namespaces(vec!["shop".to_owned(), "web".to_owned()]),
            },
        ] {
            let text = serde_json::to_string(&query).unwrap();
            assert_eq!(of(&text).unwrap().wanted, RequestedAnswer::Objects(query));
        }
        for nonsense in [
            "{",
            r#"{"kind": "Backup"}"#,
            r#"{"kind": "Secret", "of": {"name": "b"}}"#,
            r#"{"kind": "Backup", "of": {"name": ""}}"#,
            r#"{"kind": "Backup", "of": {"name": "../restores/r"}}"#,
            r#"{"kind": "Backup", "of": {"namespaces": []}}"#,
            r#"{"kind": "Backup", "of": {"namespaces": ["shop", "team-*"]}}"#,
            r#"{"kind": "Backup", "of": {"namespaces": [""]}}"#,
            r#"{"kind": "Backup", "of": {"name": "b"}, "also": 1}"#,
        ] {
            let why = of(nonsense).unwrap_err();
            assert!(why.contains(OBJECTS_ANNOTATION), "{why}");
        }
    }
}
