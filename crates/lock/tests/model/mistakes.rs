//! Plausible mistakes. Each is made by the model around the production transitions; none is in
//! production.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// The webhook reads the stored objects and allows; work starts on sight. The naive design.
    LookThenAllow,
    /// A collected orphan counts as proof that its object never comes: work starts without
    /// activation.
    OrphanIsProof,
    /// The claim is released before the terminal phase is written.
    ReleaseFirst,
    /// An Active claim ends because of its age.
    ExpiryByClock,
    /// A replica allows by its remembered ledger, whatever the result of its write.
    GrantFromMemory,
    /// A footprint belongs to a name: the footprint of a second creation of the name is not
    /// compared.
    FootprintByName,
    /// Active ends when its object is marked for deletion.
    DroppedWhenDeleting,
    /// Waiting entries are promoted to Active instead of Reserved.
    PromotedToActive,
    /// A DELETE of a backup looks for restores, and adds no claim.
    DeleteThatLooks,
    /// Backups are granted while a lost ledger is rebuilt: they are shared, after all.
    GrantInRebuild,
    /// A refusal uses the ledger alone: the conflicting objects are not read.
    RefusalFromMemory,
    /// Newcomers are granted past a waiting restore.
    WaitingIsIgnored,
    /// A running backup yields to a restore, too.
    BegunYields,
    /// A release does not promote waiting entries.
    NobodyPromotes,
    /// An orphan is marked suspect, and is never removed.
    OrphansStay,
    /// A rebuilt ledger counts its epochs from zero.
    EpochFromNought,
    /// The record of a release by force is dropped.
    ReleasedIsForgotten,
    /// Work continues although its claim was released by force.
    NoFence,
    /// A terminal phase that a user writes frees the place, even if a worker still runs.
    EndByHandFrees,
    /// A worker releases its claim when it sees that a user ended its object, and continues to
    /// work.
    EndedWorks,
    /// A leader that resumes past its lease continues to work.
    WakesAndWorks,
    /// A revival is reserved like a creation: its object's old status ends it.
    RevivalAsCreation,
    /// A second installation activates claims in a ledger of its own.
    LedgerOfItsOwn,
    /// An activation in a lost ledger is used for the first time after another ledger replaced it.
    RightOutlivesLedger,
}
