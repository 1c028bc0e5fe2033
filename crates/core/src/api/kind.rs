//! What all kinds of the group have in common: the outer object, its names, and string enums that
//! survive new values.

use std::fmt::Debug;

pub use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceColumnDefinition as Column;
use serde::{Serialize, de::DeserializeOwned};

/// The API group of every kind.
pub const GROUP: &str = "velero.io";

/// A kind whose objects are in namespaces, known when this is compiled.
pub trait NamespacedKind:
    kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
    + Serialize
    + DeserializeOwned
    + Clone
    + Debug
    + Send
    + Sync
    + 'static
{
}

impl<K> NamespacedKind for K where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Serialize
        + DeserializeOwned
        + Clone
        + Debug
        + Send
        + Sync
        + 'static
{
}

/// A kind of the `velero.io` group and what its definition needs beside the schema.
pub trait VeleroKind: NamespacedKind + schemars::JsonSchema {
    /// Short names for `kubectl get`.
    const SHORT_NAMES: &'static [&'static str];
    /// Columns for `kubectl get`.
    fn columns() -> Vec<Column>;
}

/// A column that `kubectl get` shows: its heading, its type, and the JSON path of its value.
pub(crate) fn column(name: &str, kind: &str, path: &str) -> Column {
    Column {
        name: name.to_owned(),
        type_: kind.to_owned(),
        json_path: path.to_owned(),
        ..Column::default()
    }
}

/// A column that is shown by `kubectl get -o wide` only.
pub(crate) fn wide(name: &str, kind: &str, path: &str) -> Column {
    Column {
        priority: Some(10),
        ..column(name, kind, path)
    }
}

/// Defines the outer struct of a namespaced kind of `velero.io`.
///
/// kube's derive is not used because it makes `spec` mandatory in the schema and when decoding;
/// Velero's kinds accept an object without one (a Backup with no spec is a backup of everything).
macro_rules! velero_kind {
    (
        $(#[$doc:meta])*
        $kind:ident, $version:literal, $plural:literal, spec: $spec:ty, status: $status:ty,
        short: [$($short:literal),*], columns: [$($column:expr),* $(,)?]
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        // What is derived is not the traits, but functions of the type itself, for the two
        // implementations below.
        #[serde(rename_all = "camelCase", remote = "Self")]
        pub struct $kind {
            /// Group and version.
            #[serde(default)]
            #[schemars(skip)]
            pub api_version: String,
            /// The kind.
            #[serde(default)]
            #[schemars(skip)]
            pub kind: String,
            /// Name, namespace, labels, and what the API server adds.
            #[serde(default)]
            #[schemars(skip)]
            pub metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
            /// What is asked for.
            #[serde(default, deserialize_with = "crate::api::go_json::null_default")]
            pub spec: $spec,
            /// What has been seen and done.
            #[serde(default, deserialize_with = "crate::api::go_json::null_default")]
            pub status: $status,
        }

        impl $kind {
            /// A new object with this name and spec and no status.
            pub fn new(name: &str, spec: $spec) -> Self {
                Self { metadata: kube::core::ObjectMeta { name: Some(name.to_owned()), ..Default::default() }, spec, ..Default::default() }
            }
        }

        // All formats are decoded by way of JSON: so the code that decodes the fields of all parts
        // is made once, in this crate, and not for each format in each crate that reads objects (in
        // the controller, a seventh of what the compiler had to do).
        impl<'de> serde::Deserialize<'de> for $kind {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let value = <serde_json::Value as serde::Deserialize>::deserialize(deserializer)?;
                Self::from_json(value).map_err(serde::de::Error::custom)
            }
        }

        impl $kind {
            #[inline(never)]
            fn from_json(value: serde_json::Value) -> serde_json::Result<Self> {
                Self::deserialize(value)
            }
        }

        impl serde::Serialize for $kind {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                Self::serialize(self, serializer)
            }
        }

        impl Default for $kind {
            fn default() -> Self {
                Self {
                    api_version: concat!("velero.io/", $version).to_owned(),
                    kind: stringify!($kind).to_owned(),
                    metadata: Default::default(),
                    spec: Default::default(),
                    status: Default::default(),
                }
            }
        }

        impl kube::Resource for $kind {
            type DynamicType = ();
            type Scope = k8s_openapi::NamespaceResourceScope;

            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                stringify!($kind).into()
            }
            fn group((): &()) -> std::borrow::Cow<'_, str> {
                $crate::api::kind::GROUP.into()
            }
            fn version((): &()) -> std::borrow::Cow<'_, str> {
                $version.into()
            }
            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &kube::core::ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut kube::core::ObjectMeta {
                &mut self.metadata
            }
        }

        impl $crate::api::kind::VeleroKind for $kind {
            const SHORT_NAMES: &'static [&'static str] = &[$($short),*];
            fn columns() -> Vec<$crate::api::kind::Column> {
                vec![$($column),*]
            }
        }
    };
}
pub(crate) use velero_kind;

