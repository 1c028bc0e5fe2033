//! Item operations: polled from start to end, by whichever process leads.
//!
//! `decide` says when to ask what, and what an answer means; `poller` asks; `records` defines what
//! is stored, and what is derived from it; `poll_until_complete` stores what is learned before it
//! is published. After a restart the worker continues from the stored state. `flush_requests` come
//! from users who want to see the current state.

pub(crate) mod call;
pub(crate) mod decide;
pub(crate) mod flush_requests;
pub(crate) mod poll_until_complete;
pub(crate) mod poller;
pub(crate) mod records;
