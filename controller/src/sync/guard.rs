//! Whether so many backups can be gone from a bucket at once. Pure.
//!
//! A wrong prefix, another bucket, or credentials that list nothing look like a bucket whose backups were deleted.

use jiff::Timestamp;

use super::compare::Compared;

/// Why orphans are not removed; none if they may be.
///
/// `folders` is how many the listing has, `agreed` how many removals a person has agreed to. Backups that have expired are
/// expected to be gone, and count on neither side.
pub(super) fn refusal(
    compared: &Compared<'_>,
    folders: usize,
    now: Timestamp,
    agreed: Option<u64>,
) -> Option<String> {
    let gone = compared.orphans.len();
    if gone == 0 {
        return None;
    }
    if let Some(agreed) = agreed {
        let more = usize::try_from(agreed).is_ok_and(|agreed| gone > agreed);
        return more.then(|| {
            format!("{gone} backups are gone from the bucket, more than the {agreed} that were agreed to")
        });
    }
    if folders == 0 {
        return Some(format!(
            "the listing of the bucket is empty, and would take all {gone} stored backups out of the cluster; check bucket, \
             prefix and credentials"
        ));
    }
    let unexpired = |expiration: Option<Timestamp>| expiration.is_none_or(|expiration| expiration > now);
    let lost = compared.orphans.iter().filter(|(_, known)| unexpired(known.expiration)).count();
    let all = compared.stored.iter().filter(|known| unexpired(known.expiration)).count();
    (lost > 1 && lost * 2 > all).then(|| {
        format!(
            "{lost} of {all} stored backups that have not expired are gone from the bucket at once; check bucket, prefix and \
             credentials"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::observe::Known;

    #[test]
    fn table_of_shrunken_listings() {
        let now: Timestamp = "2026-01-02T00:00:00Z".parse().unwrap();
        let fresh = Known { expiration: Some("2027-01-01T00:00:00Z".parse().unwrap()), ..Known::default() };
        let expired = Known { expiration: Some("2026-01-01T00:00:00Z".parse().unwrap()), ..Known::default() };
        let forever = Known::default();
        for (stays, lost, lost_expired, folders, agreed, allowed) in [
            (0, 0, 0, 0, None, true),
            (10, 1, 0, 10, None, true),
            (10, 10, 0, 10, None, true),
            (10, 11, 0, 10, None, false),
            // One alone may go, unless nothing else is there.
            (0, 1, 0, 5, None, true),
            (0, 1, 0, 0, None, false),
            (0, 2, 0, 5, None, false),
            (1, 2, 0, 1, None, false),
            (2, 2, 0, 2, None, true),
            // After a week without a controller most have expired, and others have come.
            (0, 0, 500, 30, None, true),
            (2, 2, 500, 2, None, true),
            (0, 0, 500, 0, None, false),
            (1, 40, 0, 1, Some(40), true),
            (0, 40, 0, 0, Some(40), true),
            (1, 41, 0, 1, Some(40), false),
            (100, 3, 0, 100, Some(2), false),
        ] {
            let mut compared = Compared::default();
            compared.stored.extend(std::iter::repeat_n(&forever, stays));
            for (count, known) in [(lost, &fresh), (lost_expired, &expired)] {
                compared.stored.extend(std::iter::repeat_n(known, count));
                compared.orphans.extend(std::iter::repeat_n(("b", known), count));
            }
            let refusal = refusal(&compared, folders, now, agreed);
            assert_eq!(
                refusal.is_none(),
                allowed,
                "{stays} stay, {lost} and {lost_expired} expired ones lost, {folders} folders, {agreed:?}: {refusal:?}"
            );
        }
    }
}
