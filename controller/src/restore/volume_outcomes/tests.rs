use rstest::rstest;
use serde_json::json;

use super::*;

const CREATED: Outcome = Outcome::Created;
const THERE: Outcome = Outcome::Skipped;
const FAILED: Outcome = Outcome::Failed;

const INFO: Option<Level> = Some(Level::Info);
const WARNING: Option<Level> = Some(Level::Warning);
const ERROR: Option<Level> = Some(Level::Error);

fn lost() -> DataSource {
    DataSource::Lost("its snapshot is gone")
}

fn unsaved() -> DataSource {
    DataSource::Unsaved("nothing of it was saved".to_owned())
}

fn moved(incomplete: Option<&str>) -> DataSource {
    DataSource::Moved(MovedData {
        snapshot: "k1".to_owned(),
        size: 7,
        incomplete: incomplete.map(str::to_owned),
    })
}

fn claim(data: &DataSource) -> PlannedClaim<'_> {
    PlannedClaim {
        source: "shop",
        namespace: "copy",
        name: "data",
        volume: "pv",
        data,
        existing: ExistingData::Kept,
    }
}

fn about<'a>(kind: &'a str, namespace: Option<&'a str>, name: &'a str) -> About<'a> {
    About {
        api_version: "v1",
        kind,
        namespace,
        name,
    }
}

/// The level of the message, the message, and why the data is missing.
fn said(outcome: &DataOutcome) -> (Option<Level>, String, Option<&str>) {
    let (level, text) = outcome.message.clone().unzip();
    let why = outcome
        .missing
        .as_ref()
        .map(|entry| entry.skipped_reason.as_deref().unwrap());
    (level, text.unwrap_or_default(), why)
}

/// One case for each outcome of the data of a claim; messages claim no more than is true.
#[rstest]
#[case::kept(
    CREATED,
    DataSource::Kept,
    INFO,
    "comes back with its volume, which keeps its data",
    None
)]
#[case::kept_without_its_claim(FAILED, DataSource::Kept, None, "", None)]
#[case::kept_and_there(
    THERE,
    DataSource::Kept,
    INFO,
    "was there already and keeps the data that it has",
    None
)]
#[case::plugin(
    CREATED,
    DataSource::NativeSnapshot,
    INFO,
    "with a volume of the snapshot",
    None
)]
#[case::plugin_without_its_claim(
    FAILED,
    DataSource::NativeSnapshot,
    None,
    "",
    Some("its claim was not restored")
)]
#[case::plugin_and_there(
    Outcome::Updated,
    DataSource::NativeSnapshot,
    INFO,
    "keeps the data that it has",
    Some("was there already")
)]
#[case::csi_without_snapshot(
    CREATED,
    DataSource::CsiSnapshot,
    None,
    "",
    Some("its snapshot was not restored")
)]
#[case::csi_without_its_claim(
    FAILED,
    DataSource::CsiSnapshot,
    None,
    "",
    Some("its claim was not restored")
)]
#[case::csi_and_there(
    THERE,
    DataSource::CsiSnapshot,
    INFO,
    "keeps the data that it has",
    Some("was there already")
)]
#[case::moved_and_not_requested(
    CREATED,
    moved(None),
    ERROR,
    "the data of claim shop/data is not restored",
    Some("it was not requested from the repository")
)]
#[case::moved_without_its_claim(FAILED, moved(None), None, "", Some("its claim was not restored"))]
#[case::moved_and_there(
    THERE,
    moved(None),
    INFO,
    "keeps the data that it has",
    Some("was there already")
)]
#[case::repository(
    CREATED,
    DataSource::Repository,
    ERROR,
    "the data of claim shop/data is not restored: Velero has saved it in a repository of files, which only its node agents read, so the volume is empty",
    Some("repository of files")
)]
#[case::repository_without_its_claim(
    FAILED,
    DataSource::Repository,
    None,
    "",
    Some("its claim was not restored")
)]
#[case::repository_and_there(
    THERE,
    DataSource::Repository,
    INFO,
    "keeps the data that it has",
    Some("was there already")
)]
#[case::lost(
    CREATED,
    lost(),
    ERROR,
    "cannot be brought back: its snapshot is gone; its volume is empty",
    Some("its snapshot is gone")
)]
#[case::lost_and_there(THERE, lost(), INFO, "keeps the data that it has", None)]
#[case::unsaved(
    CREATED,
    unsaved(),
    WARNING,
    "comes back empty: nothing of it was saved",
    Some("nothing of it was saved")
)]
#[case::unsaved_and_there(THERE, unsaved(), INFO, "keeps the data that it has", None)]
fn what_became_of_the_data_of_a_claim_is_said_once(
    #[case] outcome: Outcome,
    #[case] data: DataSource,
    #[case] level: Option<Level>,
    #[case] text: &str,
    #[case] why: Option<&str>,
) {
    let mut outcomes = VolumeOutcomes::default();
    assert_eq!(
        outcomes.of_claim(claim(&data), true, &[]),
        None,
        "it was not selected"
    );
    outcomes.add(
        about("PersistentVolumeClaim", Some("copy"), "data"),
        &ItemResult::quiet(outcome),
    );
    let found = outcomes.of_claim(claim(&data), true, &[]).unwrap();
    let found = said(&found);
    assert_eq!(found.0, level);
    assert_says!(found.1, text);
    assert_eq!(found.2.is_some(), why.is_some(), "{found:?}");
    assert_says!(found.2.unwrap_or_default(), why.unwrap_or_default());
    assert!(
        outcome == CREATED || !found.1.contains("empty"),
        "a claim that exists is not empty: {found:?}"
    );
    if data != DataSource::Kept {
        let unwanted = outcomes.of_claim(claim(&data), false, &[]).unwrap();
        assert_eq!(said(&unwanted).2, None, "no data is wanted");
        assert!(
            !matches!(said(&unwanted).0, WARNING | ERROR),
            "{unwanted:?}"
        );
    }
    // Provisioned from its snapshot, as recorded by the action.
    let told = VolumeInfo::all(&[
        json!({"pvcNamespace": "copy", "pvcName": "data", "restoreMethod": "CSISnapshot"}),
    ]);
    if (outcome, &data) == (CREATED, &DataSource::CsiSnapshot) {
        let provisioned = outcomes.of_claim(claim(&data), true, &told).unwrap();
        assert_eq!((said(&provisioned).0, said(&provisioned).2), (INFO, None));
    }
}

