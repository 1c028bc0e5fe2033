use proptest::{prelude::*, sample::select};

use super::*;
use crate::cron::{Cron, Dialect};

const ZONES: [&str; 6] = [
    "UTC",
    "Europe/Paris",
    "America/St_Johns",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "Asia/Kathmandu",
];

fn zone(name: &str) -> TimeZone {
    zone_of(&format!("CRON_TZ={name} @daily"))
}

fn keep(rules: [i64; 6], name: &str) -> Keep {
    let mut given = KeepRules::default();
    for (rule, periods) in Rule::ALL.into_iter().zip(rules) {
        *rule.periods_mut(&mut given) = periods;
    }
    Keep::new(given, zone(name))
}

fn backups(times: &[i64]) -> Vec<Generation> {
    times
        .iter()
        .enumerate()
        .map(|(at, second)| Generation {
            began: Timestamp::from_second(*second).unwrap(),
            name: format!("b{at:03}"),
        })
        .collect()
}

fn at(times: &[&str]) -> Vec<Generation> {
    times
        .iter()
        .map(|time| Generation {
            began: time.parse().unwrap(),
            name: (*time).to_owned(),
        })
        .collect()
}

fn names(keep: &Keep, backups: &[Generation]) -> BTreeSet<String> {
    keep.kept(backups).into_keys().map(str::to_owned).collect()
}

/// The period of a time as text, by jiff's own formatting.
fn text_of_period(keep: &Keep, rule: Rule, backup: &Generation) -> String {
    let format = match rule {
        Rule::Last => return format!("{} {}", backup.began, backup.name),
        Rule::Hourly => "%Y-%m-%d %H %z",
        Rule::Daily => "%Y-%m-%d",
        Rule::Weekly => "%G %V",
        Rule::Monthly => "%Y-%m",
        Rule::Yearly => "%Y",
    };
    let local = backup.began.to_zoned(keep.zone.clone());
    local.strftime(format).to_string()
}

/// The rules as restic's documentation says them.
fn reference(keep: &Keep, backups: &[Generation]) -> BTreeMap<String, Vec<Rule>> {
    let mut sorted = backups.to_vec();
    sorted.sort();
    let mut kept = BTreeMap::<String, Vec<Rule>>::new();
    for rule in Rule::ALL {
        let mut newest = BTreeMap::new();
        for backup in &sorted {
            newest.insert(text_of_period(keep, rule, backup), backup);
        }
        let mut found: Vec<_> = newest.into_values().collect();
        found.sort();
        let has_enough = found.len() >= keep.periods(rule);
        let mut found: BTreeSet<_> = found.into_iter().rev().take(keep.periods(rule)).collect();
        found.extend(sorted.first().filter(|_| !has_enough));
        for backup in found {
            kept.entry(backup.name.clone()).or_default().push(rule);
        }
    }
    kept
}

