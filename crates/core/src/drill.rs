//! Drills: restores into scratch namespaces, which are checked and removed again. Pure.
//!
//! A drill is a Restore with `spec.drill`. Its spec alone keeps it away from everything else: each
//! namespace is mapped to a scratch one, and nothing cluster-scoped is selected. So a server that
//! does not know the field restores a copy, and touches nothing that exists.

mod expression;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    api::{DrillSpec, GoDuration, Restore, RestoreSpec},
    digest::short_sha256,
    labels::{DRILL_STATE_ANNOTATION, annotation},
    names,
    text::counted,
};
pub use expression::Expression;

/// Prefix of the names of scratch namespaces.
const SCRATCH_PREFIX: &str = "drill-";
/// Number of hex digits in the id of a drill.
const ID_CHARS: usize = 8;
/// Maximum length of the name of a namespace.
const MAX_NAMESPACE_CHARS: usize = 63;
/// Maximum part of a backup's name in the name of its drills (bytes).
const MAX_BACKUP_CHARS: usize = 230;
/// Maximum number of namespaces of one drill. A Restore of more than 100 holds the lock for the
/// whole cluster.
pub const MAX_NAMESPACES: usize = 50;
/// Maximum number of checks of one drill.
pub const MAX_CHECKS: usize = 10;
/// Time to wait for workloads to become ready, unless the drill has its own.
pub const DEFAULT_READY_TIMEOUT: GoDuration = GoDuration::from_secs(600);
/// Time limit of a check, unless it has its own.
pub const DEFAULT_CHECK_TIMEOUT: GoDuration = GoDuration::from_secs(300);
/// Namespaces of Kubernetes: what runs there serves the cluster, and is restored only if it is named.
const SYSTEM_NAMESPACES: [&str; 3] = ["kube-node-lease", "kube-public", "kube-system"];
/// Maximum number of workloads that a result names.
const MAX_NAMED_WORKLOADS: usize = 5;

/// The id of a drill, from what tells it apart from others.
pub fn id(parts: &[&str]) -> String {
    short_sha256(parts.join("\n").as_bytes(), ID_CHARS / 2)
}

/// Name of the scratch namespace for a namespace of the backup: `drill-<id>-<namespace>`, shortened
/// with a hash if that is too long.
pub fn scratch_name(id: &str, namespace: &str) -> String {
    let name = format!("{SCRATCH_PREFIX}{id}-{namespace}");
    if name.len() <= MAX_NAMESPACE_CHARS {
        return name;
    }
    names::derived(&format!("{SCRATCH_PREFIX}{id}"), namespace, &[namespace])
}

/// The id in the name of a scratch namespace; `None` for any other name.
pub fn id_of_scratch(name: &str) -> Option<&str> {
    let (id, rest) = name.strip_prefix(SCRATCH_PREFIX)?.split_once('-')?;
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (id.len() == ID_CHARS && id.bytes().all(is_hex) && !rest.is_empty()).then_some(id)
}

/// Name of the Restore of a drill.
pub fn restore_name(backup: &str, id: &str) -> String {
    let backup = backup[..backup.floor_char_boundary(MAX_BACKUP_CHARS)]
        .trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
    format!("{backup}-drill-{id}")
}

/// The namespace of an entry in a backup's list of items: `kind` is `apps/v1/Deployment`, `name` is
/// `shop/web`. `None` for a cluster-scoped item.
pub fn listed_namespace<'a>(kind: &str, name: &'a str) -> Option<&'a str> {
    if kind == "v1/Namespace" {
        return Some(name);
    }
    name.split_once('/').map(|(namespace, _)| namespace)
}

/// The namespaces that a drill restores: those that are asked for, or else all that the backup
/// holds, but those of Kubernetes. `own` is the namespace of the installation. The error is a clause
/// with the remedy.
pub fn namespaces(
    held: &BTreeSet<String>,
    asked: &[String],
    own: &str,
) -> Result<BTreeSet<String>, String> {
    let chosen: BTreeSet<String> = if asked.is_empty() {
        let all = held.iter().filter(|name| {
            *name != own
                && !SYSTEM_NAMESPACES.contains(&name.as_str())
                && id_of_scratch(name).is_none()
        });
        all.cloned().collect()
    } else {
        asked.iter().cloned().collect()
    };
    if chosen.contains(own) {
        return Err(format!(
            "namespace {own:?} is that of the installation, which would run twice; leave it out"
        ));
    }
    if let Some(absent) = chosen.iter().find(|name| !held.contains(*name)) {
        return Err(format!(
            "the backup does not hold namespace {absent:?}; `kubectl backup ls` lists those that it holds"
        ));
    }
    if chosen.is_empty() {
        return Err("the backup holds no namespace that a drill restores".to_owned());
    }
    if chosen.len() > MAX_NAMESPACES {
        return Err(format!(
            "the backup holds {} namespaces, and a drill restores at most {MAX_NAMESPACES}; name those that are to be tried",
            chosen.len()
        ));
    }
    Ok(chosen)
}

