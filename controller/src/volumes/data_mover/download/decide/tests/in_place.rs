//! Restores into the volume of a claim that exists.

use super::*;
use crate::volumes::data_mover::download::users::user;

/// Changes a DataDownload into one that restores into the volume of its claim.
fn in_place(mut download: DataDownload) -> DataDownload {
    download.spec.restore_type = Some("full".to_owned());
    download.spec.target_volume.pv = "pv".to_owned();
    download
}

/// A claim that is bound to its volume, and nothing of ours.
fn existing() -> Facts {
    let mut facts = nothing();
    facts.volume = Some(volume(Holder::Target));
    let claim = target(&mut facts);
    claim.waits_for_us = false;
    claim.volume = Some("pv".to_owned());
    claim.is_bound = true;
    facts
}

/// Our claim exists, too.
fn claimed() -> Facts {
    Facts {
        claim: Found::Ours(OwnClaim {
            volume: Some("pv".to_owned()),
            is_bound: false,
        }),
        ..existing()
    }
}

/// The volume is ours.
fn taken() -> Facts {
    let mut facts = claimed();
    target(&mut facts).is_bound = false;
    own_volume(&mut facts).holder = Holder::Ours;
    own_volume(&mut facts).is_marked = true;
    own_volume(&mut facts).is_retained = true;
    facts.claim = Found::Ours(OwnClaim {
        volume: Some("pv".to_owned()),
        is_bound: true,
    });
    facts
}

fn ending(name: &str) -> ClaimUser {
    let mut user = user(name, true);
    user.is_deleting = true;
    user
}

#[test]
fn a_claim_that_exists_is_accepted_with_its_volume_if_no_pod_uses_it() {
    let arrived = || in_place(arrived());
    let accept = Step::Accept("uid-t".to_owned());
    check(arrived(), existing(), |_, _| {}, &accept);
    let used: Edit = |_, f| f.users = vec![user("web-1", true), user("web-2", false)];
    fails(
        arrived(),
        existing(),
        used,
        "PersistentVolumeClaim shop/data is used by web-1, web-2: ",
    );
    let stopping: Edit = |_, f| f.users = vec![ending("web-1")];
    waits(arrived(), existing(), stopping, "still used by web-1");
    let never_stopped: Edit = |d, f| {
        created_long_ago(d);
        f.users = vec![ending("web-1")];
    };
    fails(arrived(), existing(), never_stopped, "scale down");
    let partly: Edit = |_, f| f.users = vec![ending("web-1"), user("web-2", true)];
    fails(arrived(), existing(), partly, "is used by");
}

#[test]
fn other_volumes_than_that_of_the_claim_are_never_touched() {
    let problems: [(Edit, &str); 7] = [
        (
            |_, f| target(f).volume = Some("pv-2".to_owned()),
            "does not have PersistentVolume pv any longer",
        ),
        (|_, f| target(f).volume = None, "does not have"),
        (|_, f| f.volume = None, "does not exist"),
        (
            |_, f| own_volume(f).is_csi = false,
            "not one of a CSI driver",
        ),
        (|_, f| own_volume(f).is_deleting = true, "is being deleted"),
        (
            |_, f| own_volume(f).has_other_mark = true,
            "another DataDownload",
        ),
        (
            |_, f| own_volume(f).holder = Holder::Other("shop/x".to_owned()),
            "belongs to PersistentVolumeClaim shop/x",
        ),
    ];
    for (edit, message) in problems {
        fails(in_place(arrived()), existing(), edit, message);
    }
    for (edit, message) in problems.into_iter().skip(2) {
        fails(in_place(accepted()), claimed(), edit, message);
        fails(in_place(started(1)), taken(), edit, message);
    }
    let unclaimed: Edit = |_, f| own_volume(f).holder = Holder::Unclaimed;
    fails(in_place(arrived()), existing(), unclaimed, "was released");
}

#[test]
fn the_volume_is_retained_and_taken_over_while_no_pod_uses_it() {
    let accepted = || in_place(accepted());
    check(accepted(), existing(), |_, _| {}, &Step::CreateClaim);
    check(accepted(), claimed(), |_, _| {}, &Step::Retain);
    let retained: Edit = |_, f| {
        own_volume(f).is_marked = true;
        own_volume(f).is_retained = true;
    };
    check(accepted(), claimed(), retained, &Step::TakeOver);
    let used: Edit = |_, f| {
        own_volume(f).is_marked = true;
        own_volume(f).is_retained = true;
        f.users = vec![user("web-1", false)];
    };
    fails(accepted(), claimed(), used, "is used by web-1");
    fails(
        accepted(),
        claimed(),
        |d, _| accepted_long_ago(d),
        "was not taken over",
    );
    let given_back: Edit = |_, f| f.pod = pod("p1", PodState::Running);
    fails(
        in_place(started(1)),
        claimed(),
        given_back,
        "by another client",
    );
}

