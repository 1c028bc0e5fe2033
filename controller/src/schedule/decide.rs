//! Decides whether a schedule is valid, and when it is due. Pure.

use backup_core::{
    api::{Schedule, schedule::ScheduleSpec},
    cron::{Cron, Dialect, Reading},
    labels::SKIPPED_ANNOTATION,
    validate,
};
use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// The backup of this slot is due.
    Now(Timestamp),
    /// Not before then.
    At(Timestamp),
    /// The expression has no further time.
    Never,
}

/// The parsed expression, or all errors in the spec, by field. The template is checked by the rules
/// of Backups.
pub(super) fn check(
    spec: &ScheduleSpec,
    dialect: Dialect,
    local: &TimeZone,
) -> Result<Cron, Vec<String>> {
    let found = validate::engine_schedule(spec, &[dialect]);
    match Cron::parse(&spec.schedule, dialect, local) {
        Ok(cron) if found.is_empty() => Ok(cron),
        _ => Err(found.iter().map(ToString::to_string).collect()),
    }
}

/// How Velero's other cron library reads an expression differently, for an event.
pub(super) fn ambiguity(
    expression: &str,
    dialect: Dialect,
    local: &TimeZone,
    now: Timestamp,
) -> Option<String> {
    let difference = Reading::of(dialect, local)
        .unwrap_or_default()
        .difference(expression, now)?;
    Some(format!(
        "Velero's two libraries read {expression:?} differently: {difference}; {dialect} is in force here (--cron-dialect)"
    ))
}

/// Maximum difference between clocks: a recorded slot further in the future comes from a wrong
/// clock.
const MAX_CLOCK_DIFFERENCE: SignedDuration = SignedDuration::from_hours(1);

/// A recorded slot. `None` if it comes from a wrong clock: it would keep the schedule waiting until
/// that time.
pub(super) fn noted(slot: Option<&Time>, now: Timestamp) -> Option<Timestamp> {
    slot.map(|slot| slot.0)
        .filter(|slot| slot.duration_since(now) <= MAX_CLOCK_DIFFERENCE)
}

/// The last slot that was handled, by a backup or a skip; at first the creation of the schedule.
fn since(schedule: &Schedule, now: Timestamp) -> Option<Timestamp> {
    let status = &schedule.status;
    let created = schedule
        .metadata
        .creation_timestamp
        .as_ref()
        .map(|time| time.0);
    noted(status.last_backup.as_ref(), now)
        .or(created)
        .max(noted(status.last_skipped.as_ref(), now))
}

/// Of several missed slots, the latest is due.
pub(super) fn due(schedule: &Schedule, cron: &Cron, now: Timestamp) -> Due {
    let since = since(schedule, now).unwrap_or(now);
    match cron.latest(since, now) {
        Some(slot) => Due::Now(slot),
        None => cron.next(since.max(now)).map_or(Due::Never, Due::At),
    }
}

/// The last slot for which a backup was required: one that is due, was made, or was skipped because
/// it could not be made. Slots that were skipped at a user's request do not count.
pub(super) fn last_due(schedule: &Schedule, due: Due) -> Option<Timestamp> {
    if let Due::Now(slot) = due {
        return Some(slot);
    }
    let made = schedule.status.last_backup.as_ref().map(|time| time.0);
    let skipped = schedule.status.last_skipped.as_ref().map(|time| time.0);
    // The annotation names the slot whose backup could not be made.
    let why = schedule
        .annotations()
        .get(SKIPPED_ANNOTATION)
        .map_or("", String::as_str);
    made.max(skipped.filter(|slot| why.starts_with(&format!("{slot}: "))))
}

