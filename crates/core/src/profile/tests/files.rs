//! Files add profiles or replace built-in ones.

use crate::profile::{Mode, Profile, ProfileError, ProfileSet};

const VELERO: &str = include_str!("../../../profiles/velero.yaml");
const PERCONA_PS: &str = include_str!("../../../profiles/percona-ps.yaml");

fn names(profiles: &[Profile]) -> Vec<&str> {
    profiles
        .iter()
        .map(|profile| profile.name.as_str())
        .collect()
}

/// Percona's profile under another name and for another group.
fn renamed(name: &str, group: &str) -> String {
    PERCONA_PS
        .replace("name: percona-ps", &format!("name: {name}"))
        .replace("group: ps.percona.com", &format!("group: {group}"))
}

/// The profiles with this file; none may be refused.
fn usable(file: &str, text: &str) -> Vec<Profile> {
    let ProfileSet { profiles, refused } = Profile::with_files([(file, text)]);
    assert_eq!(refused, []);
    profiles
}

/// The names of usable profiles, and the refused ones with reasons.
fn judged<const N: usize>(files: [(&str, &str); N]) -> (Vec<String>, Vec<(String, String)>) {
    let ProfileSet { profiles, refused } = Profile::with_files(files);
    let refused = refused
        .into_iter()
        .map(|one| (one.name, one.error.to_string()))
        .collect();
    (
        profiles.into_iter().map(|profile| profile.name).collect(),
        refused,
    )
}

#[test]
fn without_files_there_are_the_built_in_profiles() {
    let ProfileSet { profiles, refused } = Profile::with_files([]);
    assert_eq!((profiles, refused), (Profile::builtin(), vec![]));
}

#[test]
fn a_file_adds_a_profile() {
    let all = usable("mine.yaml", &renamed("mine", "g.example"));
    assert_eq!(names(&all).last(), Some(&"mine"));
}

#[test]
fn a_file_replaces_the_built_in_profile_of_its_name() {
    let all = usable("mine.yaml", &VELERO.replace("mode: enforce", "mode: warn"));
    assert_eq!(all[0].policy.mode, Mode::Warn);
    assert_eq!(all[1..], Profile::builtin()[1..]);
}

#[test]
fn two_files_can_not_have_one_profile() {
    for (text, name) in [
        (PERCONA_PS, "percona-ps"),
        (&renamed("mine", "g.example"), "mine"),
    ] {
        let (left, refused) = judged([("a.yaml", text), ("b.yaml", text)]);
        let said = format!("a.yaml and b.yaml both have a profile {name:?}; take one of them out");
        assert_eq!(refused, [(name.to_owned(), said)]);
        // It is unclear which of the two is meant.
        assert!(!left.contains(&name.to_owned()), "{left:?}");
    }
}

#[test]
fn two_profiles_can_not_have_one_kind_or_scope() {
    let text = VELERO
        .replace("name: velero", "name: mine")
        .replace("engine: true", "engine: false");
    let (left, refused) = judged([("a.yaml", &text)]);
    let said = "velero and mine both have the kind Backup of velero.io; take one of them out";
    assert_eq!(refused, [("mine".to_owned(), said.to_owned())]);
    assert_eq!(left, names(&Profile::builtin()), "what is built in stays");

    let cluster = |name: &str| {
        format!(
            "{{name: {name}, group: g.example, version: v1, scope: cluster,
               backup: {{kind: B{name}, plural: b{name}, statusSubresource: true, over: {{set: {{path: status.end}}}}}},
               restore: {{kind: R{name}, plural: r{name}, statusSubresource: true, over: {{set: {{path: status.end}}}}}}}}"
        )
    };
    let (one, two) = (cluster("one"), cluster("two"));
    let (left, refused) = judged([("a", &one), ("b", &two)]);
    assert_eq!(left, names(&Profile::builtin()));
    let both: Vec<&str> = refused.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(both, ["one", "two"]);
    assert!(
        refused[0]
            .1
            .starts_with("one and two both have the scope g.example"),
        "{refused:?}"
    );
}

#[test]
fn a_file_that_is_no_profile_is_refused_and_the_others_are_read() {
    let good = renamed("good", "g.example");
    let (left, refused) = judged([
        ("bad.yaml", "name: x"),
        ("good.yaml", &good),
        ("p/worse.yaml", "{"),
    ]);
    assert_eq!(left, [names(&Profile::builtin()), vec!["good"]].concat());
    assert_eq!(
        (refused[0].0.as_str(), refused[1].0.as_str()),
        ("x", "worse")
    );
    assert!(
        refused[0]
            .1
            .starts_with("bad.yaml: not a profile: missing field `group`"),
        "{refused:?}"
    );
    let error = &Profile::with_files([("bad.yaml", "name: x")]).refused[0].error;
    assert_eq!(error.category(), "syntax");
    assert!(matches!(error, ProfileError::File { .. }));
}

/// A version that adds a built-in profile does not disable a user's own profile for the same
/// operator.
#[test]
fn a_file_with_the_kinds_of_a_built_in_profile_replaces_it() {
    let all = usable("mine.yaml", &renamed("mine", "ps.percona.com"));
    assert!(
        names(&all).contains(&"mine") && !names(&all).contains(&"percona-ps"),
        "{:?}",
        names(&all)
    );
}

/// A built-in profile whose replacement is refused is disabled too, as it does not fit; only
/// Velero's, which our engine needs, stays.
#[test]
fn a_refused_file_takes_the_place_of_the_profile_that_it_was_to_replace() {
    for (file, text) in [
        ("percona-ps.yaml", "{"),
        ("p/percona-ps.yml", ""),
        ("mine.yaml", "name: percona-ps"),
    ] {
        let (left, refused) = judged([(file, text)]);
        assert!(!left.contains(&"percona-ps".to_owned()), "{left:?}");
        assert_eq!(refused[0].0, "percona-ps");
    }
    let ProfileSet { profiles, refused } = Profile::with_files([("velero.yaml", "name: velero")]);
    assert_eq!((profiles, refused.len()), (Profile::builtin(), 1));
}