#[test]
fn the_pod_starts_once_the_volume_is_bound_and_no_pod_of_the_application_has_it() {
    let accepted = || in_place(accepted());
    check(accepted(), taken(), |_, _| {}, &Step::CreatePod);
    let unbound: Edit = |_, f| {
        f.claim = Found::Ours(OwnClaim {
            volume: Some("pv".to_owned()),
            is_bound: false,
        });
    };
    waits(accepted(), taken(), unbound, "not bound yet");
    let scheduled: Edit = |_, f| f.users = vec![user("web-1", true)];
    fails(accepted(), taken(), scheduled, "is used by web-1");
    let waiting: Edit = |_, f| f.users = vec![user("web-1", false)];
    check(accepted(), taken(), waiting, &Step::CreatePod);
    // A device needs no probe: its volume is known.
    check(
        accepted(),
        taken(),
        |_, f| f.is_block = true,
        &Step::CreatePod,
    );
    fails(
        accepted(),
        taken(),
        |_, f| f.claim = Found::Missing,
        "deleted by another client",
    );
    let running: Edit = |_, f| {
        f.pod = pod("p1", PodState::Running);
        f.users = vec![user("web-1", true)];
    };
    check(in_place(started(1)), taken(), running, &Step::Progress);
}

#[test]
fn a_restored_volume_is_given_back_and_ends_the_download_when_it_is_bound() {
    let complete = || in_place(filled(MoverResult::Complete));
    let ended: Edit = |_, f| f.pod = pod("p1", PodState::Ended(outcome(MoverResult::Complete)));
    check(complete(), taken(), ended, &Step::RemovePod);
    check(complete(), taken(), |_, _| {}, &Step::HandOver);
    let given: Edit = |_, f| own_volume(f).holder = Holder::Target;
    waits(complete(), taken(), given, "not bound yet");
    let bound: Edit = |_, f| {
        own_volume(f).holder = Holder::Target;
        target(f).is_bound = true;
    };
    check(complete(), taken(), bound, &Step::Settle);
    let settled: Edit = |_, f| {
        own_volume(f).holder = Holder::Target;
        own_volume(f).is_marked = false;
        target(f).is_bound = true;
    };
    check_end(complete(), taken(), settled, &MovePhase::Completed, "");
}

#[test]
fn a_failure_after_the_start_says_that_the_volume_is_a_mixture() {
    let failed: Edit = |_, f| f.pod = pod("p1", PodState::Ended(outcome(MoverResult::Failed)));
    fails(in_place(started(1)), taken(), failed, "may hold a part");
    let cancel: Edit = |d, _| d.spec.mover.cancel = true;
    check_end(
        in_place(started(1)),
        taken(),
        cancel,
        &MovePhase::Canceled,
        "may hold a part",
    );
    check_end(
        in_place(accepted()),
        taken(),
        cancel,
        &MovePhase::Canceled,
        "it was cancelled",
    );
}

#[test]
fn after_a_failure_the_volume_is_given_back_and_never_discarded() {
    let over = || in_place(over(&MovePhase::Failed));
    let running: Edit = |_, f| f.pod = pod("p1", PodState::Running);
    check(over(), taken(), running, &Step::RemovePod);
    check(over(), taken(), |_, _| {}, &Step::HandOver);
    let unmarked: Edit = |_, f| own_volume(f).is_retained = false;
    check(over(), taken(), unmarked, &Step::Retain);
    let given: Edit = |_, f| own_volume(f).holder = Holder::Target;
    check(over(), taken(), given, &Step::Settle);
    let unbound: Edit = |_, f| {
        own_volume(f).holder = Holder::Target;
        own_volume(f).is_bound = false;
    };
    waits(over(), taken(), unbound, "not bound");
    let no_claim: Edit = |_, f| {
        own_volume(f).holder = Holder::Target;
        f.target = None;
    };
    check(over(), taken(), no_claim, &Step::Keep);
    let other_claim: Edit = |_, f| {
        own_volume(f).holder = Holder::Target;
        target(f).uid = "uid-new".to_owned();
    };
    check(over(), taken(), other_claim, &Step::Keep);
    let settled: Edit = |_, f| {
        own_volume(f).holder = Holder::Target;
        own_volume(f).is_marked = false;
    };
    check(over(), taken(), settled, &Step::RemoveClaim);
    let all_gone: Edit = |_, f| {
        own_volume(f).holder = Holder::Target;
        own_volume(f).is_marked = false;
        f.claim = Found::Missing;
    };
    check(over(), taken(), all_gone, &Step::Release);
    check(over(), existing(), |_, _| {}, &Step::Release);
}

#[test]
fn the_policy_says_what_becomes_of_files_in_the_volume() {
    for (policy, removes_extra, expected) in [
        (Some("full"), false, Some("overwrite")),
        (Some("full"), true, Some("replace")),
        (Some("incremental"), false, Some("amend")),
        (Some("incremental"), true, Some("update")),
        (Some("none"), true, None),
        (None, true, None),
    ] {
        let mut download = arrived();
        download.spec.restore_type = policy.map(str::to_owned);
        let config = [("DeleteExtraFiles".to_owned(), removes_extra.to_string())];
        download.spec.mover.data_mover_config = config.into();
        assert_eq!(
            patches::existing_files(&download),
            expected,
            "{policy:?} {removes_extra}"
        );
    }
}

#[test]
fn what_is_to_be_known_is_recorded_once_and_taken_back() {
    let mut download = in_place(started(1));
    assert_eq!(patches::noted(&download, ""), None);
    let noted = patches::noted(&download, "web waits");
    patch(&mut download, noted);
    assert_eq!(patches::noted(&download, "web waits"), None);
    assert!(patches::noted(&download, "").is_some());
    let ended = in_place(over(&MovePhase::Failed));
    assert_eq!(patches::noted(&ended, "web waits"), None);
}
