//! The built-in profiles.

use serde_json::{Value, json};

use crate::{
    api::{BackupPhase, RestorePhase},
    phase::{Phase, Stage},
    profile::{ForeignLease, Mode, OnConflict, Predicate, Profile, Role},
};

const BOTH: [Role; 2] = [Role::Backup, Role::Restore];

fn percona() -> Profile {
    Profile::builtin()
        .into_iter()
        .find(|profile| profile.name == "percona-ps")
        .unwrap()
}

fn velero_at(phase: &str) -> Value {
    json!({ "metadata": { "name": "a", "namespace": "velero" }, "spec": {}, "status": { "phase": phase } })
}

/// An object of Percona's kinds; None is an object without a status.
fn percona_at(state: Option<&str>) -> Value {
    match state {
        Some(state) => {
            json!({ "spec": { "clusterName": "cluster1" }, "status": { "state": state } })
        }
        None => json!({ "spec": { "clusterName": "cluster1" } }),
    }
}

#[test]
fn all_built_in_profiles_can_be_read_and_velero_is_the_first() {
    let names: Vec<String> = Profile::builtin()
        .into_iter()
        .map(|profile| profile.name)
        .collect();
    assert_eq!(
        names,
        [
            "velero",
            "percona-ps",
            "percona-pxc",
            "percona-psmdb",
            "percona-pg",
            "cloudnative-pg"
        ]
    );
    assert!(Profile::velero().engine);
    assert!(!percona().engine);
}

fn is_over_where_the_engine_says_so<P: Phase>(role: Role, phases: impl Iterator<Item = P>) {
    let profile = Profile::velero();
    for phase in phases {
        let object = velero_at(&phase.to_string());
        let stage = phase.stage();
        assert_eq!(
            profile.is_over(role, &object),
            stage.is_terminal(),
            "{phase}"
        );
        assert_eq!(
            profile.has_begun(role, &object),
            stage != Stage::New,
            "{phase}"
        );
        assert!(profile.is_known_phase(role, &object), "{phase}");
    }
}

#[test]
fn velero_objects_are_over_where_the_engine_says_so() {
    is_over_where_the_engine_says_so(Role::Backup, BackupPhase::known());
    is_over_where_the_engine_says_so(Role::Restore, RestorePhase::known());
}

#[test]
fn nothing_of_velero_comes_back_to_life() {
    let profile = Profile::velero();
    for old in BackupPhase::KNOWN {
        for new in BackupPhase::KNOWN.iter().chain(&[""]) {
            for role in BOTH {
                assert!(
                    !profile.may_revive(role, &velero_at(old), &velero_at(new)),
                    "{role}: {old} to {new}"
                );
            }
        }
    }
}

#[test]
fn velero_has_one_scope_whatever_the_namespace() {
    let profile = Profile::velero();
    for role in BOTH {
        assert_eq!(
            profile.scope_of(role, "velero", &json!({})).as_deref(),
            Some("velero.io")
        );
        assert_eq!(
            profile
                .scope_of(role, "elsewhere", &velero_at("New"))
                .as_deref(),
            Some("velero.io")
        );
        assert_eq!(profile.cluster_of(role, &velero_at("New")), None);
    }
}

#[test]
fn the_defaults_refuse_conflicts_and_keep_an_intent_for_two_minutes() {
    for Profile { name, policy, .. } in Profile::builtin() {
        assert_eq!(policy.on_conflict_restore, OnConflict::Deny);
        assert_eq!(policy.on_conflict_backup, OnConflict::Deny);
        assert!(!policy.backups_exclude_each_other);
        // MongoDB's own tool keeps a lock for this long after the end.
        let settle = if name == "percona-psmdb" { 40 } else { 0 };
        assert_eq!(
            (policy.settle.as_secs(), policy.intent.as_secs()),
            (settle, 120)
        );
        assert_eq!(policy.mode, Mode::Enforce);
    }
}

