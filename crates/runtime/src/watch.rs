//! A stream of the objects of a kind as they change, decoded one by one.

use std::{collections::BTreeSet, fmt::Debug, future::ready, time::Duration};

use backup_client::backoff::Backoff;
use backup_core::{api::NamespacedKind, event_reason::EventReason};
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Api, Resource, ResourceExt as _,
    api::{ApiResource, DynamicObject},
    core::{DynamicResourceScope, PartialObjectMeta},
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event, ExponentialBackoff, watcher},
    },
};
use serde::de::DeserializeOwned;

use crate::{Cluster, health::Health, list::decode, queue::Key};

/// Backoff between the end of a watch and the start of the next.
const RESTART: Backoff = Backoff {
    first: Duration::from_millis(400),
    cap: Duration::from_secs(10),
};

/// What a watch says about the objects of a kind, of which it delivers `O`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent<O> {
    /// The object existed at the start, or was created or changed.
    Applied(O),
    /// The object was deleted. May be missed while the watch is down: never rely on it alone to
    /// learn of an end.
    Deleted(Key),
    /// The names of all objects that existed when the watch (re)started; each of them was delivered
    /// before. Others were deleted while the watch was down.
    Listed(BTreeSet<String>),
}

/// An object as its kind, or why it cannot be decoded.
pub type Decoded<K> = Result<K, Box<Undecodable>>;

impl<K: Resource> WatchEvent<Decoded<K>> {
    /// The object of the event; `None` for [`WatchEvent::Listed`].
    pub fn key(&self) -> Option<Key> {
        match self {
            Self::Applied(Ok(object)) => Some(Key::of(object)),
            Self::Applied(Err(bad)) => Some(Key {
                namespace: bad.namespace.clone(),
                name: bad.name.clone(),
            }),
            Self::Deleted(key) => Some(key.clone()),
            Self::Listed(_) => None,
        }
    }
}

/// An object that cannot be decoded, except for its metadata, so that the error can be reported on
/// the object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {namespace}/{name} can not be read: {error}; correct or delete it")]
pub struct Undecodable {
    pub kind: String,
    pub api_version: String,
    pub name: String,
    pub namespace: String,
    pub uid: String,
    /// The version that was seen, for writes with a precondition.
    pub resource_version: Option<String>,
    pub error: String,
}

impl Undecodable {
    pub fn object_ref(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some(self.api_version.clone()),
            kind: Some(self.kind.clone()),
            name: Some(self.name.clone()),
            namespace: Some(self.namespace.clone()).filter(|namespace| !namespace.is_empty()),
            uid: Some(self.uid.clone()),
            resource_version: self.resource_version.clone(),
            field_path: None,
        }
    }
}

/// Watches the objects of a kind in the namespace of the installation. The stream never ends: a
/// failed watch is logged and restarted after a short delay (200 ms to 10 s, with jitter), and one
/// invalid object never stops the others.
pub fn objects<K: NamespacedKind>(
    cluster: &Cluster,
) -> impl Stream<Item = WatchEvent<Decoded<K>>> + Send + 'static {
    events(cluster, ApiResource::erase::<K>(&()), decoded::<K>)
}

/// The same as plain JSON, so that an object that does not fit the kind is included.
pub fn raw<K: NamespacedKind>(
    cluster: &Cluster,
) -> impl Stream<Item = WatchEvent<DynamicObject>> + Send + 'static {
    events(
        cluster,
        ApiResource::erase::<K>(&()),
        |object: DynamicObject| object,
    )
}

/// The events of a kind, with what `read` makes of each object.
fn events<T, O>(
    cluster: &Cluster,
    resource: ApiResource,
    read: fn(T) -> O,
) -> impl Stream<Item = WatchEvent<O>> + Send + 'static
where
    T: Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
    T: Clone + Debug + DeserializeOwned + Send + 'static,
    O: Send + 'static,
{
    let mut listed = BTreeSet::new();
    server_events(cluster, resource)
        .filter_map(move |event| ready(with_names(event, read, &mut listed)))
}

/// Collects the names of a list in `listed` until the list is complete.
fn with_names<T: Resource, O>(
    event: Event<T>,
    read: fn(T) -> O,
    listed: &mut BTreeSet<String>,
) -> Option<WatchEvent<O>> {
    match event {
        Event::Init => {
            listed.clear();
            None
        }
        Event::InitApply(object) => {
            listed.insert(object.name_any());
            Some(WatchEvent::Applied(read(object)))
        }
        Event::InitDone => Some(WatchEvent::Listed(std::mem::take(listed))),
        Event::Apply(object) => Some(WatchEvent::Applied(read(object))),
        Event::Delete(object) => Some(WatchEvent::Deleted(Key::of(&object))),
    }
}

/// Events of the API server for a kind, with any part of its objects. The kind is a value here and
/// no type, so the large code of a watch is compiled once and not for each kind.
fn server_events<T>(
    cluster: &Cluster,
    resource: ApiResource,
) -> impl Stream<Item = Event<T>> + Send + 'static
where
    T: Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
    T: Clone + Debug + DeserializeOwned + Send + 'static,
{
    let api = Api::namespaced_with(cluster.client.clone(), &cluster.namespace, &resource);
    let config = watcher::Config::default().page_size(cluster.page_size);
    watcher(api, config).backoff(ExponentialBackoff::from(RESTART.builder())).filter_map(move |event| {
        let event = event.inspect_err(
            |error| tracing::warn!(kind = resource.kind, %error, "watch failed; it is started again"),
        );
        ready(event.ok())
    })
}