#[rstest]
#[case::moved(moved(None), Some("without a volume"))]
#[case::csi(DataSource::CsiSnapshot, Some("without a volume"))]
#[case::kept(DataSource::Kept, None)]
#[case::lost(lost(), None)]
#[case::unsaved(unsaved(), None)]
fn a_claim_that_exists_without_a_volume_keeps_no_data(
    #[case] data: DataSource,
    #[case] why: Option<&str>,
) {
    let mut outcomes = VolumeOutcomes::default();
    let applied = ItemResult {
        unbound: true,
        ..ItemResult::quiet(THERE)
    };
    let about = about("PersistentVolumeClaim", Some("copy"), "data");
    outcomes.add(about, &applied);
    for is_wanted in [true, false] {
        let found = outcomes.of_claim(claim(&data), is_wanted, &[]).unwrap();
        let found = said(&found);
        assert_says!(found.1, "was there already, without a volume");
        assert!(!found.1.contains("keeps"), "{found:?}");
        assert_eq!(found.0, INFO);
        let why = why.filter(|_| is_wanted);
        assert_eq!(found.2.is_some(), why.is_some(), "{found:?}");
        assert_says!(found.2.unwrap_or_default(), why.unwrap_or_default());
    }
}

/// A Restore that wants the data of the backup in claims that exist.
#[rstest]
#[case::restored(
    ExistingData::Restored,
    moved(None),
    INFO,
    "the data of the backup is restored into its volume",
    None
)]
#[case::restored_in_part(
    ExistingData::Restored,
    moved(Some("2 files")),
    WARNING,
    "a part of its data is restored into its volume: 2 files",
    None
)]
#[case::of_a_snapshot(
    ExistingData::NotRestorable,
    DataSource::CsiSnapshot,
    ERROR,
    "only data that was moved into the bucket",
    Some("its data is in a snapshot")
)]
#[case::of_a_repository_of_velero(
    ExistingData::NotRestorable,
    DataSource::Repository,
    ERROR,
    "was there already and keeps the data that it has: it is in a repository of files",
    Some("repository of files")
)]
#[case::lost(
    ExistingData::NotRestorable,
    lost(),
    ERROR,
    "its snapshot is gone",
    Some("its snapshot is gone")
)]
#[case::not_saved(
    ExistingData::NotRestorable,
    unsaved(),
    INFO,
    "keeps the data that it has",
    None
)]
fn data_that_should_be_restored_in_place_is_reported(
    #[case] existing: ExistingData,
    #[case] data: DataSource,
    #[case] level: Option<Level>,
    #[case] text: &str,
    #[case] why: Option<&str>,
) {
    let mut outcomes = VolumeOutcomes::default();
    outcomes.add(
        about("PersistentVolumeClaim", Some("copy"), "data"),
        &ItemResult::quiet(THERE),
    );
    let planned = PlannedClaim {
        existing,
        ..claim(&data)
    };
    let found = outcomes.of_claim(planned, true, &[]).unwrap();
    let found = said(&found);
    assert_eq!(found.0, level, "{found:?}");
    assert!(found.1.contains(text), "{found:?}");
    assert_eq!(found.2.is_some(), why.is_some(), "{found:?}");
    assert!(
        found
            .2
            .unwrap_or_default()
            .contains(why.unwrap_or_default()),
        "{found:?}"
    );
}