/// The spec of a drill of these namespaces.
pub fn restore_spec(
    backup: &str,
    id: &str,
    namespaces: &BTreeSet<String>,
    drill: DrillSpec,
) -> RestoreSpec {
    let mapped = |name: &String| (name.clone(), scratch_name(id, name));
    RestoreSpec {
        backup_name: Some(backup.to_owned()),
        included_namespaces: namespaces.iter().cloned().collect(),
        namespace_mapping: namespaces.iter().map(mapped).collect::<BTreeMap<_, _>>(),
        include_cluster_resources: Some(false),
        restore_pvs: Some(drill.settings.volumes),
        drill: Some(drill),
        ..RestoreSpec::default()
    }
}

/// Whether workloads have become ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Readiness {
    /// When they were ready, or were not waited for any longer.
    pub at: Timestamp,
    /// Number of Deployments, StatefulSets and DaemonSets.
    pub workloads: usize,
    /// Number of those that are ready.
    pub ready: usize,
    /// Some of those that are not, as `Deployment shop/web`, by their namespaces in the backup.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_ready: Vec<String>,
    /// Whether there was no node, so that nothing could become ready.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub without_nodes: bool,
}

impl Readiness {
    /// Of these workloads, of which some are not ready.
    pub fn of(
        workloads: usize,
        mut not_ready: Vec<String>,
        without_nodes: bool,
        at: Timestamp,
    ) -> Self {
        let ready = workloads.saturating_sub(not_ready.len());
        not_ready.truncate(MAX_NAMED_WORKLOADS);
        Self {
            at,
            workloads,
            ready,
            not_ready,
            without_nodes,
        }
    }
}

/// The result of a drill.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DrillResult {
    /// When the result was known.
    pub at: Timestamp,
    /// Name of the Restore; empty if it could not be created.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub restore: String,
    /// Time from the begin of the restore until its workloads were ready, or until it had ended if
    /// none are (seconds).
    pub seconds: i64,
    /// Number of items that were to be restored.
    pub items: usize,
    /// Number of items that were restored.
    pub restored: usize,
    /// Number of restored items that differ from the backup.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub differ: usize,
    /// Number of items that were left out, as a drill has no effects outside of its namespaces.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: usize,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub workloads: usize,
    /// Number of workloads that have become ready.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ready: usize,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub checks: usize,
    /// Number of checks that have succeeded.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub passed: usize,
    /// Why the drill has failed; empty if it has not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub failure: String,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl DrillResult {
    /// The result of a drill that has restored nothing.
    pub fn of_nothing(restore: &str, failure: String, at: Timestamp) -> Self {
        Self {
            at,
            restore: restore.to_owned(),
            seconds: 0,
            items: 0,
            restored: 0,
            differ: 0,
            left_out: 0,
            workloads: 0,
            ready: 0,
            checks: 0,
            passed: 0,
            failure,
        }
    }

    /// Reads the annotation of a Backup; `None` if it is missing or unreadable.
    pub fn read(annotation: Option<&str>) -> Option<Self> {
        serde_json::from_str(annotation?).ok()
    }

    pub fn annotation(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    pub fn has_failed(&self) -> bool {
        !self.failure.is_empty()
    }

    /// "in 41s, 312 of 312 items, 3 checks passed".
    pub fn counts(&self) -> String {
        let Self {
            seconds,
            items,
            restored,
            differ,
            workloads,
            ready,
            checks,
            passed,
            ..
        } = self;
        let unlike = if *differ > 0 {
            format!(" ({differ} not as in the backup)")
        } else {
            String::new()
        };
        let mut parts = vec![
            format!("in {}", GoDuration::from_secs(*seconds)),
            format!("{restored} of {}{unlike}", counted(*items, "item")),
        ];
        if ready < workloads {
            parts.push(format!(
                "{ready} of {} ready",
                counted(*workloads, "workload")
            ));
        }
        if *checks > 0 {
            parts.push(if passed == checks {
                format!("{} passed", counted(*checks, "check"))
            } else {
                format!("{passed} of {checks} checks passed")
            });
        }
        parts.join(", ")
    }

    /// "restored 14h ago in 41s, 312 of 312 items, 3 checks passed", or "failed 14h ago: " with the
    /// reason. `ago` is the age.
    pub fn text(&self, ago: &str) -> String {
        let counts = self.counts();
        match (self.failure.as_str(), self.items) {
            ("", _) => format!("restored {ago} {counts}"),
            (failure, 0) => format!("failed {ago}: {failure}"),
            (failure, _) => format!("failed {ago}: {failure} ({counts})"),
        }
    }
}

