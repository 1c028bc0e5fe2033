use serde::Deserialize;

use super::*;

#[derive(Deserialize)]
struct Vector {
    spec: String,
    from: i64,
    robfig: Option<Vec<i64>>,
    netresearch: Option<Vec<i64>>,
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn parse(text: &str) -> Cron {
    Cron::parse(text, Dialect::Robfig, &TimeZone::UTC).unwrap_or_else(|error| panic!("{error}"))
}

fn times(cron: &Cron, from: i64, count: usize) -> Vec<i64> {
    let from = Timestamp::from_second(from).unwrap();
    std::iter::successors(cron.next(from), |last| cron.next(*last))
        .take(count)
        .map(Timestamp::as_second)
        .collect()
}

#[test]
fn every_expression_is_refused_or_due_as_the_libraries_say() {
    let (mut refused, mut checked, mut different) = (0, 0, Vec::new());
    for line in include_str!("vectors.jsonl").lines() {
        let vector: Vector = serde_json::from_str(line).unwrap();
        for (dialect, expected) in [
            (Dialect::Robfig, &vector.robfig),
            (Dialect::Netresearch, &vector.netresearch),
        ] {
            checked += 1;
            refused += usize::from(expected.is_none());
            let parsed = Cron::parse(&vector.spec, dialect, &TimeZone::UTC);
            let found = parsed.as_ref().ok().map(|cron| times(cron, vector.from, 6));
            if found != *expected {
                different.push(format!(
                    "{:?} from {} {dialect}: {found:?}, expected {expected:?}",
                    vector.spec, vector.from
                ));
            }
        }
    }
    assert!(checked > 2000 && refused > 300, "{checked} {refused}");
    assert!(
        different.is_empty(),
        "{} of {checked}:\n{}",
        different.len(),
        different.join("\n")
    );
}

#[test]
fn a_day_without_midnight_ends_the_search() {
    // There both libraries loop forever: Samoa had no 30th of December 2011.
    for dialect in Dialect::ALL {
        let cron = Cron::parse("TZ=Pacific/Apia 0 0 30 12 *", dialect, &TimeZone::UTC).unwrap();
        let _ = cron.next(at("2011-12-29T12:00:00Z"));
    }
}

#[test]
fn of_many_that_were_missed_the_latest_counts() {
    for (spec, since, now, expected) in [
        (
            "0 3 * * *",
            "2026-01-01T00:00:00Z",
            "2026-01-01T02:59:59Z",
            None,
        ),
        (
            "0 3 * * *",
            "2026-01-01T00:00:00Z",
            "2026-01-01T03:00:00Z",
            Some("2026-01-01T03:00:00Z"),
        ),
        (
            "0 3 * * *",
            "2026-01-01T03:00:00Z",
            "2026-01-01T03:00:00Z",
            None,
        ),
        (
            "0 3 * * *",
            "2020-01-01T00:00:00Z",
            "2026-01-09T02:00:00Z",
            Some("2026-01-08T03:00:00Z"),
        ),
        (
            "* * * * *",
            "2006-01-01T00:00:00Z",
            "2026-01-09T02:00:30Z",
            Some("2026-01-09T02:00:00Z"),
        ),
        (
            "* 9 * * *",
            "2006-01-01T00:00:00Z",
            "2026-01-09T08:00:30Z",
            Some("2026-01-08T09:59:00Z"),
        ),
        (
            "*/5 * 1 1 *",
            "2020-01-01T00:00:00Z",
            "2026-12-31T00:00:00Z",
            Some("2026-01-01T23:55:00Z"),
        ),
        (
            "0 0 29 2 *",
            "2021-01-01T00:00:00Z",
            "2027-12-31T00:00:00Z",
            Some("2024-02-29T00:00:00Z"),
        ),
        (
            "0 0 30 2 *",
            "2020-01-01T00:00:00Z",
            "2027-12-31T00:00:00Z",
            None,
        ),
        (
            "@every 1h",
            "2026-01-01T00:00:00Z",
            "2026-01-01T00:59:59Z",
            None,
        ),
        (
            "@every 1h",
            "2026-01-01T00:10:00Z",
            "2026-01-05T07:30:00Z",
            Some("2026-01-05T07:10:00Z"),
        ),
    ] {
        let found = parse(spec).latest(at(since), at(now));
        assert_eq!(found, expected.map(at), "{spec} since {since} until {now}");
    }
}

#[test]
fn what_is_wrong_is_named_with_its_field() {
    for (spec, part) in [
        ("", "it is empty"),
        ("* * * *", "expected five fields"),
        ("61 * * * *", "\"61\" in the field minute: expected 0 to 59"),
        ("0 0 * * 7", "in the field day of week"),
        (
            "TZ=Mars/Olympus @daily",
            "time zone \"Mars/Olympus\" is not known",
        ),
        ("@every tomorrow", "is not a duration"),
        ("@often", "expected @yearly"),
    ] {
        let error = Cron::parse(spec, Dialect::Robfig, &TimeZone::UTC)
            .unwrap_err()
            .to_string();
        assert!(error.contains(part), "{spec}: {error}");
    }
}

/// Table "Which cron" of docs/use/schedules.md, for the nights of clock changes.
#[test]
fn what_runs_in_the_nights_in_which_clocks_change() {
    // In 2027 in Paris the clock goes from 2:00 to 3:00 on the 28th of March, and from 3:00 to 2:00
    // on the 31st of October.
    let zone = named_zone("Europe/Paris").unwrap();
    let seen = |dialect: Dialect, expression: &str, from: &str, until: &str| {
        let cron = Cron::parse(expression, dialect, &zone).unwrap();
        let until = at(until);
        let runs = std::iter::successors(cron.next(at(from)), |last| cron.next(*last));
        runs.take_while(|run| *run < until)
            .map(|run| {
                run.to_zoned(zone.clone())
                    .strftime("%d %H:%M %:z")
                    .to_string()
            })
            .collect::<Vec<_>>()
            .join(", ")
    };
    let spring = ("2027-03-27T23:00:00Z", "2027-03-29T10:00:00Z");
    let autumn = ("2027-10-30T22:00:00Z", "2027-11-01T10:00:00Z");
    let (robfig, netresearch) = (Dialect::Robfig, Dialect::Netresearch);
    for (expression, (from, until), dialect, expected) in [
        // A skipped time.
        ("30 2 * * *", spring, robfig, "29 02:30 +02:00"),
        (
            "30 2 * * *",
            spring,
            netresearch,
            "28 03:30 +02:00, 29 02:30 +02:00",
        ),
        (
            "0 2 * * *",
            spring,
            netresearch,
            "28 03:00 +02:00, 29 02:00 +02:00",
        ),
        // A repeated time.
        (
            "30 2 * * *",
            autumn,
            robfig,
            "31 02:30 +02:00, 31 02:30 +01:00, 01 02:30 +01:00",
        ),
        (
            "30 2 * * *",
            autumn,
            netresearch,
            "31 02:30 +02:00, 31 02:30 +01:00, 01 02:30 +01:00",
        ),
    ] {
        assert_eq!(
            seen(dialect, expression, from, until),
            expected,
            "{expression} {dialect}"
        );
    }
}
