//! The messages that plugins understand, by their numbers in Velero's `pkg/plugin/proto` (v1.18),
//! go-plugin's `internal/plugin` and gRPC's health service. Only what is used here.

pub(crate) mod restore;

/// Defines messages. Each field is its name and type, then its number and its type in protobuf, as
/// prost names it.
macro_rules! messages {
    ($($(#[$meta:meta])* $vis:vis $name:ident {
        $($(#[$field_meta:meta])* $field:ident: $type:ty = $number:tt [$($kind:tt)+]),* $(,)?
    })*) => {
        $(
            $(#[$meta])*
            #[derive(Clone, PartialEq, prost::Message)]
            $vis struct $name {
                $($(#[$field_meta])* #[prost($($kind)+, tag = $number)] pub(crate) $field: $type,)*
            }
        )*
    };
}
pub(crate) use messages;

/// The name of a method: the last part of its path.
pub(crate) fn name_of(method: &'static str) -> &'static str {
    method.rsplit('/').next().unwrap_or(method)
}

pub(crate) trait Question: prost::Message + 'static {}

impl<M: prost::Message + 'static> Question for M {}

pub(crate) trait Answer: prost::Message + Default + 'static {}

impl<M: prost::Message + Default + 'static> Answer for M {}

pub(crate) mod method {
    pub(crate) const HEALTH: &str = "/grpc.health.v1.Health/Check";
    /// Standard output and error of the process, as a stream.
    pub(crate) const STDIO: &str = "/plugin.GRPCStdio/StreamStdio";
    pub(crate) const SHUTDOWN: &str = "/plugin.GRPCController/Shutdown";
    pub(crate) const LIST: &str = "/generated.PluginLister/ListPlugins";
    pub(crate) const PROGRESS: &str = "/v2.BackupItemAction/Progress";
    pub(crate) const CANCEL: &str = "/v2.BackupItemAction/Cancel";
}

/// The service whose health go-plugin reports.
pub(crate) const HEALTH_SERVICE: &str = "plugin";
pub(crate) const SERVING: i32 = 1;

messages! {
    pub(crate) HealthCheckRequest {
        service: String = 1 [string],
    }

    pub(crate) HealthCheckResponse {
        /// [`SERVING`], or something else.
        status: i32 = 1 [int32],
    }

    pub(crate) ListPluginsResponse {
        plugins: Vec<PluginIdentifier> = 1 [message, repeated],
    }

    pub(crate) PluginIdentifier {
        /// How the binary was called.
        command: String = 1 [string],
        kind: String = 2 [string],
        name: String = 3 [string],
    }

    /// Asks what an action wants to see. The same for all kinds.
    pub(crate) AppliesToRequest {
        plugin: String = 1 [string],
    }

    /// What an action wants to see. The same for all kinds.
    pub(crate) AppliesToResponse {
        /// Absent: everything.
        selector: Option<ResourceSelector> = 1 [message, optional],
    }

    pub(crate) ResourceSelector {
        /// Namespaces; if empty, all.
        included_namespaces: Vec<String> = 1 [string, repeated],
        excluded_namespaces: Vec<String> = 2 [string, repeated],
        /// Resources, by any of their names; if empty, all.
        included_resources: Vec<String> = 3 [string, repeated],
        excluded_resources: Vec<String> = 4 [string, repeated],
        selector: String = 5 [string],
    }

    pub(crate) ResourceIdentifier {
        group: String = 1 [string],
        /// Plural, or any other name of the type.
        resource: String = 2 [string],
        /// Empty for a cluster-scoped object.
        namespace: String = 3 [string],
        name: String = 4 [string],
    }

    /// Has an action look at an item of a backup. The same for all kinds of actions on backups.
    pub(crate) ExecuteRequest {
        plugin: String = 1 [string],
        item: Vec<u8> = 2 [bytes = "vec"],
        backup: Vec<u8> = 3 [bytes = "vec"],
    }

    /// What an action has done. v1 has only the first two.
    pub(crate) ExecuteResponse {
        item: Vec<u8> = 1 [bytes = "vec"],
        additional_items: Vec<ResourceIdentifier> = 2 [message, repeated],
        /// Empty if nothing was started.
        operation_id: String = 3 [string],
        /// Objects that are read again once the operation has ended.
        post_operation_items: Vec<ResourceIdentifier> = 4 [message, repeated],
    }

    /// Asks about an operation, or tells it to stop. The same for backups and restores.
    pub(crate) OperationRequest {
        plugin: String = 1 [string],
        operation_id: String = 2 [string],
        subject: Vec<u8> = 3 [bytes = "vec"],
    }

    pub(crate) ProgressResponse {
        /// Never absent in an answer that makes sense.
        progress: Option<OperationProgress> = 1 [message, optional],
    }

    pub(crate) OperationProgress {
        completed: bool = 1 [bool],
        err: String = 2 [string],
        n_completed: i64 = 3 [int64],
        n_total: i64 = 4 [int64],
        operation_units: String = 5 [string],
        description: String = 6 [string],
        started: Option<Time> = 7 [message, optional],
        updated: Option<Time> = 8 [message, optional],
    }

    /// Since 1970, or a span of time.
    #[derive(Copy)]
    pub(crate) Time {
        seconds: i64 = 1 [int64],
        /// Of a second.
        nanos: i32 = 2 [int32],
    }

    /// What belongs to an item. The question is that of all kinds of actions on backups.
    pub(crate) RelatedItems {
        related_items: Vec<ResourceIdentifier> = 1 [message, repeated],
    }
}
