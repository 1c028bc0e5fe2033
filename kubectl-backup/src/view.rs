//! What is shown: the documents as data, made by pure functions from objects of the API and the time, and their screens.

pub(crate) mod backup;
pub(crate) mod description;
pub(crate) mod doctor;
pub(crate) mod guarded;
pub(crate) mod location;
pub(crate) mod locks;
pub(crate) mod profiles;
pub(crate) mod progress;
pub(crate) mod related;
pub(crate) mod restore;
pub(crate) mod schedule;
pub(crate) mod stored;
pub(crate) mod sync;
pub(crate) mod table_kind;
pub(crate) mod verify;
pub(crate) mod version;
pub(crate) mod workload;

pub(crate) use description::{
    API_VERSION, Attempts, Count, Description, Fact, Moment, Restorable, Verdict, counted, troubles,
};
pub(crate) use related::{DeletionView, EventView, HolderView, LocationSummary, LockView, RunView};
pub(crate) use stored::{Contents, Message, Messages, ResourceList, Stored};
pub(crate) use table_kind::{Columns, KindTable, TableKind, full_name, unreadable_warning};
pub(crate) use workload::{WorkStatus, Workload, WorkloadFacts, verdict};
