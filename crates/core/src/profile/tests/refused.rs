//! Invalid profiles are refused, with the field and what was expected.

use std::fmt::Write as _;

use rstest::rstest;

use crate::profile::{MAX_DEPTH, Profile, ProfileError};

/// A valid profile, which tests modify.
const FINE: &str = r#"
name: fine
group: fine.example
version: v1
scope: { field: { backup: spec.db, restore: spec.db } }
backup:
  kind: FineBackup
  plural: finebackups
  statusSubresource: true
  phase: status.state
  initial: [New]
  active: [Running]
  over: { in: { path: status.state, values: [Done, Failed] } }
restore:
  kind: FineRestore
  plural: finerestores
  statusSubresource: true
  phase: status.state
  active: [Running]
  over: { in: { path: status.state, values: [Done, Failed] } }
  revivals:
    - { from: Failed, to: ["", Running] }
policy: { settle: 5s, onConflictRestore: wait }
foreignLease: { name: "lock-{cluster}" }
release:
  target: { group: fine.example, version: v1, kind: Fine, plural: fines }
  when: { set: { path: status.ready } }
  within: 10m
"#;

/// FINE with a piece of its text replaced, once.
fn spoiled(piece: &str, by: &str) -> String {
    assert!(FINE.contains(piece), "{piece}");
    FINE.replacen(piece, by, 1)
}

fn message(text: &str) -> String {
    Profile::from_yaml(text).unwrap_err().to_string()
}

#[test]
fn the_profile_that_is_spoiled_below_is_fine() {
    assert!(Profile::from_yaml(FINE).is_ok());
}

#[rstest]
#[case("name: fine", "name: fine\ncolour: red", &["unknown field `colour`", "expected one of name, group"])]
#[case("  kind: FineBackup", "  kid: FineBackup", &["unknown field `kid`", "statusSubresource"])]
#[case("settle: 5s", "settel: 5s", &["unknown field `settel`", "settle"])]
#[case("{ set: { path: status.ready } }", "{ set: { field: status.ready } }", &["unknown field `field`", "path"])]
#[case("{ set: { path: status.ready } }", "{ sat: { path: status.ready } }", &["`sat`", "condition", "set"])]
#[case("{ set: { path: status.ready } }", "{ set: { path: a }, not: { set: { path: b } } }", &["line 27", "when"])]
#[case("within: 10m", "within: 10", &["\"10\" is not a time span", "\"2m\"", "within: 10"])]
#[case("within: 10m", "within: -10m", &["is not a time span"])]
#[case("within: 10m", "within: 2d", &["is not a time span", "24h"])]
#[case("settle: 5s", "settle: soon", &["\"soon\" is not a time span"])]
#[case("settle: 5s", "settle: 5s, mode: loud", &["`loud`", "enforce", "warn"])]
#[case("onConflictRestore: wait", "onConflictRestore: ask", &["`ask`", "deny", "queue", "wait"])]
#[case("group: fine.example", "group: fine.example\nname: again", &["duplicate", "name", "line 4"])]
#[case("group: fine.example", "group: null", &["null", "group: null"])]
#[case("name: fine\n", "", &["missing field `name`"])]
#[case("backup: spec.db, ", "", &["missing field `backup`", "scope"])]
#[case("scope: {", "scope: { cluster: {}, ", &["scope"])]
#[case("scope: {", "scope: [", &["line 5"])]
fn what_does_not_fit_is_named_with_its_line(
    #[case] piece: &str,
    #[case] by: &str,
    #[case] said: &[&str],
) {
    let error = Profile::from_yaml(&spoiled(piece, by)).unwrap_err();
    assert_eq!(error.category(), "syntax", "{error}");
    for part in said {
        assert!(
            error.to_string().contains(part),
            "{part:?} is not in: {error}"
        );
    }
}

