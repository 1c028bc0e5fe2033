//! The messages that plugins understand, by their numbers in Velero's `pkg/plugin/proto` (v1.18), go-plugin's
//! `internal/plugin` and gRPC's health service. Only what is used here.

pub(crate) mod restore;

use prost::Message;

/// Methods.
pub(crate) mod method {
    /// gRPC's health service.
    pub(crate) const HEALTH: &str = "/grpc.health.v1.Health/Check";
    /// Standard output and error of the process, as a stream.
    pub(crate) const STDIO: &str = "/plugin.GRPCStdio/StreamStdio";
    /// Asks the process to end.
    pub(crate) const SHUTDOWN: &str = "/plugin.GRPCController/Shutdown";
    /// What a binary offers.
    pub(crate) const LIST: &str = "/generated.PluginLister/ListPlugins";
    /// How far an operation has come.
    pub(crate) const PROGRESS: &str = "/v2.BackupItemAction/Progress";
    /// Tells an operation to stop.
    pub(crate) const CANCEL: &str = "/v2.BackupItemAction/Cancel";
}

/// The service that go-plugin reports the health of.
pub(crate) const HEALTH_SERVICE: &str = "plugin";
/// It serves.
pub(crate) const SERVING: i32 = 1;

/// Asks for the health of a service.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct HealthCheckRequest {
    /// Name of the service.
    #[prost(string, tag = "1")]
    pub service: String,
}

/// The health of a service.
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
    /// Bytes, cut anywhere.
    #[prost(bytes = "vec", tag = "2")]
    pub data: Vec<u8>,
}

/// What a binary offers.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ListPluginsResponse {
    /// All of it.
    #[prost(message, repeated, tag = "1")]
    pub plugins: Vec<PluginIdentifier>,
}

/// One plugin of a binary.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct PluginIdentifier {
    /// How the binary was called.
    #[prost(string, tag = "1")]
    pub command: String,
    /// What it is.
    #[prost(string, tag = "2")]
    pub kind: String,
    /// Name, as `domain/name`.
    #[prost(string, tag = "3")]
    pub name: String,
}

/// Asks what an action wants to see. The same for all kinds.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct AppliesToRequest {
    /// Name of the plugin.
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
    /// Namespaces to leave out.
    #[prost(string, repeated, tag = "2")]
    pub excluded_namespaces: Vec<String>,
    /// Resources, as people write them; none: all.
    #[prost(string, repeated, tag = "3")]
    pub included_resources: Vec<String>,
    /// Resources to leave out.
    #[prost(string, repeated, tag = "4")]
    pub excluded_resources: Vec<String>,
    /// Label selector.
    #[prost(string, tag = "5")]
    pub selector: String,
}

/// An object.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ResourceIdentifier {
    /// API group.
    #[prost(string, tag = "1")]
    pub group: String,
    /// Plural, or any other name of the type.
    #[prost(string, tag = "2")]
    pub resource: String,
    /// Empty for a cluster-scoped object.
    #[prost(string, tag = "3")]
    pub namespace: String,
    /// Name.
    #[prost(string, tag = "4")]
    pub name: String,
}

/// Has an action look at an item of a backup. The same for all kinds of actions on backups.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ExecuteRequest {
    /// Name of the plugin.
    #[prost(string, tag = "1")]
    pub plugin: String,
    /// JSON.
    #[prost(bytes = "vec", tag = "2")]
    pub item: Vec<u8>,
    /// JSON.
    #[prost(bytes = "vec", tag = "3")]
    pub backup: Vec<u8>,
}

/// What an action has done. v1 has only the first two.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ExecuteResponse {
    /// JSON.
    #[prost(bytes = "vec", tag = "1")]
    pub item: Vec<u8>,
    /// Objects that come along.
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
    /// Name of the plugin.
    #[prost(string, tag = "1")]
    pub plugin: String,
    /// What the plugin calls it.
    #[prost(string, tag = "2")]
    pub operation_id: String,
    /// The backup or restore, as JSON.
    #[prost(bytes = "vec", tag = "3")]
    pub subject: Vec<u8>,
}

/// How far an operation is.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ProgressResponse {
    /// Never absent in an answer that makes sense.
    #[prost(message, optional, tag = "1")]
    pub progress: Option<OperationProgress>,
}

/// How far an operation is.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct OperationProgress {
    /// Whether it has ended.
    #[prost(bool, tag = "1")]
    pub completed: bool,
    /// Why it failed.
    #[prost(string, tag = "2")]
    pub err: String,
    /// Units done.
    #[prost(int64, tag = "3")]
    pub n_completed: i64,
    /// Units in all.
    #[prost(int64, tag = "4")]
    pub n_total: i64,
    /// What a unit is.
    #[prost(string, tag = "5")]
    pub operation_units: String,
    /// For people.
    #[prost(string, tag = "6")]
    pub description: String,
    /// When it began.
    #[prost(message, optional, tag = "7")]
    pub started: Option<Timestamp>,
    /// When this was last true.
    #[prost(message, optional, tag = "8")]
    pub updated: Option<Timestamp>,
}

/// A point in time (google.protobuf.Timestamp).
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Timestamp {
    /// Since 1970.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    /// Of a second.
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}
