//! The state kept for an object that has not ended.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use backup_core::phase::Stage;
use backup_lock::Footprint;
use kube::Resource as _;
use tokio::time::Instant;

use crate::job::{
    finalizers,
    lifecycle::{Lifecycle, Ticket},
    object::JobObject as _,
};

/// An object as last seen.
pub(crate) struct Entry<L: Lifecycle> {
    pub object: Arc<L::Object>,
    footprint: Footprint,
    stage: Stage,
    pub busy: bool,
    pub failures: u32,
    pub not_before: Option<Instant>,
    /// Whether the claim of its worker waits for a restore; shared with the worker.
    pub yields: Arc<AtomicBool>,
}

impl<L: Lifecycle> Entry<L> {
    pub(crate) fn new(object: L::Object) -> Self {
        Self {
            footprint: L::footprint(&object),
            stage: object.stage(),
            object: Arc::new(object),
            busy: false,
            failures: 0,
            not_before: None,
            yields: Arc::default(),
        }
    }

    pub(crate) fn uid(&self) -> &str {
        self.object.meta().uid.as_deref().unwrap_or_default()
    }

    /// Takes the object as seen, unless it is older than the known one: a job's own write may
    /// arrive before the watch event.
    pub(crate) fn update(&mut self, object: L::Object) {
        if version::<L>(&object) < version::<L>(&self.object) {
            return;
        }
        if self.stage != object.stage() {
            self.stage = object.stage();
            self.footprint = L::footprint(&object);
            self.failures = 0;
        }
        self.object = Arc::new(object);
    }

    /// Whether the object needs a worker: from its turn until it has ended and nothing of the work
    /// is left.
    pub(crate) fn needs_worker(&self) -> bool {
        let deleting = self.object.is_deleting();
        let held = finalizers::is_held::<L>(&self.object);
        if self.stage == Stage::Unknown {
            return deleting && held && L::KIND.is_let_go_in_unknown_phase();
        }
        // A deleted object that only finalizers of others hold needs no worker.
        if deleting || self.stage.is_terminal() {
            return held;
        }
        if L::KIND.waits_for_turn(self.stage) {
            return self.object.is_cancelled();
        }
        true
    }

    pub(crate) fn ticket<'a>(&'a self, name: &'a str) -> Ticket<'a> {
        Ticket {
            name,
            stage: self.stage,
            position: L::position(&self.object),
            created: self
                .object
                .meta()
                .creation_timestamp
                .as_ref()
                .map(|time| time.0),
            leaving: self.object.is_deleting() || self.object.is_cancelled(),
            busy: self.busy,
            held_back: self.not_before.is_some(),
            yields: self.busy && self.yields.load(Ordering::Relaxed),
            footprint: &self.footprint,
        }
    }
}

/// Resource versions of one kind grow; one that is not a number counts as new.
fn version<L: Lifecycle>(object: &L::Object) -> u64 {
    let version = object.meta().resource_version.as_deref();
    version
        .and_then(|version| version.parse().ok())
        .unwrap_or(u64::MAX)
}
