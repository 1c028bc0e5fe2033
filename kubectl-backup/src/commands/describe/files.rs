//! What the files of a backup or restore tell, each read by itself and within its time.

use backup_core::{
    api::{Backup, BackupPhase, Restore, RestorePhase, download_request::DownloadTargetKind as Kind},
    operation::{BackupOperation, Operation, RestoreOperation},
    results::Results,
};
use futures::join;
use serde::de::DeserializeOwned;

use crate::{
    client::Session,
    commands::part::part,
    stored::{Wanted, document},
    view::{
        part::Part,
        stored::{
            Stored,
            contents::{Contents, ResourceList},
            messages::Messages,
            operations,
            volumes::{Entry, VolumeView},
        },
    },
};

/// Whose files, and which of them there is a reason to read.
struct Reading<'a> {
    session: &'a Session,
    name: &'a str,
    uid: &'a str,
    /// Something went wrong, and is written down.
    troubles: bool,
    /// Operations were started.
    operations: bool,
    /// Everything that there will be is there.
    whole: bool,
}

/// The files of a backup.
pub(super) async fn of_backup(session: &Session, backup: &Backup) -> Stored {
    use BackupPhase as P;
    let (status, phase) = (&backup.status, backup.phase());
    let waits = phase.is_past_items();
    let whole = matches!(phase, P::Completed | P::PartiallyFailed);
    let reading = Reading {
        session,
        name: backup.metadata.name.as_deref().unwrap_or_default(),
        uid: backup.metadata.uid.as_deref().unwrap_or_default(),
        troubles: status.errors + status.warnings > 0 && (waits || whole || phase == P::Failed),
        operations: status.backup_item_operations_attempted > 0 && (waits || whole),
        whole,
    };
    let kinds =
        [Kind::BackupResults, Kind::BackupItemOperations, Kind::BackupResourceList, Kind::BackupVolumeInfos];
    reading.all::<BackupOperation>(kinds).await
}

/// The files of a restore.
pub(super) async fn of_restore(session: &Session, restore: &Restore) -> Stored {
    use RestorePhase as P;
    let (status, phase) = (&restore.status, restore.phase());
    let waits = phase.is_past_items();
    let whole = matches!(phase, P::Completed | P::PartiallyFailed);
    let reading = Reading {
        session,
        name: restore.metadata.name.as_deref().unwrap_or_default(),
        uid: restore.metadata.uid.as_deref().unwrap_or_default(),
        troubles: status.errors + status.warnings > 0 && (waits || whole),
        operations: status.restore_item_operations_attempted > 0 && (waits || whole),
        whole,
    };
    let kinds = [
        Kind::RestoreResults,
        Kind::RestoreItemOperations,
        Kind::RestoreResourceList,
        Kind::RestoreVolumeInfo,
    ];
    reading.all::<RestoreOperation>(kinds).await
}

impl Reading<'_> {
    async fn all<O: Operation + DeserializeOwned>(&self, kinds: [Kind; 4]) -> Stored {
        let [results, operations, list, volumes] = kinds;
        let (messages, item_operations, contents, volumes) = join!(
            self.file(self.troubles, results, |results: Results| Messages::from(&results)),
            self.file(self.operations, operations, |all: Vec<O>| operations::views(&all)),
            self.file(self.whole, list, |list: ResourceList| Contents::from(list)),
            self.file(self.whole, volumes, |all: Vec<Entry>| all.into_iter().map(VolumeView::from).collect())
        );
        Stored { messages, item_operations, contents, volumes }
    }

    async fn file<T: DeserializeOwned, V>(
        &self,
        wanted: bool,
        kind: Kind,
        view: impl FnOnce(T) -> V,
    ) -> Part<Option<V>> {
        if !wanted {
            return Part::Known(None);
        }
        let wanted = Wanted { kind, name: self.name, uid: self.uid };
        part(Box::pin(document(self.session, &wanted))).await.map(|file| Some(view(file)))
    }
}
