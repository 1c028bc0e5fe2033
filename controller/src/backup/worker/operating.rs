//! A Backup whose items are collected, and whose operations go on: followed to their end, then the items that they have
//! changed are read once more, and the contents go on where they were left.
//!
//! What is learned is kept in the store first and published then, so a lost patch loses nothing: counts, phase and errors are
//! derived from what is kept, each time anew.

use std::sync::Arc;

use backup_actions::backup::complete_info;
use backup_core::{
    api::{Backup, GoDuration},
    operation::BackupOperation,
};
use backup_store::{AwaitingBackup, BackupFiles, BackupWriter, Scope, StoreError, crash};
use serde_json::Value;

use super::{Next, Trouble, Worker, collecting::remember_failure};
use crate::{
    backup::{
        actions::{BackupActions, NoRecords},
        collect::{CollectError, CollectOutput, CollectRequest, collect_again},
        finish::Unfinished,
        observe, patches,
        progress::Progress,
        report::Report,
    },
    job::operations::{
        poll_until_complete::{StateStore, Stored, poll_until_complete},
        poller::OperationPoller,
        records,
    },
};

/// Where the backup does not say (it always does once it has begun).
const TIMEOUT: GoDuration = GoDuration::from_secs(4 * 3600);

impl Worker {
    /// Sees operations to their end, then goes on with the contents; then the Backup is Finalizing.
    pub(super) async fn operations(
        &mut self,
        backup: &Backup,
        mut waiting: AwaitingBackup,
    ) -> Result<Next, Trouble> {
        self.cancellation.check()?;
        let operations = records::decode(&waiting.take_operations()).map_err(|error| Trouble::Blocked {
            reason: format!("the operations that are kept in the store can't be read: {error}"),
            passing: false,
        })?;
        let shown = self.show_collected(backup, waiting.status()).await?;
        let shown = self.show(&shown, &waiting, &operations).await?;
        let timeout =
            shown.spec.item_operation_timeout.filter(|timeout| !timeout.is_zero()).unwrap_or(TIMEOUT);
        let following = OperationPoller::new(self.config.clone(), &shown, operations, timeout.as_std());
        if !following.all_ended() {
            return self.follow(shown, &mut waiting, following).await;
        }
        crash::point("after-operations");
        self.may_write(&shown).await?;
        self.renew(&shown, waiting, &following.operations()).await
    }

    /// Publishes what came of the collection, if it is not there already.
    async fn show_collected(&self, backup: &Backup, status: &Value) -> Result<Backup, Trouble> {
        if patches::collected(backup, status).is_none() {
            return Ok(backup.clone());
        }
        self.publish(backup, |now| patches::collected(now, status)).await
    }

    /// Publishes counts and phase, if they are not there already.
    async fn show(
        &self,
        backup: &Backup,
        waiting: &AwaitingBackup,
        operations: &[BackupOperation],
    ) -> Result<Backup, Trouble> {
        let next = records::phase(operations, waiting.files().results.errors(), &backup.phase());
        if patches::operations(backup, &next, operations).is_none() {
            return Ok(backup.clone());
        }
        self.publish(backup, |now| patches::operations(now, &next, operations)).await
    }

    /// Asks until all have ended, or work must not go on.
    async fn follow(
        &mut self,
        shown: Backup,
        waiting: &mut AwaitingBackup,
        mut following: OperationPoller<Backup>,
    ) -> Result<Next, Trouble> {
        let cancellation = self.cancellation.clone();
        if shown.is_cancelled() {
            following.stop();
        }
        let mut keeping = Keeping { worker: self, shown, waiting };
        poll_until_complete(&mut following, &mut keeping, &cancellation).await?;
        Ok(Next::Again(Some(Box::new(keeping.shown))))
    }

    /// Reads again what operations have changed, adds it to the contents, and completes the files by how the operations have
    /// ended. Done again after a crash: the record holds what was there before.
    async fn renew(
        &mut self,
        backup: &Backup,
        waiting: AwaitingBackup,
        operations: &[BackupOperation],
    ) -> Result<Next, Trouble> {
        let record = waiting.number();
        let (mut writer, files) = waiting.resume().map_err(|error| self.not_resumed(record, &error))?;
        let cancellation = self.cancellation.clone();
        let renewed = tokio::select! {
            renewed = self.renewed(backup, &mut writer, files, operations) => renewed?,
            reason = cancellation.stopped() => return Err(reason.into()),
        };
        let files = renewed.map_err(|error| self.not_resumed(record, &error))?;
        let contents = writer.finish().await.map_err(|error| self.not_resumed(record, &error))?;
        let next = records::phase(operations, files.results.errors(), &backup.phase());
        let finalizing = match patches::operations(backup, &next, operations) {
            None => backup.clone(),
            Some(_) => self.publish(backup, |now| patches::operations(now, &next, operations)).await?,
        };
        crash::point("after-renewal");
        // What the status says may be from before a crash.
        let progress = Progress::of(files.resource_list.len() as u64).status(true);
        self.unfinished = Some(Unfinished::new(contents, files, progress));
        Ok(Next::Again(Some(Box::new(finalizing))))
    }

