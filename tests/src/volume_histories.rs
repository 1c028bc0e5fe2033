//! Histories of one repository of volume data: random backups, restores, deletions, maintenances
//! and crashes, by the real `backup-mover`. After each step the repository holds the snapshots of
//! completed backups, and each of them can be restored.
//!
//! `plan` makes the steps of a history, `volume` the files; both follow from the seed. `program`
//! starts, pauses and kills `backup-mover`, `repository` looks into the store. `player` carries out
//! the steps, `record` says what has to hold, and `report` adds up. `run` plays histories side by
//! side.

mod plan;
mod player;
mod program;
mod record;
mod report;
mod repository;
mod run;
mod volume;

pub use plan::VolumeMistake;
pub use report::VolumeHistoryReport;
pub use run::VolumeHistories;
