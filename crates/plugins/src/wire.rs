//! The messages that plugins understand, by their numbers in Velero's `pkg/plugin/proto` (v1.18), go-plugin's
//! `internal/plugin` and gRPC's health service. Only what is used here.

pub(crate) mod restore;

use prost::Message;

pub(crate) mod method {
    pub(crate) const HEALTH: &str = "/grpc.health.v1.Health/Check";
    /// Standard output and error of the process, as a stream.
    pub(crate) const STDIO: &str = "/plugin.GRPCStdio/StreamStdio";
    pub(crate) const SHUTDOWN: &str = "/plugin.GRPCController/Shutdown";
    pub(crate) const LIST: &str = "/generated.PluginLister/ListPlugins";
    pub(crate) const PROGRESS: &str = "/v2.BackupItemAction/Progress";
    pub(crate) const CANCEL: &str = "/v2.BackupItemAction/Cancel";
}

/// The service that go-plugin reports the health of.
pub(crate) const HEALTH_SERVICE: &str = "plugin";
pub(crate) const SERVING: i32 = 1;

/// Asks for the health of a service.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    pub service: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct HealthCheckResponse {
    /// [`SERVING`], or something else.
    #[prost(int32, tag = "1")]
    pub status: i32,
}

/// A piece of standard output or error.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct StdioData {
    /// 1 is standard output, 2 is standard error.
    #[prost(int32, tag = "1")]
    pub channel: i32,
    #[prost(bytes = "vec", tag = "2")]
    pub data: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ListPluginsResponse {
    #[prost(message, repeated, tag = "1")]
    pub plugins: Vec<PluginIdentifier>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PluginIdentifier {
    /// How the binary was called.
    #[prost(string, tag = "1")]
    pub command: String,
    #[prost(string, tag = "2")]
    pub kind: String,
    /// Name, as `domain/name`.
    #[prost(string, tag = "3")]
    pub name: String,
}

/// Asks what an action wants to see. The same for all kinds.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct AppliesToRequest {
    #[prost(string, tag = "1")]
    pub plugin: String,
}

/// What an action wants to see. The same for all kinds.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct AppliesToResponse {
    /// Absent: everything.
    #[prost(message, optional, tag = "1")]
    pub selector: Option<ResourceSelector>,
}

/// Which items an action wants to see.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ResourceSelector {
    /// Namespaces; none: all.
    #[prost(string, repeated, tag = "1")]
    pub included_namespaces: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub excluded_namespaces: Vec<String>,
    /// Resources, as people write them; none: all.
    #[prost(string, repeated, tag = "3")]
    pub included_resources: Vec<String>,
    #[prost(string, repeated, tag = "4")]
    pub excluded_resources: Vec<String>,
    #[prost(string, tag = "5")]
    pub selector: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ResourceIdentifier {
    #[prost(string, tag = "1")]
    pub group: String,
    /// Plural, or any other name of the type.
    #[prost(string, tag = "2")]
    pub resource: String,
    /// Empty for a cluster-scoped object.
    #[prost(string, tag = "3")]
    pub namespace: String,
    #[prost(string, tag = "4")]
    pub name: String,
}

/// Has an action look at an item of a backup. The same for all kinds of actions on backups.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ExecuteRequest {
    #[prost(string, tag = "1")]
    pub plugin: String,
    #[prost(bytes = "vec", tag = "2")]
    pub item: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    pub backup: Vec<u8>,
}

/// What an action has done. v1 has only the first two.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ExecuteResponse {
    #[prost(bytes = "vec", tag = "1")]
    pub item: Vec<u8>,
    #[prost(message, repeated, tag = "2")]
    pub additional_items: Vec<ResourceIdentifier>,
    /// Empty if nothing was started.
    #[prost(string, tag = "3")]
    pub operation_id: String,
    /// Objects that are read again once the operation has ended.
    #[prost(message, repeated, tag = "4")]
    pub post_operation_items: Vec<ResourceIdentifier>,
}

/// Asks about an operation, or tells it to stop. The same for backups and restores.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct OperationRequest {
    #[prost(string, tag = "1")]
    pub plugin: String,
    #[prost(string, tag = "2")]
    pub operation_id: String,
    #[prost(bytes = "vec", tag = "3")]
    pub subject: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ProgressResponse {
    /// Never absent in an answer that makes sense.
    #[prost(message, optional, tag = "1")]
    pub progress: Option<OperationProgress>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct OperationProgress {
    #[prost(bool, tag = "1")]
    pub completed: bool,
    #[prost(string, tag = "2")]
    pub err: String,
    #[prost(int64, tag = "3")]
    pub n_completed: i64,
    #[prost(int64, tag = "4")]
    pub n_total: i64,
    #[prost(string, tag = "5")]
    pub operation_units: String,
    #[prost(string, tag = "6")]
    pub description: String,
    #[prost(message, optional, tag = "7")]
    pub started: Option<Timestamp>,
    #[prost(message, optional, tag = "8")]
    pub updated: Option<Timestamp>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Timestamp {
    /// Since 1970.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    /// Of a second.
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}
