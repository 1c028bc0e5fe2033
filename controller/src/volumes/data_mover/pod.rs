//! The pod that runs `backup-mover`.
//!
//! Its arguments are shown to every user who may read pods, so all secrets come from Secrets, as
//! environment variables. The pod has no token of the API server. It passes Pod Security `baseline`
//! if it runs as root, which files of any owner need, and `restricted` otherwise.

use backup_core::{
    api::{BackupStorageLocation, common::SecretKey},
    data_movement::{
        CA_VARIABLE, CREDENTIALS_VARIABLE, PASSWORD_KEY, PASSWORD_SECRET, PASSWORD_VARIABLE,
        TRANSFER_LABEL, repository_name, repository_path,
    },
    labels::{EXCLUDE_FROM_BACKUP, MOVER_CREDENTIAL_ANNOTATION},
    repository_records::{
        DATA_PARTS, KeyChange, KeyWork, NEXT_PASSWORD_KEY, OTHER_PASSWORD_VARIABLE,
        PREVIOUS_PASSWORD_KEY,
    },
};
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::{settings::MoverSettings, user::MoverUser};
use crate::location::{DEFAULT_KEY, DEFAULT_SECRET, inline_ca};

/// Name of the only container.
pub(super) const CONTAINER: &str = "mover";
/// Label of a pod: what it does, as the command of `backup-mover`.
pub(super) const WORK_LABEL: &str = "backup-controller/mover-work";
/// Label of a pod: name of the BackupRepository that it works on.
pub(super) const REPOSITORY_LABEL: &str = "backup-controller/repository";
/// Annotation of a pod: version of the Secret, or of all inputs, for which its result is valid.
pub(super) const VALID_FOR_ANNOTATION: &str = "backup-controller/valid-for";

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
/// How a pod works after an earlier one was lost: that may have been for its memory.
pub(super) const REDUCED: &str = "with fewer threads and smaller buffers";
/// Arguments of such a pod.
const REDUCED_ARGS: [&str; 2] = ["--parallel-uploads=1", "--read-memory=8Mi"];
/// CPU limit of such a pod: `backup-mover` reads and packs with as many threads as it has CPUs.
const REDUCED_CPUS: &str = "1";
/// Maximum number of heaps of such a pod.
const REDUCED_HEAPS: &str = "1";
/// Maximum number of heaps of any other pod: a restore allocates from many threads.
const MAX_HEAPS: &str = "2";

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
        /// Uids of Backup and DataUpload under which the snapshot is noted, as `BACKUP/UPLOAD`.
        note: Option<String>,
        /// The claim's annotation with the user to run as; `None`: root.
        user: Option<&'a str>,
        /// Whether an earlier pod was lost.
        is_repeated: bool,
    },
    /// Write a volume.
    Restore {
        /// Claim to write to.
        claim: &'a str,
        block: bool,
        /// Id of the snapshot in the repository.
        snapshot: &'a str,
        /// The claim's annotation with the user to run as; `None`: root.
        user: Option<&'a str>,
        /// What becomes of files that are in a volume that existed before (`--existing`); `None`: it
        /// is a new one.
        existing: Option<&'static str>,
        /// Whether an earlier pod was lost, which may have written to the claim.
        is_repeated: bool,
    },
    /// Remove data that no snapshot needs.
    Maintain {
        /// The request that it is for, if there is one.
        request: Option<&'a str>,
    },
    /// Open the repository, and do nothing else.
    Open { inputs: &'a str },
    /// Look for damage.
    Check {
        /// Part of the data to read, from 1 on; `None`: all data.
        part: Option<u8>,
        /// Ids of packs to read as well.
        packs: &'a [String],
        /// The request that it is for, if there is one.
        request: Option<&'a str>,
    },
    /// Change the keys of the repository.
    ChangeKeys(&'a KeyChange),
}

impl PodWork<'_> {
    /// The command of `backup-mover`, and the value of [`WORK_LABEL`].
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Init => "init",
            Self::Backup { .. } => "backup",
            Self::Restore { .. } => "restore",
            Self::Maintain { .. } => "maintain",
            Self::Open { .. } => "open",
            Self::Check { .. } => "check",
            Self::ChangeKeys(change) => key_command(change.work),
        }
    }

    /// Value of [`VALID_FOR_ANNOTATION`].
    fn valid_for(&self) -> Option<&str> {
        match self {
            Self::Open { inputs } => Some(*inputs),
            Self::ChangeKeys(change) => Some(change.secret.as_str()),
            Self::Maintain { request } | Self::Check { request, .. } => *request,
            _ => None,
        }
    }

    /// Key of the Secret with the password whose keys are changed.
    fn other_password(&self) -> Option<&'static str> {
        match self {
            Self::ChangeKeys(change) => Some(match change.work {
                KeyWork::Add => NEXT_PASSWORD_KEY,
                KeyWork::Remove => PREVIOUS_PASSWORD_KEY,
            }),
            _ => None,
        }
    }

    /// The claim, and whether it is a block volume.
    fn volume(&self) -> Option<(&str, bool)> {
        match self {
            Self::Backup { claim, block, .. } | Self::Restore { claim, block, .. } => {
                Some((*claim, *block))
            }
            _ => None,
        }
    }

    /// Whether an earlier pod with this work was lost.
    fn is_repeated(&self) -> bool {
        match self {
            Self::Backup { is_repeated, .. } | Self::Restore { is_repeated, .. } => *is_repeated,
            _ => false,
        }
    }

    /// The user to run as; `None`: root, for files of any owner. Errors: a sentence on the
    /// annotation of the claim.
    fn user(&self) -> Result<Option<MoverUser>, String> {
        match self {
            Self::Backup { user, .. } | Self::Restore { user, .. } => {
                user.map(MoverUser::of_annotation).transpose()
            }
            _ => Ok(Some(MoverUser::UNPRIVILEGED)),
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
            _ => &[],
        }
    }

    fn args(&self, host: &str) -> Vec<String> {
        match self {
            Self::Init | Self::Open { .. } | Self::ChangeKeys(_) => Vec::new(),
            Self::Check { part: None, .. } => vec!["--read-data".to_owned()],
            Self::Check {
                part: Some(part),
                packs,
                ..
            } => {
                let mut args = vec![format!("--read-data-part={part}/{DATA_PARTS}")];
                args.extend(packs.iter().map(|pack| format!("--read-pack={pack}")));
                args
            }
            Self::Backup {
                block,
                label,
                tags,
                note,
                ..
            } => {
                let source = if *block {
                    format!("--device={DEVICE}")
                } else {
                    format!("--folder={FOLDER}")
                };
                let mut args = vec![source, format!("--host={host}"), format!("--label={label}")];
                args.extend(tags.iter().map(|tag| format!("--tag={tag}")));
                args.extend(note.iter().map(|note| format!("--note={note}")));
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
            Self::Maintain { .. } => vec!["--prune".to_owned()],
        }
    }
}