#[rstest]
#[case("name: fine", "name: Fine/1", "name", "DNS label")]
#[case("name: fine", "name: ''", "name", "DNS label")]
#[case("group: fine.example", "group: ''", "group", "API group")]
#[case("version: v1", "version: one", "version", "API version")]
#[case("backup: spec.db", "backup: spec..db", "scope.field.backup", "path")]
#[case("restore: spec.db", "restore: ''", "scope.field.restore", "path")]
#[case("kind: FineBackup", "kind: ''", "backup.kind", "no kind")]
#[case("kind: FineRestore", "kind: fine restore", "restore.kind", "no kind")]
#[case("kind: FineRestore", "kind: FineBackup", "restore.kind", "one kind")]
#[case(
    "plural: finerestores",
    "plural: finebackups",
    "restore.kind",
    "one kind"
)]
#[case("plural: finebackups", "plural: ''", "backup.plural", "plural")]
#[case("phase: status.state", "phase: status state", "backup.phase", "path")]
#[case(
    "phase: status.state\n  initial: [New]\n",
    "initial: [New]\n",
    "backup.initial",
    "backup.phase"
)]
#[case("initial: [New]", "initial: [New, New]", "backup.initial", "twice")]
#[case("initial: [New]", "initial: [Running]", "backup.active", "twice")]
#[case("initial: [New]", "initial: ['']", "backup.initial", "empty")]
#[case(
    "values: [Done, Failed]",
    "values: []",
    "backup.over.in.values",
    "empty"
)]
#[case(
    "values: [Done, Failed]",
    "values: [Done, Done]",
    "backup.over.in.values",
    "twice"
)]
#[case(
    "values: [Done, Failed]",
    "values: [Done, '']",
    "backup.over.in.values",
    "empty"
)]
#[case(
    "values: [Done, Failed]",
    "values: [Done, Running]",
    "backup.over",
    "\"Running\""
)]
#[case(
    "values: [Done, Failed]",
    "values: [Done, New]",
    "backup.over",
    "\"New\""
)]
#[case(
    "from: Failed",
    "from: Fialed",
    "restore.revivals[0].from",
    "restore.over"
)]
#[case(
    "from: Failed",
    "from: Running",
    "restore.revivals[0].from",
    "restore.over"
)]
#[case("to: [\"\", Running]", "to: []", "restore.revivals[0].to", "empty")]
#[case(
    "to: [\"\", Running]",
    "to: [Runing]",
    "restore.revivals[0].to",
    "\"Runing\""
)]
#[case(
    "onConflictRestore: wait",
    "onConflictRestore: queue",
    "policy.onConflictRestore",
    "deny or wait"
)]
#[case(
    "onConflictRestore: wait",
    "onConflictBackup: queue",
    "policy.onConflictBackup",
    "deny or wait"
)]
#[case("lock-{cluster}", "lock", "foreignLease.name", "{cluster}")]
#[case("lock-{cluster}", "{cluster}-{c}", "foreignLease.name", "{cluster}")]
#[case(
    "{ field: { backup: spec.db, restore: spec.db } }",
    "cluster",
    "foreignLease",
    "scope.field"
)]
#[case(
    "{ field: { backup: spec.db, restore: spec.db } }",
    "cluster",
    "release",
    "scope.field"
)]
#[case("kind: Fine,", "kind: '',", "release.target.kind", "no kind")]
#[case("path: status.ready", "path: ''", "release.when.set.path", "path")]
#[case("within: 10m", "within: 0s", "release.within", "no time")]
#[case("version: v1\n", "version: v1\nengine: true\n", "engine", "velero")]
fn what_says_nonsense_is_named_by_field(
    #[case] piece: &str,
    #[case] by: &str,
    #[case] field: &str,
    #[case] said: &str,
) {
    let ProfileError::Invalid { findings, .. } =
        Profile::from_yaml(&spoiled(piece, by)).unwrap_err()
    else {
        panic!("{piece} by {by} is syntax");
    };
    assert!(
        findings
            .iter()
            .any(|finding| finding.field == field && finding.message.contains(said)),
        "{field} {said} is not in {findings:?}"
    );
}

/// Predicates that would free a place while the work continues.
#[rstest]
#[case(
    "{ not: { in: { path: status.state, values: [New, Running] } } }",
    "created"
)]
#[case("{ set: { path: metadata.name } }", "created")]
#[case("{ any: [ { in: { path: kind, values: [FineBackup] } } ] }", "created")]
#[case("{ set: { path: status.state } }", "\"Running\"")]
#[case(
    "{ all: [ { set: { path: status.state } }, { not: { in: { path: status.state, values: [New, Running] } } } ] }",
    "does not name"
)]
fn an_end_that_holds_of_what_is_not_over_is_refused(#[case] over: &str, #[case] said: &str) {
    let text = spoiled(
        "{ in: { path: status.state, values: [Done, Failed] } }",
        over,
    );
    let message = message(&text);
    assert!(
        message.contains("backup.over: ") && message.contains(said),
        "{message}"
    );
}

