//! A dry run: every write is sent to the API server with `dryRun=All`. Namespaces and types that it
//! would have created are remembered, because items that need them cannot be tried.

use std::collections::{BTreeMap, BTreeSet};

use backup_actions::restore::json::{self, Object};
use futures::FutureExt as _;
use http::{Method, Request, Response, Uri};
use kube::{Client, client::Body};
use parking_lot::Mutex;
use tower::{BoxError, service_fn};

/// A client that adds `dryRun=All` to every write and every upgrade request.
pub(in crate::restore) fn client(client: &Client) -> Client {
    let inner = client.clone();
    let service = service_fn(move |request: Request<Body>| {
        let inner = inner.clone();
        async move { Ok::<Response<_>, BoxError>(inner.send(harmless(request)?).await?) }.boxed()
    });
    Client::new(service, client.default_namespace())
}

fn harmless(mut request: Request<Body>) -> Result<Request<Body>, BoxError> {
    if matches!(*request.method(), Method::GET | Method::HEAD)
        && !request.headers().contains_key("upgrade")
    {
        return Ok(request);
    }
    let uri = request.uri().to_string();
    let separator = if uri.contains('?') { '&' } else { '?' };
    *request.uri_mut() = format!("{uri}{separator}dryRun=All").parse::<Uri>()?;
    Ok(request)
}

/// Namespaces and types that a dry run would have created so far.
#[derive(Debug, Default)]
pub(super) struct DryRun {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    namespaces: BTreeSet<String>,
    /// `widgets.example.com`.
    types: BTreeSet<String>,
    /// Number of items that were not tried, by missing type or namespace.
    untried: BTreeMap<String, usize>,
}

impl DryRun {
    /// Records an object that a real restore would have created.
    pub(super) fn created(&self, collection: &str, body: &Object) {
        let name = json::text(body, &["metadata"], "name")
            .unwrap_or_default()
            .to_owned();
        match Place::of(collection) {
            Place {
                plural: "namespaces",
                group: "",
                ..
            } => _ = self.inner.lock().namespaces.insert(name),
            Place {
                plural: "customresourcedefinitions",
                ..
            } => _ = self.inner.lock().types.insert(name),
            _ => {}
        }
    }

    /// Whether the type or namespace of the collection would only be created by a real restore:
    /// then the API server cannot be asked.
    pub(super) fn is_new(&self, collection: &str) -> bool {
        self.missing(collection).is_some()
    }

    /// Counts an item that cannot be tried.
    pub(super) fn untried(&self, collection: &str) {
        if let Some(missing) = self.missing(collection) {
            *self.inner.lock().untried.entry(missing).or_default() += 1;
        }
    }

    fn missing(&self, collection: &str) -> Option<String> {
        let Place {
            group,
            namespace,
            plural,
        } = Place::of(collection);
        let inner = self.inner.lock();
        let of_type = format!("{plural}.{group}");
        if inner.types.contains(&of_type) {
            return Some(format!("its type {of_type}"));
        }
        let namespace = namespace.filter(|namespace| inner.namespaces.contains(*namespace))?;
        Some(format!("namespace {namespace:?}"))
    }

    /// Messages about items that could not be tried.
    pub(super) fn notes(&self) -> Vec<String> {
        let inner = self.inner.lock();
        let untried = inner.untried.iter();
        untried
            .map(|(missing, count)| note(missing, *count))
            .collect()
    }
}

/// The message about items that could not be tried without this type or namespace.
fn note(missing: &str, count: usize) -> String {
    let items = if count == 1 {
        "1 item was".to_owned()
    } else {
        format!("{count} items were")
    };
    format!("{items} not tried by the API server: {missing} is only made by the restore")
}

/// The parts of the path of a collection.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Place<'a> {
    pub(super) group: &'a str,
    pub(super) namespace: Option<&'a str>,
    pub(super) plural: &'a str,
}

impl<'a> Place<'a> {
    pub(super) fn of(collection: &'a str) -> Self {
        let mut parts = collection.trim_start_matches('/').split('/');
        let group = match parts.next() {
            Some("apis") => parts.next().unwrap_or_default(),
            _ => "",
        };
        let _version = parts.next();
        match (parts.next(), parts.next(), parts.next()) {
            (Some("namespaces"), Some(namespace), Some(plural)) => Self {
                group,
                namespace: Some(namespace),
                plural,
            },
            (plural, ..) => Self {
                group,
                namespace: None,
                plural: plural.unwrap_or_default(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use backup_testkit::FakeApi;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::{
        Api,
        api::{DeleteParams, Patch, PatchParams, PostParams},
    };
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn whoever_writes_with_its_client_changes_nothing() {
        let fake = FakeApi::new();
        let there = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "there", "namespace": "a"}});
        fake.put("/api/v1/namespaces/a/configmaps/there", there);
        let maps: Api<ConfigMap> = Api::namespaced(client(&fake.client()), "a");
        let before = fake.get("/api/v1/namespaces/a/configmaps/there");
        let new: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "new"}})).unwrap();
        maps.create(&PostParams::default(), &new).await.unwrap();
        let patch = Patch::Merge(json!({"data": {"a": "b"}}));
        maps.patch("there", &PatchParams::default(), &patch)
            .await
            .unwrap();
        let mut changed = maps.get("there").await.unwrap();
        changed.data = Some([("a".to_owned(), "b".to_owned())].into());
        maps.replace("there", &PostParams::default(), &changed)
            .await
            .unwrap();
        maps.delete("there", &DeleteParams::default())
            .await
            .unwrap();
        assert_eq!(fake.get("/api/v1/namespaces/a/configmaps/there"), before);
        assert_eq!(fake.get("/api/v1/namespaces/a/configmaps/new"), None);
    }

    #[test]
    fn nothing_can_be_tried_in_what_would_only_be_made() {
        let dry_run = DryRun::default();
        let object = |name: &str| {
            json!({"metadata": {"name": name}})
                .as_object()
                .unwrap()
                .clone()
        };
        dry_run.created("/api/v1/namespaces", &object("new"));
        dry_run.created(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            &object("widgets.example.com"),
        );
        dry_run.created("/apis/apps/v1/namespaces/old/deployments", &object("odd"));
        for (collection, is_new) in [
            ("/api/v1/namespaces/new/configmaps", true),
            ("/apis/apps/v1/namespaces/new/deployments", true),
            ("/api/v1/namespaces/odd/configmaps", false),
            ("/apis/example.com/v1/namespaces/old/widgets", true),
            ("/apis/example.com/v1/widgets", true),
            ("/apis/example.org/v1/widgets", false),
            ("/api/v1/namespaces", false),
            ("/api/v1/persistentvolumes", false),
        ] {
            assert_eq!(dry_run.is_new(collection), is_new, "{collection}");
            dry_run.untried(collection);
        }
        let notes = dry_run.notes();
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(
            notes
                .iter()
                .all(|note| note.starts_with("2 items were not tried")),
            "{notes:?}"
        );
    }
}
