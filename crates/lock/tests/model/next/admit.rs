//! The webhook's replicas, and the API servers that store what they admit.

use backup_lock::{
    Ledger, ObjectKind, State,
    admission::{Batch, ClaimRequest, admit_all},
    conflict::keeps_out,
    ledger::{Refusal, Status},
    transition::{PriorObservation, Reason},
};

use super::{Lock, Mistake, remove};
use crate::model::{
    scenarios::Wish,
    state::{Bits, Collecting, Deciding, Lease, Object, Phase, Stage, World},
};

impl Lock {
    pub(super) fn take(&self, world: &mut World, replica: usize, wants: &[usize]) -> Option<()> {
        let lease = world.lease.clone()?;
        if let [request] = wants
            && let Wish::Delete { target } = self.scenario.requests[*request].wish
            && world.objects[self.scenario.requests[*request].name]
                .is_none_or(|object| object.uid != target)
        {
            // Not found: nothing to decide.
            world.requests[*request] = Stage::Dropped;
            return Some(());
        }
        let backups = |request: &usize| self.want(*request).key.kind == ObjectKind::Backup;
        let may = match lease.ledger.status {
            Status::Open => true,
            Status::Rebuilding => self.makes(Mistake::GrantInRebuild) && wants.iter().all(backups),
            _ => false,
        };
        let looked = match wants {
            [request] if self.only_looks(*request) => Some(self.nothing_stored(world, *request)),
            _ => None,
        };
        // 503 until it is open.
        may.then_some(())?;
        let remembered = world.replicas[replica]
            .remembered
            .take()
            .filter(|remembered| {
                let wants = self.wants_over(&remembered.ledger, wants);
                admit_all(&mut Ledger::clone(&remembered.ledger), &wants)
                    .iter()
                    .all(Result::is_ok)
            });
        let base = remembered.unwrap_or(lease);
        for want in wants {
            world.requests[*want] = Stage::Taken;
        }
        world.replicas[replica].deciding = Some(Deciding {
            wants: wants.to_vec(),
            base,
            looks: Vec::new(),
            justified: Bits::default(),
            looked,
        });
        Some(())
    }

    /// The claim whose object the production decision wants read before it answers.
    pub fn to_read(&self, deciding: &Deciding) -> Option<backup_lock::Claim> {
        if deciding.looked.is_some() || self.makes(Mistake::RefusalFromMemory) {
            return None;
        }
        let wants = self.wants_over(&deciding.base.ledger, &deciding.wants);
        self.batch(deciding, &wants).1
    }

    pub(super) fn look(&self, world: &mut World, replica: usize, aged: bool) -> Option<()> {
        let deciding = world.replicas[replica].deciding.as_ref()?;
        let claim = self.to_read(deciding)?;
        let observed = self.observed(world, &claim.key);
        let prior = |aged| PriorObservation {
            stored: false,
            aged,
            overdue: false,
        };
        if aged
            && self.judge(&claim, &observed, |_| prior(true))
                == self.judge(&claim, &observed, |_| prior(false))
        {
            return None;
        }
        world.replicas[replica]
            .deciding
            .as_mut()?
            .looks
            .push(Some((observed, aged)));
        Some(())
    }

