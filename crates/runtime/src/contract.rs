//! The suite that every store must pass.
//!
//! Invariant: what is asserted here holds for every store, in memory or on a disk, and the rest of the
//! program may rely on nothing else. A case is a sentence; a store runs all of them with
//! [`store_contract!`](crate::store_contract). Not here: what only one store promises (sealing, file formats).
#![expect(missing_docs, reason = "the names of the cases say what they hold a store to")]

mod leases;
mod lists;
mod logs;
mod outbox;
mod people;
mod policy;
pub mod sample;

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use countersign_core::{PendingId, RunId, Subscriptions};

use crate::accounts::Accounts;
use crate::outbox::Outbox;
use crate::store::{Store, SwitchName};

pub use leases::*;
pub use lists::*;
pub use logs::*;
pub use outbox::*;
pub use people::*;
pub use policy::*;

/// How the suite gets at a kind of store.
#[async_trait]
pub trait Harness: Send + Sync + Sized {
    /// A new installation, empty, which no other case sees.
    async fn fresh() -> Self;

    /// Its store.
    fn store(&self) -> Arc<dyn Store>;

    /// Who is known to the same installation.
    fn accounts(&self) -> Arc<dyn Accounts>;

    /// What is owed to whom in the same installation.
    fn outbox(&self) -> Arc<dyn Outbox>;

    /// The same installation, where these are told.
    async fn telling(self, subscriptions: Subscriptions) -> Self;

    /// The same installation as after a restart. A store that lives in memory is itself.
    async fn reopened(self) -> Self;

    /// Spoils what is stored, behind the store's back.
    async fn damage(&self, what: Damage);
}

/// What to spoil.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Damage {
    /// The payload of one entry.
    Entry {
        /// Of this run.
        run: RunId,
        /// At this place.
        seq: u64,
    },
    /// A run's row: its state becomes a word that nobody knows.
    Run(RunId),
    /// A pending's row: its status becomes a word that nobody knows.
    Pending(PendingId),
    /// A pending's deadline becomes a text that is no time.
    Deadline(PendingId),
    /// The value of a switch becomes something that is neither on nor off.
    Switch(SwitchName),
}

/// What a case relies on.
#[expect(clippy::panic, reason = "a case fails by panicking")]
#[track_caller]
fn done<T, E: Debug>(result: Result<T, E>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{error:?}"),
    }
}

/// Makes a test of every case, for one [`Harness`].
#[macro_export]
macro_rules! store_contract {
    ($harness:ty) => {
        $crate::store_contract! { @cases $harness:
            a_run_is_created_once,
            what_was_appended_is_loaded_as_it_was,
            case_c53_odd_bytes_in_events_survive,
            a_run_that_is_not_there_is_not_found,
            rule_r2_several_logs_are_loaded_in_order_and_a_bad_one_stops_no_other,
            changes_of_another_run_are_refused,
            rule_r10_a_continuation_refers_to_a_run_that_has_ended,
            rule_r1_a_second_writer_at_the_same_revision_loses,
            rule_r1_of_twenty_writers_at_one_revision_one_wins,
            rule_r1_row_inbox_and_totals_change_with_the_append,
            rule_r2_a_spoiled_log_is_refused_and_hides_no_other_run,
            rule_r2_a_spoiled_row_is_refused_and_hides_no_other_run,
            rule_r6_a_worker_without_its_lease_appends_nothing,
            rule_a8_rule_g9_a_judge_sees_what_was_changed_right_before,
            rule_a8_a_judge_is_not_asked_when_the_log_has_moved_on,
            a_judge_that_wants_nothing_stores_nothing,
            a_run_is_queued_or_running_by_a_live_lease,
            a_claim_says_why_it_is_refused,
            rule_r5_a_release_gives_the_run_back,
            rule_r5_a_release_keeps_the_run_when_its_log_has_moved_on,
            rule_r6_releasing_a_lost_lease_takes_nothing_from_its_new_holder,
            rule_r6_a_heartbeat_keeps_a_lease_and_fails_when_it_is_lost,
            rule_r6_a_clock_that_was_set_back_keeps_no_dead_workers_lease_alive,
            rule_r6_a_worker_that_lives_keeps_its_run_when_the_clock_is_set_back,
            rule_r6_the_run_that_has_waited_longest_is_claimed,
            rule_r6_only_runs_of_known_agents_are_claimed,
            rule_r2_a_run_that_cannot_be_read_is_passed_over,
            rule_r2_a_run_that_comes_back_again_and_again_stands_in_nobodys_way,
            rule_r6_of_twenty_claims_one_wins,
            rule_r6_twenty_claims_take_twenty_runs,
            runs_are_paged_newest_first_without_gaps_or_repeats,
            runs_are_filtered,
            runs_are_filtered_by_who_started_them,
            pendings_are_paged_oldest_first_without_gaps_or_repeats,
            pendings_are_filtered,
            a_cursor_that_was_never_given_out_leads_nowhere,
            rule_r2_a_spoiled_row_stops_no_page,
            rule_a10_what_is_overdue_is_found,
            rule_a9_refusals_are_counted,
            rule_g2_rule_g3_only_overrides_are_stored,
            rule_a12_when_a_name_was_last_switched_off_outlives_its_switch,
            rule_p10_a_switch_that_cannot_be_read_is_unreadable,
            rule_g9_a_look_sees_the_rights_of_the_moment,
            rule_r4_an_idempotency_key_is_a_function_of_installation_run_and_call,
            rule_s1_people_are_paged_and_keep_their_scopes,
            rule_s1_who_is_disabled_does_not_resolve_until_stored_anew,
            rule_s1_a_token_is_kept_until_it_is_revoked,
            tokens_are_paged_oldest_first_without_gaps_or_repeats,
            a_start_key_starts_one_run,
            of_twenty_starts_with_one_key_one_wins,
            rule_r1_a_notice_is_owed_from_the_commit_of_its_event_on,
            nothing_is_owed_where_nobody_is_told,
            rule_r1_an_append_that_fails_owes_nothing,
            of_twenty_who_deliver_one_has_a_notice_in_hand,
            a_notice_in_hand_comes_back_when_its_time_is_over,
            a_notice_is_settled_by_whoever_has_it_in_hand,
            what_was_given_up_is_kept_and_counted_until_somebody_wants_it_tried_again,
            whoever_wants_to_be_told_nothing_is_owed_nothing,
            a_clock_that_was_set_back_puts_no_notice_off,
        }
    };
    (@cases $harness:ty: $($case:ident,)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                $crate::contract::$case::<$harness>().await;
            }
        )*
    };
}
