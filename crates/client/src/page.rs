//! One page of a LIST, with its items as the text that the API server sent.

use std::time::Duration;

use backup_core::{api::null_default, resources::ResourceType};
use futures::AsyncReadExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::{
    Client,
    core::{
        ApiResource, DynamicObject, GroupVersionKind, Resource as _,
        params::{ListParams, VersionMatch},
        request::Request,
    },
};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::errors::{is_of_start, plain};

/// Timeout for one page. The API server itself gives up after 60 s.
const PAGE_TIMEOUT: Duration = Duration::from_secs(70);
/// Maximum size of an answer, unless it holds a single object (bytes). Objects may have some MiB
/// each, and a page is in memory as a whole.
const PAGE_BYTES: u64 = 24 << 20;

#[derive(Debug, Default, Deserialize)]
pub struct Page {
    #[serde(default)]
    metadata: ListMeta,
    /// The objects, undecoded. Go writes an empty list as `null` in some places.
    #[serde(default, deserialize_with = "null_default")]
    pub items: Vec<Box<RawValue>>,
}

impl Page {
    /// The token of the next page; `None` after the last.
    pub fn next(&self) -> Option<&str> {
        self.metadata
            .continue_
            .as_deref()
            .filter(|token| !token.is_empty())
    }

    /// Number of items after this page, where the API server reports it; else 0.
    pub fn remaining(&self) -> u64 {
        self.counted().unwrap_or(0)
    }

    /// The same; `None` where the API server does not report it, as with a label selector.
    pub fn counted(&self) -> Option<u64> {
        self.metadata
            .remaining_item_count
            .and_then(|count| u64::try_from(count).ok())
    }

    /// The resourceVersion at which this list was read.
    pub fn version(&self) -> Option<&str> {
        self.metadata
            .resource_version
            .as_deref()
            .filter(|version| !version.is_empty())
    }
}

/// One list to walk: a type, one namespace or all, one label selector.
#[derive(Clone, Debug)]
pub struct Listing {
    pub resource: ResourceType,
    /// The namespace; `None` lists all of them, or a cluster-scoped type.
    pub namespace: Option<String>,
    /// Label selector; empty selects everything.
    pub selector: String,
}

impl Listing {
    /// The objects of a type in its version `v1`, in one namespace or in all.
    pub fn v1(group: &str, kind: &str, plural: &str, namespace: Option<&str>) -> Self {
        let resource = ResourceType {
            group: group.to_owned(),
            version: "v1".to_owned(),
            plural: plural.to_owned(),
            kind: kind.to_owned(),
            namespaced: namespace.is_some(),
            ..ResourceType::default()
        };
        Self {
            resource,
            namespace: namespace.map(str::to_owned),
            selector: String::new(),
        }
    }
}

impl std::fmt::Display for Listing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.resource.group_resource())?;
        if let Some(namespace) = &self.namespace {
            write!(f, " in namespace {namespace}")?;
        }
        if !self.selector.is_empty() {
            write!(f, " with labels {}", self.selector)?;
        }
        Ok(())
    }
}

