//! The patches of a kind of object, and the end that the last of them publishes. Pure.

use backup_core::phase::Stage;
use backup_store::{JobFiles, StoreError};
use jiff::Timestamp;
use serde_json::Value;

use super::kind::{JobKind, Operation, Outcome, PhaseOf};

/// Each patch is a merge patch; `None` if the current phase does not allow the step.
pub(crate) trait Patches: JobKind {
    type Turn: Copy + Send + Sync;

    fn turn_patch(_now: &Self::Object, _turn: Self::Turn) -> Option<Value> {
        None
    }
    fn begin_patch(&self, now: &Self::Object, facts: &Self::Facts) -> Option<Value>;
    fn refused_patch(
        &self,
        now: &Self::Object,
        facts: &Self::Facts,
        findings: &[String],
    ) -> Option<Value>;
    fn announce_patch(
        now: &Self::Object,
        next: &PhaseOf<Self>,
        files: &JobFiles,
        summary: &Self::Summary,
    ) -> Option<Value>;
    /// Publishes the results of the items, which were done before the operations ended.
    fn worked_patch(now: &Self::Object, status: &Value) -> Option<Value>;
    fn operations_patch(
        now: &Self::Object,
        next: &PhaseOf<Self>,
        operations: &[Operation<Self>],
        files: &JobFiles,
    ) -> Option<Value>;
    /// Reverts [`Self::rests_patch`].
    fn claims_again_patch(_now: &Self::Object) -> Option<Value> {
        None
    }
    /// Records that the object no longer needs anything of the cluster, so that its claim can be
    /// released.
    fn rests_patch(_now: &Self::Object) -> Option<Value> {
        None
    }
    fn terminal_patch(now: &Self::Object, outcome: &Outcome<Self>) -> Option<Value>;

    /// The end to record.
    fn outcome(
        object: &Self::Object,
        files: &JobFiles,
        summary: &Self::Summary,
        at: Timestamp,
    ) -> Result<Outcome<Self>, StoreError>;
    /// The uid and the stage of an end stored under the name, for kinds that store their ends
    /// visibly.
    fn stored_end(outcome: &Outcome<Self>) -> (String, Stage);
}
