//! Whatever edit of a ledger the policy `backup-lock-ledger` allows, the repair restores a working
//! ledger.

use std::time::{Duration, Instant};

use backup_core::labels::{LEDGER_ANNOTATION, SCOPE_ANNOTATION, SERIAL_ANNOTATION, SUM_ANNOTATION};
use backup_testkit::{FakeApi, Fault, LEDGER_PATH, MARKER_PATH};
use proptest::{prelude::*, sample::select};
use serde_json::{Value, json};

use super::{LedgerRepair, LedgerStore, body};
use crate::{VELERO_SCOPE, ledger::MAX_BYTES};

const GRACE: Duration = Duration::from_mins(2);
const CHECK_INTERVAL: Duration = Duration::from_secs(10);

fn annotation<'a>(lease: &'a Value, name: &str) -> &'a str {
    lease["metadata"]["annotations"][name]
        .as_str()
        .unwrap_or_default()
}

/// The number of the format in the head of a ledger.
fn format(lease: &Value) -> Option<u32> {
    let digits = annotation(lease, LEDGER_ANNOTATION).strip_prefix(r#"{"v":"#)?;
    let end = digits
        .find(|letter: char| !letter.is_ascii_digit())
        .unwrap_or(digits.len());
    digits[..end.min(9)].parse().ok()
}

fn serial(lease: &Value) -> Option<u64> {
    let text = annotation(lease, SERIAL_ANNOTATION);
    (text.len() <= 18 && text.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| text.parse().ok())?
}

/// The rule in deploy/base/policies.yaml; `e2e::policy` checks that both are the same.
fn policy_allows(before: &Value, after: &Value, person: bool) -> bool {
    let transitions = |lease: &Value| {
        lease["spec"]["leaseTransitions"]
            .as_i64()
            .unwrap_or_default()
    };
    let Some(version) = format(after) else {
        return false;
    };
    let known = annotation(after, LEDGER_ANNOTATION).starts_with("{\"v\":1,");
    annotation(after, LEDGER_ANNOTATION).len() <= MAX_BYTES
        && (known || !person)
        && format(before).is_none_or(|before| version >= before)
        && transitions(after) >= transitions(before)
        && serial(after).is_some_and(|after| serial(before).is_none_or(|before| after > before))
        && annotation(after, SCOPE_ANNOTATION) == annotation(before, SCOPE_ANNOTATION)
}

#[derive(Clone, Debug)]
struct Edit {
    serial: String,
    /// The new text of the ledger; `None`: unchanged.
    text: Option<String>,
    /// Whether the checksum is updated to match.
    fits: bool,
    transitions: i32,
    marker: bool,
}

fn edits() -> impl Strategy<Value = Edit> {
    const SERIALS: [&str; 7] = [
        "8",
        "99999999999999999",
        "100000000000000000",
        "999999999999999999",
        "9999999999999999999",
        "x",
        "",
    ];
    const TEXTS: [&str; 10] = [
        r#"{"v":1,"epoch":0,"bound":0,"footprints":[],"claims":[]}"#,
        r#"{"v":1,"epoch":4611686018427387904,"bound":4611686018427387904,"footprints":[],"claims":[]}"#,
        r#"{"v":1,"status":"Closed","epoch":1,"bound":1000,"footprints":[],"claims":[]}"#,
        r#"{"v":1,"status":"Opening","epoch":1,"bound":1000,"footprints":[],"claims":[]}"#,
        r#"{"v":1,"v":9}"#,
        r#"{"v":1,"status":"Shut"}"#,
        r#"{"v":9,"all":"new"}"#,
        r#"{"v":999999999}"#,
        r#"{"v":1}"#,
        "",
    ];
    let serial = prop_oneof![select(&SERIALS[..]).prop_map(str::to_owned), "[0-9]{1,19}"];
    let text = prop_oneof![
        select(&TEXTS[..]).prop_map(str::to_owned),
        r#"\{"v":[0123],.{0,40}"#
    ];
    let transitions = prop_oneof![Just(1), Just(i32::MAX), 0..i32::MAX];
    (
        serial,
        proptest::option::of(text),
        any::<bool>(),
        transitions,
        prop::bool::weighted(0.8),
    )
        .prop_map(|(serial, text, fits, transitions, marker)| Edit {
            serial,
            text,
            fits,
            transitions,
            marker,
        })
}

/// Whether, with a look every ten seconds, the ledger grants again in time for the longest case:
/// found, created, rebuilt a grace later.
async fn is_repaired(edit: Edit) -> Option<bool> {
    let api = FakeApi::new();
    let store = LedgerStore::new(api.client(), "velero");
    store.open(VELERO_SCOPE).await.ok()?;
    let before = api.get(LEDGER_PATH)?;
    let mut after = before.clone();
    let annotations = &mut after["metadata"]["annotations"];
    annotations[SERIAL_ANNOTATION] = json!(edit.serial);
    if let Some(text) = &edit.text {
        annotations[LEDGER_ANNOTATION] = json!(text);
    }
    if edit.fits {
        let text = annotations[LEDGER_ANNOTATION].as_str()?.to_owned();
        let uid = before["metadata"]["uid"].as_str()?;
        annotations[SUM_ANNOTATION] = json!(body::sum(uid, &edit.serial, &text));
    }
    after["spec"]["leaseTransitions"] = json!(edit.transitions);
    if !policy_allows(&before, &after, true) {
        return None;
    }
    api.put(LEDGER_PATH, after);
    if !edit.marker {
        api.delete(MARKER_PATH);
    }
    api.fault(|api, request| {
        let before = api.get(LEDGER_PATH)?;
        let refused =
            request.is("PUT", LEDGER_PATH) && !policy_allows(&before, &request.body, false);
        refused.then(|| Fault::refuse(403, "Forbidden", "the policy backup-lock-ledger"))
    });
    let mut repair = LedgerRepair::new(GRACE, GRACE);
    let start = Instant::now();
    for look in 0..16 {
        // A failed look is followed by the next.
        _ = repair
            .repair(&store, VELERO_SCOPE, start + CHECK_INTERVAL * look)
            .await;
    }
    let deadline = tokio::time::Instant::now() + CHECK_INTERVAL;
    Some(
        store
            .change(VELERO_SCOPE, deadline, |ledger| ledger.epoch += 1)
            .await
            .is_ok(),
    )
}

proptest! {
    #[test]
    fn whatever_the_policy_lets_a_person_write_is_repaired(edit in edits()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        prop_assert_ne!(runtime.unwrap().block_on(is_repaired(edit)), Some(false));
    }
}

/// An open ledger whose serial was edited by hand, with a matching checksum.
async fn with_serial(serial: &str) -> (FakeApi, LedgerStore) {
    let api = FakeApi::new();
    let store = LedgerStore::new(api.client(), "velero");
    store.open(VELERO_SCOPE).await.unwrap();
    api.edit(LEDGER_PATH, |lease| {
        let text = annotation(lease, LEDGER_ANNOTATION).to_owned();
        let uid = lease["metadata"]["uid"].as_str().unwrap().to_owned();
        lease["metadata"]["annotations"][SERIAL_ANNOTATION] = json!(serial);
        lease["metadata"]["annotations"][SUM_ANNOTATION] = json!(body::sum(&uid, serial, &text));
    });
    (api, store)
}

#[tokio::test(start_paused = true)]
async fn a_serial_that_no_ledger_reaches_is_no_serial() {
    let (_, store) = with_serial(&body::MAX_SERIAL.to_string()).await;
    assert!(store.read(VELERO_SCOPE).await.is_ok());
    let (_, store) = with_serial(&(body::MAX_SERIAL + 1).to_string()).await;
    let error = store.read(VELERO_SCOPE).await.unwrap_err().to_string();
    assert_says!(error, "no ledger reaches", "until it is rebuilt");
}

/// The policy allows no write over it. A ledger existed, so late creations are waited for, whatever
/// the marker says.
#[tokio::test(start_paused = true)]
async fn a_ledger_that_cannot_be_written_any_more_is_lost_and_made_again() {
    for marker in [None, Some(json!("")), Some(json!("named"))] {
        let (api, store) = with_serial(&"9".repeat(18)).await;
        match &marker {
            None => api.delete(MARKER_PATH),
            Some(ledger) if ledger == "" => {
                api.edit(MARKER_PATH, |one| one["data"]["ledger"] = json!(""));
            }
            Some(_) => {}
        }
        api.fault(|api, request| {
            let before = api.get(LEDGER_PATH)?;
            let refused =
                request.is("PUT", LEDGER_PATH) && !policy_allows(&before, &request.body, false);
            refused.then(|| Fault::refuse(403, "Forbidden", "the policy backup-lock-ledger"))
        });
        let mut repair = LedgerRepair::new(GRACE, GRACE);
        let start = Instant::now();
        repair.repair(&store, VELERO_SCOPE, start).await.unwrap();
        assert!(api.get(LEDGER_PATH).is_none(), "{marker:?}");
        let error = store.open(VELERO_SCOPE).await.unwrap_err();
        assert_eq!(error.category(), "rebuilding", "{marker:?}");
        for look in 1..16 {
            repair
                .repair(&store, VELERO_SCOPE, start + CHECK_INTERVAL * look)
                .await
                .unwrap();
        }
        assert!(store.open(VELERO_SCOPE).await.is_ok(), "{marker:?}");
    }
}