/// What a function of a kind returns for each of them.
macro_rules! for_each_kind {
    ($function:ident) => {
        for_each_kind!($function:
            Backup BackupRepository BackupStorageLocation DataDownload DataUpload DeleteBackupRequest DownloadRequest
            PodVolumeBackup PodVolumeRestore Restore Schedule ServerStatusRequest VolumeSnapshotLocation)
    };
    ($function:ident: $($kind:ident)*) => {
        [$($function::<$crate::api::$kind>()),*]
    };
}
pub(crate) use for_each_kind;

/// Defines a struct of the API as Go writes and reads it: names in camelCase, `field?` with Go's
/// `omitempty`, and every field that this version does not know in `extra`, so that it is written
/// back.
macro_rules! api_struct {
    ($(#[$doc:meta])* $name:ident { $($fields:tt)* }) => {
        $crate::api::kind::api_part! {
            $(#[$doc])*
            $name {
                $($fields)*
                /// Fields unknown to this version.
                #[serde(flatten)]
                #[schemars(skip)]
                extra: crate::api::Extra,
            }
        }
    };
}
pub(crate) use api_struct;

/// Defines a struct like [`api_struct`], without `extra`: it drops what it does not know, or it is
/// flattened into a struct that keeps that.
macro_rules! api_part {
    (
        $(#[$doc:meta])*
        $name:ident { $($(#[$meta:meta])* $field:ident $(? $($optional:lifetime)?)? : $type:ty),* $(,)? }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[serde(rename_all = "camelCase")]
        pub struct $name {
            $(
                $(#[$meta])*
                $(
                    $($optional)?
                    #[serde(
                        default,
                        skip_serializing_if = "crate::api::go_json::is_default",
                        deserialize_with = "crate::api::go_json::null_default"
                    )]
                )?
                pub $field: $type,
            )*
        }
    };
}
pub(crate) use api_part;

/// Defines an enum over strings that keeps a value it does not know, so that an object written by a
/// newer server is decoded, shown and written back unchanged. The schema lists only the known
/// values.
macro_rules! string_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $value:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$vdoc])* $variant,)+
            /// A value that this version does not know.
            Unknown(String),
        }

        impl $name {
            /// Every known value.
            pub const KNOWN: &'static [&'static str] = &[$($value),+];

            /// The same, as values of this type.
            pub fn known() -> impl Iterator<Item = Self> {
                [$(Self::$variant),+].into_iter()
            }

            /// The value in JSON.
            pub fn as_str(&self) -> &str {
                match self { $(Self::$variant => $value,)+ Self::Unknown(other) => other }
            }
        }

        impl From<&str> for $name {
            fn from(value: &str) -> Self {
                match value { $($value => Self::$variant,)+ other => Self::Unknown(other.to_owned()) }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let value = <std::borrow::Cow<'de, str> as serde::Deserialize>::deserialize(deserializer)?;
                Ok(Self::from(value.as_ref()))
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn inline_schema() -> bool {
                true
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "enum": Self::KNOWN })
            }
        }
    };
}
pub(crate) use string_enum;
