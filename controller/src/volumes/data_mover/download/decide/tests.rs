use backup_core::{
    api::transfer::DataDownloadSpec,
    data_movement::{FINALIZER, MoverFailure, MoverFailures},
};
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::*;
use crate::volumes::data_mover::objects::ACTIVE_LABEL;

mod handover;
mod in_place;
mod probe;

const TIMEOUT: Duration = Duration::from_mins(30);

type Edit = fn(&mut DataDownload, &mut Facts);

fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

fn ago(minutes: i64) -> Time {
    let age = SignedDuration::from_mins(minutes);
    Time(now().checked_sub(age).unwrap())
}

/// Applies a patch of the module under test.
fn patch(download: &mut DataDownload, patch: Option<Value>) {
    let mut object = serde_json::to_value(&*download).unwrap();
    json_patch::merge(&mut object, &patch.unwrap());
    *download = serde_json::from_value(object).unwrap();
}

fn arrived() -> DataDownload {
    let mut spec = DataDownloadSpec {
        backup_storage_location: "default".to_owned(),
        source_namespace: "shop".to_owned(),
        ..DataDownloadSpec::default()
    };
    spec.target_volume.namespace = "shop".to_owned();
    spec.target_volume.pvc = "data".to_owned();
    let mut download = DataDownload::new("d", spec);
    download.metadata.namespace = Some("velero".to_owned());
    download.metadata.uid = Some("uid-d".to_owned());
    download.metadata.creation_timestamp = Some(ago(1));
    download
}

fn accepted() -> DataDownload {
    let mut download = arrived();
    let accepted = patches::accepted(&download, "uid-t", ago(1).0);
    patch(&mut download, accepted);
    download
}

/// Accepted, with this number of pods that have started, the last of them `p<number>`.
fn started(attempts: u32) -> DataDownload {
    let mut download = accepted();
    for attempt in 1..=attempts {
        let started = patches::started(&download, &format!("p{attempt}"), None, ago(1).0);
        patch(&mut download, started);
    }
    download
}

fn filled(result: MoverResult) -> DataDownload {
    let mut download = started(1);
    let fill = Fill {
        volume: "pv".to_owned(),
        result,
        at: ago(1).0,
    };
    let filled = patches::filled(&download, &fill, "1 file is missing", 7);
    patch(&mut download, filled);
    download
}

fn over(phase: &MovePhase) -> DataDownload {
    let mut download = filled(MoverResult::Complete);
    let ended = patches::ended(&download, phase, "", now());
    patch(&mut download, ended);
    download
}

fn waiting_target() -> Target {
    Target {
        uid: "uid-t".to_owned(),
        is_deleting: false,
        waits_for_us: true,
        volume: None,
        is_bound: false,
    }
}

fn volume(holder: Holder) -> HandedVolume {
    HandedVolume {
        name: "pv".to_owned(),
        holder,
        is_deleting: false,
        is_bound: true,
        is_marked: false,
        has_other_mark: false,
        is_csi: true,
        is_retained: false,
        is_made_for_claim: true,
        is_discarded: false,
    }
}

/// A target claim, and nothing of ours.
fn nothing() -> Facts {
    Facts {
        target: Some(waiting_target()),
        claim: Found::Missing,
        pod: Found::Missing,
        volume: None,
        is_block: false,
        users: Vec::new(),
        has_location: true,
        repository: Some(RepositoryState::Ready),
        warning: None,
        prepare_timeout: TIMEOUT,
    }
}

fn pod(uid: &str, state: PodState) -> Found<OwnPod> {
    Found::Ours(OwnPod {
        uid: uid.to_owned(),
        is_probe: false,
        created: Some(ago(1)),
        deleted: None,
        state,
    })
}

fn outcome(result: MoverResult) -> MoverOutcome {
    MoverOutcome {
        result,
        message: "wrong password".to_owned(),
        bytes: 7,
        failures: MoverFailures {
            count: 2,
            first: vec![MoverFailure {
                path: "a/b".to_owned(),
                reason: "damaged".to_owned(),
            }],
        },
        ..MoverOutcome::default()
    }
}

