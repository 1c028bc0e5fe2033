//! Labels and annotations around CSI snapshots (Velero `pkg/apis/velero/v1/labels_annotations.go`,
//! v1.18, and `external-snapshotter`, v8).

/// Label and annotation of a claim in a backup: the VolumeSnapshot that holds its data.
pub const VOLUME_SNAPSHOT_NAME: &str = "velero.io/volume-snapshot-name";
/// Annotation of a VolumeSnapshot in a backup: what the storage system calls the snapshot.
pub const SNAPSHOT_HANDLE: &str = "velero.io/csi-volumesnapshot-handle";
/// Annotation of a VolumeSnapshot in a backup: how large a volume made of it must be at least.
pub const RESTORE_SIZE: &str = "velero.io/csi-volumesnapshot-restore-size";
/// Annotation of a VolumeSnapshot in a backup: the driver that made it.
pub const DRIVER_NAME: &str = "velero.io/csi-driver-name";
/// Annotation of a VolumeSnapshot in a backup: the deletion policy that its content had.
pub const DELETION_POLICY: &str = "velero.io/csi-vsc-deletion-policy";
/// Annotation of a claim in a backup: its volume is not one of CSI, so it was not snapshotted.
pub const SKIPPED_NO_CSI_VOLUME: &str = "backup.velero.io/skipped-no-csi-pv";
/// Label of the VolumeSnapshotClass to use for its driver; annotation of a claim that names the one
/// to use for it. On a Backup the annotation is this, an underscore, and the name of the driver.
pub const SNAPSHOT_CLASS: &str = "velero.io/csi-volumesnapshot-class";
/// Annotation of the VolumeSnapshotClass that Kubernetes uses where none is named.
pub const DEFAULT_CLASS: &str = "snapshot.storage.kubernetes.io/is-default-class";
/// Annotations of a VolumeSnapshotContent: name and namespace of the Secret that deletes the
/// snapshot.
pub const DELETE_SECRET: [&str; 2] = [
    "csi.storage.k8s.io/snapshotter-secret-name",
    "csi.storage.k8s.io/snapshotter-secret-namespace",
];
/// Annotations of a VolumeSnapshotClass: name and namespace of the Secret that lists snapshots.
pub const LIST_SECRET: [&str; 2] = [
    "csi.storage.k8s.io/snapshotter-list-secret-name",
    "csi.storage.k8s.io/snapshotter-list-secret-namespace",
];