/// The volume of the backup keeps its data, but the claim does not have that volume.
#[rstest]
#[case::not_in_the_cluster(
    CREATED,
    NamedVolume::Absent,
    WARNING,
    "waits for volume \"pv\"",
    "its volume pv is not in the cluster"
)]
#[case::held(FAILED, NamedVolume::Held("shop/data".to_owned()), None, "", "its volume belongs to claim shop/data")]
#[case::with_another(THERE, NamedVolume::Another("pvc-7".to_owned()), WARNING, "the data of the backup is on volume \"pv\"", "its claim was there already, with volume pvc-7")]
fn a_claim_without_the_volume_that_it_names_is_missing_its_data(
    #[case] outcome: Outcome,
    #[case] volume: NamedVolume,
    #[case] level: Option<Level>,
    #[case] text: &str,
    #[case] why: &str,
) {
    let mut outcomes = VolumeOutcomes::default();
    outcomes.names("copy", "data", volume);
    outcomes.add(
        about("PersistentVolumeClaim", Some("copy"), "data"),
        &ItemResult::quiet(outcome),
    );
    for data in [DataSource::Kept, DataSource::NativeSnapshot] {
        let found = outcomes.of_claim(claim(&data), true, &[]).unwrap();
        let found = said(&found);
        // The data of a snapshot is only in the snapshot.
        let is_held = outcome != CREATED && data == DataSource::NativeSnapshot;
        assert!(
            is_held || (found.0, found.2) == (level, Some(why)),
            "{found:?}"
        );
        assert!(is_held || found.1.contains(text), "{found:?}");
    }
}

/// A claim that gets no volume is a warning, whatever the source of its data.
#[rstest]
#[case::unsaved(
    unsaved(),
    true,
    WARNING,
    "comes back empty: nothing of it was saved; it has no volume",
    Some("nothing of it was saved")
)]
#[case::from_its_snapshot(
    DataSource::CsiSnapshot,
    true,
    WARNING,
    "claim \"data\" is created; it has no volume",
    Some("its snapshot was not restored")
)]
#[case::lost(
    lost(),
    true,
    ERROR,
    "its volume is empty; it has no volume",
    Some("its snapshot is gone")
)]
#[case::no_data_is_wanted(
    unsaved(),
    false,
    WARNING,
    "spec.restorePVs is false; it has no volume",
    None
)]
fn a_claim_that_gets_no_volume_says_so(
    #[case] data: DataSource,
    #[case] wanted: bool,
    #[case] level: Option<Level>,
    #[case] text: &str,
    #[case] why: Option<&str>,
) {
    let mut outcomes = VolumeOutcomes::default();
    outcomes.names(
        "copy",
        "data",
        NamedVolume::Unprovisioned("no such class".to_owned()),
    );
    let claim_object = about("PersistentVolumeClaim", Some("copy"), "data");
    outcomes.add(claim_object, &ItemResult::quiet(CREATED));
    let found = outcomes.of_claim(claim(&data), wanted, &[]).unwrap();
    let found = said(&found);
    assert_eq!((found.0, found.2), (level, why), "{found:?}");
    assert!(
        found.1.contains(text)
            && found
                .1
                .ends_with("stays Pending until there is one for it: no such class"),
        "{found:?}"
    );
    // An existing claim keeps its data.
    outcomes.add(claim_object, &ItemResult::quiet(THERE));
    let found = outcomes.of_claim(claim(&data), wanted, &[]).unwrap();
    assert!(!said(&found).1.contains("Pending"), "{found:?}");
}

