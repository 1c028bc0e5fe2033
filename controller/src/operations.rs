//! Item operations: followed from their start to their end, by whichever process is there.
//!
//! `decide` says what is asked when, and what an answer means; `following` asks; `kept` is what is stored, and what follows
//! from it; `keeping` sees to it that what is learned is in the store before it is published. Whoever works on the backup
//! (`backup::worker`) or restore (`restore::operating`) goes on from there after a restart. `executing` is for actions that
//! may start some: what they have done is noted in a `notebook`. `looks` are people who want to see how they stand now.

pub mod call;
pub mod decide;
pub mod executing;
pub mod following;
pub mod keeping;
pub mod kept;
pub mod looks;
pub mod notebook;

use std::sync::Arc;

use backup_actions::backup;
use backup_runtime::clock::Clock;

use crate::context::Context;
use call::Registry;
use following::Means;

/// What operations are followed with. Calls under way are bounded for all of this process together.
pub fn means(ctx: &Context) -> Means {
    let all = backup::built_in(&ctx.cluster, ctx.args.csi(), &Arc::default()).into_iter();
    Means {
        registry: Arc::new(Registry::new(all, ctx.plugins.clone())),
        permits: Arc::clone(&ctx.operation_permits),
        looks: ctx.looks.clone(),
        pace: decide::Pace::of(ctx.args.operation_pace().as_std()),
        clock: Clock::default(),
    }
}
