//! Every interleaving of small worlds, over the production transitions of the ledger: no property
//! is violated, and each is violated as soon as a plausible mistake is made.
//! `docs/evidence/models.md` says what is modelled and what is not.

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
use rstest::rstest;
use stateright::{Checker, HasDiscoveries, Model};

/// Maximum number of steps; a scenario that reaches it was not explored completely.
const MAX_STATES: usize = 2_000_000;

/// Explores a scenario completely and expects no violation.
#[rstest]
#[case::a_backup_and_a_restore_never_work_together(scenarios::duel())]
#[case::backups_share_and_a_restore_does_not(scenarios::sharing())]
#[case::a_name_used_twice_covers_what_each_asked_for(scenarios::reuse())]
#[case::a_deleted_object_keeps_its_claim_until_its_worker_has_stopped(scenarios::deletion())]
#[case::a_backup_is_not_deleted_under_a_restore_from_it(scenarios::source())]
#[case::a_lost_ledger_lets_nobody_collide(scenarios::loss())]
#[case::a_waiting_restore_gets_its_turn_and_is_not_overtaken(scenarios::queue())]
#[case::two_waiting_restores_get_their_turns(scenarios::queues())]
#[case::backups_that_have_not_begun_let_a_restore_go_first(scenarios::yielding())]
#[case::what_yields_is_apart_when_the_ledger_is_lost(scenarios::yielding_loss())]
#[case::a_refused_restore_keeps_new_backups_out_for_a_while(scenarios::intent())]
#[case::requests_merged_into_one_write_do_not_hurt_one_another(scenarios::batch())]
#[case::a_remembered_ledger_grants_nothing_by_itself(scenarios::memory())]
#[case::what_settles_keeps_its_place(scenarios::settling())]
#[case::the_gate_alone_holds_while_creations_come_in_time(scenarios::guarded())]
#[case::what_was_released_by_force_stops_and_stays_released(scenarios::force())]
#[case::a_restore_that_a_person_ends_keeps_its_place_until_its_worker_has_stopped(
    scenarios::ended_by_hand()
)]
#[case::a_leader_that_was_paused_does_no_harm(scenarios::pause())]
#[case::a_revival_keeps_its_place_until_it_is_stored(scenarios::revival())]
#[case::a_revival_is_not_judged_by_its_first_claim(scenarios::revival_at_once())]
fn the_model_holds(#[case] scenario: Scenario) {
    let (title, start) = (scenario.title, Instant::now());
    let checker = Lock::new(scenario)
        .checker()
        .threads(2)
        .target_state_count(MAX_STATES)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let (unique, steps, depth) = (
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth(),
    );
    println!(
        "{title}: {unique} states, {steps} steps, at most {depth} deep, {:.1?}",
        start.elapsed()
    );
    for (property, path) in checker.discoveries() {
        assert!(
            [SEEN_WORK, SEEN_REFUSAL].contains(&property),
            "{property}, broken by:\n{}",
            told(&path)
        );
    }
    assert!(
        steps < MAX_STATES,
        "{title}: only {steps} steps were explored"
    );
    for seen in [SEEN_WORK, SEEN_REFUSAL] {
        assert!(
            checker.discovery(seen).is_some(),
            "{title} shows nothing: never seen that {seen}"
        );
    }
}