    /// The inner error is one of the store.
    async fn renewed(
        &self,
        backup: &Backup,
        writer: &mut BackupWriter,
        mut files: BackupFiles,
        operations: &[BackupOperation],
    ) -> Result<Result<BackupFiles, StoreError>, Trouble> {
        let mut report = Report::resume(&self.name, files.results, files.log);
        for (namespace, sentence) in records::errors(operations) {
            report.error(namespace.as_deref().map_or(Scope::Cluster, Scope::Namespace), sentence);
        }
        let items = records::read_again(operations);
        if !items.is_empty() {
            let selection = observe::selection(&self.ctx, &backup.spec).await?;
            let plan = &selection.plan;
            let actions = BackupActions::load(&self.ctx, &plan.served, &Arc::default()).await;
            let request = CollectRequest {
                client: &self.ctx.cluster.client,
                backup,
                plan,
                actions: &actions,
                hooks: None,
                volume_snapshots: None,
                cancellation: &self.cancellation,
            };
            let output = CollectOutput {
                sink: writer,
                action_journal: &NoRecords,
                report: &mut report,
                progress: &Progress::default(),
            };
            match collect_again(request, output, &items).await {
                Ok(renewed) => files.resource_list.append(renewed.list),
                Err(CollectError::Api(error)) => return Err(error.into()),
                Err(CollectError::Stopped(halt)) => return Err(halt.into()),
                Err(CollectError::Store(error)) => return Ok(Err(error)),
            }
        }
        // Another controller may have told of errors while this one collected without any.
        remember_failure(&mut report, backup);
        complete_info(&mut files.volume_info, operations);
        let encoded = records::encode(operations).map_err(|error| unencodable(&error));
        files.item_operations = match encoded {
            Ok(encoded) => encoded,
            Err(error) => return Ok(Err(error)),
        };
        (files.results, files.log) = report.into_parts();
        Ok(Ok(files))
    }

    /// What was collected could not be gone on with. If it is gone, it is collected again.
    fn not_resumed(&mut self, record: u64, error: &StoreError) -> Trouble {
        if matches!(error, StoreError::Lost { .. }) {
            self.lost = Some(record);
        }
        Trouble::Blocked { reason: error.to_string(), passing: error.is_transient() }
    }
}

/// States of operations go into the record, what follows from them into the Backup.
struct Keeping<'a> {
    worker: &'a mut Worker,
    waiting: &'a mut AwaitingBackup,
    /// As it was published last.
    shown: Backup,
}

impl StateStore<BackupOperation> for Keeping<'_> {
    type Error = Trouble;

    async fn store(&mut self, operations: &[BackupOperation]) -> Result<Stored, Trouble> {
        let (reason, passing) = match self.worker.may_write(&self.shown).await {
            Ok(()) => match keep(self.waiting, operations).await {
                Ok(()) => {
                    self.worker.waiting.over();
                    crash::point("after-operations-kept");
                    return Ok(Stored::Yes);
                }
                // Another replica has kept another state.
                Err(StoreError::Exists { .. }) => return Err(Trouble::Changed),
                Err(error) => (error.to_string(), error.is_transient()),
            },
            Err(Trouble::Blocked { reason, passing }) => (reason, passing),
            Err(trouble) => return Err(trouble),
        };
        Ok(Stored::NotYet(self.worker.block(&reason, passing).await))
    }

    async fn publish(&mut self, operations: &[BackupOperation]) -> Result<(), Trouble> {
        self.shown = self.worker.show(&self.shown, self.waiting, operations).await?;
        Ok(())
    }
}

async fn keep(waiting: &mut AwaitingBackup, operations: &[BackupOperation]) -> Result<(), StoreError> {
    let encoded = records::encode(operations).map_err(|error| unencodable(&error))?;
    waiting.store_operations(&encoded).await
}

fn unencodable(error: &serde_json::Error) -> StoreError {
    StoreError::Io { action: "encode operations".to_owned(), detail: error.to_string() }
}
