use std::sync::atomic::{AtomicUsize, Ordering};

use backup_testkit::{FakeApi, Fault, Request};
use serde_json::json;

use super::*;

fn listing() -> Listing {
    Listing::v1("", "ConfigMap", "configmaps", None)
}

fn server(count: usize) -> FakeApi {
    let api = FakeApi::new();
    for n in 0..count {
        let item = json!({ "metadata": { "name": format!("c{n:03}"), "namespace": "a" } });
        api.put(&format!("/api/v1/namespaces/a/configmaps/c{n:03}"), item);
    }
    api
}

/// The number of items in each page, and how the walk ended.
async fn walk(api: &FakeApi) -> (Vec<usize>, Vec<Step>) {
    let mut steps = start(api.client(), vec![listing()], 2);
    let (mut pages, mut ends) = (Vec::new(), Vec::new());
    while let Some(step) = steps.recv().await {
        match step {
            Step::Items { items, .. } => pages.push(items.len()),
            end => ends.push(end),
        }
    }
    (pages, ends)
}

#[tokio::test(start_paused = true)]
async fn a_list_is_walked_page_by_page_to_its_end() {
    let (pages, ends) = walk(&server(5)).await;
    assert_eq!(pages, [2, 2, 1]);
    assert!(matches!(ends.as_slice(), [Step::Done]), "{ends:?}");
    let (pages, ends) = walk(&server(0)).await;
    assert!(pages.is_empty() && matches!(ends.as_slice(), [Step::Done]), "{ends:?}");
}

#[tokio::test(start_paused = true)]
async fn a_page_that_is_too_large_for_the_memory_is_asked_for_in_smaller_ones() {
    let api = server(3);
    for path in api.under("/api/v1/").into_keys() {
        api.edit(&path, |item| item["data"] = json!({ "k": "x".repeat(13 << 20) }));
    }
    let (pages, ends) = walk(&api).await;
    assert_eq!(pages, [1, 1, 1]);
    assert!(matches!(ends.as_slice(), [Step::Done]), "{ends:?}");
}

#[tokio::test(start_paused = true)]
async fn an_expired_continue_token_begins_the_list_again() {
    let expired = AtomicUsize::new(0);
    let api = server(5);
    api.fault(move |_, request: &Request| {
        let second_page = request.parameter("continue") == "2";
        let first_time = second_page && expired.fetch_add(1, Ordering::Relaxed) == 0;
        first_time.then(|| Fault::refuse(410, "x", "expired"))
    });
    let (pages, ends) = walk(&api).await;
    assert_eq!(pages, [2, 2, 2, 1]);
    assert!(matches!(ends.as_slice(), [Step::Done]), "{ends:?}");
}

#[tokio::test(start_paused = true)]
async fn a_token_that_always_expires_ends_as_a_failure() {
    let api = server(5);
    api.fault(|_, request| {
        (!request.parameter("continue").is_empty()).then(|| Fault::refuse(410, "x", "expired"))
    });
    let (pages, ends) = walk(&api).await;
    assert_eq!(pages.len(), RESTARTS + 1);
    assert!(matches!(ends.as_slice(), [Step::Failed { reason, .. }] if reason == "expired"), "{ends:?}");
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_passes_loses_nothing() {
    let tries = AtomicUsize::new(0);
    let api = server(3);
    api.fault(move |_, _| {
        (tries.fetch_add(1, Ordering::Relaxed) < 3).then(|| Fault::refuse(503, "x", "busy"))
    });
    let (pages, ends) = walk(&api).await;
    assert_eq!(pages, [2, 1]);
    assert!(matches!(ends.as_slice(), [Step::Done]), "{ends:?}");
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_stays_is_told_after_a_bounded_number_of_tries() {
    for (code, tries) in [(503, RETRIES + 1), (403, 1)] {
        let api = FakeApi::new();
        api.fault(move |_, _| Some(Fault::refuse(code, "x", "no")));
        let mut steps = start(api.client(), vec![listing()], 2);
        assert!(matches!(steps.recv().await, Some(Step::Failed { reason, .. }) if reason == "no"));
        assert!(steps.recv().await.is_none());
        assert_eq!(api.log().len(), tries, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_type_that_is_gone_is_told_from_one_that_fails() {
    let api = FakeApi::new();
    api.unserve("configmaps");
    let (_, ends) = walk(&api).await;
    assert!(matches!(ends.as_slice(), [Step::Vanished { listing: 0 }]), "{ends:?}");
}

#[tokio::test(start_paused = true)]
async fn pages_are_not_fetched_without_bound_ahead_of_the_reader() {
    let api = server(100);
    let mut steps = start(api.client(), vec![listing()], 1);
    let first = steps.recv().await;
    assert!(matches!(first, Some(Step::Items { remaining: 99, .. })), "{first:?}");
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    // The one that was read, one that waits, one on its way into the channel.
    assert!(api.log().len() <= 2 + AHEAD, "{}", api.log().len());
}

#[test]
fn heavy_pages_make_the_next_ones_smaller() {
    let page = |bytes: usize| -> Page {
        let text = json!({ "items": [{ "x": "y".repeat(bytes) }] }).to_string();
        serde_json::from_str(&text).unwrap()
    };
    assert_eq!(next_limit(500, 500, &page(PAGE_BYTES * 10)), 49);
    assert_eq!(next_limit(1, 500, &page(PAGE_BYTES * 10)), 1);
    assert_eq!(next_limit(49, 500, &page(10)), 98);
    assert_eq!(next_limit(400, 500, &page(10)), 500);
    assert_eq!(next_limit(49, 500, &page(PAGE_BYTES / 2)), 49);
}