/// Searches the shortest path by which a mistake violates this property.
#[rstest]
#[case::look_then_allow(Mistake::LookThenAllow, properties::WORK_IS_APART, scenarios::duel())]
#[case::a_collected_orphan_as_proof(
    Mistake::OrphanIsProof,
    properties::WORK_IS_APART,
    scenarios::duel()
)]
#[case::a_release_before_the_terminal_write(
    Mistake::ReleaseFirst,
    properties::WORK_IS_APART,
    scenarios::duel()
)]
#[case::expiry_by_wall_clock(Mistake::ExpiryByClock, properties::WORK_IS_APART, scenarios::duel())]
#[case::a_grant_from_memory(
    Mistake::GrantFromMemory,
    properties::NOTHING_BESIDE,
    scenarios::memory()
)]
#[case::a_footprint_by_name(
    Mistake::FootprintByName,
    properties::WORK_IS_APART,
    scenarios::reuse()
)]
#[case::active_dropped_at_the_mark_for_deletion(
    Mistake::DroppedWhenDeleting,
    properties::WORK_IS_APART,
    scenarios::deletion()
)]
#[case::waiting_promoted_to_active(
    Mistake::PromotedToActive,
    properties::NO_HASTE,
    scenarios::queue()
)]
#[case::a_delete_that_looks(
    Mistake::DeleteThatLooks,
    properties::SOURCES_STAY,
    scenarios::source()
)]
#[case::a_shared_grant_during_a_rebuild(
    Mistake::GrantInRebuild,
    properties::NOTHING_BESIDE,
    scenarios::loss()
)]
#[case::a_refusal_from_memory(
    Mistake::RefusalFromMemory,
    properties::NO_BARE_REFUSAL,
    scenarios::duel()
)]
#[case::newcomers_past_a_waiting_restore(
    Mistake::WaitingIsIgnored,
    properties::NO_OVERTAKING,
    scenarios::queue()
)]
#[case::work_that_lets_a_restore_go_first(
    Mistake::BegunYields,
    properties::WORK_IS_APART,
    scenarios::yielding()
)]
#[case::a_turn_that_is_not_given_again(
    Mistake::NobodyPromotes,
    properties::TURNS_COME,
    scenarios::yielding()
)]
#[case::a_right_that_outlives_its_ledger(
    Mistake::RightOutlivesLedger,
    properties::WORK_IS_APART,
    scenarios::loss()
)]
#[case::released_and_forgotten(
    Mistake::ReleasedIsForgotten,
    properties::RELEASED_STOPS,
    scenarios::force()
)]
#[case::no_fence(Mistake::NoFence, properties::RELEASED_STOPS, scenarios::force())]
#[case::an_end_by_hand_that_frees_at_once(
    Mistake::EndByHandFrees,
    properties::WORK_IS_APART,
    scenarios::ended_by_hand()
)]
#[case::work_after_an_end_by_hand(
    Mistake::EndedWorks,
    properties::WORK_IS_APART,
    scenarios::ended_by_hand()
)]
#[case::a_leader_that_wakes_and_works(
    Mistake::WakesAndWorks,
    properties::WORK_IS_APART,
    scenarios::pause()
)]
#[case::a_revival_taken_for_a_creation(
    Mistake::RevivalAsCreation,
    properties::WORK_IS_APART,
    scenarios::revival()
)]
#[case::a_second_ledger(Mistake::LedgerOfItsOwn, properties::WORK_IS_APART, scenarios::duel())]
#[case::a_freed_place_that_nobody_gets(
    Mistake::NobodyPromotes,
    properties::TURNS_COME,
    scenarios::queue()
)]
#[case::orphans_that_stay(Mistake::OrphansStay, properties::ALL_FREED, scenarios::duel())]
#[case::epochs_counted_anew(Mistake::EpochFromNought, properties::EPOCH_FORWARD, scenarios::loss())]
fn the_model_catches(
    #[case] mistake: Mistake,
    #[case] property: &'static str,
    #[case] scenario: Scenario,
) {
    let title = scenario.title;
    let checker = Lock::new(scenario.with(mistake))
        .checker()
        .target_state_count(MAX_STATES)
        .finish_when(HasDiscoveries::AllOf([property].into()))
        .spawn_bfs()
        .join();
    let found = checker.discovery(property);
    assert!(found.is_some(), "{mistake:?} does no such harm in: {title}");
    if let Some(path) = found {
        let steps = path.clone().into_actions().len();
        println!(
            "{mistake:?} breaks \"{property}\" in {steps} steps ({title}):\n{}",
            told(&path)
        );
    }
}

fn told(path: &stateright::Path<model::state::World, model::actions::Action>) -> String {
    let actions = path.clone().into_actions();
    let steps = actions.iter().map(|action| format!("    {action:?}\n"));
    let end = format!("  ending in {:?}", path.last_state().wrong);
    steps.chain([end]).collect()
}