    pub(super) fn answer(&self, world: &mut World, replica: usize, lost: bool) -> Option<()> {
        let deciding = world.replicas[replica].deciding.take()?;
        if let Some(free) = deciding.looked {
            deciding.wants.iter().for_each(|want| {
                world.requests[*want] = if free {
                    Stage::Admitted
                } else {
                    Stage::Refused
                };
            });
            return (!lost).then_some(());
        }
        let wants = self.wants_over(&deciding.base.ledger, &deciding.wants);
        let decided = self.batch(&deciding, &wants).0.decide();
        let mut ledger = decided.ledger;
        ledger.status = deciding.base.ledger.status;
        if self.makes(Mistake::WaitingIsIgnored) {
            let ignored = deciding
                .base
                .ledger
                .claims
                .iter()
                .filter(|claim| claim.state() == State::Waiting);
            ledger.claims.extend(ignored.cloned());
        }
        let granted = decided.outcomes.iter().any(Result::is_ok);
        if granted || ledger != *deciding.base.ledger {
            let written = self.write(world, &deciding.base, ledger);
            if lost {
                written.then_some(())?;
                world.left.lost_replies -= 1;
            }
            if lost || !written && !self.makes(Mistake::GrantFromMemory) {
                deciding
                    .wants
                    .iter()
                    .for_each(|want| world.requests[*want] = Stage::Unsent);
                return Some(());
            }
            if written {
                self.note_haste(world, &deciding, &decided.freed);
            }
        } else if lost {
            return None;
        }
        if self.scenario.remembers {
            // After a write: the written ledger; otherwise the one that was read.
            world.replicas[replica].remembered.clone_from(&world.lease);
        }
        let blind = deciding.looks.contains(&None);
        for (want, outcome) in deciding.wants.iter().zip(decided.outcomes) {
            world.requests[*want] = match outcome {
                Ok(grant) => {
                    let reserved = matches!(grant, backup_lock::ledger::Grant::Reserved);
                    self.note_grant(world, *want, &deciding.base, reserved);
                    Stage::Admitted
                }
                Err(Refusal::Conflict(_)) if !blind => {
                    world.wrong.unjustified |= !deciding.justified.has(*want);
                    Stage::Refused
                }
                // Our own problem: 503.
                Err(_) => Stage::Dropped,
            };
        }
        Some(())
    }

    pub(super) fn land(&self, world: &mut World, request: usize) -> Option<()> {
        let asked = &self.scenario.requests[request];
        let want = self.want(request);
        let claimed = world
            .lease
            .as_ref()
            .is_some_and(|lease| lease.ledger.entry(&want.key, &want.uid).is_some());
        match asked.wish {
            Wish::Create { .. } => {
                if !self.scenario.late && !self.in_time(world, request) {
                    return None;
                }
                let free = world.objects[asked.name].is_none();
                if free {
                    let phase = Phase::New;
                    let object = Object {
                        uid: request,
                        phase,
                        deleting: false,
                        held: false,
                        revived: 0,
                    };
                    world.objects[asked.name] = Some(object);
                }
                world.requests[request] = if free { Stage::Landed } else { Stage::Dropped };
            }
            // The write is conditional on the version that was admitted.
            Wish::Revive { target } => {
                if !self.in_time(world, request) {
                    return None;
                }
                let slot = world.objects[asked.name].as_mut();
                let ended = slot.filter(|object| {
                    object.uid == target && object.phase == Phase::Over && object.revived == 0
                });
                let revived = ended
                    .map(|object| (object.phase, object.revived) = (Phase::New, 1))
                    .is_some();
                world.requests[request] = if revived {
                    Stage::Landed
                } else {
                    Stage::Dropped
                };
            }
            // A deletion starts on sight: it never starts late, while work is running (see
            // docs/evidence/models.md).
            Wish::Delete { target } => {
                let working = |object: &Object| {
                    object.phase == Phase::InProgress && self.clash(request, object.uid)
                };
                let under_work = world.objects.iter().flatten().any(working);
                if !claimed && under_work && !self.makes(Mistake::DeleteThatLooks) {
                    return None;
                }
                let slot = &mut world.objects[asked.name];
                if slot.is_some_and(|object| object.uid == target) {
                    remove(slot);
                }
                world.requests[request] = Stage::Landed;
            }
        }
        Some(())
    }

    /// Whether the object arrives before its timeout: the only protection against an operator that
    /// starts on sight. A restore arrives before it is suspected; a backup also while its tombstone
    /// exists.
    fn in_time(&self, world: &World, request: usize) -> bool {
        let want = self.want(request);
        let entry = world
            .lease
            .as_ref()
            .and_then(|lease| lease.ledger.entry(&want.key, &want.uid));
        let waited = |deciding: &Deciding| deciding.looks.iter().flatten().any(|(_, aged)| *aged);
        let judged = world.collecting.iter().any(|collecting| match collecting {
            Collecting::Judged(judged) => judged.iter().any(|one| {
                one.key == want.key && entry.is_some_and(|entry| entry.stands_as(&one.entry))
            }),
            _ => false,
        });
        if !self.scenario.on_sight {
            // An object whose claim was released by force is not expected once its entry is judged.
            return entry.is_some_and(|entry| entry.state != State::Released || !judged);
        }
        let patient = !judged
            && !world
                .replicas
                .iter()
                .filter_map(|one| one.deciding.as_ref())
                .any(waited);
        let reserved =
            |entry: &backup_lock::Entry| entry.state == State::Reserved && !entry.suspect;
        patient && entry.is_some_and(|entry| want.key.kind == ObjectKind::Backup || reserved(entry))
    }