/// A claim that is bound to its volume, and no pod.
fn bound() -> Facts {
    Facts {
        claim: Found::Ours(OwnClaim {
            volume: Some("pv".to_owned()),
            is_bound: true,
        }),
        volume: Some(volume(Holder::Ours)),
        ..nothing()
    }
}

/// The volume is handed over, and marked; our claim and pod are gone.
fn given() -> Facts {
    let mut facts = nothing();
    let mut volume = volume(Holder::Target);
    volume.is_marked = true;
    volume.is_retained = true;
    facts.volume = Some(volume);
    facts
}

#[track_caller]
fn check(mut download: DataDownload, mut facts: Facts, edit: Edit, expected: &Step) {
    edit(&mut download, &mut facts);
    assert_eq!(decide(&download, &facts, now()), *expected);
}

#[track_caller]
fn check_end(
    mut download: DataDownload,
    mut facts: Facts,
    edit: Edit,
    phase: &MovePhase,
    message: &str,
) {
    edit(&mut download, &mut facts);
    let step = decide(&download, &facts, now());
    let Step::End(ending) = &step else {
        panic!("{step:?}")
    };
    assert_eq!(&ending.phase, phase, "{step:?}");
    assert!(ending.message.contains(message), "{step:?}");
}

#[track_caller]
fn fails(download: DataDownload, facts: Facts, edit: Edit, message: &str) {
    check_end(download, facts, edit, &MovePhase::Failed, message);
}

#[track_caller]
fn waits(mut download: DataDownload, mut facts: Facts, edit: Edit, reason: &str) {
    edit(&mut download, &mut facts);
    let step = decide(&download, &facts, now());
    assert!(
        matches!(&step, Step::Wait(why) if why.contains(reason)),
        "{step:?}"
    );
}

fn target(facts: &mut Facts) -> &mut Target {
    facts.target.as_mut().unwrap()
}

fn own_volume(facts: &mut Facts) -> &mut HandedVolume {
    facts.volume.as_mut().unwrap()
}

fn created_long_ago(download: &mut DataDownload) {
    download.metadata.creation_timestamp = Some(ago(31));
}

fn accepted_long_ago(download: &mut DataDownload) {
    download.status.transfer.accepted_timestamp = Some(ago(31));
}

fn filled_long_ago(download: &mut DataDownload) {
    let mut fill = Fill::of(download).unwrap();
    fill.at = ago(31).0;
    let record = serde_json::to_string(&fill).unwrap();
    let annotations = json!({"metadata": {"annotations": {"backup-controller/fill": record}}});
    patch(download, Some(annotations));
}

fn mark_deleted(download: &mut DataDownload) {
    download.metadata.deletion_timestamp = Some(ago(0));
}

#[test]
fn a_new_download_waits_for_its_claim_and_its_repository() {
    let accept = Step::Accept("uid-t".to_owned());
    check(arrived(), nothing(), |_, _| {}, &accept);
    check(arrived(), nothing(), |d, _| created_long_ago(d), &accept);
    check(arrived(), nothing(), |d, _| mark_deleted(d), &Step::Nothing);
    let newer: Edit = |d, _| d.status.transfer.phase = Some(MovePhase::Unknown("Later".to_owned()));
    check(arrived(), nothing(), newer, &Step::Nothing);
    waits(
        arrived(),
        nothing(),
        |_, f| f.target = None,
        "does not exist yet",
    );
    let no_target: Edit = |d, f| {
        created_long_ago(d);
        f.target = None;
    };
    fails(
        arrived(),
        nothing(),
        no_target,
        "PersistentVolumeClaim shop/data, which",
    );
    fails(
        arrived(),
        nothing(),
        |_, f| target(f).waits_for_us = false,
        "data source",
    );
    waits(
        arrived(),
        nothing(),
        |_, f| target(f).is_deleting = true,
        "does not exist yet",
    );
    let other: Edit = |_, f| target(f).volume = Some("pv-0".to_owned());
    fails(
        arrived(),
        nothing(),
        other,
        "has PersistentVolume pv-0 already",
    );
    fails(
        arrived(),
        nothing(),
        |_, f| f.has_location = false,
        "default",
    );
    waits(
        arrived(),
        nothing(),
        |_, f| f.repository = None,
        "repository",
    );
    let checked: Edit = |d, f| {
        created_long_ago(d);
        f.repository = Some(RepositoryState::Busy("it is checked".to_owned()));
    };
    waits(arrived(), nothing(), checked, "it is checked");
    let unusable: Edit =
        |_, f| f.repository = Some(RepositoryState::Unusable("no password".to_owned()));
    fails(arrived(), nothing(), unusable, "no password");
    let cancel: Edit = |d, _| d.spec.mover.cancel = true;
    check_end(arrived(), nothing(), cancel, &MovePhase::Canceled, "");
}

