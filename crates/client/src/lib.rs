//! What every client of the API server does: it judges errors, waits between attempts, retries
//! reads, lists page by page, and learns which types are served. It knows no installation and no
//! leader.
#![warn(unreachable_pub)]

pub mod backoff;
pub mod discovery;
pub mod errors;
pub mod page;
pub mod paging;
pub mod path;
pub mod retry;
pub mod walk;