/// The last drill of a schedule's backups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastDrill {
    /// Name of the Backup.
    pub backup: String,
    #[serde(flatten)]
    pub result: DrillResult,
    /// Time of the last drill that has not failed, of any backup of the schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub success: Option<Timestamp>,
}

impl LastDrill {
    /// This result after the one before.
    pub fn after(before: Option<&Self>, backup: &str, result: DrillResult) -> Self {
        let earlier = before.and_then(|before| before.success);
        Self {
            backup: backup.to_owned(),
            success: if result.has_failed() {
                earlier
            } else {
                Some(result.at)
            },
            result,
        }
    }

    /// Reads the annotation of a Schedule; `None` if it is missing or unreadable.
    pub fn read(annotation: Option<&str>) -> Option<Self> {
        serde_json::from_str(annotation?).ok()
    }

    pub fn annotation(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// How far a drill has come after its restore has ended: the content of our annotation of the
/// Restore.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DrillState {
    /// Set once workloads are ready, or are not waited for any longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<Readiness>,
    /// Set once the checks have ended. From then on the scratch namespaces are removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<DrillResult>,
    /// Whether no scratch namespace is left, and the result is published.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_over: bool,
}

impl DrillState {
    /// The state of a drill; the initial one if the annotation is missing or unreadable.
    pub fn of(restore: &Restore) -> Self {
        let text = annotation(restore, DRILL_STATE_ANNOTATION);
        text.and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default()
    }