#[rstest]
#[case("{ condition: { type: Done, status: true } }", "condition.status")]
#[case("{ condition: { type: '' } }", "condition.type")]
#[case("{ condition: { type: Done, reasons: [''] } }", "condition.reasons")]
#[case("{ condition: { type: Done, path: status. } }", "condition.path")]
#[case("{ any: [] }", "any")]
#[case("{ not: { all: [] } }", "not.all")]
#[case(
    "{ any: [ { set: { path: a } }, { not: { set: { path: '' } } } ] }",
    "any[1].not.set.path"
)]
fn a_part_of_a_predicate_is_named_by_its_place(#[case] over: &str, #[case] place: &str) {
    let message = message(&spoiled(
        "{ in: { path: status.state, values: [Done, Failed] } }",
        over,
    ));
    assert!(
        message.contains(&format!("backup.over.{place}: ")),
        "{message}"
    );
}

fn nested(depth: usize) -> String {
    let mut text = "{ set: { path: status.end } }".to_owned();
    for _ in 1..depth {
        text = format!("{{ all: [ {text} ] }}");
    }
    spoiled(
        "{ in: { path: status.state, values: [Done, Failed] } }",
        &text,
    )
}

#[test]
fn a_predicate_has_a_bounded_depth() {
    assert!(Profile::from_yaml(&nested(MAX_DEPTH)).is_ok());
    let said = message(&nested(MAX_DEPTH + 1));
    assert!(
        said.contains("backup.over: is nested 9 deep; expected at most 8"),
        "{said}"
    );
    // The parser refuses extreme nesting before it can be measured.
    assert_eq!(
        Profile::from_yaml(&nested(5_000)).unwrap_err().category(),
        "syntax"
    );
}

#[test]
fn everything_that_is_wrong_is_said_at_once() {
    let text = spoiled("name: fine", "name: ''").replace("within: 10m", "within: 0s");
    let said = message(&text);
    assert!(
        said.contains("name: ") && said.contains("; release.within: "),
        "{said}"
    );
}

#[test]
fn what_is_no_document_is_refused() {
    let two = format!("{FINE}---\n{FINE}");
    for text in [
        "",
        "# nothing",
        "text",
        "[1, 2]",
        "\u{0}",
        "{",
        two.as_str(),
        "a: &a [*a]",
    ] {
        assert_eq!(
            Profile::from_yaml(text).unwrap_err().category(),
            "syntax",
            "{text:?}"
        );
    }
}

#[test]
fn a_text_that_grows_when_read_is_refused() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for i in 1..12 {
        let _ = write!(text, "a{i}: &a{i} [");
        text.push_str(&format!("*a{}, ", i - 1).repeat(10));
        text.push_str("]\n");
    }
    assert_eq!(Profile::from_yaml(&text).unwrap_err().category(), "syntax");
}

#[test]
fn the_engine_keeps_its_kinds_and_phases() {
    let text = include_str!("../../../profiles/velero.yaml");
    for (piece, by, field) in [
        ("\nengine: true", "\nengine: false", "engine"),
        ("name: velero", "name: other", "engine"),
        ("group: velero.io", "group: velero.example", "group"),
        (
            "scope: cluster",
            "scope: { field: { backup: a, restore: b } }",
            "group",
        ),
        (
            "statusSubresource: false",
            "statusSubresource: true",
            "backup",
        ),
        ("initial: [New]", "initial: []", "backup.initial"),
        (
            "PartiallyFailed, Failed, Deleting]",
            "PartiallyFailed, Failed]",
            "backup.over",
        ),
        (
            "Completed, PartiallyFailed, Failed]",
            "Completed]",
            "restore.over",
        ),
    ] {
        assert!(text.contains(piece), "{piece}");
        let said = message(&text.replacen(piece, by, 1));
        assert!(said.contains(&format!("{field}: ")), "{piece}: {said}");
    }
    let own = text
        .replace("onConflictRestore: deny", "onConflictRestore: queue")
        .replace("settle: 0s", "settle: 1m");
    assert!(Profile::from_yaml(&own).is_ok());
}