#[test]
fn a_repository_that_is_not_ready_in_time_fails_the_download_with_the_reason() {
    let awaiting = |minutes: i64| {
        let mut download = arrived();
        let begun = patches::awaiting_repository(&download, "no image", ago(minutes).0);
        patch(&mut download, begun);
        download
    };
    let waiting: Edit = |d, f| {
        created_long_ago(d);
        f.repository = Some(RepositoryState::Waiting("no image".to_owned()));
    };
    let awaited = Step::AwaitRepository("no image".to_owned());
    check(arrived(), nothing(), waiting, &awaited);
    check(awaiting(29), nothing(), waiting, &awaited);
    let message = "not ready within 30m0s (--data-mover-prepare-timeout): no image";
    fails(awaiting(30), nothing(), waiting, message);
    // A wait for other transfers does not count.
    let mut queued = awaiting(30);
    let ready = patches::repository_is_ready(&queued);
    patch(&mut queued, ready);
    assert_eq!(queued.status.transfer.message, None);
    check(queued, nothing(), waiting, &awaited);
    assert_eq!(patches::repository_is_ready(&arrived()), None);
    let mut download = awaiting(1);
    let accepted = patches::accepted(&download, "uid-t", now());
    patch(&mut download, accepted);
    assert_eq!(download.status.transfer.message, None);
}

#[test]
fn claim_and_pod_are_made_until_the_time_is_over() {
    check(accepted(), nothing(), |_, _| {}, &Step::CreateClaim);
    check(accepted(), bound(), |_, _| {}, &Step::CreatePod);
    fails(
        accepted(),
        nothing(),
        |d, _| accepted_long_ago(d),
        "claim could not be created",
    );
    fails(
        accepted(),
        bound(),
        |d, _| accepted_long_ago(d),
        "pod could not be created",
    );
    fails(
        accepted(),
        bound(),
        |_, f| f.has_location = false,
        "default",
    );
    fails(
        accepted(),
        nothing(),
        |_, f| f.claim = Found::Foreign,
        "PersistentVolumeClaim d exists",
    );
    fails(
        accepted(),
        bound(),
        |_, f| f.pod = Found::Foreign,
        "Pod d exists",
    );
    fails(
        started(1),
        nothing(),
        |_, _| {},
        "deleted by another client",
    );
    let unschedulable: Edit =
        |_, f| f.pod = pod("p1", PodState::Waiting("no node fits".to_owned()));
    waits(accepted(), bound(), unschedulable, "no node fits");
    let too_long: Edit = |d, f| {
        accepted_long_ago(d);
        f.pod = pod("p1", PodState::Waiting("no node fits".to_owned()));
    };
    let message = "did not start within 30m0s (--data-mover-prepare-timeout): no node fits";
    fails(accepted(), bound(), too_long, message);
    let unprovisioned: Edit = |d, f| {
        accepted_long_ago(d);
        f.pod = pod("p1", PodState::Waiting("no node fits".to_owned()));
        f.warning = Some("quota exceeded".to_owned());
    };
    fails(
        accepted(),
        bound(),
        unprovisioned,
        "no node fits (the claim: quota exceeded)",
    );
    let second: Edit = |d, f| {
        accepted_long_ago(d);
        f.pod = pod("p2", PodState::Waiting("no node fits".to_owned()));
    };
    waits(started(1), bound(), second, "no node fits");
    let second_too_long: Edit = |_, f| {
        f.pod = Found::Ours(OwnPod {
            uid: "p2".to_owned(),
            is_probe: false,
            created: Some(ago(31)),
            deleted: None,
            state: PodState::Waiting("no node fits".to_owned()),
        });
    };
    fails(started(1), bound(), second_too_long, "no node fits");
}

