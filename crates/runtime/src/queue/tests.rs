use std::{
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures::stream;

use super::*;

fn key(name: &str) -> Key {
    Key {
        namespace: "velero".to_owned(),
        name: name.to_owned(),
    }
}

#[tokio::test(start_paused = true)]
async fn no_more_than_the_allowed_number_run_at_once_and_never_two_for_one_key() {
    let keys: Vec<Key> = (0..40).map(|n| key(&format!("k{}", n % 8))).collect();
    let running = Arc::new(Mutex::new(Vec::<Key>::new()));
    let most = Arc::new(AtomicUsize::new(0));
    let (seen, peak) = (Arc::clone(&running), Arc::clone(&most));
    run_queue(
        "test",
        stream::iter(keys),
        3,
        CancellationToken::new(),
        move |key| {
            let (seen, peak) = (Arc::clone(&seen), Arc::clone(&peak));
            async move {
                {
                    let mut seen = seen.lock().unwrap();
                    assert!(!seen.contains(&key), "two at once for {key}");
                    seen.push(key.clone());
                    peak.fetch_max(seen.len(), Ordering::SeqCst);
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
                seen.lock().unwrap().retain(|other| *other != key);
                Ok::<_, Infallible>(Action::AwaitChange)
            }
        },
    )
    .await;
    assert_eq!(most.load(Ordering::SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn a_failing_object_waits_longer_each_time_and_does_not_hold_the_worker() {
    let started = Instant::now();
    let log = Arc::new(Mutex::new(Vec::new()));
    let entries = Arc::clone(&log);
    run_queue(
        "test",
        stream::iter([key("bad"), key("good")]),
        1,
        CancellationToken::new(),
        move |key| {
            let log = Arc::clone(&entries);
            async move {
                let mut log = log.lock().unwrap();
                log.push((key.name.clone(), started.elapsed()));
                let tries = log.iter().filter(|(name, _)| *name == key.name).count();
                if key.name == "bad" && tries < 10 {
                    Err("not yet")
                } else {
                    Ok(Action::AwaitChange)
                }
            }
        },
    )
    .await;
    let log = log.lock().unwrap();
    assert_eq!(
        log[1].0, "good",
        "the good one did not wait for the bad one"
    );
    let bad: Vec<Duration> = log
        .iter()
        .filter(|(name, _)| name == "bad")
        .map(|(_, at)| *at)
        .collect();
    assert_eq!(bad.len(), 10);
    let waits: Vec<Duration> = bad
        .windows(2)
        .map(|pair| pair[1].saturating_sub(pair[0]))
        .collect();
    assert!(waits[0] <= Duration::from_millis(1002), "{waits:?}");
    assert!(
        waits
            .iter()
            .all(|wait| *wait <= Duration::from_millis(60_002)),
        "{waits:?}"
    );
    assert!(waits[8] >= Duration::from_secs(30), "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn an_object_touched_while_it_is_worked_on_is_looked_at_once_more() {
    let (send, receive) = tokio::sync::mpsc::channel(8);
    let count = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&count);
    send.send(key("a")).await.unwrap();
    let touching = async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        for _ in 0..5 {
            send.send(key("a")).await.unwrap();
        }
    };
    let keys = stream::unfold(receive, |mut receive| async move {
        Some((receive.recv().await?, receive))
    });
    let queue = run_queue("test", keys, 4, CancellationToken::new(), move |_| {
        let counter = Arc::clone(&counter);
        async move {
            counter.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_secs(10)).await;
            Ok::<_, Infallible>(Action::AwaitChange)
        }
    });
    futures::join!(queue, touching);
    assert_eq!(count.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn a_reconcile_that_panics_is_a_failure_of_its_object_only() {
    let count = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&count);
    run_queue(
        "test",
        stream::iter([key("a")]),
        1,
        CancellationToken::new(),
        move |_| {
            let counter = Arc::clone(&counter);
            async move {
                assert!(counter.fetch_add(1, Ordering::SeqCst) > 0, "first try");
                Ok::<_, Infallible>(Action::AwaitChange)
            }
        },
    )
    .await;
    assert_eq!(count.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn stopping_ends_the_queue_although_keys_may_still_come() {
    let stop = CancellationToken::new();
    let stopper = stop.clone();
    let started = Instant::now();
    run_queue(
        "test",
        stream::iter([key("a")]).chain(stream::pending()),
        1,
        stop,
        move |_| {
            stopper.cancel();
            async {
                tokio::time::sleep(Duration::from_hours(1)).await;
                Ok::<_, Infallible>(Action::AwaitChange)
            }
        },
    )
    .await;
    assert!(started.elapsed() <= DRAIN_TIMEOUT + Duration::from_secs(1));
}
