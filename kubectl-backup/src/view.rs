//! Rows and documents for Backups, Restores, schedules, locations and locks, made by pure functions
//! from objects of the API and the time.

pub(crate) mod backup;
pub(crate) mod copies;
pub(crate) mod description;
pub(crate) mod drill;
pub(crate) mod keep;
pub(crate) mod location;
pub(crate) mod locks;
pub(crate) mod progress;
pub(crate) mod related;
pub(crate) mod repository;
pub(crate) mod restore;
pub(crate) mod retention;
pub(crate) mod schedule;
mod selection;
pub(crate) mod status;
pub(crate) mod stored;
pub(crate) mod sync;
pub(crate) mod table_kind;
pub(crate) mod transfer;
pub(crate) mod volume_list;
pub(crate) mod workload;

pub(crate) use description::{
    Attempts, Count, Description, Fact, Moment, Restorable, Verdict, troubles,
};
pub(crate) use related::{DeletionView, EventView, HolderView, LocationSummary, LockView, RunView};
pub(crate) use stored::{FileContents, Message, ResourceList};
pub(crate) use table_kind::{
    Columns, InstallationPlaces, KindTable, TableKind, full_name, unreadable_warning,
};
pub(crate) use workload::{WorkStatus, Workload, WorkloadParts, verdict};