/// With this type only metadata is requested.
type Metadata = PartialObjectMeta<DynamicObject>;

/// An object of which only name and version are requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectVersion {
    pub name: String,
    pub version: String,
}

/// Names and versions of the objects of a kind in the namespace of the installation. Their content
/// is not even sent. Like [`objects`], the stream never ends.
pub fn versions<K: NamespacedKind>(
    cluster: &Cluster,
) -> impl Stream<Item = WatchEvent<ObjectVersion>> + Send + 'static {
    events(cluster, ApiResource::erase::<K>(&()), version_of)
}

fn version_of(object: Metadata) -> ObjectVersion {
    let meta = object.metadata;
    ObjectVersion {
        name: meta.name.unwrap_or_default(),
        version: meta.resource_version.unwrap_or_default(),
    }
}

/// The keys of the objects that [`objects`] delivers, for controllers that read the object when it
/// is reconciled. `part` is marked ready in the health of the process once all existing objects
/// were delivered. Undecodable objects are reported with an Event and skipped.
pub fn keys<K: NamespacedKind>(
    cluster: &Cluster,
    health: &Health,
    part: &'static str,
) -> impl Stream<Item = Key> + Send + 'static {
    keys_with::<K>(cluster, health, part, |_, _| {})
}

/// Like [`keys`], for controllers that use the delivered object: `observe` is called with each
/// object before its key is yielded, and with `None` when it was deleted.
pub fn keys_with<K: NamespacedKind>(
    cluster: &Cluster,
    health: &Health,
    part: &'static str,
    observe: impl Fn(&Key, Option<K>) + Send + 'static,
) -> impl Stream<Item = Key> + Send + 'static {
    health.expect(part);
    let health = health.clone();
    let events = cluster.events.clone();
    objects::<K>(cluster).filter_map(move |event| {
        let key = match event {
            WatchEvent::Listed(_) => {
                health.ready(part);
                None
            }
            WatchEvent::Applied(Err(bad)) => {
                tracing::warn!(
                    kind = bad.kind,
                    name = bad.name,
                    error = bad.error,
                    "object can not be read"
                );
                events.warning_on(bad.object_ref(), EventReason::Unreadable, &bad.to_string());
                None
            }
            WatchEvent::Applied(Ok(object)) => {
                let key = Key::of(&object);
                observe(&key, Some(object));
                Some(key)
            }
            WatchEvent::Deleted(key) => {
                observe(&key, None);
                Some(key)
            }
        };
        ready(key)
    })
}

fn decoded<K: NamespacedKind>(object: DynamicObject) -> Decoded<K> {
    decode(&object).map_err(|error| {
        Box::new(Undecodable {
            kind: K::kind(&()).into_owned(),
            api_version: K::api_version(&()).into_owned(),
            name: object.metadata.name.unwrap_or_default(),
            namespace: object.metadata.namespace.unwrap_or_default(),
            uid: object.metadata.uid.unwrap_or_default(),
            resource_version: object.metadata.resource_version,
            error: error.to_string(),
        })
    })
}

#[cfg(test)]
mod tests {
    use backup_core::api::Backup;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_bad_object_is_delivered_with_its_name_and_the_reason() {
        let raw = json!({
            "metadata": {"name": "bad", "namespace": "velero", "uid": "u1", "resourceVersion": "7"},
            "spec": {"ttl": "tomorrow"},
        });
        let object = serde_json::from_value(raw).unwrap();
        let event = with_names(
            Event::Apply(object),
            decoded::<Backup>,
            &mut BTreeSet::new(),
        );
        let Some(WatchEvent::Applied(Err(bad))) = event else {
            panic!("decoded")
        };
        assert_eq!(
            (bad.name.as_str(), bad.uid.as_str(), bad.kind.as_str()),
            ("bad", "u1", "Backup")
        );
        assert_says!(bad, "is not a duration");
        assert_eq!(
            bad.object_ref().api_version.as_deref(),
            Some("velero.io/v1")
        );
    }

    #[test]
    fn a_list_ends_with_the_names_of_all_that_it_has_shown() {
        let object = |name: &str| {
            let raw = json!({ "metadata": { "name": name, "resourceVersion": "7" } });
            serde_json::from_value::<Metadata>(raw).unwrap()
        };
        let mut listed = BTreeSet::new();
        let mut next = |event| with_names(event, version_of, &mut listed);
        let applied = |name: &str| {
            Some(WatchEvent::Applied(ObjectVersion {
                name: name.to_owned(),
                version: "7".to_owned(),
            }))
        };
        // A list that was broken off does not count.
        assert_eq!(next(Event::Init), None);
        assert_eq!(
            next(Event::InitApply(object("broken off"))),
            applied("broken off")
        );
        assert_eq!(next(Event::Init), None);
        assert_eq!(next(Event::InitApply(object("b"))), applied("b"));
        assert_eq!(next(Event::InitApply(object("a"))), applied("a"));
        let names = ["a", "b"].map(str::to_owned);
        assert_eq!(
            next(Event::InitDone),
            Some(WatchEvent::Listed(names.into()))
        );
        assert_eq!(next(Event::Apply(object("c"))), applied("c"));
        let deleted = Key {
            namespace: String::new(),
            name: "c".to_owned(),
        };
        assert_eq!(
            next(Event::Delete(object("c"))),
            Some(WatchEvent::Deleted(deleted))
        );
        assert_eq!(next(Event::Init), None);
        assert_eq!(
            next(Event::InitDone),
            Some(WatchEvent::Listed(BTreeSet::new()))
        );
    }
}
