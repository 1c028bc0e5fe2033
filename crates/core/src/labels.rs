//! Labels and annotations, and the rule that makes a label value out of any name.
//!
//! Velero: `pkg/apis/velero/v1/labels_annotations.go`, `pkg/label/label.go`, v1.18.

use kube::ResourceExt;

use crate::digest::short_sha256;

pub mod csi;

/// Label of restored objects, and of what belongs to a backup: name of the Backup, shortened if it
/// is longer than a label value.
pub const BACKUP_NAME: &str = "velero.io/backup-name";
/// Label of a DeleteBackupRequest, and of what belongs to a backup: uid of the Backup.
pub const BACKUP_UID: &str = "velero.io/backup-uid";
/// Label of restored objects: name of the Restore, shortened if it is longer than a label value.
pub const RESTORE_NAME: &str = "velero.io/restore-name";
/// Label of what belongs to a restore: uid of the Restore.
pub const RESTORE_UID: &str = "velero.io/restore-uid";
/// Label of a Backup, and of its DataUploads: name of its Schedule.
pub const SCHEDULE_NAME: &str = "velero.io/schedule-name";
/// Label of a Backup: name of its location.
pub const STORAGE_LOCATION: &str = "velero.io/storage-location";
/// Label of a Backup that has expired and cannot be deleted: why
/// (`pkg/controller/gc_controller.go`).
pub const GC_FAILURE: &str = "velero.io/gc-failure";
/// Label that keeps an object, or a whole namespace, out of backups; the value is `true`.
pub const EXCLUDE_FROM_BACKUP: &str = "velero.io/exclude-from-backup";
/// Annotation of a pod: volumes whose files should be copied (`pkg/podvolume`).
pub const VOLUMES_TO_COPY: &str = "backup.velero.io/backup-volumes";
/// Annotation by which an action leaves the item out that it was given; whatever its value.
pub const SKIP_FROM_BACKUP: &str = "velero.io/skip-from-backup";
/// Annotation of an object in a backup: whether its status is restored, `true` or `false`, over
/// what the Restore says.
pub const RESTORE_STATUS_ANNOTATION: &str = "velero.io/restore-status";
/// Annotation by which an action says that no filter counts for the additional items of the item it
/// was given; `true`.
pub const MUST_INCLUDE_ADDITIONAL_ITEMS: &str = "backup.velero.io/must-include-additional-items";

/// Annotation of a Backup: version of the cluster, as the cluster writes it.
pub const SOURCE_CLUSTER_GIT_VERSION: &str = "velero.io/source-cluster-k8s-gitversion";
/// Annotation of a Backup: the first part of that version.
pub const SOURCE_CLUSTER_MAJOR: &str = "velero.io/source-cluster-k8s-major-version";
/// Annotation of a Backup: the second part of that version.
pub const SOURCE_CLUSTER_MINOR: &str = "velero.io/source-cluster-k8s-minor-version";
/// Annotation of a Backup: how long the server waits for a single resource.
pub const RESOURCE_TIMEOUT: &str = "velero.io/resource-timeout";

/// Annotation of a Backup: the ConfigMap with the policies for the volumes of all backups that it
/// has followed.
pub const GLOBAL_VOLUME_POLICY: &str = "velero.io/global-backup-volume-policy-configmap";
/// Annotation by which an action of a restore asks that what it brings along is restored whatever
/// the filters say.
pub const MUST_INCLUDE_IN_RESTORE: &str = "restore.velero.io/must-include-additional-items";

