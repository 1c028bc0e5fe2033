//! An item on its way through the actions: one after the other, each on what the one before it has made of the item, and what
//! they ask for is restored before it (Velero `pkg/restore/restore.go`, `restoreItem`, v1.18).

use std::{sync::PoisonError, time::Duration};

use backup_actions::{
    ActionError, ItemId,
    restore::{
        RestoreActionInput, RestoreActionOutput, RestoreItemAction,
        json::{self, Object},
    },
};
use backup_store::{ItemRef, Scope};
use jiff::Timestamp;

use super::{
    Discover, Work, WorkError,
    pass::{Kind, Pass, not_restored},
};
use crate::job::cancellation::StopReason;
use crate::{
    job::action_journal::{Done, Execution, execute_once},
    restore::report::About,
};

/// How long an action that is at work gets to answer when work has to stop: what it has started is better known.
const LAST_WORD: Duration = Duration::from_secs(10);

/// What has become of an item.
pub(super) enum Acted {
    /// It is created like this.
    Made(Object),
    /// It is not created; the report says why.
    Dropped,
}

impl<D: Discover> Pass<'_, D> {
    /// Executes the actions on an item, which the backup calls `id`.
    pub(super) async fn act(
        &self,
        of: Kind<'_>,
        about: About<'_>,
        (item, id): (ItemRef, &ItemId),
        from_backup: &Object,
        mut object: Object,
        depth: u8,
    ) -> Result<Acted, WorkError> {
        let Work { restore, report, .. } = self.work;
        for resolved in self.actions.for_type(of.group_resource) {
            if !resolved.applies_to(about.namespace, || json::labels(&object)) {
                continue;
            }
            self.work.calls.cancellation().check_new_work()?;
            let action = &*resolved.action;
            let given = RestoreActionInput { item: &object, from_backup, restore };
            let executed = self.execute(action, id, given).await?;
            let Done { executed, at } = match executed {
                Ok(done) => done,
                Err(error) => {
                    report.item(about, not_restored(about, &error.to_string()));
                    return Ok(Acted::Dropped);
                }
            };
            if executed.operation.is_some() {
                let of = Execution { action: action.name().to_owned(), item: id.clone() };
                let done = Done { executed: executed.clone(), at };
                self.started.lock().unwrap_or_else(PoisonError::into_inner).push((of, done));
            }
            let RestoreActionOutput { item: made, additional, skip, operation: _, wait } = executed;
            if let Some(why) = skip {
                report.left_out(about, &why);
                return Ok(Acted::Dropped);
            }
            if let Some(made) = made {
                object = made;
            }
            let mut there = Vec::new();
            for along in additional {
                if self.bring(&along, about, action.name(), item, depth).await? {
                    there.push(along);
                }
            }
            if let Some(wait) = wait
                && let Err(why) = self.wait(action, wait, &there).await?
            {
                // As with Velero it is restored all the same.
                let scope = about.namespace.map_or(Scope::Cluster, Scope::Namespace);
                let message =
                    format!("{} {:?} was restored before what it needs: {why}", about.kind, about.name);
                report.error(scope, message);
            }
        }
        Ok(Acted::Made(object))
    }

    /// Executes an action on an item: one that may start what nobody could find again only once in all tries of the restore.
    async fn execute(
        &self,
        action: &dyn RestoreItemAction,
        id: &ItemId,
        given: RestoreActionInput<'_>,
    ) -> Result<Result<Done<RestoreActionOutput>, ActionError>, WorkError> {
        // Plugins may rely on it that they see one item of a restore at a time, as with Velero.
        let _turn = if action.may_add_items() { Some(self.work.acting.turn.lock().await) } else { None };
        let cancellation = self.work.calls.cancellation();
        cancellation.check_new_work()?;
        let execute = async {
            // A plugin may take its time.
            cancellation.unless_cancelled(action.execute(given)).await.unwrap_or_else(|reason| {
                let reason = format!("{reason} while it was at this item; what it did is not known");
                Err(ActionError::Unknown { action: action.name().to_owned(), reason })
            })
        };
        if !action.is_executed_once() {
            let executed = self.answer(execute).await?;
            return Ok(executed.map(|executed| Done { executed, at: Timestamp::now() }));
        }
        let executions = self.work.acting.executions;
        let executed = self.answer(execute_once(executions, action.name(), id, execute)).await?;
        executed.map_err(WorkError::Notes)
    }

    /// An answer, or the end of the work.
    async fn answer<T>(&self, answer: impl Future<Output = T>) -> Result<T, StopReason> {
        let cancellation = self.work.calls.cancellation();
        let given_up = async {
            let reason = cancellation.stopped().await;
            tokio::time::sleep(LAST_WORD).await;
            reason
        };
        let Work { acting, report, .. } = self.work;
        let answer = acting.log.told_during(answer, |lines| report.said(lines));
        tokio::select! {
            answer = answer => Ok(answer),
            reason = given_up => Err(reason),
        }
    }
}
