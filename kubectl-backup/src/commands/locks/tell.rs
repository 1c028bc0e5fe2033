//! The Event that a forced release leaves.

use backup_lock::{ObjectKey, ObjectKind};
use jiff::Timestamp;
use k8s_openapi::{
    api::{core::v1::ObjectReference, events::v1::Event},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api,
    api::{ObjectMeta, PostParams},
};

use super::fetch::LedgerRead;
use crate::{
    client::Session,
    error::{About, Problem},
};

/// Bytes of a note that an Event takes.
const NOTE_BYTES: usize = 1000;

/// Leaves an Event on the object; for a hold, which has none, on the ledger. Create-only under a name of its own.
pub async fn event(
    session: &Session,
    read: &LedgerRead,
    key: &ObjectKey,
    uid: &str,
    note: &str,
    now: Timestamp,
) -> Result<(), Problem> {
    let object = subject(session, read, key, uid);
    let namespace = object.namespace.clone().unwrap_or_default();
    let event = Event {
        metadata: ObjectMeta {
            generate_name: Some("forced-release-".to_owned()),
            namespace: Some(namespace.clone()),
            ..ObjectMeta::default()
        },
        action: Some("Release".to_owned()),
        event_time: Some(MicroTime(now)),
        note: Some(note[..note.floor_char_boundary(NOTE_BYTES)].to_owned()),
        reason: Some("ForcedRelease".to_owned()),
        regarding: Some(object),
        reporting_controller: Some("kubectl-backup".to_owned()),
        reporting_instance: Some("kubectl-backup".to_owned()),
        type_: Some("Warning".to_owned()),
        ..Event::default()
    };
    let about = About { verb: "create", kind: "event", plural: "events", name: "" };
    let api: Api<Event> = Api::namespaced(session.client.clone(), &namespace);
    session.call(about, api.create(&PostParams::default(), &event)).await.map(|_| ())
}

fn subject(session: &Session, read: &LedgerRead, key: &ObjectKey, uid: &str) -> ObjectReference {
    let profile = &read.profile;
    let (api_version, kind) = match key.kind {
        ObjectKind::Backup => {
            (format!("{}/{}", profile.group, profile.version), profile.backup.kind.as_str())
        }
        ObjectKind::Restore => {
            (format!("{}/{}", profile.group, profile.version), profile.restore.kind.as_str())
        }
        ObjectKind::Deletion => ("velero.io/v1".to_owned(), "Backup"),
        ObjectKind::DeleteBackupRequest => ("velero.io/v1".to_owned(), "DeleteBackupRequest"),
        ObjectKind::Hold => ("coordination.k8s.io/v1".to_owned(), "Lease"),
    };
    let hold = key.kind == ObjectKind::Hold || !read.known;
    let (api_version, kind) =
        if hold { ("coordination.k8s.io/v1".to_owned(), "Lease") } else { (api_version, kind) };
    ObjectReference {
        api_version: Some(api_version),
        kind: Some(kind.to_owned()),
        namespace: Some(if hold { session.namespace.clone() } else { key.namespace.clone() }),
        name: Some(if hold { read.lease.clone() } else { key.name.clone() }),
        uid: Some(if hold { read.lease_uid.clone() } else { uid.to_owned() }),
        ..ObjectReference::default()
    }
}