#[test]
fn percona_states_are_what_api_v1_says() {
    let profile = percona();
    // state, over, begun, known
    for (state, over, begun, known) in [
        (None, false, false, true),
        (Some(""), false, false, true),
        (Some("New"), false, false, true),
        (Some("Starting"), false, true, true),
        (Some("Running"), false, true, true),
        (Some("Succeeded"), true, true, true),
        (Some("Failed"), true, true, true),
        (Some("Error"), true, true, true),
        (Some("Paused for tea"), false, true, false),
        (Some("succeeded"), false, true, false),
    ] {
        let object = percona_at(state);
        for role in BOTH {
            assert_eq!(profile.phase(role, &object), state.unwrap_or_default());
            assert_eq!(profile.is_over(role, &object), over, "{role} {state:?}");
            assert_eq!(profile.has_begun(role, &object), begun, "{role} {state:?}");
            assert_eq!(
                profile.is_known_phase(role, &object),
                known,
                "{role} {state:?}"
            );
        }
    }
    assert!(profile.is_known_phase(Role::Backup, &percona_at(Some("Suspended"))));
    assert!(!profile.is_known_phase(Role::Restore, &percona_at(Some("Suspended"))));
}

#[test]
fn a_state_that_is_no_text_is_active_and_reported() {
    let profile = percona();
    for state in [
        json!(7),
        json!(["Succeeded"]),
        json!({ "is": "Succeeded" }),
        json!(true),
    ] {
        let object = json!({ "status": { "state": state } });
        assert_eq!(profile.phase(Role::Restore, &object), "");
        assert!(!profile.is_over(Role::Restore, &object), "{state}");
        assert!(!profile.has_begun(Role::Restore, &object), "{state}");
        assert!(!profile.is_known_phase(Role::Restore, &object), "{state}");
    }
    for object in [
        json!({ "status": null }),
        json!({ "status": { "state": null } }),
        json!(null),
    ] {
        assert!(!profile.is_over(Role::Restore, &object), "{object}");
        assert!(profile.is_known_phase(Role::Restore, &object), "{object}");
    }
}

#[test]
fn only_a_percona_restore_in_error_may_come_back() {
    let profile = percona();
    let error = percona_at(Some("Error"));
    for (new, allowed) in [
        (None, true),
        (Some(""), true),
        (Some("New"), true),
        (Some("Starting"), true),
        (Some("Running"), false), // not a step that the operator takes
        (Some("Error"), false),   // still over
        (Some("Failed"), false),
        (Some("Reborn"), false),
    ] {
        assert_eq!(
            profile.may_revive(Role::Restore, &error, &percona_at(new)),
            allowed,
            "{new:?}"
        );
        assert!(
            !profile.may_revive(Role::Backup, &error, &percona_at(new)),
            "{new:?}"
        );
    }
    let odd = json!({ "spec": { "clusterName": "cluster1" }, "status": { "state": 7 } });
    assert!(!profile.may_revive(Role::Restore, &error, &odd));
    for old in [None, Some("Starting"), Some("Failed"), Some("Succeeded")] {
        assert!(
            !profile.may_revive(Role::Restore, &percona_at(old), &percona_at(None)),
            "{old:?}"
        );
    }
}

#[test]
fn percona_scopes_are_database_clusters_of_a_namespace() {
    let profile = percona();
    for role in BOTH {
        let scope = profile.scope_of(role, "db", &percona_at(None));
        assert_eq!(scope.as_deref(), Some("percona-ps/db/cluster1"));
        assert_eq!(
            profile.cluster_of(role, &percona_at(None)),
            Some("cluster1")
        );
        assert_ne!(profile.scope_of(role, "db2", &percona_at(None)), scope);
    }
}

#[test]
fn an_object_that_names_no_database_cluster_has_no_scope() {
    let long = "a".repeat(254);
    for spec in [
        json!(null),
        json!({}),
        json!({ "clusterName": null }),
        json!({ "clusterName": "" }),
        json!({ "clusterName": 7 }),
        json!({ "clusterName": ["cluster1"] }),
        json!({ "clusterName": "a\nb" }),
        json!({ "clusterName": long }),
    ] {
        let object = json!({ "spec": spec });
        assert_eq!(
            percona().scope_of(Role::Backup, "db", &object),
            None,
            "{object}"
        );
    }
    assert_eq!(
        percona().scope_of(Role::Backup, "", &percona_at(None)),
        None
    );
    assert_eq!(percona().scope_of(Role::Backup, "db", &json!("text")), None);
}

