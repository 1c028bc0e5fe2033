//! Every interleaving of small worlds, over the production transitions of the ledger: what must never happen does not
//! happen, and does as soon as a plausible mistake is made. `docs/evidence/models.md` says what is modelled and what is not.

mod model {
    pub mod actions;
    pub mod mistakes;
    pub mod next;
    pub mod properties;
    pub mod scenarios;
    pub mod state;
}

use std::time::Instant;

use model::{
    mistakes::Mistake,
    next::Lock,
    properties::{self, SEEN_REFUSAL, SEEN_WORK},
    scenarios::{self, Scenario},
};
use stateright::{Checker, HasDiscoveries, Model};

/// Steps that no scenario may reach: one that does is not explored completely.
const CAP: usize = 2_000_000;

/// Explores a scenario completely; nothing wrong may be found.
fn holds(scenario: Scenario) {
    let (title, start) = (scenario.title, Instant::now());
    let checker = Lock::new(scenario)
        .checker()
        .threads(2)
        .target_state_count(CAP)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let (unique, steps, depth) = (checker.unique_state_count(), checker.state_count(), checker.max_depth());
    println!("{title}: {unique} states, {steps} steps, at most {depth} deep, {:.1?}", start.elapsed());
    for (property, path) in checker.discoveries() {
        assert!([SEEN_WORK, SEEN_REFUSAL].contains(&property), "{property}, broken by:\n{}", told(&path));
    }
    assert!(steps < CAP, "{title}: only {steps} steps were explored");
    for seen in [SEEN_WORK, SEEN_REFUSAL] {
        assert!(checker.discovery(seen).is_some(), "{title} shows nothing: never seen that {seen}");
    }
}

/// Looks for the shortest way in which a mistake breaks this property.
fn catches(mistake: Mistake, property: &'static str, scenario: Scenario) {
    let title = scenario.title;
    let checker = Lock::new(scenario.with(mistake))
        .checker()
        .target_state_count(CAP)
        .finish_when(HasDiscoveries::AllOf([property].into()))
        .spawn_bfs()
        .join();
    let found = checker.discovery(property);
    assert!(found.is_some(), "{mistake:?} does no such harm in: {title}");
    if let Some(path) = found {
        let steps = path.clone().into_actions().len();
        println!("{mistake:?} breaks \"{property}\" in {steps} steps ({title}):\n{}", told(&path));
    }
}

fn told(path: &stateright::Path<model::state::World, model::actions::Action>) -> String {
    let actions = path.clone().into_actions();
    let steps = actions.iter().map(|action| format!("    {action:?}\n"));
    let end = format!("  ending in {:?}", path.last_state().wrong);
    steps.chain([end]).collect()
}

#[test]
fn a_backup_and_a_restore_never_work_together() {
    holds(scenarios::duel());
}

#[test]
fn backups_share_and_a_restore_does_not() {
    holds(scenarios::sharing());
}

#[test]
fn a_name_used_twice_covers_what_each_asked_for() {
    holds(scenarios::reuse());
}

#[test]
fn a_deleted_object_keeps_its_claim_until_its_worker_has_stopped() {
    holds(scenarios::deletion());
}

#[test]
fn a_backup_is_not_deleted_under_a_restore_from_it() {
    holds(scenarios::source());
}

#[test]
fn a_lost_ledger_lets_nobody_collide() {
    holds(scenarios::loss());
}

#[test]
fn a_waiting_restore_gets_its_turn_and_is_not_overtaken() {
    holds(scenarios::queue());
}

#[test]
fn two_waiting_restores_get_their_turns() {
    holds(scenarios::queues());
}

#[test]
fn a_refused_restore_keeps_new_backups_out_for_a_while() {
    holds(scenarios::intent());
}

#[test]
fn requests_merged_into_one_write_do_not_hurt_one_another() {
    holds(scenarios::batch());
}

#[test]
fn a_remembered_ledger_grants_nothing_by_itself() {
    holds(scenarios::memory());
}

#[test]
fn what_settles_keeps_its_place() {
    holds(scenarios::settling());
}

#[test]
fn the_gate_alone_holds_while_creations_come_in_time() {
    holds(scenarios::guarded());
}

#[test]
fn the_model_catches_look_then_allow() {
    catches(Mistake::LookThenAllow, properties::WORK_IS_APART, scenarios::duel());
}

#[test]
fn the_model_catches_a_collected_orphan_as_proof() {
    catches(Mistake::OrphanIsProof, properties::WORK_IS_APART, scenarios::duel());
}

#[test]
fn the_model_catches_a_release_before_the_terminal_write() {
    catches(Mistake::ReleaseFirst, properties::WORK_IS_APART, scenarios::duel());
}

#[test]
fn the_model_catches_expiry_by_wall_clock() {
    catches(Mistake::ExpiryByClock, properties::WORK_IS_APART, scenarios::duel());
}

#[test]
fn the_model_catches_a_grant_from_memory() {
    catches(Mistake::GrantFromMemory, properties::NOTHING_BESIDE, scenarios::memory());
}

#[test]
fn the_model_catches_a_footprint_by_name() {
    catches(Mistake::FootprintByName, properties::WORK_IS_APART, scenarios::reuse());
}

#[test]
fn the_model_catches_active_dropped_at_the_mark_for_deletion() {
    catches(Mistake::DroppedWhenDeleting, properties::WORK_IS_APART, scenarios::deletion());
}

#[test]
fn the_model_catches_waiting_promoted_to_active() {
    catches(Mistake::PromotedToActive, properties::NO_HASTE, scenarios::queue());
}

#[test]
fn the_model_catches_a_delete_that_looks() {
    catches(Mistake::DeleteThatLooks, properties::SOURCES_STAY, scenarios::source());
}

#[test]
fn the_model_catches_a_shared_grant_during_a_rebuild() {
    catches(Mistake::GrantInRebuild, properties::NOTHING_BESIDE, scenarios::loss());
}

#[test]
fn the_model_catches_a_refusal_from_memory() {
    catches(Mistake::RefusalFromMemory, properties::NO_BARE_REFUSAL, scenarios::duel());
}

#[test]
fn the_model_catches_newcomers_past_a_waiting_restore() {
    catches(Mistake::WaitingIsIgnored, properties::NO_OVERTAKING, scenarios::queue());
}

#[test]
fn the_model_catches_a_right_that_outlives_its_ledger() {
    catches(Mistake::RightOutlivesLedger, properties::WORK_IS_APART, scenarios::loss());
}

#[test]
fn the_model_catches_a_freed_place_that_nobody_gets() {
    catches(Mistake::NobodyPromotes, properties::TURNS_COME, scenarios::queue());
}

#[test]
fn the_model_catches_orphans_that_stay() {
    catches(Mistake::OrphansStay, properties::ALL_FREED, scenarios::duel());
}

#[test]
fn the_model_catches_epochs_counted_anew() {
    catches(Mistake::EpochFromNought, properties::EPOCH_FORWARD, scenarios::loss());
}