pub(super) fn interval(cron: &Cron, now: Timestamp) -> Option<i64> {
    let first = cron.next(now)?;
    Some(cron.next(first)?.as_second() - first.as_second())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schedule(created: &str, last: Option<&str>, skipped: Option<&str>) -> Schedule {
        let time = |text: &str| Time(text.parse().unwrap());
        let mut schedule = Schedule::new("s", ScheduleSpec::default());
        schedule.metadata.creation_timestamp = Some(time(created));
        schedule.status.last_backup = last.map(time);
        schedule.status.last_skipped = skipped.map(time);
        schedule
    }

    #[test]
    fn an_expression_that_the_libraries_read_differently_is_named_and_no_other() {
        let now = "2026-08-01T12:00:00Z".parse().unwrap();
        let said = |expression: &str| ambiguity(expression, Dialect::Robfig, &TimeZone::UTC, now);
        // Both kinds of days are given, and they select the same days.
        for same in ["0 3 * * *", "0 3 1-31 * 0-6", "@every 2h"] {
            assert_eq!(said(same), None, "{same}");
        }
        for (other, part) in [
            (
                "0 3 1-7 * 0",
                "robfig (Velero up to 1.18.2) alone runs it at 2026-08-03T03:00:00Z; robfig is in force here",
            ),
            ("*/70 * * * *", "netresearch (Velero after that) refuses it"),
        ] {
            assert!(
                said(other).is_some_and(|note| note.contains(part)),
                "{:?}",
                said(other)
            );
        }
    }

    #[test]
    fn the_last_slot_that_was_due_is_not_one_that_a_person_left_out() {
        let (new, ten) = ("2026-01-10T09:30:00Z", "2026-01-10T10:00:00Z");
        let cron = Cron::parse("@hourly", Dialect::Robfig, &TimeZone::UTC).unwrap();
        let (eleven, refused) = (
            "2026-01-10T11:00:00Z",
            "2026-01-10T11:00:00Z: there is a backup",
        );
        for (last, skipped, why, now, expected) in [
            (None, None, "", "2026-01-10T09:45:00Z", None),
            (None, None, "", "2026-01-10T10:05:00Z", Some(ten)),
            (Some(ten), None, "", "2026-01-10T10:05:00Z", Some(ten)),
            (Some(ten), None, "", "2026-01-10T11:05:00Z", Some(eleven)),
            (
                Some(ten),
                Some(eleven),
                refused,
                "2026-01-10T11:05:00Z",
                Some(eleven),
            ),
            // Skipped at a user's request, also after a refused slot.
            (
                Some(ten),
                Some(eleven),
                "",
                "2026-01-10T11:05:00Z",
                Some(ten),
            ),
            (
                Some(ten),
                Some("2026-01-10T12:00:00Z"),
                refused,
                "2026-01-10T12:05:00Z",
                Some(ten),
            ),
        ] {
            let mut schedule = schedule(new, last, skipped);
            schedule
                .annotations_mut()
                .insert(SKIPPED_ANNOTATION.to_owned(), why.to_owned());
            let due = due(&schedule, &cron, now.parse().unwrap());
            let expected = expected.map(|time| time.parse().unwrap());
            assert_eq!(
                last_due(&schedule, due),
                expected,
                "{last:?} {skipped:?} {why} {now}"
            );
        }
    }

    #[test]
    fn at_most_one_backup_is_due_however_many_slots_were_missed() {
        let now = |slot: &str| Due::Now(slot.parse().unwrap());
        let at = |slot: &str| Due::At(slot.parse().unwrap());
        let (new, noon) = ("2026-01-10T11:00:00Z", "2026-01-10T12:00:00Z");
        let (daily, old) = ("0 3 * * *", "2025-01-01T00:00:00Z");
        let (today, tomorrow) = (now("2026-01-10T03:00:00Z"), at("2026-01-11T03:00:00Z"));
        for (spec, created, last, skipped, expected) in [
            (daily, new, None, None, tomorrow),
            (daily, "2026-01-10T02:00:00Z", None, None, today),
            (daily, old, Some("2025-12-01T03:00:00Z"), None, today),
            (daily, old, Some("2026-01-10T03:00:00Z"), None, tomorrow),
            // Velero records when it has made the backup, not its slot.
            (daily, old, Some("2026-01-10T03:00:41Z"), None, tomorrow),
            (
                daily,
                old,
                Some("2026-01-09T03:00:00Z"),
                Some("2026-01-10T03:00:00Z"),
                tomorrow,
            ),
            (daily, old, None, Some("2026-01-10T11:59:00Z"), tomorrow),
            (
                daily,
                "2026-02-01T00:00:00Z",
                None,
                None,
                at("2026-02-01T03:00:00Z"),
            ),
            ("0 12 * * *", new, None, None, now(noon)),
            ("0 0 30 2 *", new, None, None, Due::Never),
            // Within the allowed difference of clocks, and beyond.
            (daily, old, Some("2026-01-10T12:59:00Z"), None, tomorrow),
            (daily, old, Some("2027-02-14T03:00:00Z"), None, today),
            (
                daily,
                old,
                Some("2026-01-10T03:00:00Z"),
                Some("2027-02-14T03:00:00Z"),
                tomorrow,
            ),
            (
                "@every 7m",
                new,
                Some("2026-01-10T11:30:00Z"),
                None,
                now("2026-01-10T11:58:00Z"),
            ),
        ] {
            let cron = Cron::parse(spec, Dialect::Robfig, &TimeZone::UTC).unwrap();
            let schedule = schedule(created, last, skipped);
            assert_eq!(
                due(&schedule, &cron, noon.parse().unwrap()),
                expected,
                "{spec} {created} {last:?} {skipped:?}"
            );
        }
    }

    #[test]
    fn everything_that_is_wrong_is_found_at_once_with_its_field() {
        let spec: ScheduleSpec = serde_json::from_value(json!({
            "schedule": "61 * * * *",
            "template": { "ttl": "-1h", "includedNamespaces": ["a"], "excludedNamespaces": ["a"] },
        }))
        .unwrap();
        let errors = check(&spec, Dialect::Robfig, &TimeZone::UTC).unwrap_err();
        assert!(
            errors[0].starts_with("spec.schedule: \"61 * * * *\" is no cron expression"),
            "{errors:?}"
        );
        assert!(
            errors[1..]
                .iter()
                .any(|error| error.starts_with("spec.template.ttl: ")),
            "{errors:?}"
        );
        assert!(
            errors[1..]
                .iter()
                .all(|error| error.starts_with("spec.template.")),
            "{errors:?}"
        );
        assert_eq!(errors.len(), 3, "{errors:?}");
        let check = |schedule: &str, template: serde_json::Value| {
            let spec =
                serde_json::from_value(json!({ "schedule": schedule, "template": template }))
                    .unwrap();
            check(&spec, Dialect::Robfig, &TimeZone::UTC).is_ok()
        };
        let invalid = json!({ "ttl": "-1h" });
        assert_eq!(
            [check("0 3 * * *", json!({})), check("0 3 * * *", invalid)],
            [true, false]
        );
    }

    #[test]
    fn the_interval_is_that_of_the_next_two_slots() {
        let cron = Cron::parse("0 3 * * 1", Dialect::Robfig, &TimeZone::UTC).unwrap();
        assert_eq!(
            interval(&cron, "2026-01-10T12:00:00Z".parse().unwrap()),
            Some(7 * 24 * 3600)
        );
    }
}
