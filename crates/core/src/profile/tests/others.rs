//! Each other operator has its own file.

use rstest::rstest;
use serde_json::{Value, json};

use crate::profile::{OnConflict, Profile, Role, ScopeRule};

/// Modelled on K8up (api/v1): conditions show the end, and there is no phase.
const CONDITIONS: &str = r#"
name: k8up
group: k8up.io
version: v1
scope:
  field:
    backup: spec.backend.s3.bucket
    restore: spec.backend.s3.bucket
backup:
  kind: Backup
  plural: backups
  statusSubresource: true
  over:
    any:
      - condition: { type: Completed }
      - condition: { type: PreBackupPodReady, status: "False", reasons: [Failed, DeadlineExceeded] }
restore:
  kind: Restore
  plural: restores
  statusSubresource: true
  over:
    condition: { type: Completed, status: True, reasons: [Succeeded, Failed] }
policy:
  onConflictBackup: wait
  backupsExcludeEachOther: true
  settle: 30s
"#;

/// Modelled on Medusa of K8ssandra (apis/medusa/v1alpha1): a time shows the end.
const TIMES: &str = "
name: medusa
group: medusa.k8ssandra.io
version: v1alpha1
scope: { field: { backup: spec.cassandraDatacenter, restore: spec.cassandraDatacenter } }
backup:
  kind: MedusaBackupJob
  plural: medusabackupjobs
  statusSubresource: true
  over:
    set: { path: status.finishTime }
restore:
  kind: MedusaRestoreJob
  plural: medusarestorejobs
  statusSubresource: true
  over:
    all:
      - set: { path: status.finishTime }
      - not: { set: { path: status.inProgress } }
";

/// Modelled on KubeBlocks (dataprotection/v1alpha1): a label names the database cluster.
const LABELS: &str = r"
name: kubeblocks
group: dataprotection.kubeblocks.io
version: v1alpha1
scope:
  field:
    backup: metadata.labels.app\.kubernetes\.io/instance
    restore: spec.backup.name
backup:
  kind: Backup
  plural: backups
  statusSubresource: true
  phase: status.phase
  initial: [New]
  active: [Running, Deleting]
  over: { in: { path: status.phase, values: [Completed, Failed] } }
restore:
  kind: Restore
  plural: restores
  statusSubresource: true
  phase: status.phase
  active: [Running]
  over: { in: { path: status.phase, values: [Completed, Failed] } }
";

fn condition(type_: &str, status: &str, reason: &str) -> Value {
    json!({ "status": { "conditions": [
        { "type": "Ready", "status": "True", "reason": "Ready" },
        { "type": type_, "status": status, "reason": reason },
    ] } })
}

#[rstest]
#[case(Role::Backup, json!({}), false)]
#[case(Role::Backup, json!({ "status": { "conditions": [] } }), false)]
#[case(Role::Backup, json!({ "status": { "conditions": "none" } }), false)]
#[case(Role::Backup, condition("Progressing", "True", "Started"), false)]
#[case(Role::Backup, condition("Completed", "False", "Succeeded"), false)]
#[case(Role::Backup, condition("Completed", "True", "Whatever"), true)]
#[case(Role::Backup, condition("PreBackupPodReady", "False", "Failed"), true)]
#[case(
    Role::Backup,
    condition("PreBackupPodReady", "False", "Waiting"),
    false
)]
#[case(Role::Backup, condition("PreBackupPodReady", "True", "Failed"), false)]
#[case(Role::Restore, condition("Completed", "True", "Failed"), true)]
#[case(Role::Restore, condition("Completed", "True", "Unheard"), false)]
#[case(
    Role::Restore,
    condition("PreBackupPodReady", "False", "Failed"),
    false
)]
fn an_end_told_by_conditions_is_seen(
    #[case] role: Role,
    #[case] object: Value,
    #[case] over: bool,
) {
    let profile = Profile::from_yaml(CONDITIONS).unwrap();
    assert_eq!(profile.is_over(role, &object), over, "{object}");
    // Without phases the state is unknown, so no phase is reported as unknown and every object
    // counts as begun.
    assert!(profile.has_begun(role, &object) && profile.is_known_phase(role, &object));
    assert_eq!(profile.phase(role, &object), "");
    assert!(!profile.may_revive(role, &condition("Completed", "True", "Failed"), &object));
}

#[rstest]
#[case(json!({}), false, false)]
#[case(json!({ "finishTime": null }), false, false)]
#[case(json!({ "finishTime": "" }), false, false)]
#[case(json!({ "startTime": "2026-01-01T00:00:00Z", "inProgress": ["a"] }), false, false)]
#[case(json!({ "finishTime": "2026-01-01T00:00:00Z" }), true, true)]
#[case(json!({ "finishTime": "2026-01-01T00:00:00Z", "inProgress": [] }), true, true)]
#[case(json!({ "finishTime": "2026-01-01T00:00:00Z", "inProgress": ["a"] }), true, false)]
fn an_end_told_by_a_time_is_seen(
    #[case] status: Value,
    #[case] backup: bool,
    #[case] restore: bool,
) {
    let profile = Profile::from_yaml(TIMES).unwrap();
    let object = json!({ "spec": { "cassandraDatacenter": "dc1" }, "status": status });
    assert_eq!(profile.is_over(Role::Backup, &object), backup, "{object}");
    assert_eq!(profile.is_over(Role::Restore, &object), restore, "{object}");
    assert_eq!(
        profile.scope_of(Role::Restore, "db", &object).as_deref(),
        Some("medusa/db/dc1")
    );
}

#[test]
fn a_scope_can_be_told_by_a_label() {
    let profile = Profile::from_yaml(LABELS).unwrap();
    let backup = json!({ "metadata": { "labels": { "app.kubernetes.io/instance": "pg" } } });
    assert_eq!(
        profile.scope_of(Role::Backup, "db", &backup).as_deref(),
        Some("kubeblocks/db/pg")
    );
    let restore = json!({ "spec": { "backup": { "name": "b1" } } });
    assert_eq!(
        profile.scope_of(Role::Restore, "db", &restore).as_deref(),
        Some("kubeblocks/db/b1")
    );
}

#[test]
fn a_file_sets_the_policy_and_leaves_the_rest_at_the_defaults() {
    let profile = Profile::from_yaml(CONDITIONS).unwrap();
    assert_eq!(profile.policy.on_conflict_backup, OnConflict::Wait);
    assert_eq!(profile.policy.on_conflict_restore, OnConflict::Deny);
    assert!(profile.policy.backups_exclude_each_other);
    assert_eq!(
        (
            profile.policy.settle.as_secs(),
            profile.policy.intent.as_secs()
        ),
        (30, 120)
    );
    assert!(matches!(profile.scope, ScopeRule::Field { .. }));
    assert!(profile.foreign_lease.is_none() && profile.release.is_none());
}

#[test]
fn what_is_written_is_read_back() {
    let files = [CONDITIONS, TIMES, LABELS].map(|text| Profile::from_yaml(text).unwrap());
    for profile in Profile::builtin().into_iter().chain(files) {
        let text = serde_saphyr::to_string(&profile).unwrap();
        assert_eq!(Profile::from_yaml(&text), Ok(profile), "{text}");
    }
}
