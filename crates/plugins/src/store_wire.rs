//! The messages of plugins that serve object stores, by their numbers in Velero's
//! `pkg/plugin/proto/ObjectStore.proto` (v1.18).

use std::collections::HashMap;

use crate::wire::messages;

pub(crate) mod method {
    pub(crate) const PUT: &str = "/generated.ObjectStore/PutObject";
    pub(crate) const EXISTS: &str = "/generated.ObjectStore/ObjectExists";
    pub(crate) const GET: &str = "/generated.ObjectStore/GetObject";
    pub(crate) const FOLDERS: &str = "/generated.ObjectStore/ListCommonPrefixes";
    pub(crate) const KEYS: &str = "/generated.ObjectStore/ListObjects";
    pub(crate) const DELETE: &str = "/generated.ObjectStore/DeleteObject";
    pub(crate) const SIGN: &str = "/generated.ObjectStore/CreateSignedURL";
}

messages! {
    /// Tells a plugin its settings, before anything else.
    pub(crate) InitRequest {
        plugin: String = 1 [string],
        config: HashMap<String, String> = 2 [map = "string, string"],
    }

    pub(crate) PutObjectRequest {
        plugin: String = 1 [string],
        bucket: String = 2 [string],
        key: String = 3 [string],
        body: bytes::Bytes = 4 [bytes = "bytes"],
    }

    /// Names an object: asks whether it is there, for its bytes, or to delete it. Or, by what they
    /// begin with, asks for keys.
    pub(crate) ObjectRequest {
        plugin: String = 1 [string],
        bucket: String = 2 [string],
        key: String = 3 [string],
    }

    #[derive(Copy)]
    pub(crate) ObjectExistsResponse {
        exists: bool = 1 [bool],
    }

    pub(crate) Bytes {
        data: bytes::Bytes = 1 [bytes = "bytes"],
    }

    pub(crate) ListCommonPrefixesRequest {
        plugin: String = 1 [string],
        bucket: String = 2 [string],
        /// What ends the name of a folder.
        delimiter: String = 3 [string],
        prefix: String = 4 [string],
    }

    pub(crate) ListCommonPrefixesResponse {
        /// Each from the top, with the delimiter at its end.
        prefixes: Vec<String> = 1 [string, repeated],
    }

    pub(crate) ListObjectsResponse {
        keys: Vec<String> = 1 [string, repeated],
    }

    pub(crate) CreateSignedUrlRequest {
        plugin: String = 1 [string],
        bucket: String = 2 [string],
        key: String = 3 [string],
        /// For how long (nanoseconds).
        ttl: i64 = 4 [int64],
    }

    pub(crate) CreateSignedUrlResponse {
        url: String = 1 [string],
    }
}
