//! The pod that runs `backup-mover`.
//!
//! Its arguments are shown to every user who may read pods, so all secrets come from Secrets, as
//! environment variables. The pod passes Pod Security `baseline`, and has no token of the API
//! server.

use backup_core::{
    api::{BackupStorageLocation, common::SecretKey},
    data_movement::{
        CA_VARIABLE, CREDENTIALS_VARIABLE, PASSWORD_KEY, PASSWORD_SECRET, PASSWORD_VARIABLE,
        TRANSFER_LABEL, repository_name, repository_path,
    },
    labels::EXCLUDE_FROM_BACKUP,
};
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::settings::MoverSettings;
use crate::location::{DEFAULT_KEY, DEFAULT_SECRET, inline_ca};

/// Name of the only container.
pub(super) const CONTAINER: &str = "mover";
/// Label of a pod: what it does (`init`, `backup`, `restore` or `maintain`).
pub(super) const WORK_LABEL: &str = "backup-controller/mover-work";
/// Label of a pod: name of the BackupRepository that it works on.
pub(super) const REPOSITORY_LABEL: &str = "backup-controller/repository";

const SERVICE_ACCOUNT: &str = "backup-mover";
const TERMINATION_LOG: &str = "/dev/termination-log";
/// Where the volume is mounted.
const FOLDER: &str = "/volume";
/// Where a block volume is.
const DEVICE: &str = "/dev/volume";
/// Settings of a location that are not passed on: the CA is in the environment.
const OTHERWISE_PASSED: &str = "caCert";
/// A setting that names a file of the controller's pod.
const KEY_FILE: &str = "customerKeyEncryptionFile";

/// What a pod does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PodWork<'a> {
    /// Make the repository.
    Init,
    /// Save a volume.
    Backup {
        /// Claim to read.
        claim: &'a str,
        block: bool,
        /// Says, with namespace and path, which snapshot came before.
        label: &'a str,
        tags: Vec<String>,
    },
    /// Write a volume.
    Restore {
        /// Claim to write to.
        claim: &'a str,
        block: bool,
        /// Id of the snapshot in the repository.
        snapshot: &'a str,
        /// What becomes of files that are in a volume that existed before (`--existing`); `None`: it
        /// is a new one.
        existing: Option<&'static str>,
        /// Whether an earlier pod may have written to it.
        is_repeated: bool,
    },
    /// Remove data that no snapshot needs.
    Maintain,
}

impl PodWork<'_> {
    /// The command of `backup-mover`, and the value of [`WORK_LABEL`].
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Init => "init",
            Self::Backup { .. } => "backup",
            Self::Restore { .. } => "restore",
            Self::Maintain => "maintain",
        }
    }

    /// The claim, and whether it is a block volume.
    fn volume(&self) -> Option<(&str, bool)> {
        match self {
            Self::Backup { claim, block, .. } | Self::Restore { claim, block, .. } => {
                Some((*claim, *block))
            }
            Self::Init | Self::Maintain => None,
        }
    }

    /// Linux capabilities that root keeps, out of those that `baseline` allows.
    fn capabilities(&self) -> &'static [&'static str] {
        match self {
            // Files of every owner and mode are read.
            Self::Backup { .. } => &["DAC_OVERRIDE"],
            // They are written with their owner, mode, times, capabilities and device numbers.
            Self::Restore { .. } => &[
                "CHOWN",
                "DAC_OVERRIDE",
                "FOWNER",
                "FSETID",
                "SETFCAP",
                "MKNOD",
            ],
            Self::Init | Self::Maintain => &[],
        }
    }

    fn args(&self, host: &str) -> Vec<String> {
        match self {
            Self::Init => Vec::new(),
            Self::Backup {
                block, label, tags, ..
            } => {
                let source = if *block {
                    format!("--device={DEVICE}")
                } else {
                    format!("--folder={FOLDER}")
                };
                let mut args = vec![source, format!("--host={host}"), format!("--label={label}")];
                args.extend(tags.iter().map(|tag| format!("--tag={tag}")));
                args
            }
            Self::Restore {
                block,
                snapshot,
                existing,
                is_repeated,
                ..
            } => {
                let of_new = if *is_repeated { "replace" } else { "refuse" };
                let existing = existing.unwrap_or(of_new);
                let target = if *block { DEVICE } else { FOLDER };
                vec![
                    format!("--snapshot={snapshot}"),
                    format!("--target={target}"),
                    // A new volume has files only of an attempt that was killed.
                    format!("--existing={existing}"),
                ]
            }
            Self::Maintain => vec!["--prune".to_owned()],
        }
    }
}

/// A pod to be created.
#[derive(Clone, Debug)]
pub(super) struct PodRequest<'a> {
    pub(super) name: &'a str,
    pub(super) owner: OwnerReference,
    pub(super) location: &'a BackupStorageLocation,
    /// Namespace that the repository is of; also the host of a backup.
    pub(super) repository: &'a str,
    pub(super) work: PodWork<'a>,
}

