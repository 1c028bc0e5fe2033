//! Files add profiles or replace built-in ones.

use crate::profile::{Mode, Profile, ProfileError};

const VELERO: &str = include_str!("../../../profiles/velero.yaml");
const PERCONA_PS: &str = include_str!("../../../profiles/percona-ps.yaml");

fn names(profiles: &[Profile]) -> Vec<&str> {
    profiles.iter().map(|profile| profile.name.as_str()).collect()
}

/// Percona's profile under another name and for another group.
fn renamed(name: &str, group: &str) -> String {
    PERCONA_PS
        .replace("name: percona-ps", &format!("name: {name}"))
        .replace("group: ps.percona.com", &format!("group: {group}"))
}

#[test]
fn without_files_there_are_the_built_in_profiles() {
    assert_eq!(Profile::with_files([]), Ok(Profile::builtin()));
}

#[test]
fn a_file_adds_a_profile() {
    let text = renamed("pxc", "pxc.percona.com");
    let all = Profile::with_files([("pxc.yaml", text.as_str())]).unwrap();
    assert_eq!(names(&all), ["velero", "percona-ps", "pxc"]);
}

#[test]
fn a_file_replaces_the_built_in_profile_of_its_name() {
    let text = VELERO.replace("mode: enforce", "mode: warn");
    let all = Profile::with_files([("mine.yaml", text.as_str())]).unwrap();
    assert_eq!(names(&all), ["velero", "percona-ps"]);
    assert_eq!(all[0].policy.mode, Mode::Warn);
    assert_eq!(all[1..], Profile::builtin()[1..]);
}

#[test]
fn two_files_can_not_have_one_profile() {
    for text in [PERCONA_PS, &renamed("pxc", "pxc.percona.com")] {
        let error = Profile::with_files([("a.yaml", text), ("b.yaml", text)]).unwrap_err();
        assert_eq!(error.category(), "duplicate");
        let said = error.to_string();
        assert!(said.starts_with("a.yaml and b.yaml both have a profile "), "{said}");
    }
}

#[test]
fn two_profiles_can_not_have_one_kind_or_scope() {
    let text = renamed("mine", "ps.percona.com");
    let error = Profile::with_files([("a.yaml", text.as_str())]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "percona-ps and mine both have the kind PerconaServerMySQLBackup of ps.percona.com; take one of them out"
    );

    let cluster = |name: &str| {
        format!(
            "{{name: {name}, group: g.example, version: v1, scope: cluster,
               backup: {{kind: B{name}, plural: b{name}, statusSubresource: true, over: {{set: {{path: status.end}}}}}},
               restore: {{kind: R{name}, plural: r{name}, statusSubresource: true, over: {{set: {{path: status.end}}}}}}}}"
        )
    };
    let (one, two) = (cluster("one"), cluster("two"));
    let error = Profile::with_files([("a", one.as_str()), ("b", two.as_str())]).unwrap_err();
    assert!(error.to_string().starts_with("one and two both have the scope g.example"), "{error}");
}

#[test]
fn a_file_that_is_no_profile_is_named() {
    let error = Profile::with_files([("bad.yaml", "name: x")]).unwrap_err();
    assert!(error.to_string().starts_with("bad.yaml: not a profile: missing field `group`"), "{error}");
    assert_eq!(error.category(), "syntax");
    assert!(matches!(error, ProfileError::File { .. }));
}