/// Our annotation of the ledger's Lease: the claims, as JSON.
pub const LEDGER_ANNOTATION: &str = "backup-lock/ledger";
/// Our annotation of the ledger's Lease: the scope that it is the ledger of.
pub const SCOPE_ANNOTATION: &str = "backup-lock/scope";
/// Our annotation of the ledger's Lease: how often it was written.
pub const SERIAL_ANNOTATION: &str = "backup-lock/serial";
/// Our annotation of the ledger's Lease: a checksum over uid, serial and claims.
pub const SUM_ANNOTATION: &str = "backup-lock/sum";
/// Our annotation of the webhook's registration: namespaces of further installations, with commas
/// between them.
pub const INSTALLATIONS_ANNOTATION: &str = "backup-lock/installations";
/// Our label of ledgers and markers: name of the profile.
pub const PROFILE_LABEL: &str = "backup-lock/profile";
/// Label of everything that belongs to the installation; the value is `backup`.
pub const PART_OF: &str = "app.kubernetes.io/part-of";
/// Our annotation of a Backup or Restore: why it is admitted whatever is in the way. Needs the verb
/// `break-glass`.
pub const BREAK_GLASS_ANNOTATION: &str = "backup-lock/break-glass";
/// Our annotation of a Backup or Restore: what to do when another is in the way, `deny`, `queue` or
/// `wait`.
pub const ON_CONFLICT_ANNOTATION: &str = "backup-lock/on-conflict";
/// Our finalizer of a Backup that is worked on: a deleted one stays until its worker has stopped.
pub const BACKUP_WORK_FINALIZER: &str = "backup-controller.velero.io/work";
/// The same of a Restore.
pub const RESTORE_WORK_FINALIZER: &str = "backup-controller/work";
/// Our annotation of a Backup or Restore that has not ended: what it waits for, or why it does not
/// continue, in one sentence.
pub const BLOCKED_ANNOTATION: &str = "backup-controller/blocked";
/// Our annotation of a Backup that is Finalizing and reads the cluster again. Without it a backup
/// in these phases has everything that it needs, and holds no place in the ledger. Any value.
pub const COLLECTS_AGAIN_ANNOTATION: &str = "backup-controller/collects-again";
/// Our annotation of a Backup or a DeleteBackupRequest: data in a repository, which only a Velero
/// server can delete, is given up. Any value.
pub const FORGET_DATA_ANNOTATION: &str = "backup-controller/forget-data";
/// Our annotation of a Backup whose deletion has hidden its files, while the store keeps versions
/// of them ([`crate::deletion::Waits`]).
pub const DELETION_WAITS_ANNOTATION: &str = "backup-controller/deletion-waits";
/// Our annotation of a Backup that is stored: the volumes whose data is not in it
/// ([`crate::volume_data::MissingData`]); of a Restore that has ended: those whose data was not
/// restored.
pub const MISSING_DATA_ANNOTATION: &str = "backup-controller/missing-data";
/// Our annotation of a Backup that was imported from a bucket: the volumes whose data is in a
/// repository that only a Velero server reads ([`crate::volume_data::MissingData`]).
pub const DATA_ELSEWHERE_ANNOTATION: &str = "backup-controller/data-elsewhere";
/// Our annotation of a Backup that was imported from a bucket: when. Its files were there then.
pub const IMPORTED_ANNOTATION: &str = "backup-controller/imported";
/// Our annotation of a Backup whose files were not in the bucket when it was last compared with the
/// cluster: since when. Removed when they are there again.
pub const FILES_MISSING_ANNOTATION: &str = "backup-controller/files-missing";
/// Our annotation of a Restore that has ended: the items that were there, differ from the backup,
/// and were left as they are, those that were stored without some of their fields, and the numbers
/// of those that were left out on purpose, by kind and reason, of those that failed, and of objects
/// that were removed ([`crate::left_items::LeftItems`]).
pub const LEFT_ITEMS_ANNOTATION: &str = "backup-controller/left-items";
/// Our annotation of a Backup that is stored, and of a Restore that has begun: what it was asked to
/// hold or restore, as JSON ([`crate::stored_scope`]). An edit of its spec changes nothing of that.
pub const STORED_SCOPE_ANNOTATION: &str = "backup-controller/stored-scope";
/// Our annotation of a Backup: when its stored files were verified last, and how many things were
/// wrong with them ([`crate::verification::Verification`]).
pub const VERIFIED_ANNOTATION: &str = "backup-controller/verified";
/// Our annotation of the Backup that is stored as metadata: digests of the other files of the
/// backup, as JSON. A scheduled verification compares them.
pub const DIGESTS_ANNOTATION: &str = "backup-controller/digests";
/// Our annotation of a Backup or Restore: which notifications about it were delivered, as JSON.
pub const NOTIFIED_ANNOTATION: &str = "backup-controller/notified";
/// Our annotation of a Backup: the result of the last drill of it, as JSON
/// ([`crate::drill::DrillResult`]).
pub const DRILLED_ANNOTATION: &str = "backup-controller/drilled";
/// Our annotation of a Schedule: the last drill of one of its backups, as JSON
/// ([`crate::drill::LastDrill`]). Removing it makes the next one due.
pub const LAST_DRILL_ANNOTATION: &str = "backup-controller/last-drill";
/// Our annotation of a Restore that is a drill: how far it has come after its items are restored,
/// as JSON ([`crate::drill::DrillState`]).
pub const DRILL_STATE_ANNOTATION: &str = "backup-controller/drill-state";
/// Our label of a Restore that is a drill: the Schedule that the drill is for, shortened if it is
/// longer than a label value.
pub const DRILL_SCHEDULE_LABEL: &str = "backup-controller/drill-schedule";
/// Our label of a scratch namespace, and of a VolumeSnapshotContent that a drill has created: uid
/// of the Restore whose drill it is for. It is set when the object is created, and never later.
pub const DRILL_LABEL: &str = "backup-controller/drill";
/// Our label of a scratch namespace, and of a VolumeSnapshotContent that a drill has created:
/// namespace of the installation that has created it.
pub const DRILL_INSTALLATION_LABEL: &str = "backup-controller/drill-installation";
/// Our annotation of a scratch namespace, and of a VolumeSnapshotContent that a drill has created:
/// name of the Restore whose drill it is for.
pub const DRILL_RESTORE_ANNOTATION: &str = "backup-controller/drill-restore";
/// Our annotation of a scratch namespace: its own uid, by which a copy is told apart. A namespace
/// with another one is never removed; one without it only while its Restore names it.
pub const SCRATCH_UID_ANNOTATION: &str = "backup-controller/scratch-uid";
/// Our annotation of a DeleteBackupRequest that is InProgress and waits for the same: it works on
/// nothing until then, and holds no place in the ledger. Any value.
pub const DELETION_RESTS_ANNOTATION: &str = "backup-controller/deletion-rests";
/// Our annotation of a DeleteBackupRequest: complete copies in other locations stay whose time is
/// not over, or which retention keeps. Any value.
pub const KEEP_COPIES_ANNOTATION: &str = "backup-controller/keep-copies";
/// Our annotation of a Backup that was imported from a copy: URL of the location that it was copied
/// from.
pub const COPY_OF_ANNOTATION: &str = "backup-controller/copy-of";
/// Our annotation of a Restore that reads a copy of its backup: name of the location, which has the
/// files of the restore, too. It is chosen when the restore begins.
pub const READ_FROM_ANNOTATION: &str = "backup-controller/read-from";
/// Our annotation of a Schedule: which slot was skipped last, and why.
pub const SKIPPED_ANNOTATION: &str = "backup-controller/skipped";
/// Our annotation of a Schedule: the last verification of one of its backups, as JSON
/// ([`crate::verification::ScheduleVerification`]). Removing it makes the next one due.
pub const VERIFICATION_ANNOTATION: &str = "backup-controller/verification";
/// Our annotation of a Backup that a Schedule has made: the rules by which backups of the Schedule
/// and their copies were kept then ([`crate::keep::ScheduleKeep`]). They count once the Schedule is
/// gone.
pub const KEEP_ANNOTATION: &str = "backup-controller/keep";
/// Our annotation of a BackupStorageLocation: what retention removed last, and what it was kept from
/// removing ([`crate::retention::RetentionRecord`]).
pub const RETENTION_ANNOTATION: &str = "backup-controller/retention";
/// Our annotation that a user sets on a BackupStorageLocation to have expired backups removed now
/// ([`crate::sync::Request`]). Removed when that is done.
pub const RETENTION_REQUEST_ANNOTATION: &str = "backup-controller/retention-request";
/// Our annotation of a Schedule: how its expression is read ([`crate::cron::Reading`]).
pub const CRON_ANNOTATION: &str = "backup-controller/cron";
/// Our annotation that a user sets on a Backup to cancel it, or on a Restore to stop its
/// operations. Any value.
pub const CANCEL_ANNOTATION: &str = "backup-controller/cancel";
/// Part of the failure reason of work that a user has cancelled.
pub const CANCELLED: &str = "it was cancelled";
/// Our annotation of a BackupStorageLocation: the results of the last comparison with the cluster
/// ([`crate::sync::Summary`]).
pub const SYNC_ANNOTATION: &str = "backup-controller/sync";
/// Our annotation of a BackupStorageLocation: what is known of its bucket
/// ([`crate::bucket::Facts`]).
pub const BUCKET_ANNOTATION: &str = "backup-controller/bucket";
/// Our annotation that a user sets on a BackupStorageLocation to have it compared now
/// ([`crate::sync::Request`]). Removed when that is done.
pub const SYNC_REQUEST_ANNOTATION: &str = "backup-controller/sync-request";
/// Our annotation of a Backup that was found in a bucket: objects that belong to it are not created
/// yet. Any value.
pub const SYNC_PENDING_ANNOTATION: &str = "backup-controller/sync-pending";
/// Our annotation of a claim, by a user, and of its DataUpload: user of the pods that move its data,
/// as `USER` or `USER:GROUP`, such as `1000:1000`. Without it they run as user 0.
pub const MOVER_USER_ANNOTATION: &str = "backup-controller/mover-user";
/// Our annotation of a BackupStorageLocation, by an administrator: Secret with the credentials of
/// pods that move the data of volumes, as `NAME` or `NAME/KEY`. Without it they have the location's.
pub const MOVER_CREDENTIAL_ANNOTATION: &str = "backup-controller/mover-credential";

