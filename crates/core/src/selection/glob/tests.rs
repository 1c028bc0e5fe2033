use proptest::prelude::*;

use super::*;

#[rstest::rstest]
#[case("*", "", true)]
#[case("", "", true)]
#[case("", "a", false)]
#[case("a*", "a", true)]
#[case("a*c", "abbc", true)]
#[case("a*c", "abcb", false)]
#[case("*a*b", "xaxaxb", true)]
#[case("a?", "a", false)]
#[case("a?", "ab", true)]
#[case("app-[12]", "app-2", true)]
#[case("app-[12]", "app-3", false)]
#[case("app-[1-3]", "app-2", true)]
#[case("app-[!1-3]", "app-2", false)]
#[case("app-[!1-3]", "app-4", true)]
#[case("[a-]", "-", true)]
#[case("[", "[", true)]
#[case("[", "a", false)]
#[case("a]", "a]", true)]
#[case("[]", "[]", true)]
#[case("*.apps", "deployments.apps", true)]
#[case("ä?", "äö", true)]
#[case("{deploy*,stateful*}.apps", "statefulsets.apps", true)]
#[case("{deploy*,stateful*}.apps", "replicasets.apps", false)]
#[case("{a,b{c,d}}", "bd", true)]
#[case("{a,b{c,d}}", "b", false)]
#[case("a{,b}", "a", true)]
#[case("{a", "{a", true)]
#[case("{a", "a", false)]
#[case("a}", "a}", true)]
fn a_glob_matches_what_it_describes(
    #[case] pattern: &str,
    #[case] name: &str,
    #[case] matches: bool,
) {
    assert_eq!(glob_match(pattern, name), matches);
}

#[rstest::rstest]
#[case("a*", "*b", true)]
#[case("a*", "b*", false)]
#[case("a", "a", true)]
#[case("a", "b", false)]
#[case("team-*", "team-a", true)]
#[case("team-a", "team-?", true)]
#[case("*-prod", "*-dev", false)]
#[case("[ab]1", "[bc]1", true)]
#[case("[ab]1", "[cd]1", false)]
#[case("*", "", true)]
#[case("a*b", "a", false)]
#[case("[!a]", "[!b]", true)]
#[case("[", "[a]", false)]
#[case("{a,b}*", "bc", true)]
#[case("{a,b}*", "{c,b}?", true)]
#[case("{a,b}*", "{c,d}?", false)]
fn overlap_is_told_for_clear_cases(#[case] a: &str, #[case] b: &str, #[case] overlap: bool) {
    assert_eq!(globs_may_overlap(a, b), overlap, "{a} {b}");
    assert_eq!(globs_may_overlap(b, a), overlap, "{b} {a}");
}

#[test]
fn a_pattern_of_endless_alternatives_matches_only_itself() {
    let bomb = "{a,b}".repeat(40);
    assert!(!glob_match(&bomb, &"a".repeat(40)) && glob_match(&bomb, &bomb));
}

/// A direct implementation of the definition.
fn oracle(pieces: &[Piece], name: &[char]) -> bool {
    match (pieces, name) {
        ([], []) => true,
        ([Piece::AnyText, rest @ ..], _) => {
            (0..=name.len()).any(|taken| oracle(rest, &name[taken..]))
        }
        ([piece, rest @ ..], [c, tail @ ..]) => piece.takes(*c) && oracle(rest, tail),
        _ => false,
    }
}

/// Every name over a small alphabet up to a length.
fn names(length: usize) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut latest = all.clone();
    for _ in 0..length {
        latest = latest
            .iter()
            .flat_map(|name| ["a", "b", "-"].map(|c| name.clone() + c))
            .collect();
        all.extend(latest.iter().cloned());
    }
    all
}

const PATTERN: &str = r"(a|b|-|\*|\?|\[ab\]|\[a-b\]|\[!a\]|\[b-\]|\[|\]){0,6}";

proptest! {
    #[test]
    fn matching_agrees_with_the_definition(pattern in PATTERN, name in "[ab-]{0,8}") {
        let chars: Vec<char> = name.chars().collect();
        prop_assert_eq!(glob_match(&pattern, &name), oracle(&parse(&pattern), &chars));
    }

    #[test]
    fn overlap_is_never_denied_when_a_name_matches_both(a in PATTERN, b in PATTERN) {
        if names(5).iter().any(|name| glob_match(&a, name) && glob_match(&b, name)) {
            prop_assert!(globs_may_overlap(&a, &b));
        }
    }

    #[test]
    fn overlap_is_symmetric(a in PATTERN, b in PATTERN) {
        prop_assert_eq!(globs_may_overlap(&a, &b), globs_may_overlap(&b, &a));
    }

    #[test]
    fn a_pattern_meets_every_name_that_it_matches(pattern in PATTERN, name in "[ab-]{0,8}") {
        if glob_match(&pattern, &name) {
            prop_assert!(globs_may_overlap(&pattern, &name));
        }
    }
}
