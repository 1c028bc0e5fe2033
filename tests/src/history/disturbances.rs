//! Faults around the programs in a soak, one after another and beside the faults of the histories:
//! store and network are slow, lose requests, or stall; the webhook's certificate and our programs
//! are replaced.

use std::{sync::Arc, time::Duration};

use tokio::time::sleep;

use super::{
    faults::{Faults, Link, Point},
    random::Random,
};
use crate::{World, binaries::Programs, proxy::Fault};

/// Longest time of a disturbance, and between two (seconds).
const MAX_SECONDS: u64 = 8;
const BETWEEN: u64 = 6;
/// Delay of each piece of data when store or network are slow.
const SLOW: Duration = Duration::from_millis(150);

/// Disturbs for ever; every second rollout is to the `other` programs. All disturbances end when
/// this is dropped.
pub(crate) async fn disturb(
    world: &World,
    faults: &Arc<Faults>,
    seed: u64,
    other: Option<&Programs>,
) -> anyhow::Result<()> {
    let mut versions = [other.unwrap_or(world.programs()), world.programs()]
        .into_iter()
        .cycle();
    let store = &world.s3()?.front;
    let calm = Calm { world, faults };
    let mut random = Random::of(seed, u64::MAX);
    loop {
        sleep(Duration::from_secs(2 + random.below(BETWEEN))).await;
        let point = random.pick(&Point::OF_A_SOAK);
        match point {
            Point::StoreRefused => store.set(Fault::Refuse),
            Point::StoreStalled => store.set(Fault::Stall),
            Point::StoreSlow => store.set(Fault::Delay(SLOW)),
            Point::NetworkSlow => faults.set_link(Link::Slow(SLOW)),
            Point::NetworkLossy => faults.set_link(Link::Lossy),
            // Replicas find new files themselves; the authority is the same.
            Point::CertificateReplaced => {
                drop(
                    world
                        .plane
                        .pki()
                        .map(|pki| pki.server("histories"))
                        .transpose()?,
                );
            }
            Point::RolledOut => {
                if let Some(version) = versions.next() {
                    faults.webhooks.roll(&version.webhook).await;
                    faults.controllers.roll(&version.controller).await;
                }
            }
            _ => {}
        }
        faults.count(point);
        sleep(Duration::from_secs(1 + random.below(MAX_SECONDS))).await;
        calm.restore();
    }
}

struct Calm<'a> {
    world: &'a World,
    faults: &'a Faults,
}

impl Calm<'_> {
    fn restore(&self) {
        if let Some(s3) = &self.world.s3 {
            s3.front.set(Fault::None);
        }
        self.faults.set_link(Link::Good);
    }
}

impl Drop for Calm<'_> {
    fn drop(&mut self) {
        self.restore();
    }
}
