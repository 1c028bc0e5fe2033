//! The messages of plugins that serve object stores, by their numbers in Velero's `pkg/plugin/proto/ObjectStore.proto` (v1.18).

use std::collections::HashMap;

use prost::Message;

/// Methods.
pub(crate) mod method {
    /// Writes an object, message by message.
    pub(crate) const PUT: &str = "/generated.ObjectStore/PutObject";
    /// Whether there is an object.
    pub(crate) const EXISTS: &str = "/generated.ObjectStore/ObjectExists";
    /// Reads an object, message by message.
    pub(crate) const GET: &str = "/generated.ObjectStore/GetObject";
    /// The folders in a folder.
    pub(crate) const FOLDERS: &str = "/generated.ObjectStore/ListCommonPrefixes";
    /// Keys.
    pub(crate) const KEYS: &str = "/generated.ObjectStore/ListObjects";
    /// Deletes an object.
    pub(crate) const DELETE: &str = "/generated.ObjectStore/DeleteObject";
    /// A URL that opens an object.
    pub(crate) const SIGN: &str = "/generated.ObjectStore/CreateSignedURL";
}

/// Tells a plugin its settings, before anything else.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct InitRequest {
    /// Name of the plugin.
    #[prost(string, tag = "1")]
    pub plugin: String,
    /// The settings.
    #[prost(map = "string, string", tag = "2")]
    pub config: HashMap<String, String>,
}

/// A piece of an object that is written.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct PutObjectRequest {
    /// Name of the plugin.
    #[prost(string, tag = "1")]
    pub plugin: String,
    /// Bucket.
    #[prost(string, tag = "2")]
    pub bucket: String,
    /// Key.
    #[prost(string, tag = "3")]
    pub key: String,
    /// The next bytes.
    #[prost(bytes = "bytes", tag = "4")]
    pub body: bytes::Bytes,
}

/// Names an object: asks whether it is there, for its bytes, or to delete it.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ObjectRequest {
    /// Name of the plugin.
    #[prost(string, tag = "1")]
    pub plugin: String,
    /// Bucket.
    #[prost(string, tag = "2")]
    pub bucket: String,
    /// Key.
    #[prost(string, tag = "3")]
    pub key: String,
}

/// Whether there is an object.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct ObjectExistsResponse {
    /// Whether.
    #[prost(bool, tag = "1")]
    pub exists: bool,
}

/// A piece of an object that is read.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Bytes {
    /// The next bytes.
    #[prost(bytes = "bytes", tag = "1")]
    pub data: bytes::Bytes,
}

/// Asks for folders.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ListCommonPrefixesRequest {
    /// Name of the plugin.
    #[prost(string, tag = "1")]
    pub plugin: String,
    /// Bucket.
    #[prost(string, tag = "2")]
    pub bucket: String,
    /// What ends the name of a folder.
    #[prost(string, tag = "3")]
    pub delimiter: String,
    /// The folder to look into.
    #[prost(string, tag = "4")]
    pub prefix: String,
}

/// Folders.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ListCommonPrefixesResponse {
    /// Each from the top, with the delimiter at its end.
    #[prost(string, repeated, tag = "1")]
    pub prefixes: Vec<String>,
}

/// Asks for keys.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ListObjectsRequest {
    /// Name of the plugin.
    #[prost(string, tag = "1")]
    pub plugin: String,
    /// Bucket.
    #[prost(string, tag = "2")]
    pub bucket: String,
    /// What they begin with.
    #[prost(string, tag = "3")]
    pub prefix: String,
}

/// Keys.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ListObjectsResponse {
    /// All of them.
    #[prost(string, repeated, tag = "1")]
    pub keys: Vec<String>,
}

/// Asks for a URL that opens an object.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct CreateSignedUrlRequest {
    /// Name of the plugin.
    #[prost(string, tag = "1")]
    pub plugin: String,
    /// Bucket.
    #[prost(string, tag = "2")]
    pub bucket: String,
    /// Key.
    #[prost(string, tag = "3")]
    pub key: String,
    /// For how long (nanoseconds).
    #[prost(int64, tag = "4")]
    pub ttl: i64,
}

/// A URL that opens an object.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct CreateSignedUrlResponse {
    /// The URL.
    #[prost(string, tag = "1")]
    pub url: String,
}
