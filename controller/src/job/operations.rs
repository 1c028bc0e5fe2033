//! Item operations: polled from their start to their end, by whichever process is there.
//!
//! `decide` says what is asked when, and what an answer means; `poller` asks; `records` is what is stored, and what follows
//! from it; `poll_until_complete` stores what is learned before it is published. The worker goes on from there after a restart.
//! `flush_requests` are people who want to see how they stand now.

pub mod call;
pub mod decide;
pub mod flush_requests;
pub mod poll_until_complete;
pub mod poller;
pub mod records;

use std::sync::Arc;

use backup_actions::backup;
use backup_runtime::clock::Clock;

use crate::context::Context;
use call::Registry;
use poller::PollConfig;

/// What operations are polled with. Calls under way are bounded for all of this process together.
pub fn poll_config(ctx: &Context) -> PollConfig {
    let all = backup::built_in(&ctx.cluster, ctx.args.csi(), &Arc::default()).into_iter();
    PollConfig {
        registry: Arc::new(Registry::new(all, ctx.plugins.clone())),
        permits: Arc::clone(&ctx.operation_permits),
        flush_requests: ctx.flush_requests.clone(),
        pace: decide::Pace::of(ctx.args.operation_pace().as_std()),
        clock: Clock::default(),
    }
}