#[test]
fn percona_frees_the_place_of_a_restore_when_the_database_is_ready() {
    let profile = percona();
    let rule = profile.release.clone().unwrap();
    assert_eq!(rule.target.kind, "PerconaServerMySQL");
    assert_eq!(rule.within.as_secs(), 30 * 60);
    // api/v1/perconaservermysql_types.go: the states of a cluster and of its parts.
    for (state, ready) in [
        ("ready", true),
        ("initializing", false),
        ("stopping", false),
        ("paused", false),
        ("error", false),
    ] {
        assert_eq!(
            rule.when.holds(&json!({ "status": { "state": state } })),
            ready,
            "{state}"
        );
    }
    assert!(!rule.when.holds(&json!({})));
    assert_eq!(
        profile.foreign_lease.unwrap().name_for("cluster1"),
        "restore-lock-cluster1"
    );
    assert_eq!(
        ForeignLease::holder("restore1|8c1f"),
        Some(("restore1", "8c1f"))
    );
}

#[test]
fn a_kind_belongs_to_its_group() {
    let profile = percona();
    for (group, kind, role) in [
        (
            "ps.percona.com",
            "PerconaServerMySQLBackup",
            Some(Role::Backup),
        ),
        (
            "ps.percona.com",
            "PerconaServerMySQLRestore",
            Some(Role::Restore),
        ),
        ("ps.percona.com", "PerconaServerMySQL", None),
        ("velero.io", "PerconaServerMySQLBackup", None),
    ] {
        assert_eq!(profile.role_of(group, kind), role, "{group} {kind}");
    }
}

/// For each operator and kind: the states that are over, and the known active ones.
#[test]
fn states_of_other_operators_are_what_their_types_say() {
    for (name, role, active, over) in [
        (
            "percona-pxc",
            Role::Backup,
            &["Suspended", "Starting", "Running"][..],
            &["Succeeded", "Failed"][..],
        ),
        (
            "percona-pxc",
            Role::Restore,
            &[
                "Starting",
                "Stopping Cluster",
                "Restoring",
                "Preparing Cluster",
                "Starting Cluster",
                "Point-in-time recovering",
            ],
            &["Succeeded", "Failed"],
        ),
        (
            "percona-psmdb",
            Role::Backup,
            &["waiting", "requested", "running"],
            &["ready", "error"],
        ),
        (
            "percona-psmdb",
            Role::Restore,
            &["waiting", "requested", "running"],
            &["ready", "error", "rejected"],
        ),
        (
            "percona-pg",
            Role::Backup,
            &["Starting", "Running"],
            &["Succeeded", "Failed"],
        ),
        (
            "percona-pg",
            Role::Restore,
            &["Starting", "Running"],
            &["Succeeded", "Failed"],
        ),
        (
            "cloudnative-pg",
            Role::Backup,
            &[
                "pending",
                "started",
                "running",
                "finalizing",
                "walArchivingFailing",
            ],
            &["completed", "failed", "invalid backup definition"],
        ),
    ] {
        let profile = Profile::builtin()
            .into_iter()
            .find(|profile| profile.name == name)
            .unwrap();
        let field = profile.rule(role).phase.strip_prefix("status.").unwrap();
        let at = |state: &str| json!({ "status": { field: state } });
        for (states, is_over) in [(active, false), (over, true)] {
            for state in states {
                assert_eq!(
                    profile.is_over(role, &at(state)),
                    is_over,
                    "{name} {role} {state}"
                );
                assert!(
                    profile.is_known_phase(role, &at(state)),
                    "{name} {role} {state}"
                );
                assert!(profile.has_begun(role, &at(state)), "{name} {role} {state}");
                for end in over {
                    assert!(
                        !profile.may_revive(role, &at(end), &at(state)),
                        "{name}: {end} to {state}"
                    );
                }
            }
        }
        assert!(
            !profile.is_over(role, &at("")) && !profile.is_over(role, &at("of a newer release"))
        );
        assert!(!profile.is_known_phase(role, &at("of a newer release")));
    }
}

