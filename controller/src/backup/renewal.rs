//! Reads items again that operations have changed, once they have ended, and continues the
//! contents.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use backup_actions::backup::{UploadApi, complete_info, complete_moved, has_moved};
use backup_client::{errors::found, retry};
use backup_core::{
    api::{Backup, BackupRepository, DataUpload},
    data_movement::repository_name,
    operation::BackupOperation,
    repository_records::DataCheck,
    volume_info::VolumeInfo,
};
use backup_store::{AwaitingBackup, BackupWriter, JobFiles, Scope};
use kube::ResourceExt as _;

use super::{
    Backups,
    actions::BackupActions,
    collect::{CollectError, CollectOutput, CollectRequest, collect_again},
    collection::remember_failure,
    kind::Summary,
    observe,
    progress::Progress,
};
use crate::job::{
    lifecycle::WorkError, operations::records, pending_end::CompletedWork, report::Report,
    worker::Worker,
};

/// Time for the retries of a read.
const READ_BUDGET: Duration = Duration::from_secs(30);

impl Worker<Backups> {
    /// Adds items that operations have changed to the contents, and completes the files by the
    /// outcomes. Repeated after a crash: the record holds the state before.
    pub(super) async fn read_again(
        &mut self,
        backup: &Backup,
        awaiting: AwaitingBackup,
        operations: &[BackupOperation],
    ) -> Result<CompletedWork<Backups>, WorkError> {
        let (mut writer, files) = awaiting.resume().map_err(WorkError::Store)?;
        let files = self.renewed(backup, &mut writer, files, operations).await?;
        let upload = writer.finish().await.map_err(WorkError::Store)?;
        // The status may be from before a crash.
        let progress = Progress::of(files.resource_list.len() as u64);
        Ok(CompletedWork {
            upload,
            files,
            summary: Summary::of(&progress),
        })
    }

    async fn renewed(
        &self,
        backup: &Backup,
        writer: &mut BackupWriter,
        mut files: JobFiles,
        operations: &[BackupOperation],
    ) -> Result<JobFiles, WorkError> {
        let mut report = Report::resume(Some(&self.name), files.results, files.log);
        for (namespace, sentence) in records::errors(operations) {
            report.error(
                namespace
                    .as_deref()
                    .map_or(Scope::Cluster, Scope::Namespace),
                sentence,
            );
        }
        let items = records::read_again(operations);
        if !items.is_empty() {
            let selection = observe::selection(
                &self.ctx.cluster,
                &backup.spec,
                self.kind.only_related_cluster_resources,
                &self.kind.groups,
                self.kind.settings.global_policies.as_deref(),
            )
            .await?;
            let plan = &selection.plan;
            let actions =
                BackupActions::load(&self.ctx.cluster, &self.kind, &plan.served, &Arc::default())
                    .await;
            let request = CollectRequest {
                client: &self.ctx.cluster.client,
                backup,
                plan,
                actions: &actions,
                hooks: None,
                volume_snapshots: None,
                cancellation: &self.cancellation,
                item_block_workers: 1,
            };
            let output = CollectOutput {
                sink: writer,
                action_journal: None,
                report: &mut report,
                progress: &Progress::default(),
            };
            match collect_again(request, output, &items).await {
                Ok(renewed) => files.resource_list.append(renewed.list),
                Err(CollectError::Api(error)) => return Err(error.into()),
                Err(CollectError::Stopped(halt)) => return Err(halt.into()),
                Err(CollectError::Store(error)) => return Err(WorkError::Store(error)),
            }
        }
        complete_info(&mut files.volume_info, operations);
        let uploads = self.uploads(&files.volume_info).await?;
        for (namespace, sentence) in complete_moved(&mut files.volume_info, &uploads, operations) {
            report.error(Scope::Namespace(&namespace), sentence);
        }
        for (namespace, sentence) in self.damaged_repositories(&uploads).await? {
            report.warn(Scope::Namespace(&namespace), sentence);
        }
        // Another controller may have published errors while this one collected without any.
        remember_failure(&mut report, backup);
        files.item_operations = records::encode(operations)?;
        (files.results, files.log) = report.into_parts();
        Ok(files)
    }

    /// The DataUploads in the cluster, if data was moved.
    async fn uploads(&self, info: &[VolumeInfo]) -> Result<Vec<DataUpload>, WorkError> {
        if !has_moved(info) {
            return Ok(Vec::new());
        }
        let cluster = &self.ctx.cluster;
        let uploads = UploadApi::new(&cluster.client, &cluster.namespace, &cluster.leadership);
        Ok(uploads.of_owner(&self.uid).await?)
    }

    /// Warnings about data that was saved into a repository with known damage: a later backup does
    /// not store again what the repository has. Each is a namespace and a sentence.
    async fn damaged_repositories(
        &self,
        uploads: &[DataUpload],
    ) -> Result<Vec<(String, String)>, WorkError> {
        let saved = uploads.iter().filter(|upload| {
            let snapshot = upload.status.stored.snapshot_id.as_deref();
            snapshot.is_some_and(|snapshot| !snapshot.is_empty())
        });
        let places: BTreeSet<(&str, &str)> = saved
            .map(|upload| {
                let spec = &upload.spec;
                let namespace = spec.source_namespace.as_str();
                (namespace, spec.backup_storage_location.as_str())
            })
            .collect();
        let repositories = self.ctx.cluster.api::<BackupRepository>();
        let mut warnings = Vec::new();
        for (namespace, location) in places {
            let name = repository_name(namespace, location);
            let read = retry::read(READ_BUDGET, || repositories.get(&name)).await;
            let Some(repository) = found(read, &name)? else {
                continue;
            };
            if let Some(damage) = DataCheck::of(repository.annotations()).known_damage() {
                let sentence =
                    format!("the data of its volumes may rely on data that is damaged: {damage}");
                warnings.push((namespace.to_owned(), sentence));
            }
        }
        Ok(warnings)
    }
}
