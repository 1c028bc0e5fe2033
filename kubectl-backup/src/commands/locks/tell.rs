//! The Event that a forced release leaves.

use backup_lock::{ObjectKey, observe::reference};
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

/// The object; the ledger where there is none, or its kind is not known.
fn subject(session: &Session, read: &LedgerRead, key: &ObjectKey, uid: &str) -> ObjectReference {
    let object = reference(&read.profile, key, uid).filter(|_| read.known);
    object.unwrap_or_else(|| ObjectReference {
        api_version: Some("coordination.k8s.io/v1".to_owned()),
        kind: Some("Lease".to_owned()),
        namespace: Some(session.namespace.clone()),
        name: Some(read.lease.clone()),
        uid: Some(read.lease_uid.clone()),
        ..ObjectReference::default()
    })
}
