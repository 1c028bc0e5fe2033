//! The claim of a block volume, which is bound before the mover writes to it.

use super::*;

fn unbound() -> Facts {
    Facts {
        claim: Found::Ours(OwnClaim {
            volume: None,
            is_bound: false,
        }),
        is_block: true,
        ..nothing()
    }
}

fn probe(state: PodState) -> Found<OwnPod> {
    Found::Ours(OwnPod {
        uid: "p0".to_owned(),
        is_probe: true,
        created: Some(ago(1)),
        deleted: None,
        state,
    })
}

#[test]
fn a_block_volume_is_written_once_it_is_known_to_be_new() {
    check(accepted(), unbound(), |_, _| {}, &Step::CreateProbe);
    let starting: Edit = |_, f| f.pod = probe(PodState::Waiting("no node fits".to_owned()));
    waits(accepted(), unbound(), starting, "no node fits");
    let running: Edit = |_, f| f.pod = probe(PodState::Running);
    waits(accepted(), unbound(), running, "not bound yet");
    let lost: Edit = |_, f| f.pod = probe(PodState::Lost("it was evicted".to_owned()));
    check(accepted(), unbound(), lost, &Step::RemovePod);
    let made: Edit = |_, f| {
        f.is_block = true;
        f.pod = probe(PodState::Ended(outcome(MoverResult::Failed)));
    };
    check(accepted(), bound(), made, &Step::RemovePod);
    let known: Edit = |_, f| f.is_block = true;
    check(accepted(), bound(), known, &Step::CreatePod);
    let older: Edit = |_, f| {
        f.is_block = true;
        f.pod = probe(PodState::Running);
        own_volume(f).is_made_for_claim = false;
    };
    fails(accepted(), bound(), older, "which existed before");
}

#[test]
fn files_need_no_pod_that_only_has_their_claim_bound() {
    let files: Edit = |_, f| f.is_block = false;
    check(accepted(), unbound(), files, &Step::CreatePod);
}

#[test]
fn a_claim_that_is_never_bound_ends_its_download() {
    let never: Edit = |d, f| {
        accepted_long_ago(d);
        f.pod = probe(PodState::Waiting("no node fits".to_owned()));
    };
    fails(accepted(), unbound(), never, "no node fits");
    fails(
        accepted(),
        unbound(),
        |d, _| accepted_long_ago(d),
        "its claim was not bound",
    );
    let stuck: Edit = |d, f| {
        accepted_long_ago(d);
        f.is_block = true;
        f.pod = probe(PodState::Running);
    };
    fails(accepted(), bound(), stuck, "was not removed");
    let no_location: Edit = |_, f| f.has_location = false;
    fails(accepted(), unbound(), no_location, "default");
}