impl PodRequest<'_> {
    /// The pod, for this namespace. Errors: a sentence on why no pod can use the location, and what
    /// to do.
    pub(super) fn pod(&self, namespace: &str, settings: &MoverSettings) -> Result<Pod, String> {
        let work = self.work.name();
        let location = self.location.name_any();
        let mut labels = json!({
            "app.kubernetes.io/name": SERVICE_ACCOUNT,
            EXCLUDE_FROM_BACKUP: "true",
            WORK_LABEL: work,
            REPOSITORY_LABEL: repository_name(self.repository, &location),
        });
        let mut container = json!({
            "name": CONTAINER,
            "image": settings.image,
            "args": self.args()?,
            "env": self.environment()?,
            "resources": {
                "requests": { "cpu": "100m", "memory": "128Mi" },
                "limits": { "memory": settings.memory_limit },
            },
            "securityContext": {
                "runAsUser": 0,
                "readOnlyRootFilesystem": true,
                "allowPrivilegeEscalation": false,
                "seccompProfile": { "type": "RuntimeDefault" },
                "capabilities": { "drop": ["ALL"], "add": self.work.capabilities() },
            },
            "terminationMessagePath": TERMINATION_LOG,
            // Without an outcome, the end of the log says what went wrong.
            "terminationMessagePolicy": "FallbackToLogsOnError",
        });
        let mut spec = json!({
            "restartPolicy": "Never",
            "serviceAccountName": SERVICE_ACCOUNT,
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
        });
        if let Some((claim, block)) = self.work.volume() {
            labels[TRANSFER_LABEL] = json!(self.name);
            spec["volumes"] =
                json!([{ "name": "volume", "persistentVolumeClaim": { "claimName": claim } }]);
            if block {
                container["volumeDevices"] = json!([{ "name": "volume", "devicePath": DEVICE }]);
            } else {
                // Read-only in the container only: a driver that attaches a volume read-only may be
                // unable to replay the journal of its file system.
                let is_backup = matches!(self.work, PodWork::Backup { .. });
                container["volumeMounts"] =
                    json!([{ "name": "volume", "mountPath": FOLDER, "readOnly": is_backup }]);
            }
        }
        spec["containers"] = json!([container]);
        let pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": self.name,
                "namespace": namespace,
                "labels": labels,
                "ownerReferences": [self.owner],
            },
            "spec": spec,
        });
        serde_json::from_value(pod).map_err(|error| format!("the pod cannot be made: {error}"))
    }

    fn args(&self) -> Result<Vec<String>, String> {
        let spec = &self.location.spec;
        let location = self.location.name_any();
        let provider = &spec.provider;
        if !backup_store::is_built_in(provider) {
            return Err(format!(
                "BackupStorageLocation {location} is of provider {provider}, which only a plugin serves: volume data is moved \
                 to locations of provider aws, azure or gcp"
            ));
        }
        if backup_store::plugin_of(provider) == backup_store::plugin_of("local") {
            return Err(format!(
                "BackupStorageLocation {location} is a folder of the controller, which pods that move volume data do not \
                 have: use a location of provider aws, azure or gcp"
            ));
        }
        if spec
            .config
            .get(KEY_FILE)
            .is_some_and(|file| !file.is_empty())
        {
            return Err(format!(
                "BackupStorageLocation {location} has spec.config[{KEY_FILE}], a file that pods that move volume data do \
                 not have: use another location, or encryption by the store (serverSideEncryption, kmsKeyId)"
            ));
        }
        let storage = &spec.object_storage;
        let mut args = vec![
            self.work.name().to_owned(),
            format!("--provider={provider}"),
            format!("--bucket={}", storage.bucket),
        ];
        let prefix = storage.prefix.iter().filter(|prefix| !prefix.is_empty());
        args.extend(prefix.map(|prefix| format!("--prefix={prefix}")));
        let config = spec
            .config
            .iter()
            .filter(|(key, _)| *key != OTHERWISE_PASSED);
        args.extend(config.map(|(key, value)| format!("--config={key}={value}")));
        args.push(format!("--repository={}", repository_path(self.repository)));
        args.extend(self.work.args(self.repository));
        args.push(format!("--termination-log={TERMINATION_LOG}"));
        Ok(args.iter().map(|arg| literal(arg)).collect())
    }

    fn environment(&self) -> Result<Vec<Value>, String> {
        let password = SecretKey {
            name: PASSWORD_SECRET.to_owned(),
            key: PASSWORD_KEY.to_owned(),
            optional: None,
        };
        let default = SecretKey {
            name: DEFAULT_SECRET.to_owned(),
            key: DEFAULT_KEY.to_owned(),
            optional: Some(true),
        };
        let credential = self.location.spec.credential.as_ref().unwrap_or(&default);
        let mut environment = vec![
            // Fewer heaps: a restore allocates from many threads.
            json!({ "name": "MALLOC_ARENA_MAX", "value": "2" }),
            from_secret(PASSWORD_VARIABLE, &password),
            from_secret(CREDENTIALS_VARIABLE, credential),
        ];
        environment.extend(self.ca()?);
        Ok(environment)
    }

    /// The CA certificates of the store.
    fn ca(&self) -> Result<Option<Value>, String> {
        if let Some(reference) = &self.location.spec.object_storage.ca_cert_ref {
            return Ok(Some(from_secret(CA_VARIABLE, reference)));
        }
        let location = self.location.name_any();
        let bytes = inline_ca(self.location)
            .map_err(|error| format!("BackupStorageLocation {location}: {error}"))?;
        let Some(bytes) = bytes else {
            return Ok(None);
        };
        let pem = String::from_utf8(bytes).map_err(|_| {
            format!(
                "BackupStorageLocation {location}: spec.objectStorage.caCert is not PEM: encode the PEM file"
            )
        })?;
        Ok(Some(json!({ "name": CA_VARIABLE, "value": literal(&pem) })))
    }
}

/// A text in which Kubernetes replaces nothing: `$(NAME)` would be the value of a variable, and a
/// setting of a location could so send a secret somewhere.
fn literal(text: &str) -> String {
    text.replace('$', "$$")
}

fn from_secret(variable: &str, reference: &SecretKey) -> Value {
    json!({ "name": variable, "valueFrom": { "secretKeyRef": reference } })
}

#[cfg(test)]
mod tests;
