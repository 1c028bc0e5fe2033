//! ServerStatusRequest: a request for the version and plugins of the server.
//!
//! Velero: `pkg/apis/velero/v1/server_status_request_types.go`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use super::{
    common::{Extra, null_default},
    kind::{column, string_enum, velero_kind},
};

velero_kind! {
    /// A request for what the server is and has.
    ServerStatusRequest, "v1", "serverstatusrequests",
    spec: ServerStatusRequestSpec, status: ServerStatusRequestStatus,
    short: ["ssr"],
    columns: [
        column("Status", "string", ".status.phase"),
        column("Server Version", "string", ".status.serverVersion"),
        column("Processed", "date", ".status.processedTimestamp"),
        column("Age", "date", ".metadata.creationTimestamp"),
    ]
}

/// Nothing to choose.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServerStatusRequestSpec {
    /// Fields unknown to this version.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

string_enum! {
    /// Where a ServerStatusRequest is in its life.
    ServerStatusRequestPhase {
        /// Not looked at yet.
        New = "New",
        /// Answered.
        Processed = "Processed",
    }
}

/// A plugin of the server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PluginInfo {
    /// Name of the plugin.
    pub name: String,
    /// What it does, such as `BackupItemAction`.
    pub kind: String,
    /// Fields unknown to this version.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

/// The answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServerStatusRequestStatus {
    /// Where the request is in its life; unset is New.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<ServerStatusRequestPhase>,
    /// When it was answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processed_timestamp: Option<Time>,
    /// Version of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_version: Option<String>,
    /// Plugins of the server.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_default")]
    pub plugins: Vec<PluginInfo>,
    /// Fields unknown to this version.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}
