//! Decides which backups are queued and started. Pure, and from stored phases alone: there is no
//! counter that could leak.
//!
//! Backups start in order of arrival. A backup that overlaps a running or an earlier waiting one
//! waits, too; so a wide backup is never overtaken for ever by narrow ones. A start costs one
//! write, whatever the length of the queue.

use std::cmp::Ordering;

use backup_core::phase::Stage;
use backup_lock::Footprint;

use crate::job::lifecycle::Ticket;

/// The change to write to a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// From New to Queued, at this position. The position is written once and not moved up.
    Queue {
        /// From 1.
        position: i64,
    },
    /// From Queued to ReadyToStart.
    Start,
}

/// The turns that are due, by name. `slots` is the maximum number of backups that collect at the
/// same time.
pub(crate) fn turns(tickets: &[Ticket<'_>], slots: usize) -> Vec<(String, Turn)> {
    let mut due = queue(tickets);
    let mut running: Vec<&Footprint> = tickets
        .iter()
        .filter(|ticket| holds_slot(ticket))
        .map(|ticket| ticket.footprint)
        .collect();
    if running.len() >= slots {
        return due;
    }
    let mut waiting: Vec<&Ticket<'_>> = tickets
        .iter()
        .filter(|ticket| ticket.stage == Stage::Queued && is_free(ticket))
        .collect();
    waiting.sort_by(|a, b| a.position.cmp(&b.position).then_with(|| arrival(a, b)));
    // A backup that arrived earlier and is being queued is not overtaken.
    let entering = tickets
        .iter()
        .filter(|ticket| ticket.stage == Stage::New && ticket.busy);
    let first_entering = entering.min_by(|a, b| arrival(a, b));
    let mut ahead: Vec<&Footprint> = tickets
        .iter()
        .filter(|ticket| ticket.yields)
        .map(|ticket| ticket.footprint)
        .collect();
    for ticket in waiting {
        if running.len() >= slots
            || first_entering.is_some_and(|first| arrival(first, ticket).is_lt())
        {
            break;
        }
        if overlaps_any(ticket.footprint, &running) || overlaps_any(ticket.footprint, &ahead) {
            ahead.push(ticket.footprint);
        } else {
            running.push(ticket.footprint);
            due.push((ticket.name.to_owned(), Turn::Start));
        }
    }
    due
}

fn overlaps_any(footprint: &Footprint, others: &[&Footprint]) -> bool {
    others.iter().any(|other| other.overlaps(footprint))
}

/// New backups go to the end of the queue, in order of arrival.
fn queue(tickets: &[Ticket<'_>]) -> Vec<(String, Turn)> {
    let mut new: Vec<&Ticket<'_>> = tickets
        .iter()
        .filter(|ticket| ticket.stage == Stage::New && is_free(ticket))
        .collect();
    if new.is_empty() {
        return Vec::new();
    }
    new.sort_by(|a, b| arrival(a, b));
    let last = tickets
        .iter()
        .filter(|ticket| waits(ticket))
        .map(|ticket| ticket.position)
        .max()
        .unwrap_or(0);
    new.iter()
        .zip(last + 1..)
        .map(|(ticket, position)| (ticket.name.to_owned(), Turn::Queue { position }))
        .collect()
}

fn is_free(ticket: &Ticket<'_>) -> bool {
    !ticket.busy && !ticket.held_back && !ticket.leaving
}

/// Whether a backup is queued, or about to be.
fn waits(ticket: &Ticket<'_>) -> bool {
    match ticket.stage {
        Stage::Queued => true,
        Stage::New => ticket.busy,
        _ => false,
    }
}

/// Waiting and finalizing backups hold no slot, nor does a backup that yields to a restore; a start
/// that is being written does.
fn holds_slot(ticket: &Ticket<'_>) -> bool {
    match ticket.stage {
        Stage::ReadyToStart => !ticket.yields,
        Stage::InProgress => true,
        Stage::Queued => ticket.busy,
        _ => false,
    }
}

/// Creation times have whole seconds; the name makes the order total.
fn arrival(a: &Ticket<'_>, b: &Ticket<'_>) -> Ordering {
    a.created.cmp(&b.created).then_with(|| a.name.cmp(b.name))
}

#[cfg(test)]
mod tests {
    use backup_core::{api::BackupPhase, phase::Phase as _};

    use super::*;

    struct Row(&'static str, BackupPhase, i64, &'static str, bool);

    fn due(rows: &[Row], slots: usize) -> Vec<(String, Turn)> {
        let footprints: Vec<Footprint> = rows
            .iter()
            .map(|row| {
                if row.3 == "*" {
                    Footprint::everything()
                } else {
                    Footprint::namespaces([row.3])
                }
            })
            .collect();
        let tickets: Vec<Ticket<'_>> = rows
            .iter()
            .zip(&footprints)
            .map(|(Row(name, phase, position, _, busy), footprint)| Ticket {
                name,
                stage: phase.stage(),
                position: *position,
                created: None,
                leaving: false,
                busy: *busy,
                held_back: false,
                yields: false,
                footprint,
            })
            .collect();
        turns(&tickets, slots)
    }

    fn started(rows: &[Row], slots: usize) -> Vec<String> {
        due(rows, slots)
            .into_iter()
            .filter(|(_, turn)| *turn == Turn::Start)
            .map(|(name, _)| name)
            .collect()
    }

    use BackupPhase as P;

    #[test]
    fn new_backups_queue_behind_those_that_wait() {
        let rows = [
            Row("b", P::New, 0, "ns", false),
            Row("a", P::New, 0, "ns", false),
            Row("q", P::Queued, 7, "ns", false),
            Row("r", P::InProgress, 0, "ns", false),
        ];
        assert_eq!(
            due(&rows, 1),
            [
                ("a".to_owned(), Turn::Queue { position: 8 }),
                ("b".to_owned(), Turn::Queue { position: 9 })
            ]
        );
    }

    #[test]
    fn the_first_in_the_queue_starts_when_a_slot_is_free() {
        let queue = [
            Row("b", P::Queued, 2, "two", false),
            Row("a", P::Queued, 1, "one", false),
        ];
        assert_eq!(started(&queue, 1), ["a"]);
        assert_eq!(started(&queue, 2), ["a", "b"]);
    }

    #[test]
    fn ready_and_running_backups_hold_slots_and_finalizing_ones_do_not() {
        for (phase, holds) in [
            (P::ReadyToStart, true),
            (P::InProgress, true),
            (P::WaitingForPluginOperations, false),
            (P::Finalizing, false),
            (P::FinalizingPartiallyFailed, false),
            (P::Completed, false),
            (P::Deleting, false),
            (P::Unknown("Later".to_owned()), false),
        ] {
            let rows = [
                Row("r", phase.clone(), 0, "other", false),
                Row("q", P::Queued, 1, "ns", false),
            ];
            assert_eq!(started(&rows, 1).is_empty(), holds, "{phase}");
        }
    }

    #[test]
    fn one_that_lets_a_restore_go_first_holds_no_slot_and_is_not_overtaken_by_what_overlaps_it() {
        let both = Footprint::namespaces(["one", "two"]);
        let (one, three) = (
            Footprint::namespaces(["one"]),
            Footprint::namespaces(["three"]),
        );
        let ticket = |name, stage, footprint| Ticket {
            name,
            stage,
            position: 1,
            created: None,
            leaving: false,
            busy: false,
            held_back: false,
            yields: stage == Stage::ReadyToStart,
            footprint,
        };
        let tickets = [
            ticket("yields", Stage::ReadyToStart, &both),
            ticket("overlaps", Stage::Queued, &one),
            ticket("other", Stage::Queued, &three),
        ];
        assert_eq!(turns(&tickets, 1), [("other".to_owned(), Turn::Start)]);
    }

    #[test]
    fn a_start_on_its_way_holds_its_slot() {
        let rows = [
            Row("a", P::Queued, 1, "one", true),
            Row("b", P::Queued, 2, "two", false),
        ];
        assert!(started(&rows, 1).is_empty());
        assert_eq!(started(&rows, 2), ["b"]);
    }

    #[test]
    fn one_that_arrived_earlier_and_is_being_queued_is_not_overtaken() {
        let rows = [
            Row("a", P::New, 0, "one", true),
            Row("b", P::Queued, 1, "two", false),
        ];
        assert!(started(&rows, 2).is_empty());
        let rows = [
            Row("b", P::Queued, 1, "two", false),
            Row("c", P::New, 0, "one", true),
        ];
        assert_eq!(started(&rows, 2), ["b"]);
    }

    #[test]
    fn backups_that_overlap_do_not_run_together() {
        let rows = [
            Row("r", P::InProgress, 0, "one", false),
            Row("a", P::Queued, 1, "one", false),
            Row("b", P::Queued, 2, "two", false),
        ];
        assert_eq!(started(&rows, 3), ["b"]);
    }

    #[test]
    fn a_wide_backup_is_not_overtaken_by_narrow_ones() {
        let rows = [
            Row("r", P::InProgress, 0, "one", false),
            Row("wide", P::Queued, 1, "*", false),
            Row("narrow", P::Queued, 2, "two", false),
        ];
        assert!(started(&rows, 3).is_empty());
    }

    #[test]
    fn nine_hundred_queued_backups_cost_one_write_a_start() {
        let rows: Vec<Row> = (0..900)
            .map(|n| Row("q", P::Queued, n + 1, "ns", false))
            .collect();
        assert_eq!(due(&rows, 1).len(), 1);
    }
}