#[test]
fn other_operators_name_their_database_cluster() {
    for (name, role, object) in [
        (
            "percona-pxc",
            Role::Backup,
            json!({ "spec": { "pxcCluster": "c" } }),
        ),
        (
            "percona-pxc",
            Role::Restore,
            json!({ "spec": { "pxcCluster": "c" } }),
        ),
        (
            "percona-psmdb",
            Role::Backup,
            json!({ "spec": { "clusterName": "c" } }),
        ),
        (
            "percona-psmdb",
            Role::Restore,
            json!({ "spec": { "clusterName": "c" } }),
        ),
        (
            "percona-pg",
            Role::Backup,
            json!({ "spec": { "pgCluster": "c" } }),
        ),
        (
            "percona-pg",
            Role::Restore,
            json!({ "spec": { "pgCluster": "c" } }),
        ),
        (
            "cloudnative-pg",
            Role::Backup,
            json!({ "spec": { "cluster": { "name": "c" } } }),
        ),
        (
            "cloudnative-pg",
            Role::Restore,
            json!({ "metadata": { "name": "c" }, "spec": {} }),
        ),
    ] {
        let profile = Profile::builtin()
            .into_iter()
            .find(|profile| profile.name == name)
            .unwrap();
        assert_eq!(
            profile.scope_of(role, "db", &object),
            Some(format!("{name}/db/c")),
            "{role}"
        );
        let is_cluster = (name, role) == ("cloudnative-pg", Role::Restore);
        assert_eq!(
            profile.scope_is_in_metadata(role),
            is_cluster,
            "{name} {role}"
        );
    }
}

/// Regardless of the source of a CloudNativePG Cluster: it has no primary before the restore is
/// done, and always one afterwards.
#[test]
fn a_cluster_of_cloudnative_pg_is_restored_once_it_has_a_primary() {
    let profile = Profile::builtin().pop().unwrap();
    for (status, over) in [
        (json!(null), false),
        (
            json!({ "targetPrimary": "c-1", "phase": "Setting up primary" }),
            false,
        ),
        (json!({ "currentPrimary": "" }), false),
        (json!({ "currentPrimary": "c-1" }), true),
        (
            json!({ "currentPrimary": "c-1", "targetPrimary": "pending", "phase": "Failing over" }),
            true,
        ),
    ] {
        assert_eq!(
            profile.is_over(Role::Restore, &json!({ "status": status })),
            over,
            "{status}"
        );
    }
}

/// The policies repeat in CEL what the profiles define in YAML.
#[test]
fn the_policies_about_ends_know_the_operator_and_every_end_of_a_profile() {
    for (profile, policy) in [
        (
            Profile::velero(),
            include_str!("../../../../../deploy/modes/guard/ends.yaml"),
        ),
        (
            percona(),
            include_str!("../../../../../deploy/profiles/percona-ps/policy.yaml"),
        ),
    ] {
        let account = format!(
            "\"system:serviceaccount:\" + request.namespace + \":{}\"",
            profile.operator
        );
        assert!(
            !profile.operator.is_empty() && policy.contains(&account),
            "{account}"
        );
        for rule in [&profile.backup, &profile.restore] {
            assert!(policy.contains(&rule.plural), "{}", rule.plural);
            let Predicate::In { values, .. } = &rule.over else {
                panic!("{:?}", rule.over)
            };
            let of = |list: &str| {
                values
                    .iter()
                    .all(|value| list.contains(&format!("\"{value}\"")))
            };
            let lists: Vec<&str> = policy
                .split('[')
                .filter(|text| text.starts_with("\"Succ") || text.starts_with("\"FailedV"))
                .collect();
            assert!(lists.len() == 2 && lists.into_iter().all(of), "{values:?}");
        }
    }
}
