//! What every client of the API server does: it judges errors, waits between attempts, retries
//! reads, and lists page by page. It knows no installation and no leader.
#![warn(unreachable_pub)]

pub mod backoff;
pub mod errors;
pub mod page;
pub mod paging;
pub mod path;
pub mod retry;
pub mod walk;
