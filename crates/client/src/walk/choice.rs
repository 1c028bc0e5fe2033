//! Chooses whether the items of a type in some namespaces are listed over all namespaces, or in
//! each. Pure.
//!
//! A list over all namespaces takes one request for each page, and also reads other namespaces'
//! items. A list of each namespace reads no others, but takes a request for each, most of which
//! return few items or none. The first page over all tells how many items the type has.

/// Cost of one request, in items that could be read in the same time: an API server answers an
/// empty list in the time of some thirty items of a KiB.
const REQUEST_COST: u64 = 32;
/// At least 1/`UNWANTED_DIVISOR` of the items over all namespaces counts as unwanted, for any
/// number of wanted namespaces: the few others may hold most of them.
const UNWANTED_DIVISOR: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Whole,
    Parts,
}

/// The rest of the list over all namespaces.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rest {
    Nothing,
    Items(u64),
    /// The API server does not count the items that match a label selector.
    Unknown {
        /// Number of items read so far.
        read: u64,
    },
}

/// Number of items of a first page over all namespaces, so that it costs no more than the lists of
/// the parts.
pub(super) fn first_page(parts: usize) -> u32 {
    u32::try_from(requests(parts)).unwrap_or(u32::MAX).max(1)
}

/// Chooses how to list the rest: by the lists of the parts, which are some of this number of
/// namespaces (unknown: very many), or by the list over all.
///
/// The distribution of the items is unknown before they are read. If it is even, the cheaper way is
/// chosen. If not, the whole costs at most five times the parts, and these at most twice the whole.
pub(super) fn way(parts: usize, namespaces: Option<usize>, rest: Rest) -> Way {
    let requests = u128::from(requests(parts));
    let namespaces = namespaces.unwrap_or(usize::MAX).max(parts);
    let pays = match rest {
        Rest::Nothing => false,
        Rest::Items(items) => {
            let others = (namespaces - parts).max(namespaces.div_ceil(UNWANTED_DIVISOR));
            u128::from(items) * others as u128 > requests * namespaces as u128
        }
        // The whole has already cost as much as the parts would, and may be of any size.
        Rest::Unknown { read } => u128::from(read) >= requests,
    };
    if pays { Way::Parts } else { Way::Whole }
}

fn requests(parts: usize) -> u64 {
    (parts as u64).saturating_mul(REQUEST_COST)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_costs_less_is_listed() {
        use Rest::{Items, Nothing, Unknown};
        use Way::{Parts, Whole};
        for (parts, namespaces, rest, expected) in [
            // Nothing follows: the first page was the whole list.
            (2, 10, Nothing, Whole),
            (5000, 5000, Nothing, Whole),
            // Twenty of 68 namespaces: their requests cost 640 items.
            (20, 68, Items(900), Whole),
            (20, 68, Items(1_000), Parts),
            (20, 68, Items(40_000), Parts),
            // Two of five, and of 5,000.
            (2, 5, Items(100), Whole),
            (2, 5, Items(200), Parts),
            (2, 5000, Items(65), Parts),
            // Nearly all namespaces, which may hold nearly all items or nearly none.
            (48, 50, Items(5_000), Whole),
            (48, 50, Items(40_000), Parts),
            (1_000, 5_000, Items(4_900), Whole),
            (1_000, 5_000, Items(40_000), Whole),
            (1_000, 5_000, Items(1_000_000), Parts),
            // All of them, and some that were deleted since.
            (30, 30, Items(3_000), Whole),
            (30, 20, Items(3_000), Whole),
            // Not counted: the whole may cost no more than the parts would.
            (2, 10, Unknown { read: 64 }, Parts),
            (20, 68, Unknown { read: 500 }, Whole),
            (20, 68, Unknown { read: 1_000 }, Parts),
            (5_000, 10_000, Unknown { read: 100_000 }, Whole),
        ] {
            assert_eq!(
                way(parts, Some(namespaces), rest),
                expected,
                "{parts} of {namespaces}, {rest:?}"
            );
        }
        assert_eq!(way(16, None, Items(512)), Whole);
        assert_eq!(way(16, None, Items(513)), Parts);
    }

    #[test]
    fn a_first_page_costs_no_more_than_the_parts() {
        assert_eq!([2, 20, usize::MAX].map(first_page), [64, 640, u32::MAX]);
    }

    /// The costs of both ways, in items, if `wanted` of the items are in the wanted namespaces.
    fn costs(parts: usize, items: u64, wanted: u64) -> (u64, u64) {
        (
            items + items.div_ceil(500) * REQUEST_COST,
            requests(parts) + wanted + wanted.div_ceil(500) * REQUEST_COST,
        )
    }

    proptest! {
        /// For any distribution of the items, the choice is never much worse than the other way.
        #[test]
        fn the_choice_is_bounded(
            parts in 2_usize..2_000, others in 0_usize..5_000, items in 1_u64..1_000_000, share in 0.0..=1.0,
        ) {
            #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss)]
            let wanted = (items as f64 * share) as u64;
            let (whole, each) = costs(parts, items, wanted);
            match way(parts, Some(parts + others), Rest::Items(items)) {
                // At least a quarter counts as unwanted: the requests cost at most that much.
                Way::Whole => prop_assert!(whole <= each.saturating_mul(5), "{whole} {each}"),
                Way::Parts => prop_assert!(each <= 2 * whole, "{whole} {each}"),
            }
        }

        /// Evenly distributed items are listed in the cheaper way, unless nearly all namespaces are
        /// wanted.
        #[test]
        fn of_even_items_the_cheaper_way_is_chosen(
            parts in 2_usize..500, others in 1_usize..5_000, each in 1_u64..500,
        ) {
            let items = each * (parts + others) as u64;
            prop_assume!(others * UNWANTED_DIVISOR >= parts + others);
            let (whole, listed) = (items, requests(parts) + each * parts as u64);
            let expected = if listed < whole { Way::Parts } else { Way::Whole };
            prop_assert_eq!(way(parts, Some(parts + others), Rest::Items(items)), expected);
        }

        /// The more items there are, the less the whole pays: the choice changes at most once.
        #[test]
        fn more_items_never_bring_the_whole_back(
            parts in 2_usize..5_000, others in 0_usize..5_000, items in 1_u64..1_000_000, more in 1_u64..1_000_000,
        ) {
            if way(parts, Some(parts + others), Rest::Items(items)) == Way::Parts {
                prop_assert_eq!(way(parts, Some(parts + others), Rest::Items(items + more)), Way::Parts);
            }
        }

        /// Without a count, no more than the cost of the parts and one page is read of the whole.
        #[test]
        fn what_is_not_counted_is_given_up_in_time(parts in 2_usize..5_000, page in 1_u64..=500) {
            let mut read = 0;
            while way(parts, Some(parts), Rest::Unknown { read }) == Way::Whole {
                read += page;
            }
            prop_assert!(read < requests(parts) + page);
        }
    }
}
