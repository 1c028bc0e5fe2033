//! A Backup whose items are collected, and whose operations go on.

use backup_core::api::Backup;
use backup_store::{StoreError, Waiting};

use super::{Next, Trouble, Worker};
use crate::backup::{decide, finish::Unfinished, patches};

impl Worker {
    /// Sees operations to their end, then goes on with the contents; then the Backup is Finalizing.
    ///
    /// Nothing starts operations yet, so there are none to be seen to.
    pub(super) async fn operations(&mut self, backup: &Backup, waiting: Waiting) -> Result<Next, Trouble> {
        self.reins.check()?;
        let (record, progress) = (waiting.number(), backup.status.progress.clone().unwrap_or_default());
        let (writer, files) = waiting.resume().map_err(|error| self.not_resumed(record, &error))?;
        let contents = writer.finish().await.map_err(|error| self.not_resumed(record, &error))?;
        let next = decide::finalizing(files.results.errors());
        let finalizing = self.publish(backup, |now| patches::finalizing(now, &next, None)).await?;
        self.unfinished = Some(Unfinished::new(contents, files, progress));
        Ok(Next::Again(Some(Box::new(finalizing))))
    }

    /// What was collected could not be gone on with. If it is gone, it is collected again.
    fn not_resumed(&mut self, record: u64, error: &StoreError) -> Trouble {
        if matches!(error, StoreError::Lost { .. }) {
            self.lost = Some(record);
        }
        Trouble::Blocked { reason: error.to_string(), passing: error.is_transient() }
    }
}