    pub fn annotation(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn result() -> DrillResult {
        DrillResult {
            seconds: 41,
            items: 312,
            restored: 312,
            checks: 3,
            passed: 3,
            ..DrillResult::of_nothing("r", String::new(), at("2026-11-03T05:14:12Z"))
        }
    }

    #[test]
    fn a_scratch_namespace_has_a_valid_name_that_shows_its_drill() {
        let id = id(&["uid", "2026"]);
        assert_eq!(id.len(), ID_CHARS);
        let mut seen = BTreeSet::new();
        for namespace in [
            "shop",
            &"n".repeat(63),
            &format!("{}1", "n".repeat(62)),
            "a",
        ] {
            let name = scratch_name(&id, namespace);
            assert!(names::is_dns_label(&name), "{name}");
            assert_eq!(id_of_scratch(&name), Some(id.as_str()), "{name}");
            assert!(seen.insert(name), "{namespace}");
        }
        assert_eq!(scratch_name("0123abcd", "shop"), "drill-0123abcd-shop");
        for other in [
            "shop",
            "drill-shop",
            "drill-0123abcd-",
            "drill-0123abcD-x",
            "drill-0123abc-x",
            "drill-0123abcde-x",
        ] {
            assert_eq!(id_of_scratch(other), None, "{other}");
        }
        let long = restore_name(&"b".repeat(253), &id);
        assert!(names::is_object_name(&long), "{long}");
        assert_eq!(
            restore_name("nightly-1", "0123abcd"),
            "nightly-1-drill-0123abcd"
        );
    }

    #[test]
    fn all_namespaces_are_restored_but_those_that_serve_the_cluster() {
        let held = set(&["shop", "db", "velero", "kube-system", "drill-0123abcd-shop"]);
        let chosen = |asked: &[&str]| {
            let asked: Vec<String> = asked.iter().map(|name| (*name).to_owned()).collect();
            namespaces(&held, &asked, "velero")
        };
        assert_eq!(chosen(&[]), Ok(set(&["db", "shop"])));
        assert_eq!(chosen(&["kube-system"]), Ok(set(&["kube-system"])));
        for (asked, why) in [
            (&["other"][..], "does not hold namespace \"other\""),
            (&["velero"], "would run twice"),
        ] {
            let error = chosen(asked).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        let empty = namespaces(&set(&["velero"]), &[], "velero");
        assert!(empty.unwrap_err().contains("holds no namespace"));
        let many: BTreeSet<String> = (0..=MAX_NAMESPACES).map(|n| format!("n{n}")).collect();
        let refused = namespaces(&many, &[], "velero").unwrap_err();
        for part in ["51 namespaces", "at most 50"] {
            assert!(refused.contains(part), "{refused}");
        }
    }

    #[test]
    fn the_namespace_of_a_listed_item_is_known() {
        for (kind, name, expected) in [
            ("v1/Namespace", "shop", Some("shop")),
            ("apps/v1/Deployment", "shop/web", Some("shop")),
            ("v1/PersistentVolume", "pv", None),
        ] {
            assert_eq!(listed_namespace(kind, name), expected);
        }
    }

    #[test]
    fn a_result_is_told_in_a_few_words() {
        for (result, expected) in [
            (
                result(),
                "restored 14h ago in 41s, 312 of 312 items, 3 checks passed",
            ),
            (
                DrillResult {
                    seconds: 65,
                    items: 1,
                    restored: 1,
                    workloads: 3,
                    ready: 1,
                    checks: 0,
                    differ: 1,
                    ..result()
                },
                "restored 14h ago in 1m5s, 1 of 1 item (1 not as in the backup), 1 of 3 workloads ready",
            ),
            (
                DrillResult {
                    passed: 2,
                    failure: "check answers: exit code 1".to_owned(),
                    ..result()
                },
                "failed 14h ago: check answers: exit code 1 (in 41s, 312 of 312 items, 2 of 3 checks passed)",
            ),
            (
                DrillResult::of_nothing(
                    "",
                    "the backup cannot be read".to_owned(),
                    at("2026-11-03T05:14:12Z"),
                ),
                "failed 14h ago: the backup cannot be read",
            ),
        ] {
            assert_eq!(result.text("14h ago"), expected);
            assert_eq!(DrillResult::read(Some(&result.annotation())), Some(result));
        }
        assert_eq!(DrillResult::read(Some("soon")), None);
    }

    #[test]
    fn the_last_success_of_a_schedule_outlives_failures() {
        let first = LastDrill::after(None, "b-1", result());
        assert_eq!(first.success, Some(result().at));
        let failed = DrillResult {
            at: at("2026-11-04T05:14:12Z"),
            failure: "no".to_owned(),
            ..result()
        };
        let second = LastDrill::after(Some(&first), "b-2", failed.clone());
        assert_eq!(second.success, first.success);
        assert_eq!(LastDrill::after(None, "b-2", failed).success, None);
        for one in [first, second] {
            assert_eq!(LastDrill::read(Some(&one.annotation())), Some(one));
        }
        assert_eq!(LastDrill::read(Some("{}")), None);
    }

    #[test]
    fn the_state_of_a_drill_is_read_as_it_was_written() {
        let many: Vec<String> = (0..9).map(|n| format!("Deployment shop/{n}")).collect();
        let ready = Readiness::of(10, many, false, result().at);
        assert_eq!(
            (ready.workloads, ready.ready, ready.not_ready.len()),
            (10, 1, 5)
        );
        let state = DrillState {
            ready: Some(ready),
            result: Some(result()),
            is_over: true,
        };
        let mut restore = Restore::default();
        assert_eq!(DrillState::of(&restore), DrillState::default());
        let annotations = [(DRILL_STATE_ANNOTATION.to_owned(), state.annotation())];
        restore.metadata.annotations = Some(annotations.into());
        assert_eq!(DrillState::of(&restore), state);
    }

    #[test]
    fn the_spec_of_a_drill_touches_nothing_else() {
        let namespaces = set(&["db", "shop"]);
        let spec = restore_spec("b", "0123abcd", &namespaces, DrillSpec::default());
        assert_eq!(spec.namespace_mapping["shop"], "drill-0123abcd-shop");
        assert_eq!(spec.included_namespaces, ["db", "shop"]);
        assert_eq!(
            (spec.include_cluster_resources, spec.restore_pvs),
            (Some(false), Some(false))
        );
        let mut with_volumes = DrillSpec::default();
        with_volumes.settings.volumes = true;
        let spec = restore_spec("b", "0123abcd", &namespaces, with_volumes);
        assert_eq!(
            (spec.include_cluster_resources, spec.restore_pvs),
            (Some(false), Some(true))
        );
    }
}