/// Our annotation of a DownloadRequest: the file is to be read through the API server, by anyone
/// who has the key of which this is the SHA-256 ([`crate::reading`]).
pub const READ_KEY_ANNOTATION: &str = "backup-controller/read-key-sha256";
/// Our annotation of such a DownloadRequest: uid of the Backup or Restore whose file is meant.
pub const READ_UID_ANNOTATION: &str = "backup-controller/read-uid";
/// Our annotation of a DownloadRequest in place of that uid: the spec of a Restore, as JSON; what
/// it would do is asked for ([`crate::restore_plan`]).
pub const PLAN_ANNOTATION: &str = "backup-controller/plan-restore";
/// Our annotation of a DownloadRequest in place of that uid: which Backups, Restores or Schedules
/// are to be read themselves, as JSON ([`crate::reading::ObjectQuery`]).
pub const OBJECTS_ANNOTATION: &str = "backup-controller/read-objects";

/// Label of objects outside of the installation's namespace that stand for a backup that was found
/// in a bucket: the uid of the Backup in this cluster.
pub const SYNCED_FOR: &str = "backup-controller/synced-for";

/// The longest label value that Kubernetes takes, in bytes.
const MAX_VALUE_BYTES: usize = 63;
/// Length of the hash at the end of a name that was cut.
const HASH_CHARS: usize = 6;