#[test]
fn table_of_rules() {
    const NONE: &[&str] = &[];
    let days = at(&[
        "2026-03-01T03:00:00Z",
        "2026-03-01T15:00:00Z",
        "2026-03-02T03:00:00Z",
        // None for a week.
        "2026-03-10T03:00:00Z",
        "2026-03-10T04:00:00Z",
    ]);
    for (rules, expected) in [
        ([0; 6], NONE),
        ([-1, 0, -7, 0, 0, 0], NONE),
        ([1, 0, 0, 0, 0, 0], &["2026-03-10T04:00:00Z"]),
        (
            [2, 0, 0, 0, 0, 0],
            &["2026-03-10T03:00:00Z", "2026-03-10T04:00:00Z"],
        ),
        // An empty day is filled by the next older one.
        (
            [0, 0, 2, 0, 0, 0],
            &["2026-03-02T03:00:00Z", "2026-03-10T04:00:00Z"],
        ),
        (
            [0, 0, 3, 0, 0, 0],
            &[
                "2026-03-01T15:00:00Z",
                "2026-03-02T03:00:00Z",
                "2026-03-10T04:00:00Z",
            ],
        ),
        // There are three days: the oldest backup is kept in place of a fourth.
        (
            [0, 0, 4, 0, 0, 0],
            &[
                "2026-03-01T03:00:00Z",
                "2026-03-01T15:00:00Z",
                "2026-03-02T03:00:00Z",
                "2026-03-10T04:00:00Z",
            ],
        ),
        (
            [0, 0, 0, 2, 0, 0],
            &["2026-03-02T03:00:00Z", "2026-03-10T04:00:00Z"],
        ),
        ([0, 0, 0, 0, 1, 0], &["2026-03-10T04:00:00Z"]),
        (
            [0, 0, 0, 0, 0, 2],
            &["2026-03-01T03:00:00Z", "2026-03-10T04:00:00Z"],
        ),
        (
            [1, 0, 0, 2, 0, 0],
            &["2026-03-02T03:00:00Z", "2026-03-10T04:00:00Z"],
        ),
    ] {
        let expected: BTreeSet<String> = expected.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(names(&keep(rules, "UTC"), &days), expected, "{rules:?}");
    }
    assert!(keep([9; 6], "UTC").kept(&[]).is_empty());
}

#[test]
fn periods_are_those_of_the_zone() {
    for (zone, rule, one, other, same) in [
        (
            "UTC",
            2,
            "2026-06-30T21:30:00Z",
            "2026-06-30T22:30:00Z",
            true,
        ),
        (
            "Europe/Paris",
            2,
            "2026-06-30T21:30:00Z",
            "2026-06-30T22:30:00Z",
            false,
        ),
        (
            "Europe/Paris",
            4,
            "2026-06-30T21:30:00Z",
            "2026-06-30T22:30:00Z",
            false,
        ),
        // 2:30 comes twice.
        (
            "Europe/Paris",
            1,
            "2027-10-31T00:30:00Z",
            "2027-10-31T01:30:00Z",
            false,
        ),
        (
            "Europe/Paris",
            2,
            "2027-10-31T00:30:00Z",
            "2027-10-31T01:30:00Z",
            true,
        ),
        // A day of 23 hours.
        (
            "Europe/Paris",
            2,
            "2027-03-27T23:00:00Z",
            "2027-03-28T21:59:59Z",
            true,
        ),
        (
            "Europe/Paris",
            2,
            "2027-03-27T23:00:00Z",
            "2027-03-28T22:00:00Z",
            false,
        ),
        // A quarter of an hour beside UTC's.
        (
            "Asia/Kathmandu",
            1,
            "2026-06-30T21:10:00Z",
            "2026-06-30T21:20:00Z",
            false,
        ),
        // Sunday ends a week; the 1st of January 2027 is in the last week of 2026.
        (
            "UTC",
            3,
            "2026-03-01T23:59:59Z",
            "2026-03-02T00:00:00Z",
            false,
        ),
        (
            "UTC",
            3,
            "2026-12-31T12:00:00Z",
            "2027-01-01T12:00:00Z",
            true,
        ),
        (
            "UTC",
            5,
            "2026-12-31T12:00:00Z",
            "2027-01-01T12:00:00Z",
            false,
        ),
        // A minute after midnight the clock went back to the day before.
        (
            "America/St_Johns",
            2,
            "2010-11-07T02:30:30Z",
            "2010-11-07T02:32:00Z",
            false,
        ),
    ] {
        let mut rules = [0; 6];
        rules[rule] = 2;
        // The oldest backup is kept in any case: a still older day is before both.
        let all = at(&["2001-01-01T00:00:00Z", one, other]);
        let kept = names(&keep(rules, zone), &all);
        assert_eq!(
            !kept.contains(one) || !kept.contains(other),
            same,
            "{zone} {one} {other}"
        );
    }
}

