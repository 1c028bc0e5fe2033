use rstest::rstest;

use super::*;
use crate::volumes::data_mover::repository::decide::tests::{facts, location, present, repository};

fn at() -> OtherRepositories {
    OtherRepositories::At("s3://other/restic".to_owned())
}

fn unknown() -> OtherRepositories {
    OtherRepositories::Unknown("BackupStorageLocation second: 403".to_owned())
}

#[rstest]
#[case::all_there(present(), true, OtherRepositories::None, false, "open")]
#[case::to_be_made(present(), false, OtherRepositories::None, false, "init")]
#[case::to_be_made_beside_others(present(), false, at(), false, "init")]
#[case::first(
    PasswordSecret::Absent,
    false,
    OtherRepositories::None,
    false,
    "password"
)]
#[case::without_its_password(
    PasswordSecret::Absent,
    true,
    OtherRepositories::None,
    false,
    "bring the Secret back"
)]
#[case::others_have_the_password(
    PasswordSecret::Absent,
    false,
    at(),
    false,
    "at s3://other/restic"
)]
#[case::no_key(
    PasswordSecret::NoKey { version: "u/1".to_owned() },
    false,
    OtherRepositories::None,
    false,
    "has no key repository-password"
)]
#[case::read_only(present(), true, OtherRepositories::None, true, "open")]
#[case::read_only_without_a_repository(
    present(),
    false,
    OtherRepositories::None,
    true,
    "is read-only"
)]
#[case::read_only_without_anything(
    PasswordSecret::Absent,
    false,
    OtherRepositories::None,
    true,
    "is read-only"
)]
fn a_password_is_never_made_where_data_needs_another(
    #[case] password: PasswordSecret,
    #[case] exists: bool,
    #[case] others: OtherRepositories,
    #[case] is_read_only: bool,
    #[case] expected: &str,
) {
    let (repository, location) = (repository(None), location(is_read_only));
    let facts = facts(&repository, Some(&location), &password);
    let bucket = BucketFacts {
        url: "s3://b/restic/shop".to_owned(),
        is_read_only,
        exists,
        others,
    };
    match inspected(&facts, bucket) {
        InspectionPlan::Publish(Verdict { message, is_final }) => {
            let message = message.unwrap();
            assert!(is_final && message.contains(expected), "{message}");
        }
        InspectionPlan::MakePassword => assert_eq!(expected, "password"),
        InspectionPlan::Init => assert_eq!(expected, "init"),
        InspectionPlan::Open => assert_eq!(expected, "open"),
    }
}

#[test]
fn a_location_that_cannot_be_looked_at_is_named_and_looked_at_again() {
    let (repository, location) = (repository(None), location(false));
    let password = PasswordSecret::Absent;
    let facts = facts(&repository, Some(&location), &password);
    let bucket = BucketFacts {
        url: "s3://b/restic/shop".to_owned(),
        is_read_only: false,
        exists: false,
        others: unknown(),
    };
    let InspectionPlan::Publish(verdict) = inspected(&facts, bucket) else {
        panic!("no password may be made");
    };
    assert!(!verdict.is_final);
    let message = verdict.message.unwrap();
    assert!(message.contains("no password is made"), "{message}");
    assert!(
        message.contains("BackupStorageLocation second: 403"),
        "{message}"
    );
}

#[rstest]
#[case::known("Ready", "ready")]
#[case::was_unusable("NotReady", "open")]
#[case::new("New", "open")]
#[case::newer("Tomorrow", "open")]
fn a_repository_that_could_not_be_used_is_ready_only_after_a_pod_has_opened_it(
    #[case] phase: &str,
    #[case] expected: &str,
) {
    let (repository, location) = (repository(Some(phase.into())), location(false));
    let password = present();
    let facts = facts(&repository, Some(&location), &password);
    let bucket = BucketFacts {
        url: "s3://b/restic/shop".to_owned(),
        is_read_only: false,
        exists: true,
        others: OtherRepositories::None,
    };
    let expected = match expected {
        "ready" => InspectionPlan::Publish(Verdict::ready()),
        _ => InspectionPlan::Open,
    };
    assert_eq!(inspected(&facts, bucket), expected);
}