/// The value of an annotation of an object.
pub fn annotation<'a>(object: &'a impl ResourceExt, key: &str) -> Option<&'a str> {
    object.annotations().get(key).map(String::as_str)
}

/// The label value for a name: the name itself up to 63 bytes, otherwise its first 57 bytes and the
/// first 6 hex digits of its SHA-256.
///
/// The same in Velero (`label.GetValidName`), so that each finds what the other has labelled.
pub fn valid_value(name: &str) -> String {
    if name.len() <= MAX_VALUE_BYTES {
        return name.to_owned();
    }
    let hash = short_sha256(name.as_bytes(), HASH_CHARS / 2);
    // Names are ASCII; the boundary only keeps other input from being cut inside a character.
    format!(
        "{}{hash}",
        &name[..name.floor_char_boundary(MAX_VALUE_BYTES - HASH_CHARS)]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_fits_is_its_own_label_value() {
        assert_eq!(valid_value("short"), "short");
        assert_eq!(valid_value(&"a".repeat(63)), "a".repeat(63));
    }

    #[test]
    fn a_long_name_is_cut_and_told_apart_by_its_hash() {
        // The pair that Velero's own test of the rule uses (`pkg/label/label_test.go`, v1.18).
        assert_eq!(
            valid_value("this_is_a_very_long_label_value_that_will_be_rejected_by_Kubernetes"),
            "this_is_a_very_long_label_value_that_will_be_rejected_by_8d0722"
        );
        let (one, two) = (
            valid_value(&("x".repeat(70) + "1")),
            valid_value(&("x".repeat(70) + "2")),
        );
        assert_eq!((one.len(), two.len()), (63, 63));
        assert_ne!(one, two);
    }
}
