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
    walk_all(api, vec![ListChoice::One(listing())], 2).await
}

async fn walk_all(
    api: &FakeApi,
    walked: Vec<ListChoice>,
    page_size: u32,
) -> (Vec<usize>, Vec<Step>) {
    let mut steps = start(api.client(), walked, page_size);
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
    assert!(
        pages.is_empty() && matches!(ends.as_slice(), [Step::Done]),
        "{ends:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_page_that_is_too_large_for_the_memory_is_asked_for_in_smaller_ones() {
    let api = server(3);
    for path in api.under("/api/v1/").into_keys() {
        api.edit(&path, |item| {
            item["data"] = json!({ "k": "x".repeat(13 << 20) });
        });
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
    assert_eq!(pages.len(), MAX_RESTARTS + 1);
    assert!(
        matches!(ends.as_slice(), [Step::Failed { reason, .. }, Step::Done] if reason == "expired"),
        "{ends:?}"
    );
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
    // The first page is tried once ahead of time.
    for (code, tries) in [(503, MAX_RETRIES + 2), (403, 1)] {
        let api = FakeApi::new();
        api.fault(move |_, _| Some(Fault::refuse(code, "x", "no")));
        let mut steps = start(api.client(), vec![ListChoice::One(listing())], 2);
        assert!(matches!(steps.recv().await, Some(Step::Failed { reason, .. }) if reason == "no"));
        assert!(matches!(steps.recv().await, Some(Step::Done)));
        assert!(steps.recv().await.is_none());
        assert_eq!(api.log().len(), tries, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_type_that_is_gone_is_told_from_one_that_fails() {
    let api = FakeApi::new();
    api.unserve("configmaps");
    let (_, ends) = walk(&api).await;
    assert!(
        matches!(ends.as_slice(), [Step::Vanished { .. }, Step::Done]),
        "{ends:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn pages_are_not_fetched_without_bound_ahead_of_the_reader() {
    let api = server(100);
    let mut steps = start(api.client(), vec![ListChoice::One(listing())], 1);
    let first = steps.recv().await;
    assert!(
        matches!(first, Some(Step::Items { remaining: 99, .. })),
        "{first:?}"
    );
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    // The page that was received, one that waits, one being sent into the channel.
    assert!(
        api.log().len() <= 2 + MAX_PAGES_AHEAD,
        "{}",
        api.log().len()
    );
}

#[test]
fn heavy_pages_make_the_next_ones_smaller() {
    let page = |bytes: usize| -> Page {
        let text = json!({ "items": [{ "x": "y".repeat(bytes) }] }).to_string();
        serde_json::from_str(&text).unwrap()
    };
    assert_eq!(next_limit(500, 500, &page(PAGE_BYTES * 10)), 49);
    assert_eq!(next_limit(1, 500, &page(PAGE_BYTES * 10)), 1);
    assert_eq!(next_limit(49, 500, &page(10)), 196);
    assert_eq!(next_limit(400, 500, &page(10)), 500);
    assert_eq!(next_limit(49, 500, &page(PAGE_BYTES / 2)), 49);
}

/// Three wanted namespaces with two items each, beside one with `others` items.
fn beside(others: usize) -> (FakeApi, ListChoice) {
    let api = FakeApi::new();
    let put = |namespace: &str, number: usize| {
        let name = format!("c{number:03}");
        let labels = json!({ "app": "web" });
        let item =
            json!({ "metadata": { "name": name, "namespace": namespace, "labels": labels } });
        api.put(
            &format!("/api/v1/namespaces/{namespace}/configmaps/{name}"),
            item,
        );
    };
    for number in 0..2 {
        for namespace in ["a", "b", "c"] {
            put(namespace, number);
        }
    }
    (0..others).for_each(|number| put("z", number));
    (
        api,
        ListChoice::Either {
            whole: listing(),
            parts: parts(""),
            namespaces: Some(4),
        },
    )
}

fn parts(selector: &str) -> Arc<[Part]> {
    let of = |namespace: &str| Part {
        namespace: namespace.into(),
        selector: selector.into(),
    };
    ["a", "b", "c"].into_iter().map(of).collect()
}

/// The namespaces of the requested lists, sorted, as some are requested concurrently; `*` is all.
fn asked(api: &FakeApi) -> Vec<String> {
    let of = |path: &str| path.split('/').nth(4).unwrap_or("*").to_owned();
    let mut asked: Vec<String> = api
        .requests()
        .iter()
        .map(|request| of(&request.path))
        .collect();
    asked.sort();
    asked
}

#[tokio::test(start_paused = true)]
async fn what_fits_into_a_page_is_listed_over_all_namespaces() {
    let (api, walked) = beside(20);
    let (pages, ends) = walk_all(&api, vec![walked], 500).await;
    assert_eq!((pages, asked(&api)), (vec![26], vec!["*".to_owned()]));
    assert!(matches!(ends.as_slice(), [Step::Done]), "{ends:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_mostly_not_wanted_is_listed_in_each_namespace() {
    let (api, walked) = beside(1_000);
    let (pages, ends) = walk_all(&api, vec![walked], 500).await;
    assert_eq!(
        (pages, asked(&api).join("")),
        (vec![2, 2, 2], "*abc".to_owned())
    );
    assert!(matches!(ends.as_slice(), [Step::Done]), "{ends:?}");
    let log = api.requests();
    let versions: Vec<_> = log[1..]
        .iter()
        .map(|request| request.parameter("resourceVersion"))
        .collect();
    assert!(
        !versions[0].is_empty() && versions.iter().all(|version| *version == versions[0]),
        "{versions:?}"
    );
    assert!(
        log[1..]
            .iter()
            .all(|request| request.parameter("resourceVersionMatch") == "NotOlderThan")
    );
    assert_eq!(
        log[0].parameter("resourceVersion"),
        "",
        "the first is as new as can be"
    );
}

#[tokio::test(start_paused = true)]
async fn what_a_selector_leaves_is_not_counted_and_is_read_in_bounds() {
    let (api, walked) = beside(1_000);
    let ListChoice::Either {
        whole, namespaces, ..
    } = walked
    else {
        panic!()
    };
    let whole = Listing {
        selector: "app=web".to_owned(),
        ..whole
    };
    let walked = ListChoice::Either {
        whole,
        parts: parts("app=web"),
        namespaces,
    };
    let (pages, ends) = walk_all(&api, vec![walked], 40).await;
    // Three lists cost 96 items: that many, in pages, are read of the whole.
    assert_eq!(
        (pages, asked(&api).join("")),
        (vec![40, 40, 2, 2, 2], "***abc".to_owned())
    );
    assert!(matches!(ends.as_slice(), [Step::Done]), "{ends:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_in_other_namespaces_does_not_matter() {
    for fault in [403, 500, 410] {
        let (api, walked) = beside(20);
        api.fault(move |_, request: &Request| {
            let whole = request.path == "/api/v1/configmaps";
            whole.then(|| Fault::refuse(fault, "x", "one of z can't be decoded"))
        });
        let (pages, ends) = walk_all(&api, vec![walked], 500).await;
        assert_eq!(pages, [2, 2, 2], "{fault}");
        assert!(matches!(ends.as_slice(), [Step::Done]), "{ends:?}");
    }
    // The same for a later page: delivered items come again.
    let (api, walked) = beside(20);
    api.fault(|_, request: &Request| {
        (!request.parameter("continue").is_empty()).then(|| Fault::refuse(410, "x", "expired"))
    });
    let (pages, ends) = walk_all(&api, vec![walked], 10).await;
    assert_eq!(pages, [10, 2, 2, 2]);
    assert!(matches!(ends.as_slice(), [Step::Done]), "{ends:?}");
}

#[tokio::test(start_paused = true)]
async fn a_namespace_whose_list_fails_leaves_the_others() {
    let (api, walked) = beside(1_000);
    api.fault(|_, request: &Request| {
        request
            .path
            .contains("/namespaces/b/")
            .then(|| Fault::refuse(403, "x", "not this one"))
    });
    let (pages, ends) = walk_all(&api, vec![walked], 500).await;
    assert_eq!(pages, [2, 2]);
    let [Step::Failed { listing, .. }, Step::Done] = ends.as_slice() else {
        panic!("{ends:?}")
    };
    assert_eq!(listing.to_string(), "configmaps in namespace b");
}

#[tokio::test(start_paused = true)]
async fn a_type_that_is_gone_is_told_once() {
    for others in [0, 1_000] {
        let (api, walked) = beside(others);
        api.fault(move |_, request: &Request| {
            let gone = others == 0 || request.path.contains("/namespaces/");
            gone.then(|| Fault::refuse(404, "x", "gone"))
        });
        let (_, ends) = walk_all(&api, vec![walked], 500).await;
        assert!(
            matches!(ends.as_slice(), [Step::Vanished { .. }, Step::Done]),
            "{ends:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn one_namespace_is_listed_by_itself_and_none_not_at_all() {
    let (api, walked) = beside(1_000);
    let ListChoice::Either {
        whole,
        parts,
        namespaces,
    } = walked
    else {
        panic!()
    };
    let of = |parts: &[Part]| {
        vec![ListChoice::Either {
            whole: whole.clone(),
            parts: parts.into(),
            namespaces,
        }]
    };
    let (pages, _) = walk_all(&api, of(&parts[..1]), 500).await;
    assert_eq!((pages, asked(&api).join("")), (vec![2], "a".to_owned()));
    let (pages, ends) = walk_all(&api, of(&[]), 500).await;
    assert!(
        pages.is_empty() && matches!(ends.as_slice(), [Step::Done]),
        "{ends:?}"
    );
    assert_eq!(api.log().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn few_first_pages_are_read_ahead_and_a_large_one_in_its_turn() {
    let of = |number: usize| Listing {
        namespace: Some(format!("n{number:02}")),
        ..listing()
    };
    let api = FakeApi::new();
    for number in 0..14 {
        let item = json!({ "metadata": { "name": "c" }, "data": { "k": "x".repeat(3 << 20) } });
        api.put(
            &format!("/api/v1/namespaces/n{number:02}/configmaps/c"),
            item,
        );
    }
    let mut steps = start(
        api.client(),
        (0..14).map(of).map(ListChoice::One).collect(),
        500,
    );
    let mut received = 0;
    while let Some(step) = steps.recv().await {
        let Step::Items { walked, items, .. } = step else {
            continue;
        };
        assert_eq!((walked, items.len()), (received, 1));
        received += 1;
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        // Each is requested twice: ahead of time, and when it is due.
        let most = 2 * (received + 1 + MAX_PAGES_AHEAD) + MAX_LISTS_AHEAD;
        assert!(
            api.log().len() <= most,
            "{} after {received}",
            api.log().len()
        );
    }
    assert_eq!(received, 14);
}
