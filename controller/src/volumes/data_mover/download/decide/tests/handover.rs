//! From the filled volume to the removal of the finalizer.

use super::*;

#[test]
fn a_filled_volume_is_retained_before_anything_is_removed() {
    let complete = || filled(MoverResult::Complete);
    let ended: Edit = |_, f| f.pod = pod("p1", PodState::Ended(outcome(MoverResult::Complete)));
    check(complete(), bound(), ended, &Step::Retain);
    let retained: Edit = |_, f| {
        own_volume(f).is_retained = true;
        f.pod = pod("p1", PodState::Ended(outcome(MoverResult::Complete)));
    };
    check(complete(), bound(), retained, &Step::RemovePod);
    let no_pod: Edit = |_, f| own_volume(f).is_retained = true;
    check(complete(), bound(), no_pod, &Step::RemoveClaim);
    let no_claim: Edit = |_, f| {
        own_volume(f).is_retained = true;
        f.claim = Found::Missing;
    };
    check(complete(), bound(), no_claim, &Step::HandOver);
    let reserved: Edit = |_, f| {
        own_volume(f).is_retained = true;
        f.claim = Found::Missing;
        target(f).volume = Some("pv".to_owned());
    };
    check(complete(), bound(), reserved, &Step::HandOver);
    fails(
        complete(),
        bound(),
        |_, f| f.volume = None,
        "PersistentVolume pv, which held",
    );
    fails(
        complete(),
        bound(),
        |_, f| own_volume(f).is_deleting = true,
        "being deleted",
    );
    fails(
        complete(),
        bound(),
        |d, _| filled_long_ago(d),
        "not removed in time",
    );
    fails(
        complete(),
        bound(),
        |_, f| own_volume(f).holder = Holder::Unclaimed,
        "released",
    );
    let other: Edit = |_, f| own_volume(f).holder = Holder::Other("shop/x".to_owned());
    fails(
        complete(),
        bound(),
        other,
        "belongs to PersistentVolumeClaim shop/x",
    );
}

#[test]
fn a_volume_that_was_given_ends_the_download_when_its_claim_is_bound() {
    let complete = || filled(MoverResult::Complete);
    let bind: Edit = |_, f| {
        target(f).volume = Some("pv".to_owned());
        target(f).is_bound = true;
    };
    let settled: Edit = |_, f| {
        target(f).volume = Some("pv".to_owned());
        target(f).is_bound = true;
        own_volume(f).is_marked = false;
    };
    waits(complete(), given(), |_, _| {}, "not bound yet");
    waits(
        complete(),
        given(),
        |_, f| target(f).volume = Some("pv".to_owned()),
        "not bound yet",
    );
    let unbound_volume: Edit = |_, f| {
        target(f).volume = Some("pv".to_owned());
        target(f).is_bound = true;
        own_volume(f).is_bound = false;
    };
    waits(complete(), given(), unbound_volume, "not bound yet");
    check(complete(), given(), bind, &Step::Settle);
    check_end(complete(), given(), settled, &MovePhase::Completed, "");
    fails(
        filled(MoverResult::Incomplete),
        given(),
        settled,
        "1 file is missing",
    );
    fails(
        complete(),
        given(),
        |d, _| filled_long_ago(d),
        "not bound in time",
    );
    fails(
        complete(),
        given(),
        |_, f| f.target = None,
        "was deleted before",
    );
    fails(
        complete(),
        given(),
        |_, f| target(f).uid = "uid-new".to_owned(),
        "was deleted before",
    );
    let elsewhere: Edit = |_, f| target(f).volume = Some("pv-0".to_owned());
    fails(
        complete(),
        given(),
        elsewhere,
        "bound to PersistentVolume pv-0",
    );
}

#[test]
fn a_handover_that_is_done_is_finished_whoever_cancels() {
    let complete = || filled(MoverResult::Complete);
    waits(
        complete(),
        given(),
        |d, _| d.spec.mover.cancel = true,
        "not bound yet",
    );
    waits(complete(), given(), |d, _| mark_deleted(d), "not bound yet");
    let settled: Edit = |d, f| {
        d.spec.mover.cancel = true;
        target(f).volume = Some("pv".to_owned());
        target(f).is_bound = true;
        own_volume(f).is_marked = false;
    };
    check_end(complete(), given(), settled, &MovePhase::Completed, "");
}

#[test]
fn after_the_end_everything_goes_before_the_finalizer() {
    for phase in [MovePhase::Failed, MovePhase::Canceled] {
        let over = || over(&phase);
        let all: Edit = |_, f| f.pod = pod("p1", PodState::Running);
        check(over(), bound(), all, &Step::RemovePod);
        check(over(), bound(), |_, _| {}, &Step::Discard);
        let discarded: Edit = |_, f| own_volume(f).is_discarded = true;
        check(over(), bound(), discarded, &Step::RemoveClaim);
        let no_claim: Edit = |_, f| f.claim = Found::Missing;
        check(over(), bound(), no_claim, &Step::Discard);
        check(over(), given(), |_, _| {}, &Step::Settle);
        check(over(), nothing(), |_, _| {}, &Step::Release);
        let foreign: Edit = |_, f| {
            f.claim = Found::Foreign;
            f.pod = Found::Foreign;
            own_volume(f).holder = Holder::Other("shop/x".to_owned());
            own_volume(f).is_marked = true;
        };
        check(over(), bound(), foreign, &Step::Release);
        let released: Edit = |d, _| {
            let released = patches::released(d);
            patch(d, released);
        };
        check(over(), bound(), released, &Step::Nothing);
    }
}
