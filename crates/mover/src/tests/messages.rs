//! Messages about a store that refuses requests, over HTTP as a pod gets its answers.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    thread,
};

use backup_core::api::{BackupStorageLocation, BackupStorageLocationSpec};
use backup_store::Location;

use super::*;
use crate::{
    Progress,
    objects::{Objects, Place},
};

const KEY: &str = "data/ab/abcd";

/// An S3 server that gives every request the same answer. Returns its URL.
fn server(status: u16, body: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            // A client that is gone needs no answer.
            let _ = answer(&stream.unwrap(), status, &body);
        }
    });
    url
}

fn answer(mut stream: &TcpStream, status: u16, body: &str) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let header = line.trim().to_ascii_lowercase();
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if header.is_empty() {
            break;
        }
    }
    reader.read_exact(&mut vec![0; length])?;
    write!(
        stream,
        "HTTP/1.1 {status} Answer\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}

/// The message about the store after `request` got this answer.
fn message<T: std::fmt::Debug>(
    status: u16,
    code: &str,
    request: impl FnOnce(&Objects) -> Result<T, MoverError>,
) -> String {
    let error = error(status, code, request);
    assert_eq!(error.category(), "store");
    error.to_string()
}

/// The error after `request` got this answer.
fn error<T: std::fmt::Debug>(
    status: u16,
    code: &str,
    request: impl FnOnce(&Objects) -> Result<T, MoverError>,
) -> MoverError {
    // An error means that one is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let body = format!("<Error><Code>{code}</Code><Message>Why.</Message></Error>");
    let config = [
        ("region", "r".to_owned()),
        ("s3ForcePathStyle", "true".to_owned()),
        ("s3Url", server(status, body)),
    ];
    let mut spec = BackupStorageLocationSpec {
        provider: "aws".to_owned(),
        config: config
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value))
            .collect(),
        ..BackupStorageLocationSpec::default()
    };
    spec.object_storage.bucket = "b".to_owned();
    let credentials = "[default]\naws_access_key_id = AKIA\naws_secret_access_key = TOPSECRET\n";
    let location = BackupStorageLocation::new("default", spec);
    let location = Location::open(&location, Some(credentials.as_bytes()), None).unwrap();
    let place = Place {
        store: location.object_store(),
        prefix: "restic/shop".into(),
        url: "s3://b/restic/shop".to_owned(),
    };
    let world = World::without_repository();
    let _entered = world.runtime.enter();
    let limits = TransferLimits::default();
    let objects = Objects::new(
        &place,
        &limits,
        StopFlag::default(),
        Arc::<Progress>::default(),
    );
    let error = request(&objects).unwrap_err();
    assert!(!error.to_string().contains("TOPSECRET"), "{error}");
    error
}

fn written(objects: &Objects) -> Result<(), MoverError> {
    objects.put(KEY, "contents".into())
}

#[test]
fn a_full_store_is_named_at_once_with_what_to_do() {
    for (status, code) in [
        (507, "XMinioStorageFull"),
        (400, "XMinioAdminBucketQuotaExceeded"),
        (403, "QuotaExceeded"),
    ] {
        let message = message(status, code, written);
        let end = format!(
            "write s3://b/restic/shop/{KEY}: {status} {code}: Why.; the store is full, or a quota of \
             it is used up: free space there, or raise the quota"
        );
        assert!(message.ends_with(&end), "{message}");
    }
}

#[test]
fn a_refusal_is_named_with_its_request_and_what_to_check() {
    let advice = "; check the rights of the credentials and the policy of the bucket";
    for (message, begin) in [
        (message(403, "AccessDenied", written), "write"),
        (message(403, "AccessDenied", |o| o.get(KEY, None)), "read"),
    ] {
        assert_eq!(
            message,
            format!(
                "the store refused to {begin} s3://b/restic/shop/{KEY}: 403 AccessDenied: Why.{advice}"
            )
        );
    }
    let listing = message(403, "AccessDenied", |objects| objects.list("snapshots"));
    assert!(
        listing.starts_with("the store refused to list s3://b/restic/shop/snapshots: 403"),
        "{listing}"
    );
    // Object lock and append-only credentials: only a maintenance removes objects.
    let removal = message(403, "AccessDenied", |objects| objects.delete(KEY));
    assert!(
        removal.contains(&format!("remove s3://b/restic/shop/{KEY}")),
        "{removal}"
    );
    assert!(removal.ends_with(advice), "{removal}");
}

#[test]
fn a_bucket_that_is_gone_is_told_from_an_object_that_is_gone() {
    for request in [
        message(404, "NoSuchBucket", written),
        message(404, "NoSuchBucket", |objects| {
            objects.get(KEY, None).map(drop)
        }),
    ] {
        assert!(
            request.contains(
                "the bucket of s3://b/restic/shop/data/ab/abcd does not exist: create it"
            ),
            "{request}"
        );
    }
}

#[test]
fn a_pack_that_is_gone_is_damage_and_another_object_may_have_been_replaced() {
    let gone = error(404, "NoSuchKey", |objects| objects.get(KEY, None));
    assert_eq!(gone, MoverError::damaged(KEY, "it is missing"));
    let index = message(404, "NoSuchKey", |objects| objects.get("index/abcd", None));
    assert!(
        index.contains("index/abcd does not exist: 404 NoSuchKey") && index.contains("try again"),
        "{index}"
    );
}
