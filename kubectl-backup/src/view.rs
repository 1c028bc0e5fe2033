//! What is shown, as data: pure functions from objects of the API and the time.

pub mod backup;
pub mod deletion;
pub mod description;
pub mod doctor;
pub mod guarded;
pub mod list;
pub mod location;
pub mod locks;
pub mod next;
pub mod part;
pub mod profiles;
pub mod progress;
pub mod restore;
pub mod schedule;
pub mod snapshot_location;
pub mod stored;
pub mod sync;
pub mod verify;
pub mod version;