#[test]
fn a_volume_that_existed_before_is_never_filled() {
    let existing: Edit = |_, f| {
        f.volume = Some(HandedVolume {
            is_made_for_claim: false,
            ..volume(Holder::Ours)
        });
    };
    fails(accepted(), bound(), existing, "which existed before");
    let running: Edit = |_, f| {
        f.pod = pod("p1", PodState::Running);
        f.volume = Some(HandedVolume {
            is_made_for_claim: false,
            ..volume(Holder::Ours)
        });
    };
    fails(started(1), bound(), running, "which existed before");
}

#[test]
fn a_pod_that_cannot_be_removed_ends_its_download() {
    let stuck: Edit = |_, f| {
        f.pod = Found::Ours(OwnPod {
            uid: "p1".to_owned(),
            is_probe: false,
            created: Some(ago(31)),
            deleted: Some(ago(11)),
            state: PodState::Running,
        });
    };
    fails(started(1), bound(), stuck, "its node does not answer");
}

#[test]
fn a_pod_is_followed_and_made_once_more_when_it_is_lost() {
    let start = |pod: &str| Step::Start(pod.to_owned());
    let running: Edit = |_, f| f.pod = pod("p1", PodState::Running);
    check(accepted(), bound(), running, &start("p1"));
    check(started(1), bound(), running, &Step::Progress);
    let late: Edit = |d, f| {
        accepted_long_ago(d);
        f.pod = pod("p1", PodState::Running);
    };
    check(accepted(), bound(), late, &start("p1"));
    let evicted: Edit = |_, f| f.pod = pod("p1", PodState::Lost("it was evicted".to_owned()));
    check(accepted(), bound(), evicted, &start("p1"));
    let noted = |why: &str| Step::NoteLoss(why.to_owned());
    check(started(1), bound(), evicted, &noted("it was evicted"));
    let stopped: Edit = |_, f| f.pod = pod("p1", PodState::Ended(outcome(MoverResult::Cancelled)));
    check(started(1), bound(), stopped, &noted("it was stopped"));
    let lost_once = || {
        let mut download = started(1);
        let loss = patches::first_loss(&download, "it needed more memory than its limit");
        patch(&mut download, loss);
        download
    };
    assert_eq!(patches::first_loss(&lost_once(), "again"), None);
    check(lost_once(), bound(), evicted, &Step::RemovePod);
    check(lost_once(), bound(), stopped, &Step::RemovePod);
    check(started(1), bound(), |_, _| {}, &Step::CreatePod);
    let second: Edit = |_, f| f.pod = pod("p2", PodState::Running);
    check(started(1), bound(), second, &start("p2"));
    check(started(2), bound(), second, &Step::Progress);
    let again: Edit = |_, f| f.pod = pod("p2", PodState::Lost("it was evicted".to_owned()));
    fails(
        started(2),
        bound(),
        again,
        "lost 2 times: the first time because it was deleted, the last time, with fewer threads and \
         smaller buffers, because it was evicted",
    );
    let mut lost_twice = lost_once();
    let second_pod = patches::started(&lost_twice, "p2", None, now());
    patch(&mut lost_twice, second_pod);
    let reason = "the first time because it needed more memory than its limit, the last time";
    fails(lost_twice, bound(), again, reason);
    fails(started(2), bound(), |_, _| {}, "it was deleted");
    let failed: Edit = |_, f| f.pod = pod("p1", PodState::Ended(outcome(MoverResult::Failed)));
    fails(started(1), bound(), failed, "wrong password");
}

