//! ServerStatusRequest: a request for the version and plugins of the server.
//!
//! Velero: `pkg/apis/velero/v1/server_status_request_types.go`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::kind::{api_struct, column, string_enum, velero_kind};

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

api_struct! {
    /// Nothing to choose.
    ServerStatusRequestSpec {
    }
}

string_enum! {
    /// Where a ServerStatusRequest is in its life.
    ServerStatusRequestPhase {
        New = "New",
        Processed = "Processed",
    }
}

api_struct! {
    /// A plugin of the server.
    PluginInfo {
        /// Name of the plugin.
        name: String,
        /// What it does, such as `BackupItemAction`.
        kind: String,
    }
}

api_struct! {
    /// The answer.
    ServerStatusRequestStatus {
        /// Where the request is in its life; unset is New.
        phase?: Option<ServerStatusRequestPhase>,
        /// When it was answered.
        processed_timestamp?: Option<Time>,
        /// Version of the server.
        server_version?: Option<String>,
        /// Plugins of the server.
        plugins?: Vec<PluginInfo>,
    }
}
