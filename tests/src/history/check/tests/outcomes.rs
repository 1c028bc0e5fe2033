//! Handmade outcomes of backups and restores: good ones, and bad ones that each rule must detect.

use super::*;
use crate::history::record::StoredEnd;

/// The good history, with an object of this name that was in these phases, one each second from 42
/// on.
fn passed(name: &str, phases: &[&str]) -> Record {
    changed(
        good()
            .lived(name, 42, None)
            .claimed(name, &[(41, Some(49))]),
        name,
        |life| {
            life.phases = phases
                .iter()
                .zip(42..)
                .map(|(phase, moment)| ((*phase).to_owned(), at(moment)))
                .collect();
            (*phases.last().unwrap()).clone_into(&mut life.phase);
            let over = |phase: &&str| ["Completed", "PartiallyFailed", "Failed"].contains(phase);
            life.ended = phases
                .iter()
                .position(over)
                .map(|index| at(42 + index as u64));
            life.ended = life.ended.or(Some(at(48)));
        },
    )
}

fn changed(mut record: Record, name: &str, change: impl FnOnce(&mut Life)) -> Record {
    change(record.lives.get_mut(&uid(name)).unwrap());
    record
}

#[test]
fn an_end_that_is_not_stored_is_found() {
    let whole = StoredEnd {
        uid: uid("b7"),
        phase: "Completed".to_owned(),
        contents: true,
    };
    let ended = |stored: StoredEnd| {
        let record = passed("b7", &["New", "InProgress", "Completed"]);
        broken(&changed(record, "b7", |life| life.stored = Some(stored)))
    };
    assert_eq!(ended(whole.clone()), []);
    assert_eq!(ended(StoredEnd::default()), [Promise::EndIsStored]);
    assert_eq!(
        ended(StoredEnd {
            phase: "PartiallyFailed".to_owned(),
            ..whole.clone()
        }),
        [Promise::EndIsStored]
    );
    assert_eq!(
        ended(StoredEnd {
            uid: "another".to_owned(),
            ..whole.clone()
        }),
        [Promise::EndIsStored]
    );
    assert_eq!(
        ended(StoredEnd {
            contents: false,
            ..whole
        }),
        [Promise::EndIsStored]
    );
}

#[test]
fn a_phase_that_goes_back_is_found() {
    let finalizing = "FinalizingPartiallyFailed";
    for good in [
        &[
            "",
            "New",
            "Queued",
            "ReadyToStart",
            "InProgress",
            "Finalizing",
            "Completed",
            "Deleting",
        ][..],
        &[
            "New",
            "InProgress",
            "WaitingForPluginOperations",
            finalizing,
            "PartiallyFailed",
        ],
        // Not all steps are seen.
        &["", "Completed"],
    ] {
        assert_eq!(broken(&passed("b7", good)), [], "{good:?}");
    }
    for bad in [
        &["New", "InProgress", "New"][..],
        &["InProgress", "Completed", "PartiallyFailed"],
        &["InProgress", "Completed", "InProgress"],
        &["InProgress", finalizing, "Completed"],
        &["InProgress", "Dreaming"],
    ] {
        assert_eq!(
            broken(&passed("b7", bad)),
            [Promise::PhasesForward],
            "{bad:?}"
        );
    }
}

#[test]
fn what_failed_for_no_reason_is_found() {
    let failed = || passed("b7", &["New", "InProgress", "Failed"]);
    assert_eq!(broken(&failed()), [Promise::FailedForAReason]);
    assert_eq!(broken(&failed().released("b7", 43)), []);
    let mut cancelled = failed();
    cancelled.cancellations.insert("b7".to_owned());
    assert_eq!(broken(&cancelled), []);
    // The kit's own engine has other reasons to fail.
    assert_eq!(
        check(
            &failed(),
            Rules {
                controllers: false,
                ..RULES
            }
        ),
        []
    );
}

#[test]
fn operations_without_an_end_are_found() {
    let waiting = |until: u64| {
        let record = passed("b7", &["New", "InProgress", "WaitingForPluginOperations"]);
        let record = changed(record, "b7", |life| {
            life.phases.push(("PartiallyFailed".to_owned(), at(until)));
        });
        broken(&record)
    };
    // The deadline is 10 s, and 10 s may pass until claims are free.
    assert_eq!(waiting(64), []);
    assert_eq!(waiting(65), [Promise::OperationsEnd]);
}

/// The good history, with a backup imported from the bucket in this phase.
fn imported(phase: &str) -> Record {
    let mut record = passed("h000001-x0", &[phase]);
    record.standings.remove(&uid("h000001-x0"));
    record
        .reviews
        .retain(|review| review.uid != uid("h000001-x0"));
    record
}

#[test]
fn synchronisation_that_starts_revives_or_removes_is_found() {
    let name = "h000001-x0";
    assert_eq!(broken(&imported("Completed")), []);
    assert!(broken(&imported("InProgress")).contains(&Promise::SafeSync));
    let gone = || changed(imported("Completed"), name, |life| life.gone = Some(at(45)));
    assert_eq!(broken(&gone()), [Promise::SafeSync]);
    let mut swept = gone();
    swept.swept = Some(seconds(44));
    assert_eq!(broken(&swept), []);
    let mut requested = gone();
    requested.deletions.insert(name.to_owned());
    assert_eq!(broken(&requested), []);
    // It returns after its deletion has been carried out.
    let deleted = || {
        let mut record = changed(requested.clone(), name, |life| {
            life.phases.push(("Deleting".to_owned(), at(44)));
        });
        let again = Life {
            created: at(46),
            ended: Some(at(46)),
            gone: None,
            ..record.lives[&uid(name)].clone()
        };
        record.lives.insert(
            "again".to_owned(),
            Life {
                uid: "again".to_owned(),
                phases: Vec::new(),
                ..again
            },
        );
        record
    };
    assert_eq!(broken(&deleted()), [Promise::SafeSync]);
}
