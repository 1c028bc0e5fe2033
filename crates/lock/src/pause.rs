//! Pauses between tries: doubling, capped, with full jitter.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

const FIRST: Duration = Duration::from_millis(5);
const CAP: Duration = Duration::from_millis(400);

/// How long to wait after the `tries`th failure (from 0): anything up to the step. Nothing secret depends on it.
pub(crate) fn after(tries: u32) -> Duration {
    let step = FIRST.saturating_mul(1 << tries.min(10)).min(CAP);
    let random = RandomState::new().hash_one(tries) % 1000;
    step.mul_f64(f64::from(u16::try_from(random).unwrap_or(999) + 1) / 1000.0)
}