    /// After every step: records the conflicts of each request that is being decided.
    pub(super) fn justify(&self, world: &mut World) {
        for replica in 0..world.replicas.len() {
            let Some(deciding) = &world.replicas[replica].deciding else {
                continue;
            };
            let new: Vec<usize> = deciding
                .wants
                .iter()
                .copied()
                .filter(|want| {
                    !deciding.justified.has(*want) && self.in_the_way(world, deciding, *want)
                })
                .collect();
            if let Some(deciding) = &mut world.replicas[replica].deciding {
                for want in new {
                    deciding.justified.add(want);
                }
            }
        }
    }

    /// Whether a refusal would be right now: a conflicting object that is not over, an entry that
    /// cannot be known to be over, or another request of this batch.
    fn in_the_way(&self, world: &World, deciding: &Deciding, want: usize) -> bool {
        let stored = |object: &Object| object.phase != Phase::Over && self.clash(want, object.uid);
        if world.objects.iter().flatten().any(stored)
            || deciding.wants.iter().any(|other| self.clash(want, *other))
        {
            return true;
        }
        let kind = self.want(want).key.kind;
        let entries = world.lease.iter().flat_map(|lease| &lease.ledger.claims);
        entries
            .flat_map(|claim| claim.entries.iter().map(move |entry| (claim, entry)))
            .any(|(claim, entry)| {
                let clashes = self
                    .request_of(&claim.key, &entry.uid)
                    .is_some_and(|other| self.clash(want, other));
                let observed = self.observed(world, &claim.key);
                let same = observed.is_of(entry);
                let settles = self.scenario.ends.settles && claim.key.kind == ObjectKind::Restore;
                let held = same && !observed.settled && claim.key.kind == ObjectKind::Restore;
                let stands = match entry.state {
                    // Its end begins a settle delay, or its worker may not have stopped.
                    State::Active | State::Reserved if settles || held => true,
                    State::Active => same && !observed.over,
                    State::Reserved | State::Waiting => {
                        !(same && observed.over) || claim.key.kind == ObjectKind::Deletion
                    }
                    _ => keeps_out(entry, kind),
                };
                clashes && stands
            })
    }

    /// The claim requests; a mistake may make them depend on this ledger.
    fn wants_over(&self, ledger: &Ledger, wants: &[usize]) -> Vec<ClaimRequest> {
        wants
            .iter()
            .map(|want| self.want_over(ledger, *want))
            .collect()
    }

    /// The claim request; a mistake may make it depend on this ledger.
    pub(super) fn want_over(&self, ledger: &Ledger, request: usize) -> ClaimRequest {
        let mut want = self.want(request).clone();
        if self.makes(Mistake::FootprintByName)
            && let Some(entry) = ledger
                .claim(&want.key)
                .and_then(|claim| claim.entries.first())
        {
            want.footprint.clone_from(&entry.footprint);
        }
        if self.makes(Mistake::RevivalAsCreation) {
            want.ask.revives.clear();
        }
        want
    }

