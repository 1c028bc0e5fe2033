//! Plausible mistakes. Each is made by the model around the production transitions; none is in production.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// The webhook looks at what is stored and allows; work starts on sight. The naive design.
    LookThenAllow,
    /// A collected orphan counts as proof that its object never comes: work starts without activation.
    OrphanIsProof,
    /// The claim is given back before the terminal phase is written.
    ReleaseFirst,
    /// An Active claim ends because it is old.
    ExpiryByClock,
    /// A replica allows by the ledger that it remembers, whatever becomes of its write.
    GrantFromMemory,
    /// A footprint belongs to a name: what a second creation of the name asks for is not compared.
    FootprintByName,
    /// Active ends when its object is marked for deletion.
    DroppedWhenDeleting,
    /// Who waited becomes Active, not Reserved.
    PromotedToActive,
    /// A DELETE of a backup looks for restores, and claims nothing.
    DeleteThatLooks,
    /// Backups are granted while a lost ledger is rebuilt: they are shared, after all.
    GrantInRebuild,
    /// A refusal rests on the ledger alone: the blockers' objects are not read.
    RefusalFromMemory,
    /// Newcomers are granted past a restore that waits.
    WaitingIsIgnored,
    /// A backup that works lets a restore go first, too.
    BegunYields,
    /// Whoever frees a place leaves those who wait for it as they are.
    NobodyPromotes,
    /// An orphan is suspected, and stays.
    OrphansStay,
    /// A rebuilt ledger counts its epochs from the beginning.
    EpochFromNought,
    /// What was released by force is forgotten.
    ReleasedIsForgotten,
    /// Work goes on although its claim was taken by force.
    NoFence,
    /// An end that a person writes frees the place, whoever still works.
    EndByHandFrees,
    /// A worker gives its claim back when it sees an end that a person wrote, and works on.
    EndedWorks,
    /// Who wakes past its lease works on.
    WakesAndWorks,
    /// A revival is reserved as a creation is: its object's old status ends it.
    RevivalAsCreation,
    /// A second installation takes the right to work from a ledger of its own.
    LedgerOfItsOwn,
    /// A right to work from a lost ledger is used for the first time after another took its place.
    RightOutlivesLedger,
}
