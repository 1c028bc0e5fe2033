//! Rules for the profile of the engine.

use serde_json::json;

use crate::{
    api::{BackupPhase, RestorePhase, kind::GROUP},
    phase::Phase,
    profile::{ENGINE, KindRule, Profile, Role, ScopeRule},
    validate::Findings,
};

/// The engine is our own code: a file may change its policy, but not the meaning of its kinds and
/// phases.
pub(super) fn check(profile: &Profile, found: &mut Findings) {
    if profile.engine != profile.is_velero() {
        found.say(
            "engine",
            format!("is true for the profile {ENGINE:?} and for no other"),
        );
    }
    if !profile.engine {
        return;
    }
    if profile.group != GROUP || profile.version != "v1" || profile.scope != ScopeRule::Cluster {
        found.say(
            "group",
            format!("the engine's is {GROUP}, version v1, scope: cluster"),
        );
    }
    agrees(
        Role::Backup,
        &profile.backup,
        "Backup",
        BackupPhase::known(),
        found,
    );
    agrees(
        Role::Restore,
        &profile.restore,
        "Restore",
        RestorePhase::known(),
        found,
    );
}

/// The kind's name and phases must equal the name and the phases of the engine's own types.
fn agrees<P: Phase>(
    role: Role,
    kind: &KindRule,
    own: &str,
    phases: impl Iterator<Item = P>,
    found: &mut Findings,
) {
    if kind.kind != own || kind.status_subresource || kind.phase != "status.phase" {
        found.say(
            role.to_string(),
            format!("the engine's is {own}, with status.phase and no subresource"),
        );
    }
    if kind.initial != ["New"] {
        found.say(
            format!("{role}.initial"),
            "the engine has begun in every phase but New",
        );
    }
    if !kind.revivals.is_empty() {
        found.say(
            format!("{role}.revivals"),
            "the engine brings nothing back to life",
        );
    }
    for phase in phases {
        let is_over = phase.stage().is_terminal();
        if kind.over.holds(&json!({ "status": { "phase": phase } })) != is_over {
            let means = if is_over { "is an end" } else { "is no end" };
            found.say(
                format!("{role}.over"),
                format!("to the engine, phase {:?} {means}", phase.to_string()),
            );
        }
    }
}
