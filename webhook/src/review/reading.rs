//! DownloadRequests of namespace owners, who read what they could create now, and see the objects
//! of namespaces that they may read.

use backup_client::errors::plain;
use backup_core::{
    api::{Backup, BackupSpec, DownloadRequest, NamespacedKind, Restore, Schedule},
    names::is_object_name,
    reading::{self, ObjectQuery, QueriedKind, QueriedObjects, ReadRequest, RequestedAnswer},
    stored_scope,
};
use backup_lock::{ObjectKey, ProtectedProfile};
use k8s_openapi::api::authentication::v1::UserInfo;
use kube::{
    Api, Resource as _, ResourceExt as _,
    core::{
        DynamicObject, Status,
        admission::{AdmissionRequest, Operation},
    },
};
use serde_json::Value;

use super::{Webhook, name_of};
use crate::{
    admit::denial,
    owner_rights::{self, ReadPart},
    restore_rights::{self, MissingRights, Reach},
};

/// The kind of DownloadRequests.
pub(super) const KIND: &str = "DownloadRequest";

pub(super) fn is_read(request: &AdmissionRequest<DynamicObject>) -> bool {
    request.kind.kind == KIND && request.kind.group == DownloadRequest::group(&())
}

/// What is to be read, and whether its reader may.
enum Judgement {
    Passes,
    /// The act, such as `read files of Backup velero/b`, and what that takes.
    Lacking(String, MissingRights),
    /// Why nothing can be read, in a sentence.
    Wrong(String),
}

impl Judgement {
    fn of(act: String, lacking: Option<MissingRights>) -> Self {
        lacking.map_or(Self::Passes, |lacking| Self::Lacking(act, lacking))
    }

    fn not_found(kind: QueriedKind, namespace: &str, name: &str) -> Self {
        Self::Wrong(format!("there is no {kind} {namespace}/{name}"))
    }

    fn of_another(kind: QueriedKind, namespace: &str, name: &str) -> Self {
        Self::Wrong(format!(
            "{kind} {namespace}/{name} is not the one that was asked for: another one has its name now"
        ))
    }
}

impl Webhook {
    /// The refusal of a DownloadRequest by a namespace owner; those of others pass, because for
    /// them creating one is the right to read. What a Restore would do is answered to users who
    /// may create Restores, so that right counts for it.
    pub(super) async fn lacking_to_read(
        &self,
        protected: &ProtectedProfile,
        request: &AdmissionRequest<DynamicObject>,
    ) -> Result<Option<Status>, String> {
        let object = request.object.as_ref();
        let Some(object) = object.filter(|_| request.operation == Operation::Create) else {
            return Ok(None);
        };
        let download = download_request(object);
        let asked = reading::asked(&download);
        let is_plan = matches!(
            &asked,
            Some(Ok(ReadRequest {
                wanted: RequestedAnswer::Plan(_),
                ..
            }))
        );
        let resource = if is_plan {
            "restores"
        } else {
            "downloadrequests"
        };
        let user = &request.user_info;
        let namespace = request.namespace.as_deref().unwrap_or_default();
        if !self.owns(user, resource, namespace).await? {
            return Ok(None);
        }
        let judgement = match asked {
            // A URL would open the file to everyone.
            None => Judgement::Wrong(format!(
                "{:?} reads by keys only, as kubectl backup does, and by no signed URL",
                name_of(user)
            )),
            Some(Err(why)) => Judgement::Wrong(why),
            Some(Ok(asked)) => {
                let target = &download.spec.target;
                match asked.wanted {
                    RequestedAnswer::Plan(spec) => {
                        let spec = serde_json::to_value(spec).unwrap_or_default();
                        let act = format!("plan Restore {namespace}/{}", target.name);
                        self.judge_restore(protected, namespace, &target.name, &spec, act, user)
                            .await?
                    }
                    RequestedAnswer::File { uid } => match target.kind.is_of_restore() {
                        Some(true) => {
                            self.judge_file_of_restore(
                                protected,
                                namespace,
                                &target.name,
                                &uid,
                                user,
                            )
                            .await?
                        }
                        Some(false) => {
                            self.judge_file_of_backup(namespace, &target.name, &uid, user)
                                .await?
                        }
                        None => Judgement::Wrong(format!(
                            "spec.target.kind {:?} is not known",
                            target.kind.as_str()
                        )),
                    },
                    RequestedAnswer::Objects(query) => {
                        self.judge_objects(protected, namespace, query, user)
                            .await?
                    }
                }
            }
        };
        let group = &protected.profile.group;
        let name = &request.name;
        Ok(match judgement {
            Judgement::Passes => None,
            Judgement::Lacking(act, lacking) => Some(denial::may_not_read(
                group,
                name,
                &act,
                name_of(user),
                &lacking,
            )),
            Judgement::Wrong(why) => Some(denial::not_for_owners(
                group,
                "downloadrequests",
                name,
                "spec.target",
                &why,
            )),
        })
    }

