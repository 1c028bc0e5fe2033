//! A connection to a cluster and the installation in it, and the requests that commands send.

use std::{fmt::Debug, future::Future, time::Duration};

use backup_core::api::NamespacedKind;
use k8s_openapi::{NamespaceResourceScope, apimachinery::pkg::apis::meta::v1::ListMeta};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions},
    core::{ObjectList, PartialObjectMeta},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use tokio::sync::mpsc::{Receiver, channel};

use crate::{
    error::{About, Problem, ProblemKind},
    readable::Readable,
};

/// Objects in one page of a list.
pub(crate) const PAGE_SIZE: u32 = 500;

/// The field manager of our writes, for the managed fields of objects.
pub(crate) const FIELD_MANAGER: &str = "kubectl-backup";

/// How a page of a list begins, or ends.
#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    metadata: ListMeta,
}

/// A connection to a cluster and the installation in it.
#[derive(Clone)]
pub(crate) struct Session {
    /// The client; it does not retry by itself.
    pub(crate) client: Client,
    /// Namespace of the installation.
    pub(crate) namespace: String,
    /// Namespace of the kubeconfig's context.
    pub(crate) own_namespace: String,
    /// URL of the API server, for messages.
    pub(crate) server: String,
    /// How long a single request may take.
    pub(crate) request_timeout: Duration,
    /// How long a part of what is shown may take.
    pub(crate) part_timeout: Duration,
}

impl Session {
    /// The same session in another namespace.
    pub(crate) fn in_namespace(&self, namespace: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            ..self.clone()
        }
    }

    /// The installation's objects of a kind.
    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Sends one request, with the deadline, and explains what goes wrong.
    pub(crate) async fn call<T>(
        &self,
        about: About<'_>,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, Problem> {
        match tokio::time::timeout(self.request_timeout, request).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(self.explain(&about, error)),
            Err(_) => Err(about.slow(&self.server, self.request_timeout)),
        }
    }

    /// Explains an error of the client.
    pub(crate) fn explain(&self, about: &About<'_>, error: kube::Error) -> Problem {
        about.explain(error, &self.server, &self.namespace)
    }

    pub(crate) async fn get<K: NamespacedKind>(&self, name: &str) -> Result<K, Problem> {
        self.call(About::of::<K>("get", name), self.api::<K>().get(name))
            .await
    }

    /// The metadata only: that of an object that cannot be decoded, too.
    pub(crate) async fn get_metadata<K: NamespacedKind>(
        &self,
        name: &str,
    ) -> Result<PartialObjectMeta<K>, Problem> {
        self.call(
            About::of::<K>("get", name),
            self.api::<K>().get_metadata(name),
        )
        .await
    }

    pub(crate) async fn create<K: NamespacedKind>(
        &self,
        object: &K,
        params: &PostParams,
    ) -> Result<K, Problem> {
        let name = object.meta().name.clone().unwrap_or_default();
        self.call(
            About::of::<K>("create", &name),
            self.api::<K>().create(params, object),
        )
        .await
    }

    /// Merges a patch into the object of this uid alone: the API server refuses a patch with
    /// another one.
    pub(crate) async fn patch<K: NamespacedKind>(
        &self,
        name: &str,
        uid: Option<&String>,
        mut patch: Value,
    ) -> Result<PartialObjectMeta<K>, Problem> {
        patch["metadata"]["uid"] = uid.cloned().into();
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let api = self.api::<K>();
        let patch = Patch::Merge(patch);
        self.call(
            About::of::<K>("patch", name),
            api.patch_metadata(name, &params, &patch),
        )
        .await
    }

    /// Deletes the object that these preconditions name. One that is gone already is no error.
    pub(crate) async fn delete<K: NamespacedKind>(
        &self,
        name: &str,
        preconditions: Preconditions,
    ) -> Result<(), Problem> {
        let params = DeleteParams {
            preconditions: Some(preconditions),
            ..DeleteParams::default()
        };
        match self
            .call(
                About::of::<K>("delete", name),
                self.api::<K>().delete(name, &params),
            )
            .await
        {
            Err(problem) if !problem.is_not_found() => Err(problem),
            _ => Ok(()),
        }
    }

    /// The first page of a list, without objects that cannot be decoded.
    pub(crate) async fn page<K: NamespacedKind>(
        &self,
        params: &ListParams,
    ) -> Result<Vec<K>, Problem> {
        let api: Api<Readable<K>> = self.api();
        let page = self
            .call(About::of::<K>("list", ""), api.list(params))
            .await?;
        Ok(page
            .items
            .into_iter()
            .filter_map(|item| item.object)
            .collect())
    }

    /// Lists the installation's objects of a kind as [`Self::list`] does, without those that cannot
    /// be decoded.
    pub(crate) async fn list_readable<K: NamespacedKind, T>(
        &self,
        params: ListParams,
        mut keep: impl FnMut(K) -> Option<T>,
    ) -> Result<Vec<T>, Problem> {
        let api: Api<Readable<K>> = self.api();
        self.list(About::of::<K>("list", ""), &api, params, |item| {
            keep(item.object?)
        })
        .await
    }

    /// Lists page by page, and keeps of each object what `keep` gives: no more than a page of whole
    /// objects is in memory. A list that expires between two pages (410) is read again, once.
    pub(crate) async fn list<K, T>(
        &self,
        about: About<'_>,
        api: &Api<K>,
        params: ListParams,
        mut keep: impl FnMut(K) -> Option<T>,
    ) -> Result<Vec<T>, Problem>
    where
        K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let params = params.limit(PAGE_SIZE);
        let mut kept = Vec::new();
        let mut is_second = false;
        let mut pages = self.pages(api, params.clone());
        loop {
            let page = async { pages.recv().await.transpose() };
            match self.call(about.clone(), page).await {
                Ok(None) => return Ok(kept),
                Ok(Some(text)) => {
                    let page: ObjectList<K> = self.decoded(&about, serde_json::from_str(&text))?;
                    kept.extend(page.items.into_iter().filter_map(&mut keep));
                }
                Err(Problem {
                    kind: ProblemKind::Api { code: 410, .. },
                    ..
                }) if !is_second => {
                    is_second = true;
                    kept.clear();
                    pages = self.pages(api, params.clone());
                }
                Err(problem) => return Err(problem),
            }
        }
    }

    /// The pages of a list as they come; each is asked for while the one before it is decoded.
    fn pages<K: Resource>(
        &self,
        api: &Api<K>,
        mut params: ListParams,
    ) -> Receiver<kube::Result<String>> {
        let client = self.client.clone();
        let path = api.resource_url().to_owned();
        let (sender, pages) = channel(1);
        tokio::spawn(async move {
            while let Ok(place) = sender.reserve().await {
                let request = kube::core::Request::new(&path)
                    .list(&params)
                    .map_err(kube::Error::BuildRequest);
                let page = match request {
                    Ok(request) => client.request_text(request).await,
                    Err(error) => Err(error),
                };
                // Anything but a list is an error of the caller that decodes it.
                let head = page
                    .as_ref()
                    .ok()
                    .and_then(|text| serde_json::from_str::<Head>(text).ok());
                place.send(page);
                params.continue_token = head.and_then(|head| head.metadata.continue_);
                if params.continue_token.as_ref().is_none_or(String::is_empty) {
                    return;
                }
            }
        });
        pages
    }

    fn decoded<T>(
        &self,
        about: &About<'_>,
        decoded: Result<T, serde_json::Error>,
    ) -> Result<T, Problem> {
        decoded.map_err(|error| self.explain(about, kube::Error::SerdeError(error)))
    }
}