#[test]
fn what_the_pod_has_filled_is_recorded_with_what_is_missing() {
    let record = |result, message: &str| {
        Step::Record(Filling {
            fill: Fill {
                volume: "pv".to_owned(),
                result,
                at: now(),
            },
            message: message.to_owned(),
            bytes: 7,
        })
    };
    let complete: Edit = |_, f| f.pod = pod("p1", PodState::Ended(outcome(MoverResult::Complete)));
    check(
        started(1),
        bound(),
        complete,
        &record(MoverResult::Complete, ""),
    );
    // It was so fast that it was never seen running.
    check(
        accepted(),
        bound(),
        complete,
        &record(MoverResult::Complete, ""),
    );
    let incomplete: Edit =
        |_, f| f.pod = pod("p1", PodState::Ended(outcome(MoverResult::Incomplete)));
    let message = "the claim has its volume, but 2 files could not be restored completely: a/b \
                   (damaged) and 1 more";
    check(
        started(1),
        bound(),
        incomplete,
        &record(MoverResult::Incomplete, message),
    );
    let unbound: Edit = |_, f| {
        f.claim = Found::Ours(OwnClaim {
            volume: None,
            is_bound: false,
        });
        f.pod = pod("p1", PodState::Ended(outcome(MoverResult::Complete)));
    };
    fails(started(1), bound(), unbound, "has no volume");
}

#[test]
fn nothing_is_filled_for_a_claim_that_cannot_get_it() {
    let stages: [fn() -> DataDownload; 3] =
        [accepted, || started(1), || filled(MoverResult::Complete)];
    let cancels: [Edit; 3] = [
        |d, _| d.spec.mover.cancel = true,
        |d, _| mark_deleted(d),
        |d, _| d.status.transfer.phase = Some(MovePhase::Canceling),
    ];
    for download in stages {
        let problem = |edit: Edit, message: &str| fails(download(), bound(), edit, message);
        problem(|_, f| f.target = None, "was deleted");
        problem(|_, f| target(f).uid = "uid-new".to_owned(), "created again");
        problem(|_, f| target(f).is_deleting = true, "being deleted");
        problem(
            |_, f| target(f).volume = Some("pv-0".to_owned()),
            "pv-0 already",
        );
        for cancel in cancels {
            check_end(download(), bound(), cancel, &MovePhase::Canceled, "removed");
        }
    }
}

#[test]
fn patches_keep_other_finalizers_and_an_end() {
    let mut download = arrived();
    download.metadata.finalizers = Some(vec!["other".to_owned()]);
    let accepted = patches::accepted(&download, "uid-t", now());
    patch(&mut download, accepted);
    assert_eq!(download.finalizers(), ["other", FINALIZER]);
    assert_eq!(download.labels()[ACTIVE_LABEL], "true");
    assert_eq!(patches::accepted(&download, "uid-t", now()), None);
    let started = patches::started(&download, "p1", Some("n1"), now());
    patch(&mut download, started);
    assert_eq!(patches::started(&download, "p1", Some("n1"), now()), None);
    assert_eq!(download.status.node.node.as_deref(), Some("n1"));
    assert_eq!(patches::released(&download), None, "it has not ended");
    let ended = patches::ended(&download, &MovePhase::Canceled, "", now());
    patch(&mut download, ended);
    assert_eq!(
        patches::ended(&download, &MovePhase::Failed, "", now()),
        None
    );
    assert!(!download.labels().contains_key(ACTIVE_LABEL));
    let released = patches::released(&download);
    patch(&mut download, released);
    assert_eq!(download.finalizers(), ["other"]);
    assert_eq!(patches::released(&download), None);
}