    /// The state of the decision, and the next claim to look at. Concurrent reads are modelled one
    /// by one, at different times.
    fn batch<'a>(
        &self,
        deciding: &Deciding,
        wants: &'a [ClaimRequest],
    ) -> (Batch<'a>, Option<backup_lock::Claim>) {
        let mut fresh = Ledger::clone(&deciding.base.ledger);
        if self.makes(Mistake::GrantInRebuild) {
            fresh.status = Status::Open;
        }
        if self.makes(Mistake::WaitingIsIgnored) {
            let others = |entry: &backup_lock::Entry| entry.state != State::Waiting;
            fresh.claims = fresh
                .claims
                .iter()
                .filter_map(|claim| claim.only(others))
                .collect();
        }
        if self.makes(Mistake::BegunYields) && wants.iter().any(|want| want.ask.queue) {
            let all = fresh
                .claims
                .iter_mut()
                .filter(|claim| claim.key.kind == ObjectKind::Backup);
            let active = all
                .flat_map(|claim| &mut claim.entries)
                .filter(|entry| entry.state == State::Active);
            active.for_each(|entry| entry.state = State::Reserved);
        }
        let mut batch = Batch::new(&fresh, wants);
        let mut looks = deciding.looks.iter();
        loop {
            let claims = batch.to_read();
            if claims.is_empty() {
                return (batch, None);
            }
            for claim in claims {
                let Some(look) = looks.next() else {
                    return (batch, Some(claim));
                };
                match look {
                    None => batch.could_not_see(&claim),
                    Some((observed, aged)) => {
                        let prior = |_: &backup_lock::Entry| PriorObservation {
                            stored: false,
                            aged: *aged,
                            overdue: false,
                        };
                        batch.saw(&claim, &self.judge(&claim, observed, prior));
                    }
                }
            }
        }
    }

    fn only_looks(&self, request: usize) -> bool {
        let deletes = self.want(request).key.kind == ObjectKind::Deletion;
        self.makes(Mistake::LookThenAllow) || deletes && self.makes(Mistake::DeleteThatLooks)
    }

    fn nothing_stored(&self, world: &World, request: usize) -> bool {
        let in_the_way =
            |object: &Object| object.phase != Phase::Over && self.clash(request, object.uid);
        !world.objects.iter().flatten().any(in_the_way)
    }

    /// Records whether a new grant coexists with a conflicting one.
    fn note_grant(&self, world: &mut World, want: usize, base: &Lease, reserved: bool) {
        let clashing = |ledger: &Ledger, states: &[State]| {
            ledger.claims.iter().any(|claim| {
                claim.entries.iter().any(|entry| {
                    let other = self.request_of(&claim.key, &entry.uid);
                    states.contains(&entry.state)
                        && other.is_some_and(|other| self.clash(want, other))
                })
            })
        };
        if !reserved {
            return;
        }
        let holds = [State::Reserved, State::Active, State::Settling];
        let works = |object: &Object| {
            let claimed = object.phase == Phase::InProgress && !world.released.has(object.uid);
            claimed && self.clash(want, object.uid)
        };
        let work = self.want(want).key.kind != ObjectKind::Deletion
            && world.objects.iter().flatten().any(works);
        let beside = world
            .lease
            .as_ref()
            .is_some_and(|lease| clashing(&lease.ledger, &holds));
        world.wrong.beside |= beside || work;
        let asked = self.want(want);
        let own = base.ledger.entry(&asked.key, &asked.uid).is_some();
        let still = |claim: &backup_lock::Claim| {
            let now = world
                .lease
                .as_ref()
                .and_then(|lease| lease.ledger.claim(&claim.key));
            claim.only(|entry| {
                now.is_some_and(|now| {
                    now.entry(&entry.uid)
                        .is_some_and(|now| now.state == State::Waiting)
                })
            })
        };
        // A waiting backup has yielded to a restore, and yields to the next one, too.
        let in_order = |claim: &&backup_lock::Claim| {
            !self.scenario.yields || claim.key.kind != ObjectKind::Backup
        };
        let claims = base
            .ledger
            .claims
            .iter()
            .filter(in_order)
            .filter_map(still)
            .collect();
        let waited = Ledger {
            claims,
            ..Ledger::default()
        };
        world.wrong.overtook |= !own && clashing(&waited, &[State::Waiting]);
    }

    fn note_haste(&self, world: &mut World, deciding: &Deciding, freed: &[Reason]) {
        if !freed
            .iter()
            .any(|reason| matches!(reason, Reason::Gone | Reason::Over))
        {
            return;
        }
        let after = world.lease.as_ref().map(|lease| lease.ledger.clone());
        for claim in &deciding.base.ledger.claims {
            for entry in &claim.entries {
                let gone = after
                    .as_ref()
                    .is_some_and(|ledger| ledger.entry(&claim.key, &entry.uid).is_none());
                let unaged = deciding.looks.iter().flatten().all(|(_, aged)| !aged);
                if gone && unaged && self.in_flight(world, &claim.key, &entry.uid) {
                    world.wrong.hasty = true;
                }
            }
        }
    }
}
