//! A PersistentVolume on its way into the backup: plugins may take a snapshot of it.

use backup_actions::json::text as text_of;
use backup_runtime::errors::plain;
use serde_json::Value;

use super::{CollectError, Collector, Present, Sink, fetch};
use crate::backup::{items::Item, report::scope_of};

impl<S: Sink> Collector<'_, S> {
    /// Has a snapshot taken of a volume that is about to be written. What went wrong is in the report.
    pub(super) async fn snapshot(
        &mut self,
        of: &Present,
        volume: &Item<'_>,
        text: &str,
    ) -> Result<(), CollectError> {
        if self.natives.is_none() {
            return Ok(());
        }
        let object: Value = serde_json::from_str(&of.meta.complete(volume, text)).unwrap_or_default();
        let claim = match self.claim_of(&object).await {
            Ok(claim) => claim,
            Err(reason) => {
                let message = format!(
                    "the data of PersistentVolume {} is not in this backup: its claim, about which the resource policy may say \
                     something, {reason}",
                    volume.name()
                );
                self.report.error(scope_of(None), message);
                return Ok(());
            }
        };
        self.go_on()?;
        let Some(natives) = self.natives.as_deref_mut() else { return Ok(()) };
        let (log, report) = (&self.actions.log, &mut *self.report);
        let taken = natives.take(&object, &claim, self.backup);
        let problems = log.told_during(taken, |lines| report.said(lines)).await?;
        for problem in problems {
            self.report.error(scope_of(None), problem);
        }
        Ok(())
    }

    /// The claim that a volume is bound to, if the resource policy may have something to say about it; else null.
    async fn claim_of(&mut self, volume: &Value) -> Result<Value, String> {
        let policy = self.order.policy.as_ref().is_some_and(|policy| !policy.volumes.is_empty());
        let (namespace, name) =
            (text_of(volume, "/spec/claimRef/namespace"), text_of(volume, "/spec/claimRef/name"));
        let (Some(namespace), Some(name), true) = (namespace, name, policy) else { return Ok(Value::Null) };
        let Some(of) = self.kind("persistentvolumeclaims") else { return Ok(Value::Null) };
        match fetch::object(self.client, &of.resource, Some(namespace), name).await {
            Ok(Some(text)) => serde_json::from_str(&text).map_err(|error| format!("is no object: {error}")),
            // A volume that was released has lost its claim.
            Ok(None) => Ok(Value::Null),
            Err(error) => Err(format!("could not be read: {}", plain(&error))),
        }
    }
}
