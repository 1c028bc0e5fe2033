//! The repair: a ledger that was lost is rebuilt.

use std::sync::Arc;

use backup_lock::{Ledger, State, ledger::Status};

use super::{Lock, Mistake, uid_text};
use crate::model::state::{Bits, Lease, Phase, Worker, World};

impl Lock {
    /// As `LedgerRepair::repair` on a missing Lease.
    pub(super) fn repair(&self, world: &mut World) {
        let epoch = if self.makes(Mistake::EpochFromNought) { 0 } else { world.marker.epoch + 1 };
        let ledger = Ledger { status: Status::Rebuilding, epoch, ..Ledger::default() };
        world.lease = Some(Lease { uid: world.marker.ledger + 1, ledger: Arc::new(ledger) });
    }

    /// As `LedgerStore::from_running`, a whole grace after the loss. A right to work that was given
    /// before the loss and has not been used by now is worth nothing any more (see docs/evidence/models.md).
    pub(super) fn list(&self, world: &mut World) {
        if !self.makes(Mistake::RightOutlivesLedger) {
            let unused = |worker: &&mut Worker| matches!(worker, Worker::Right(_));
            world.workers.iter_mut().filter(unused).for_each(|worker| *worker = Worker::Idle);
        }
        let mut ledger = Ledger::default();
        for (name, object) in world.objects.iter().enumerate() {
            let Some(object) = object.filter(|object| object.phase != Phase::Over) else { continue };
            let state = if object.phase == Phase::New { State::Reserved } else { State::Active };
            let footprint = &self.want(object.uid).footprint;
            ledger.adopt(&self.key(name), &uid_text(object.uid), footprint, state, "");
        }
        world.listed = Some(Arc::new(ledger));
    }

    /// As `rebuild` in `lease::open`: epochs go on from the lost ledger's, the marker names the new one.
    pub(super) fn open(&self, world: &mut World) -> Option<()> {
        let listed = world.listed.take()?;
        let over = world.lease.clone()?;
        let mut ledger = Ledger::clone(&listed);
        ledger.epoch += over.ledger.epoch;
        for claim in &mut ledger.claims {
            claim.entries.iter_mut().for_each(|entry| entry.epoch += over.ledger.epoch);
        }
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
