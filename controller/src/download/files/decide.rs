//! Decides who may read which bytes. Pure.

use std::ops::Range;

use backup_core::{
    api::{DownloadRequest, download_request::DownloadRequestPhase as Phase},
    reading::{self, ReadRequest},
};
use http_range_header::{SyntacticallyCorrectRange, parse_range_header};
use jiff::Timestamp;

use super::super::decide::{self as life, Plan, TTL};

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// No such request, a wrong key, or an expired request.
    NotAllowed,
    /// The key is right, but the request was not reconciled yet.
    NotYet,
    /// The request could not be answered, with the reason.
    Failed(String),
}

/// What may be read with this key. Without the key of a valid request, the client does not learn
/// what exists.
pub(super) fn admit(
    request: Option<DownloadRequest>,
    key: &str,
    now: Timestamp,
) -> Result<(DownloadRequest, ReadRequest), Refusal> {
    let request = request.ok_or(Refusal::NotAllowed)?;
    let Some(Ok(asked)) = reading::asked(&request) else {
        return Err(Refusal::NotAllowed);
    };
    if !asked.is_opened_by(key) {
        return Err(Refusal::NotAllowed);
    }
    // A creator can write any expiration into the request; it is never longer than that of one
    // answered at its last moment.
    let created = request
        .metadata
        .creation_timestamp
        .as_ref()
        .map(|time| time.0);
    let standing = created
        .and_then(|created| created.checked_add(2 * TTL).ok())
        .is_some_and(|end| now < end);
    if !standing || request.metadata.deletion_timestamp.is_some() {
        return Err(Refusal::NotAllowed);
    }
    match (life::decide(&request, now), &request.status.phase) {
        (Plan::Remove, _) => Err(Refusal::NotAllowed),
        (Plan::Keep(_), Some(Phase::Processed)) => Ok((request, asked)),
        (Plan::Keep(_), Some(Phase::Failed)) => {
            Err(Refusal::Failed(request.status.message.unwrap_or_default()))
        }
        _ => Err(Refusal::NotYet),
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part {
    Whole,
    /// These bytes; at least one.
    Of(Range<u64>),
    /// `None`: the range begins after the end.
    None,
}

/// The meaning of a Range header for a file of this size and version (RFC 9110, 13.1.5 and 14.2).
/// An unknown form, several ranges, and a range of another version are ignored.
pub(super) fn part(
    range: Option<&str>,
    if_range: Option<&str>,
    version: Option<&str>,
    size: Option<u64>,
) -> Part {
    let (Some(range), Some(size)) = (range, size) else {
        return Part::Whole;
    };
    if if_range.is_some() && if_range != version {
        return Part::Whole;
    }
    let ranges = parse_range_header(range).map(http_range_header::ParsedRanges::into_ranges);
    let range = match ranges.as_deref() {
        Ok([SyntacticallyCorrectRange::FromStart(start)]) => *start..size,
        Ok([SyntacticallyCorrectRange::FromLast(count)]) => size.saturating_sub(*count)..size,
        Ok([SyntacticallyCorrectRange::Indexed(start, last)]) => {
            *start..last.saturating_add(1).min(size)
        }
        _ => return Part::Whole,
    };
    if range.start < range.end {
        Part::Of(range)
    } else {
        Part::None
    }
}

#[cfg(test)]
mod tests {
    use backup_core::{
        api::download_request::DownloadRequestSpec,
        labels::{READ_KEY_ANNOTATION, READ_UID_ANNOTATION},
        reading::{KEY_LENGTH, Key},
    };
    use jiff::SignedDuration;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use kube::ResourceExt as _;

    use super::*;

    #[test]
    fn a_file_is_for_who_has_the_key_while_the_request_stands() {
        let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        let at = |seconds: i64| {
            Some(Time(
                now.checked_add(SignedDuration::from_secs(seconds)).unwrap(),
            ))
        };
        let (key, other) = (Key::new([1; KEY_LENGTH]), Key::new([2; KEY_LENGTH]));
        let (good, hash) = (key.as_str(), key.hash());
        let not_allowed = || Err(Refusal::NotAllowed);
        let year = 365 * 24 * 3600;
        for (what, key, phase, created, expiration, expected) in [
            (
                "the key",
                good,
                Some("Processed"),
                Some(-5),
                Some(595),
                Ok(()),
            ),
            (
                "another key",
                other.as_str(),
                Some("Processed"),
                Some(-5),
                Some(595),
                not_allowed(),
            ),
            (
                "its hash, as all can read",
                &hash,
                Some("Processed"),
                Some(-5),
                Some(595),
                not_allowed(),
            ),
            (
                "no key",
                "",
                Some("Processed"),
                Some(-5),
                Some(595),
                not_allowed(),
            ),
            (
                "over",
                good,
                Some("Processed"),
                Some(-605),
                Some(0),
                not_allowed(),
            ),
            (
                "answered late",
                good,
                Some("Processed"),
                Some(-700),
                Some(400),
                Ok(()),
            ),
            (
                "a time of one's own",
                good,
                Some("Processed"),
                Some(-1200),
                Some(year),
                not_allowed(),
            ),
            (
                "no time at all",
                good,
                Some("Processed"),
                None,
                Some(400),
                not_allowed(),
            ),
            ("new", good, None, Some(-1), None, Err(Refusal::NotYet)),
            (
                "new, and another key",
                other.as_str(),
                None,
                Some(-1),
                None,
                not_allowed(),
            ),
            (
                "unknown phase",
                good,
                Some("Tomorrow"),
                Some(-1),
                Some(400),
                Err(Refusal::NotYet),
            ),
            (
                "failed",
                good,
                Some("Failed"),
                Some(-1),
                Some(400),
                Err(Refusal::Failed("why".to_owned())),
            ),
            (
                "failed, and another key",
                other.as_str(),
                Some("Failed"),
                Some(-1),
                Some(400),
                not_allowed(),
            ),
        ] {
            let mut request = DownloadRequest::new("r", DownloadRequestSpec::default());
            request
                .annotations_mut()
                .insert(READ_KEY_ANNOTATION.to_owned(), hash.clone());
            request
                .annotations_mut()
                .insert(READ_UID_ANNOTATION.to_owned(), "u".to_owned());
            request.metadata.creation_timestamp = created.and_then(at);
            request.status.phase = phase.map(Phase::from);
            request.status.expiration = expiration.and_then(at);
            request.status.message = Some("why".to_owned());
            let mut going = request.clone();
            going.metadata.deletion_timestamp = at(-1);
            let mut signed = request.clone();
            signed.annotations_mut().clear();
            assert_eq!(admit(Some(request), key, now).map(drop), expected, "{what}");
            for request in [Some(going), Some(signed), None] {
                assert_eq!(admit(request, key, now).map(drop), not_allowed(), "{what}");
            }
        }
    }

    #[test]
    fn a_range_is_one_range_of_this_version() {
        let of = |range: Range<u64>| Part::Of(range);
        for (range, if_range, size, expected) in [
            (None, None, Some(10), Part::Whole),
            (Some("bytes=0-"), None, Some(10), of(0..10)),
            (Some("bytes=3-"), Some("\"v\""), Some(10), of(3..10)),
            (Some("bytes=3-"), Some("\"w\""), Some(10), Part::Whole),
            (Some("bytes=2-4"), None, Some(10), of(2..5)),
            (Some("bytes=2-400"), None, Some(10), of(2..10)),
            (Some("bytes=-3"), None, Some(10), of(7..10)),
            (Some("bytes=-30"), None, Some(10), of(0..10)),
            (Some("bytes=10-"), None, Some(10), Part::None),
            (Some("bytes=9-"), None, Some(10), of(9..10)),
            (Some("bytes=0-"), None, Some(0), Part::None),
            (
                Some("bytes=0-18446744073709551615"),
                None,
                Some(10),
                of(0..10),
            ),
            (Some("bytes=1-2,4-5"), None, Some(10), Part::Whole),
            (Some("bytes=4-2"), None, Some(10), Part::Whole),
            (Some("bytes="), None, Some(10), Part::Whole),
            (Some("lines=1-2"), None, Some(10), Part::Whole),
            // A store without sizes can't read in part.
            (Some("bytes=3-"), None, None, Part::Whole),
        ] {
            assert_eq!(
                part(range, if_range, Some("\"v\""), size),
                expected,
                "{range:?} {if_range:?} {size:?}"
            );
        }
    }
}
