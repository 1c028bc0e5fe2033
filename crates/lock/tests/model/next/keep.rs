//! The repair: a ledger that was lost is rebuilt.

use std::sync::Arc;

use backup_lock::{Entry, Ledger, State};

use super::{Lock, Mistake, uid_text};
use crate::model::state::{Bits, Lease, Object, Phase, Worker, World};

impl Lock {
    /// As `LedgerRepair::repair` on a missing Lease.
    pub(super) fn repair(&self, world: &mut World) {
        let epoch = if self.makes(Mistake::EpochFromNought) {
            0
        } else {
            world.marker.epoch
        };
        let ledger = Ledger::lost(epoch, self.rules());
        world.lease = Some(Lease {
            uid: world.marker.ledger + 1,
            ledger: Arc::new(ledger),
        });
    }

    /// As `LedgerStore::from_running`, a whole grace after the loss. An activation from before the
    /// loss that has not been used by now is invalid (see docs/evidence/models.md).
    pub(super) fn list(&self, world: &mut World) {
        if !self.makes(Mistake::RightOutlivesLedger) {
            let unused = |worker: &&mut Worker| matches!(worker, Worker::Right(_));
            world
                .workers
                .iter_mut()
                .filter(unused)
                .for_each(|worker| *worker = Worker::Idle);
        }
        let found = |(name, object): (usize, &Option<Object>)| {
            let object = object.filter(|object| object.phase != Phase::Over)?;
            let state = if object.phase == Phase::New {
                State::Reserved
            } else {
                State::Active
            };
            let footprint = self.want(object.uid).footprint.clone();
            Some((
                self.key(name),
                Entry::new(&uid_text(object.uid), footprint, state, ""),
            ))
        };
        let mut ledger = Ledger {
            rules: self.rules(),
            ..Ledger::default()
        };
        ledger.adopt_running(
            world.objects.iter().enumerate().filter_map(found).collect(),
            !self.scenario.on_sight,
        );
        world.listed = Some(Arc::new(ledger));
    }

    /// As `rebuild` in `lease::lifecycle`: the marker names the new ledger.
    pub(super) fn open(&self, world: &mut World) -> Option<()> {
        let listed = world.listed.take()?;
        let over = world.lease.clone()?;
        let mut ledger = Ledger::clone(&listed);
        ledger.go_on_from(over.ledger.epoch);
        world.marker.ledger = over.uid;
        world.marker.epoch = world.marker.epoch.max(ledger.epoch);
        let mut adopted = Bits::default();
        for entry in ledger.claims.iter().flat_map(|claim| &claim.entries) {
            if let Some(uid) = entry.uid.strip_prefix('u').and_then(|uid| uid.parse().ok()) {
                adopted.add(uid);
            }
        }
        world.adopted = adopted;
        self.write(world, &over, ledger);
        Some(())
    }
}
