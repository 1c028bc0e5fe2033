//! The test kit: real control planes, object stores, webhooks and controllers as processes on free
//! loopback ports, and faults for them.

#![warn(unreachable_pub)]
#![allow(
    missing_docs,
    reason = "the kit is not published: a comment stands where it says more than a name"
)]

pub mod allowing;
pub mod api;
pub mod app;
pub mod archive;
pub mod audit;
pub mod aws_identity;
pub mod binaries;
pub mod control_plane;
pub mod faulty_s3;
pub mod helm;
pub mod history;
pub mod install;
pub mod kubectl;
pub mod kubectl_backup;
pub mod kubelet;
pub mod listing;
pub mod moved_clock;
pub mod naive;
pub mod network;
pub mod node;
pub mod object_store;
pub mod people;
pub mod percona;
pub mod pki;
pub mod plugin_location;
pub mod process;
pub mod proxy;
pub mod replica;
pub mod served;
pub mod sibling;
mod skip;
pub mod snapshots;
pub mod taking;
pub mod updating;
pub mod velero;
pub mod velero_plugins;
pub mod volume_histories;
pub mod wait;
pub mod world;

pub use kubectl_backup::KubectlBackup;
pub use skip::Skip;
pub use world::{World, WorldBuilder};