    async fn judge_file_of_backup(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
        user: &UserInfo,
    ) -> Result<Judgement, String> {
        let kind = QueriedKind::Backup;
        let Some(backup) = self.stored::<Backup>(namespace, name).await? else {
            return Ok(Judgement::not_found(kind, namespace, name));
        };
        if backup.uid().as_deref() != Some(uid) {
            return Ok(Judgement::of_another(kind, namespace, name));
        }
        let spec = stored_scope::scope(&backup);
        let lacking = self.lacking_for(namespace, &spec, ReadPart::Items, user);
        let act = format!("read files of Backup {namespace}/{name}");
        Ok(Judgement::of(act, lacking.await?))
    }

    async fn judge_file_of_restore(
        &self,
        protected: &ProtectedProfile,
        namespace: &str,
        name: &str,
        uid: &str,
        user: &UserInfo,
    ) -> Result<Judgement, String> {
        let kind = QueriedKind::Restore;
        let Some(restore) = self.stored::<Restore>(namespace, name).await? else {
            return Ok(Judgement::not_found(kind, namespace, name));
        };
        if restore.uid().as_deref() != Some(uid) {
            return Ok(Judgement::of_another(kind, namespace, name));
        }
        let spec = serde_json::to_value(stored_scope::scope(&restore)).unwrap_or_default();
        let act = format!("read files of Restore {namespace}/{name}");
        self.judge_restore(protected, namespace, name, &spec, act, user)
            .await
    }

    async fn judge_restore(
        &self,
        protected: &ProtectedProfile,
        namespace: &str,
        name: &str,
        spec: &Value,
        act: String,
        user: &UserInfo,
    ) -> Result<Judgement, String> {
        let key = ObjectKey::restore(namespace, name);
        let written = protected.store.objects().footprint(&key, spec).await;
        let written = written.map_err(|error| error.to_string())?;
        let lacking = self.lacking_to_restore(protected, &key, spec, &written, user);
        Ok(Judgement::of(act, lacking.await?))
    }

    /// Specs and statuses are seen by those who may read the namespaces that they are about.
    async fn judge_objects(
        &self,
        protected: &ProtectedProfile,
        namespace: &str,
        query: ObjectQuery,
        user: &UserInfo,
    ) -> Result<Judgement, String> {
        let kind = query.kind;
        let (spec, act) = match query.of {
            QueriedObjects::Namespaces(names) => (
                owner_rights::of_namespaces(&names),
                format!("see each {kind} of {}", names.join(", ")),
            ),
            QueriedObjects::Name(name) => {
                let spec = match kind {
                    QueriedKind::Backup => {
                        let backup = self.stored::<Backup>(namespace, &name).await?;
                        backup.map(|backup| stored_scope::scope(&backup).into_owned())
                    }
                    QueriedKind::Schedule => {
                        let schedule = self.stored::<Schedule>(namespace, &name).await?;
                        schedule.map(|schedule| schedule.spec.template)
                    }
                    QueriedKind::Restore => match self.stored::<Restore>(namespace, &name).await? {
                        Some(restore) => Some(namespaces_of(protected, namespace, &restore).await?),
                        None => None,
                    },
                };
                let Some(spec) = spec else {
                    return Ok(Judgement::not_found(kind, namespace, &name));
                };
                (spec, format!("see {kind} {namespace}/{name}"))
            }
        };
        let lacking = self.lacking_for(namespace, &spec, ReadPart::Object, user);
        Ok(Judgement::of(act, lacking.await?))
    }

    /// The object of this name, read freshly; `None` if there is none.
    async fn stored<K: NamespacedKind>(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<K>, String> {
        // An invalid name would be another path of the API.
        if !is_object_name(name) {
            return Ok(None);
        }
        let api = Api::<K>::namespaced(self.authorization.client.clone(), namespace);
        api.get_opt(name).await.map_err(|error| plain(&error))
    }
}

/// The spec of a backup of all namespaces that a restore reads or writes.
async fn namespaces_of(
    protected: &ProtectedProfile,
    namespace: &str,
    restore: &Restore,
) -> Result<BackupSpec, String> {
    let key = ObjectKey::restore(namespace, &restore.name_any());
    let mut spec = serde_json::to_value(stored_scope::scope(restore)).unwrap_or_default();
    spec["includeClusterResources"] = Value::Bool(false);
    let unmapped = restore_rights::unmapped(&spec);
    let objects = protected.store.objects();
    let (written, read) = tokio::try_join!(
        objects.footprint(&key, &spec),
        objects.footprint(&key, &unmapped)
    )
    .map_err(|error| error.to_string())?;
    Ok(match restore_rights::reach(&spec, &written, &read) {
        Reach::Namespaces(names) => owner_rights::of_namespaces(&names),
        Reach::Cluster { .. } => BackupSpec::default(),
    })
}

/// The parts of a DownloadRequest that say what is wanted. A spec that cannot be decoded asks for a
/// kind of file that is not known.
fn download_request(object: &DynamicObject) -> DownloadRequest {
    let spec = serde_json::from_value(object.data["spec"].clone()).unwrap_or_default();
    DownloadRequest {
        metadata: object.metadata.clone(),
        ..DownloadRequest::new("", spec)
    }
}
