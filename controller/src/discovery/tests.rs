use backup_core::resources::ResourceType;
use backup_testkit::{FakeApi, Fault};

use super::*;
use crate::{job::worker::WorkerError, testing::discovery};

#[test]
fn a_group_of_which_nothing_can_be_created_is_missed_by_nobody() {
    let of = |group: &str, verbs: &[&str]| ResourceType {
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        ..crate::testing::resource(group, "things", "Thing", true)
    };
    let groups = KnownGroups::new(["metrics.k8s.io".to_owned()]);
    let silent = |group: &str| groups.has_nothing_to_back_up(group);
    assert!(
        silent("metrics.k8s.io/v1beta1") && !silent("other.io/v1"),
        "as it is configured"
    );
    groups.note(&ServedTypes::just(&[
        of("read.io", &["get", "list"]),
        of("full.io", &["create"]),
    ]));
    assert!(silent("read.io/v1") && !silent("full.io/v1"));
    groups.note(&ServedTypes::just(&[
        of("read.io", &["create"]),
        of("metrics.k8s.io", &["create"]),
    ]));
    assert!(
        !silent("read.io/v1") && !silent("metrics.k8s.io/v1"),
        "as it was seen last"
    );
}

#[tokio::test]
async fn what_could_not_be_read_is_named_by_what_waits_for_it() {
    for (fails, what) in [("/api", "which core types"), ("/apis", "which API groups")] {
        let api = FakeApi::new().with_fault(move |request| {
            (request.path == fails).then(|| Fault::refuse(403, "Forbidden", "no"))
        });
        for path in ["/api", "/apis"] {
            api.put(path, discovery("", &[("pods", "Pod", "Namespaced")]));
        }
        let error = ServedTypes::load(&api.client()).await.unwrap_err();
        let WorkerError::Blocked { reason, retryable } = error.into() else {
            panic!("{fails}")
        };
        let expected = format!("{what} the API server serves ({fails}) cannot be read: no");
        assert_eq!((reason, retryable), (expected, false));
    }
}
