//! The pure part of the project: API types, phases, validation, selectors and label rules.
//!
//! No code here does I/O, reads a clock or uses a client, so that the webhook, the controller, the
//! plugin and every test decide by the same code.
#![warn(unreachable_pub)]

pub mod api;
pub mod api_warnings;
pub mod brake;
pub mod bucket;
pub mod cluster;
pub mod config_map;
pub mod copies;
pub mod cron;
pub mod data_movement;
pub mod deletion;
pub mod digest;
pub mod drill;
pub mod event_reason;
pub mod json_size;
pub mod keep;
pub mod labels;
pub mod left_items;
pub mod mover_flags;
pub mod names;
pub mod namespace_names;
pub mod notifications;
pub mod operation;
pub mod phase;
pub mod profile;
pub mod quantity;
pub mod reading;
pub mod repository_data;
pub mod repository_records;
pub mod resource_policy;
pub mod resources;
pub mod restorability;
pub mod restore_plan;
pub mod results;
pub mod retention;
pub mod scheduled_backup;
pub mod selection;
pub mod snapshot;
pub mod stored_scope;
pub mod sync;
pub mod text;
pub mod time;
pub mod validate;
pub mod velero_flags;
pub mod verification;
pub mod volume_data;
pub mod volume_info;