/// The command of `backup-mover` that changes keys.
pub(super) fn key_command(work: KeyWork) -> &'static str {
    match work {
        KeyWork::Add => "add-key",
        KeyWork::Remove => "remove-key",
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
        let user = self.work.user()?;
        let mut limits = json!({ "memory": settings.memory_limit });
        if self.work.is_repeated() {
            limits["cpu"] = json!(REDUCED_CPUS);
        }
        let mut labels = json!({
            "app.kubernetes.io/name": SERVICE_ACCOUNT,
            EXCLUDE_FROM_BACKUP: "true",
            WORK_LABEL: work,
            REPOSITORY_LABEL: repository_name(self.repository, &location),
        });
        let mut container = json!({
            "name": CONTAINER,
            "image": settings.image,
            "args": self.args(settings)?,
            "env": self.environment()?,
            "resources": {
                "requests": { "cpu": "100m", "memory": "128Mi" },
                "limits": limits,
            },
            "securityContext": self.security_context(user),
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
        if let (Some(user), PodWork::Restore { existing: None, .. }) = (user, &self.work) {
            // The root folder of a new volume is root's: this group may write to it. Not for a
            // volume with files, as it changes their modes.
            spec["securityContext"] =
                json!({ "fsGroup": user.group, "fsGroupChangePolicy": "OnRootMismatch" });
        }
        spec["containers"] = json!([container]);
        let mut pod = json!({
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
        if let Some(valid_for) = self.work.valid_for() {
            pod["metadata"]["annotations"] = json!({ VALID_FOR_ANNOTATION: valid_for });
        }
        serde_json::from_value(pod).map_err(|error| format!("the pod cannot be made: {error}"))
    }

    fn security_context(&self, user: Option<MoverUser>) -> Value {
        let mut context = json!({
            "readOnlyRootFilesystem": true,
            "allowPrivilegeEscalation": false,
            "seccompProfile": { "type": "RuntimeDefault" },
            "capabilities": { "drop": ["ALL"] },
        });
        if let Some(MoverUser { user, group }) = user {
            context["runAsNonRoot"] = json!(true);
            context["runAsUser"] = json!(user);
            context["runAsGroup"] = json!(group);
        } else {
            context["runAsUser"] = json!(0);
            context["capabilities"]["add"] = json!(self.work.capabilities());
        }
        context
    }

    fn args(&self, settings: &MoverSettings) -> Result<Vec<String>, String> {
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
        args.extend(settings.bandwidth_args());
        if self.work.is_repeated() {
            args.extend(REDUCED_ARGS.map(str::to_owned));
        }
        args.push(format!("--termination-log={TERMINATION_LOG}"));
        Ok(args.iter().map(|arg| literal(arg)).collect())
    }

    fn environment(&self) -> Result<Vec<Value>, String> {
        let password = SecretKey {
            name: PASSWORD_SECRET.to_owned(),
            key: PASSWORD_KEY.to_owned(),
            optional: None,
        };
        let heaps = if self.work.is_repeated() {
            REDUCED_HEAPS
        } else {
            MAX_HEAPS
        };
        let mut environment = vec![
            json!({ "name": "MALLOC_ARENA_MAX", "value": heaps }),
            from_secret(PASSWORD_VARIABLE, &password),
            from_secret(CREDENTIALS_VARIABLE, &self.credential()?),
        ];
        if let Some(key) = self.work.other_password() {
            let other = SecretKey {
                key: key.to_owned(),
                ..password
            };
            environment.push(from_secret(OTHER_PASSWORD_VARIABLE, &other));
        }
        environment.extend(self.ca()?);
        Ok(environment)
    }

    /// The credentials of the store. A pod with a volume has those for movers, if there are any:
    /// files of applications are read and written with no other rights.
    fn credential(&self) -> Result<SecretKey, String> {
        let annotation = self.location.annotations().get(MOVER_CREDENTIAL_ANNOTATION);
        let Some(text) = annotation.filter(|_| self.work.volume().is_some()) else {
            let credential = self.location.spec.credential.clone();
            return Ok(credential.unwrap_or_else(|| SecretKey {
                name: DEFAULT_SECRET.to_owned(),
                key: DEFAULT_KEY.to_owned(),
                optional: Some(true),
            }));
        };
        let (name, key) = text.split_once('/').unwrap_or((text.as_str(), DEFAULT_KEY));
        if name.is_empty() || key.is_empty() {
            return Err(format!(
                "BackupStorageLocation {} has a wrong annotation {MOVER_CREDENTIAL_ANNOTATION}: \
                 expected the name of a Secret, or NAME/KEY",
                self.location.name_any()
            ));
        }
        Ok(SecretKey {
            name: name.to_owned(),
            key: key.to_owned(),
            optional: None,
        })
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