#[test]
fn rules_are_recorded_with_their_zone_and_read_again() {
    let spec = |schedule: &str, keep: Option<KeepRules>| ScheduleSpec {
        schedule: schedule.to_owned(),
        keep,
        ..ScheduleSpec::default()
    };
    let rules = KeepRules {
        daily: 7,
        yearly: 2,
        ..KeepRules::default()
    };
    for (expression, zone) in [
        ("0 3 * * *", "UTC"),
        ("CRON_TZ=Europe/Paris 0 3 * * *", "Europe/Paris"),
        ("TZ=Asia/Tokyo @every 6h", "Asia/Tokyo"),
        ("TZ=UTC @daily", "UTC"),
        ("TZ=Local @daily", "UTC"),
        ("nonsense", "UTC"),
        // Only one library accepts it.
        ("TZ=Europe/Paris 0 3 * * FRI-MON", "Europe/Paris"),
    ] {
        let keep = Keep::of(&spec(expression, Some(rules.clone()))).unwrap();
        assert_eq!(keep.zone_name(), zone, "{expression}");
        let read = Keep::read(Some(&keep.annotation()));
        assert_eq!(read, Some(keep), "{expression}");
    }
    assert_eq!(
        Keep::new(rules.clone(), TimeZone::UTC).annotation(),
        r#"{"rules":{"daily":7,"yearly":2},"zone":"UTC"}"#
    );
    assert_eq!(Keep::of(&spec("@daily", None)), None);
    for nothing in [
        None,
        Some("daily"),
        Some(r#"{"rules":{}}"#),
        Some(r#"{"rules":{"daily":-1}}"#),
        Some(r#"{"rules":{"daily":1},"zone":"Mars/Base"}"#),
    ] {
        assert_eq!(Keep::read(nothing), None, "{nothing:?}");
    }
}

#[test]
fn a_rule_ends_when_enough_newer_periods_have_a_backup() {
    let cron = Cron::parse("0 3 * * *", Dialect::Robfig, &TimeZone::UTC).unwrap();
    let all = at(&[
        "2026-03-01T03:00:00Z",
        "2026-03-08T03:00:00Z",
        "2026-03-09T03:00:00Z",
        "2026-03-10T03:00:00Z",
    ]);
    let now = "2026-03-10T12:00:00Z".parse().unwrap();
    for (rule, periods, backup, expected) in [
        (Rule::Last, 3, 1, "2026-03-11T03:00:00Z"),
        (Rule::Last, 4, 3, "2026-03-14T03:00:00Z"),
        (Rule::Daily, 3, 1, "2026-03-11T03:00:00Z"),
        (Rule::Daily, 3, 3, "2026-03-13T03:00:00Z"),
        // A newer backup of the same week or month takes its place.
        (Rule::Weekly, 2, 3, "2026-03-11T03:00:00Z"),
        (Rule::Weekly, 2, 1, "2026-03-16T03:00:00Z"),
        (Rule::Monthly, 3, 3, "2026-03-11T03:00:00Z"),
        // The oldest is kept until there are enough months.
        (Rule::Monthly, 3, 0, "2026-05-01T03:00:00Z"),
        (Rule::Yearly, 2, 0, "2027-01-01T03:00:00Z"),
    ] {
        let mut rules = KeepRules::default();
        *rule.periods_mut(&mut rules) = periods;
        let keep = Keep::new(rules, TimeZone::UTC);
        let until = keep.kept_until(rule, &all[backup], &all, now, |after| cron.next(after));
        assert_eq!(
            until,
            Some(expected.parse().unwrap()),
            "{rule:?} {periods} {backup}"
        );
        let never = keep.kept_until(rule, &all[backup], &all, now, |_| None);
        assert_eq!(never, None);
    }
}

fn any_times() -> impl Strategy<Value = Vec<i64>> {
    // Three years, or a day around a change of clocks.
    prop_oneof![
        proptest::collection::vec(1_767_222_000_i64..1_861_916_400, 0..60),
        proptest::collection::vec(1_824_936_000_i64..1_825_022_400, 0..60),
    ]
}

fn any_keep() -> impl Strategy<Value = Keep> {
    let rules = proptest::array::uniform6(0_i64..13);
    (rules, select(ZONES.to_vec())).prop_map(|(rules, zone)| keep(rules, zone))
}

proptest! {
    /// Also: never fewer than asked for, while there are enough.
    #[test]
    fn rules_keep_what_their_description_says(times in any_times(), keep in any_keep()) {
        let all = backups(&times);
        let kept: BTreeMap<String, Vec<Rule>> = keep
            .kept(&all)
            .into_iter()
            .map(|(name, rules)| (name.to_owned(), rules))
            .collect();
        prop_assert_eq!(&kept, &reference(&keep, &all));
        for rule in Rule::ALL {
            let periods: BTreeSet<_> =
                all.iter().map(|one| text_of_period(&keep, rule, one)).collect();
            let count = kept.values().filter(|rules| rules.contains(&rule)).count();
            prop_assert!(count >= keep.periods(rule).min(periods.len()));
        }
    }

    #[test]
    fn the_order_of_the_list_does_not_matter(times in any_times(), keep in any_keep(), by in 0_usize..60) {
        let all = backups(&times);
        let mut others = all.clone();
        others.reverse();
        let middle = by.min(others.len());
        others.rotate_left(middle);
        prop_assert_eq!(keep.kept(&all), keep.kept(&others));
    }

    #[test]
    fn what_is_kept_is_kept_again(times in any_times(), keep in any_keep()) {
        let all = backups(&times);
        let kept = names(&keep, &all);
        let left: Vec<_> = all.into_iter().filter(|one| kept.contains(&one.name)).collect();
        prop_assert_eq!(names(&keep, &left), kept);
    }

    #[test]
    fn a_newer_backup_brings_none_back(times in any_times(), keep in any_keep(), later in 1_i64..10_000_000) {
        let all = backups(&times);
        let mut more = all.clone();
        let newest = times.iter().max().copied().unwrap_or_default();
        more.push(Generation {
            began: Timestamp::from_second(newest + later).unwrap(),
            name: "newest".to_owned(),
        });
        let mut before = names(&keep, &all);
        before.insert("newest".to_owned());
        prop_assert!(names(&keep, &more).is_subset(&before));
    }

    #[test]
    fn larger_numbers_keep_more(times in any_times(), keep in any_keep(), rule in select(Rule::ALL.to_vec()), more in 1_i64..9) {
        let all = backups(&times);
        let mut rules = keep.rules.clone();
        *rule.periods_mut(&mut rules) += more;
        let larger = Keep::new(rules, keep.zone.clone());
        prop_assert!(names(&keep, &all).is_subset(&names(&larger, &all)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_rule_ends_at_the_run_that_it_names(
        times in any_times(),
        rule in select(Rule::ALL[..4].to_vec()),
        periods in 1_i64..4,
        zone in select(ZONES.to_vec()),
        every in 5_i64..40,
    ) {
        let mut rules = KeepRules::default();
        *rule.periods_mut(&mut rules) = periods;
        let keep = Keep::new(rules, self::zone(zone));
        let mut all = backups(&times);
        let newest = times.iter().max().copied().unwrap_or_default();
        let now = Timestamp::from_second(newest).unwrap();
        let next = |after: Timestamp| {
            let runs = (after.as_second() - newest) / (every * 3600) + 1;
            Timestamp::from_second(newest + runs * every * 3600).ok()
        };
        let kept: Vec<String> = names(&keep, &all).into_iter().take(3).collect();
        for name in kept {
            let backup = all.iter().find(|one| one.name == name).cloned().unwrap();
            let until = keep.kept_until(rule, &backup, &all, now, next).unwrap();
            let mut run = now;
            let before = all.len();
            while run < until {
                prop_assert!(names(&keep, &all).contains(&name), "{name} goes at {run}");
                run = next(run).unwrap();
                all.push(Generation { began: run, name: format!("run-{run}") });
            }
            prop_assert!(!names(&keep, &all).contains(&name), "{name} stays at {until}");
            all.truncate(before);
        }
    }
}
