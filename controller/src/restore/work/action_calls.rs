//! Runs one action on one item: its turn, its place in the journal, and its end when work has to
//! stop.

use backup_actions::{
    ActionError, ItemId,
    restore::{RestoreActionInput, RestoreActionOutput, RestoreItemAction},
};
use jiff::Timestamp;

use super::{RestoreError, Restoring, item::ItemRestorer, plugin_turns::PluginTurn};
use crate::job::{
    action_journal::Done,
    cancellation::{NotSent, STOP_TIMEOUT, StopReason},
};

impl ItemRestorer<'_> {
    /// Executes an action on an item. An action that may start something that could not be found
    /// again is executed once over all attempts.
    pub(super) async fn run_action(
        &self,
        action: &dyn RestoreItemAction,
        id: &ItemId,
        input: RestoreActionInput<'_>,
    ) -> Result<Result<Done<RestoreActionOutput>, ActionError>, RestoreError> {
        let context = &self.restoring.actions;
        // Places are given in the order of arrival, whether or not the journal is written.
        let _wait = self
            .restoring
            .calls
            .cancellation()
            .waits()
            .begin_action(action.name(), id);
        let place = if action.may_add_items() {
            context.turns.place().await
        } else {
            None
        };
        self.restoring.calls.cancellation().check_new_work()?;
        let mut not_called = None;
        if !action.is_executed_once() {
            let executed = self
                .unless_stopped(self.call(action, input, &mut not_called))
                .await?;
            return match not_called {
                Some(reason) => Err(reason.into()),
                None => Ok(executed.map(|executed| Done {
                    executed,
                    at: Timestamp::now(),
                })),
            };
        }
        let call = self.call(action, input, &mut not_called);
        let executed = self
            .unless_stopped(context.journal.execute_once(action.name(), id, place, call))
            .await?;
        match not_called {
            Some(reason) => Err(reason.into()),
            None => executed.map_err(RestoreError::Journal),
        }
    }

    /// Calls an action when its turn has come. `not_called` is set to the reason if work stops
    /// before that.
    async fn call(
        &self,
        action: &dyn RestoreItemAction,
        input: RestoreActionInput<'_>,
        not_called: &mut Option<StopReason>,
    ) -> Result<RestoreActionOutput, ActionError> {
        let cancellation = self.restoring.calls.cancellation();
        let _turn = match self.may_call(action).await {
            Ok(turn) => turn,
            Err(error) => {
                if let NotSent::Stopped(reason) = error {
                    *not_called = Some(reason);
                }
                return Err(ActionError::Retryable {
                    action: action.name().to_owned(),
                    reason: error.to_string(),
                });
            }
        };
        // A plugin may be slow.
        cancellation
            .unless_cancelled(action.execute(input))
            .await
            .unwrap_or_else(|reason| {
                let reason =
                    format!("{reason} while it was at this item; what it did is not known");
                Err(ActionError::Unknown {
                    action: action.name().to_owned(),
                    reason,
                })
            })
    }

    /// Waits for the turn of an action that has one, and until it may write. An action that is
    /// noted and still waits when work has to stop is not called, so that its end can be noted.
    async fn may_call(
        &self,
        action: &dyn RestoreItemAction,
    ) -> Result<Option<PluginTurn<'_>>, NotSent> {
        let Restoring {
            actions,
            calls,
            patience,
            ..
        } = self.restoring;
        let cancellation = calls.cancellation();
        let turn = async {
            // Plugins may rely on seeing one item of a restore at a time, as with Velero.
            if !action.may_add_items() {
                return Ok(None);
            }
            tokio::select! {
                biased;
                reason = cancellation.stopped() => Err(reason),
                turn = actions.turns.turn() => Ok(Some(turn)),
            }
        };
        let turn = cancellation.unless_cancelled(turn).await??;
        cancellation.check_new_work()?;
        cancellation.may_write(*patience).await?;
        Ok(turn)
    }

    /// The answer of an action, or the reason why work stops, after `STOP_TIMEOUT`.
    async fn unless_stopped<T>(&self, answer: impl Future<Output = T>) -> Result<T, StopReason> {
        let Restoring {
            actions,
            report,
            calls,
            ..
        } = self.restoring;
        let stopped = async {
            let reason = calls.cancellation().stopped().await;
            tokio::time::sleep(STOP_TIMEOUT).await;
            reason
        };
        tokio::select! {
            answer = actions.log.told_during(answer, |lines| report.said(lines)) => Ok(answer),
            reason = stopped => Err(reason),
        }
    }
}
