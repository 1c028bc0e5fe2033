//! Item operations: polled from their start to their end, by whichever process is there.
//!
//! `decide` says what is asked when, and what an answer means; `poller` asks; `records` is what is stored, and what follows
//! from it; `poll_until_complete` stores what is learned before it is published. The worker goes on from there after a restart.
//! `flush_requests` are people who want to see how they stand now.

pub(crate) mod call;
pub(crate) mod decide;
pub(crate) mod flush_requests;
pub(crate) mod poll_until_complete;
pub(crate) mod poller;
pub(crate) mod records;