#[derive(Debug, thiserror::Error)]
pub enum PageError {
    #[error("{}", plain(.0))]
    Api(#[from] kube::Error),
    #[error("no answer within {} s", PAGE_TIMEOUT.as_secs())]
    Timeout,
    /// The answer has more bytes than allowed.
    #[error("the page has more than {0} bytes")]
    TooLarge(u64),
    #[error("the answer broke off: {0}")]
    Cut(#[source] std::io::Error),
    #[error("the answer is not a list: {0}")]
    Malformed(#[source] serde_json::Error),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// The continue token has expired: start this list again.
    Restart,
    Smaller,
    /// The type, or the namespace, no longer exists.
    Vanished,
    Retry,
    /// The error is not temporary.
    GiveUp,
}

impl PageError {
    pub fn remedy(&self) -> Remedy {
        match self {
            Self::Api(kube::Error::Api(status)) => match status.code {
                410 => Remedy::Restart,
                404 => Remedy::Vanished,
                // 401: tokens are replaced from time to time.
                401 | 408 | 429 | 500..=599 => Remedy::Retry,
                403 if is_of_start(status) => Remedy::Retry,
                _ => Remedy::GiveUp,
            },
            Self::Api(kube::Error::BuildRequest(_)) => Remedy::GiveUp,
            Self::TooLarge(_) => Remedy::Smaller,
            Self::Api(_) | Self::Timeout | Self::Cut(_) | Self::Malformed(_) => Remedy::Retry,
        }
    }
}

/// Position of a page in its list, and the version of the list.
#[derive(Clone, Copy, Debug)]
pub enum Position<'a> {
    /// The first page of the newest state.
    Newest,
    /// The first page of the state at this resourceVersion, or later. The API server need not ask
    /// etcd for the newest one, which takes up to 100 ms for the second list of a type
    /// (`pkg/storage/cacher/progress`, v1.34).
    NotOlderThan(&'a str),
    /// The page with this continue token.
    Token(&'a str),
}

pub async fn fetch(
    client: &Client,
    listing: &Listing,
    limit: u32,
    position: Position<'_>,
) -> Result<Page, PageError> {
    fetch_small(client, listing, limit, position, PAGE_BYTES).await
}

/// The same; an answer of more than `most` bytes is [`PageError::TooLarge`].
pub async fn fetch_small(
    client: &Client,
    listing: &Listing,
    limit: u32,
    position: Position<'_>,
    most: u64,
) -> Result<Page, PageError> {
    let mut params = ListParams {
        label_selector: Some(listing.selector.clone()).filter(|selector| !selector.is_empty()),
        limit: Some(limit),
        ..ListParams::default()
    };
    match position {
        Position::Newest => {}
        Position::NotOlderThan(version) => {
            params = params.at(version).matching(VersionMatch::NotOlderThan);
        }
        Position::Token(token) => params = params.continue_token(token),
    }
    let path = DynamicObject::url_path(
        &api_resource(&listing.resource),
        listing.namespace.as_deref(),
    );
    let request = Request::new(path)
        .list(&params)
        .map_err(kube::Error::BuildRequest)?;
    let most = if limit > 1 { most } else { u64::MAX };
    let text = tokio::time::timeout(PAGE_TIMEOUT, read(client, request, most))
        .await
        .map_err(|_| PageError::Timeout)??;
    serde_json::from_str(&text).map_err(PageError::Malformed)
}

/// The body of an answer, if it has at most `most` bytes.
async fn read(
    client: &Client,
    request: http::Request<Vec<u8>>,
    most: u64,
) -> Result<String, PageError> {
    let body = client.request_stream(request).await?;
    let mut text = String::new();
    std::pin::pin!(body)
        .take(most.saturating_add(1))
        .read_to_string(&mut text)
        .await
        .map_err(PageError::Cut)?;
    if text.len() as u64 > most {
        Err(PageError::TooLarge(most))
    } else {
        Ok(text)
    }
}

/// The type in kube's form, for URLs.
pub fn api_resource(resource: &ResourceType) -> ApiResource {
    let ResourceType {
        group,
        version,
        kind,
        plural,
        ..
    } = resource;
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_keeps_its_items_as_they_were_sent() {
        let page: Page = serde_json::from_str(
            r#"{"kind":"ConfigMapList","apiVersion":"v1",
                "metadata":{"resourceVersion":"7","continue":"abc","remainingItemCount":12},
                "items":[ {"metadata":{"name":"a"},"x":1.50} ,{"metadata":{"name":"b"}}]}"#,
        )
        .unwrap();
        assert_eq!(page.next(), Some("abc"));
        assert_eq!(page.remaining(), 12);
        let items: Vec<_> = page.items.iter().map(|item| item.get()).collect();
        assert_eq!(
            items,
            [
                r#"{"metadata":{"name":"a"},"x":1.50}"#,
                r#"{"metadata":{"name":"b"}}"#
            ]
        );
    }

    #[test]
    fn the_last_page_has_no_token_and_may_have_no_items() {
        for text in [
            r#"{"metadata":{},"items":[]}"#,
            r#"{"metadata":{"continue":""},"items":null}"#,
            r#"{"apiVersion":"example.com/v1","items":[],"kind":"WidgetList","metadata":{"continue":"","resourceVersion":"1"}}"#,
            "{}",
        ] {
            let page: Page = serde_json::from_str(text).unwrap();
            assert_eq!(
                (page.next(), page.remaining(), page.items.len()),
                (None, 0, 0),
                "{text}"
            );
        }
        assert!(serde_json::from_str::<Page>(r#"{"items":{"#).is_err());
    }

    #[test]
    fn errors_that_may_pass_are_told_from_those_that_will_not() {
        use kube::core::Status;
        for (code, remedy) in [
            (401, Remedy::Retry),
            (410, Remedy::Restart),
            (404, Remedy::Vanished),
            (429, Remedy::Retry),
            (500, Remedy::Retry),
            (503, Remedy::Retry),
            (400, Remedy::GiveUp),
            (403, Remedy::GiveUp),
            (405, Remedy::GiveUp),
        ] {
            let error = PageError::Api(kube::Error::Api(
                Status::failure("x", "y").with_code(code).boxed(),
            ));
            assert_eq!(error.remedy(), remedy, "{code}");
        }
        assert_eq!(PageError::Timeout.remedy(), Remedy::Retry);
    }

    #[test]
    fn a_listing_names_itself() {
        let mut listing = Listing::v1("apps", "Deployment", "deployments", None);
        assert_eq!(listing.to_string(), "deployments.apps");
        listing.namespace = Some("shop".into());
        listing.selector = "app=web".into();
        assert_eq!(
            listing.to_string(),
            "deployments.apps in namespace shop with labels app=web"
        );
    }
}
