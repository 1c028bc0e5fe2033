//! The messages of plugins that serve object stores, by their numbers in Velero's `pkg/plugin/proto/ObjectStore.proto` (v1.18).

use std::collections::HashMap;

use prost::Message;

pub(crate) mod method {
    pub(crate) const PUT: &str = "/generated.ObjectStore/PutObject";
    pub(crate) const EXISTS: &str = "/generated.ObjectStore/ObjectExists";
    pub(crate) const GET: &str = "/generated.ObjectStore/GetObject";
    pub(crate) const FOLDERS: &str = "/generated.ObjectStore/ListCommonPrefixes";
    pub(crate) const KEYS: &str = "/generated.ObjectStore/ListObjects";
    pub(crate) const DELETE: &str = "/generated.ObjectStore/DeleteObject";
    pub(crate) const SIGN: &str = "/generated.ObjectStore/CreateSignedURL";
}

/// Tells a plugin its settings, before anything else.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct InitRequest {
    #[prost(string, tag = "1")]
    pub plugin: String,
    #[prost(map = "string, string", tag = "2")]
    pub config: HashMap<String, String>,
}

/// A piece of an object that is written.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct PutObjectRequest {
    #[prost(string, tag = "1")]
    pub plugin: String,
    #[prost(string, tag = "2")]
    pub bucket: String,
    #[prost(string, tag = "3")]
    pub key: String,
    #[prost(bytes = "bytes", tag = "4")]
    pub body: bytes::Bytes,
}

/// Names an object: asks whether it is there, for its bytes, or to delete it.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ObjectRequest {
    #[prost(string, tag = "1")]
    pub plugin: String,
    #[prost(string, tag = "2")]
    pub bucket: String,
    #[prost(string, tag = "3")]
    pub key: String,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct ObjectExistsResponse {
    #[prost(bool, tag = "1")]
    pub exists: bool,
}

/// A piece of an object that is read.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Bytes {
    #[prost(bytes = "bytes", tag = "1")]
    pub data: bytes::Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ListCommonPrefixesRequest {
    #[prost(string, tag = "1")]
    pub plugin: String,
    #[prost(string, tag = "2")]
    pub bucket: String,
    /// What ends the name of a folder.
    #[prost(string, tag = "3")]
    pub delimiter: String,
    #[prost(string, tag = "4")]
    pub prefix: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ListCommonPrefixesResponse {
    /// Each from the top, with the delimiter at its end.
    #[prost(string, repeated, tag = "1")]
    pub prefixes: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ListObjectsRequest {
    #[prost(string, tag = "1")]
    pub plugin: String,
    #[prost(string, tag = "2")]
    pub bucket: String,
    #[prost(string, tag = "3")]
    pub prefix: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ListObjectsResponse {
    #[prost(string, repeated, tag = "1")]
    pub keys: Vec<String>,
}

/// Asks for a URL that opens an object.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct CreateSignedUrlRequest {
    #[prost(string, tag = "1")]
    pub plugin: String,
    #[prost(string, tag = "2")]
    pub bucket: String,
    #[prost(string, tag = "3")]
    pub key: String,
    /// For how long (nanoseconds).
    #[prost(int64, tag = "4")]
    pub ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CreateSignedUrlResponse {
    #[prost(string, tag = "1")]
    pub url: String,
}