/// The entry of the claim says what is missing, and the operation how it ends.
#[rstest]
#[case::complete(None, None, INFO, "is filled from the repository; pods wait for it")]
#[case::in_part(
    Some("2 files"),
    None,
    WARNING,
    "comes back with a part of its data: 2 files"
)]
#[case::without_a_volume(
    None,
    Some("no such class"),
    WARNING,
    "pods wait for it until then; it has no volume"
)]
fn moved_data_that_was_requested_is_not_missing_yet(
    #[case] incomplete: Option<&str>,
    #[case] class: Option<&str>,
    #[case] level: Option<Level>,
    #[case] text: &str,
) {
    let mut outcomes = VolumeOutcomes::default();
    if let Some(class) = class {
        let named = NamedVolume::Unprovisioned(class.to_owned());
        outcomes.names("copy", "data", named);
    }
    outcomes.add(
        about("PersistentVolumeClaim", Some("copy"), "data"),
        &ItemResult::quiet(CREATED),
    );
    let told = VolumeInfo::all(&[json!({"pvcNamespace": "copy", "pvcName": "data"})]);
    let data = moved(incomplete);
    let found = outcomes.of_claim(claim(&data), true, &told).unwrap();
    let found = said(&found);
    assert_eq!((found.0, found.2), (level, None), "{found:?}");
    assert_says!(found.1, text);
}

#[test]
fn a_volume_that_was_not_restored_takes_the_data_of_its_claim_along() {
    for (data, is_missing) in [
        (DataSource::Kept, true),
        (DataSource::NativeSnapshot, true),
        (DataSource::CsiSnapshot, false),
    ] {
        let mut outcomes = VolumeOutcomes::default();
        let failed = ItemResult::failed("the snapshot is gone".to_owned());
        outcomes.add(about("PersistentVolume", None, "pv"), &failed);
        outcomes.add(
            about("PersistentVolumeClaim", Some("copy"), "data"),
            &ItemResult::quiet(CREATED),
        );
        let told = VolumeInfo::all(&[json!({"pvcNamespace": "copy", "pvcName": "data"})]);
        let found = outcomes.of_claim(claim(&data), true, &told).unwrap();
        assert_eq!(
            said(&found).2,
            is_missing.then_some("the snapshot is gone"),
            "{data:?}"
        );
    }
}

#[rstest]
#[case::of_a_repository(DataSource::Repository, ERROR)]
#[case::moved(moved(None), INFO)]
#[case::lost(lost(), ERROR)]
#[case::nothing_saved(unsaved(), None)]
fn a_claim_that_is_left_to_its_pod_is_missing_what_was_saved(
    #[case] data: DataSource,
    #[case] level: Option<Level>,
) {
    let mut outcomes = VolumeOutcomes::default();
    outcomes.left_out(about("PersistentVolumeClaim", Some("copy"), "data"));
    let found = outcomes.of_claim(claim(&data), true, &[]).unwrap();
    assert_eq!(
        (said(&found).0, said(&found).2.is_some()),
        (level, level.is_some())
    );
}

#[rstest]
#[case::created(Some(CREATED), ERROR, "so the volume is empty")]
#[case::there(
    Some(THERE),
    INFO,
    "its pod was there already, and keeps the data that it has"
)]
#[case::failed(Some(FAILED), None, "")]
#[case::left_out(None, INFO, "its pod was left out")]
fn what_became_of_a_volume_of_a_pod_is_said_once(
    #[case] outcome: Option<Outcome>,
    #[case] level: Option<Level>,
    #[case] text: &str,
) {
    let volume = RepositoryVolume {
        namespace: "shop".to_owned(),
        claim: None,
        mount: Some(("web".to_owned(), "cache".to_owned())),
    };
    let mut outcomes = VolumeOutcomes::default();
    outcomes.watch_pods([("copy".to_owned(), "web".to_owned())].into());
    assert_eq!(
        outcomes.in_repository("copy", &volume),
        None,
        "it was not reached"
    );
    let pod = about("Pod", Some("copy"), "web");
    match outcome {
        Some(outcome) => outcomes.add(pod, &ItemResult::quiet(outcome)),
        None => outcomes.left_out(pod),
    }
    outcomes.add(
        about("Pod", Some("copy"), "other"),
        &ItemResult::quiet(CREATED),
    );
    let found = outcomes.in_repository("copy", &volume).unwrap();
    assert_eq!(said(&found).0, level);
    assert!(
        said(&found).1.contains(text) && found.missing.is_some(),
        "{found:?}"
    );
}
