//! Decoded lists, read page by page to their end.

use kube::{api::ListParams, core::ObjectList};

/// Reads a list, and returns the results of `keep`, so that no more than a page of whole objects is
/// in memory. `request` reads one page, with the timeout, the retries and the errors of its caller;
/// an error ends the list, as does a continue token that has expired (410).
pub async fn collect<K, T, E, F, Fut>(
    mut params: ListParams,
    request: F,
    mut keep: impl FnMut(K) -> Option<T>,
) -> Result<Vec<T>, E>
where
    K: Clone,
    F: Fn(ListParams) -> Fut,
    Fut: Future<Output = Result<ObjectList<K>, E>>,
{
    let mut kept = Vec::new();
    loop {
        let page = request(params.clone()).await?;
        kept.extend(page.items.into_iter().filter_map(&mut keep));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(kept),
        }
    }
}

#[cfg(test)]
mod tests {
    use backup_testkit::FakeApi;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::{Api, ResourceExt as _};
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn what_is_kept_comes_from_all_pages() {
        let fake = FakeApi::new();
        for name in ["a", "b", "c", "d", "e"] {
            let map = json!({ "metadata": { "name": name, "namespace": "x" } });
            fake.put(&format!("/api/v1/namespaces/x/configmaps/{name}"), map);
        }
        let api: &Api<ConfigMap> = &Api::namespaced(fake.client(), "x");
        let kept = collect(
            ListParams::default().limit(2),
            |page| async move { api.list(&page).await },
            |map: ConfigMap| Some(map.name_any()).filter(|name| name != "b"),
        )
        .await
        .unwrap();
        assert_eq!(kept, ["a", "c", "d", "e"]);
        assert_eq!(fake.log().len(), 3, "{:?}", fake.log());
    }
}
