//! Item operations: followed from their start to their end, by whichever process is there.
//!
//! `decide` says what is asked when, and what an answer means; `following` asks; `kept` is what is stored, and what follows
//! from it for the backup. The worker of the backup (`backup::worker`) keeps what it learns in the store before it is
//! published, and goes on from there after a restart.

pub mod call;
pub mod decide;
pub mod following;
pub mod kept;

use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::{backup::actions, context::Context, runtime::clock::Clock};
use call::Registry;
use following::Means;

/// What operations are followed with, for all backups of this process.
pub fn means(ctx: &Context) -> Means {
    let all = actions::all(ctx, &Arc::default()).into_iter();
    Means {
        registry: Arc::new(Registry::new(all, ctx.plugins.clone())),
        permits: Arc::new(Semaphore::new(usize::from(ctx.args.item_operation_concurrency))),
        pace: decide::Pace::of(ctx.args.operation_pace().as_std()),
        clock: Clock::default(),
    }
}
