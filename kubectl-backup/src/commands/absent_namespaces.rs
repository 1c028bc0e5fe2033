//! Finds namespaces that a list includes by name and that do not exist.

use backup_core::namespace_names::included_by_name;
use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::Namespace;

use super::prelude::*;

/// Maximum number of namespaces that are read; further ones are not checked.
const MAX_READS: usize = 64;
const MAX_CONCURRENT_READS: usize = 8;

/// The namespaces that do not exist. A namespace that cannot be read is not one of them: not every
/// user may read namespaces.
pub(super) async fn absent(session: &Session, included: &[String]) -> Vec<String> {
    let names = included_by_name(included).into_iter().take(MAX_READS);
    let reads = stream::iter(names).map(|name| async move {
        let is_absent = is_absent(session, name).await;
        is_absent.then(|| name.to_owned())
    });
    let read: Vec<Option<String>> = reads.buffered(MAX_CONCURRENT_READS).collect().await;
    read.into_iter().flatten().collect()
}

async fn is_absent(session: &Session, name: &str) -> bool {
    let api: Api<Namespace> = Api::all(session.client.clone());
    let about = About::called("get", "namespace", "namespaces", name);
    let read = async { Ok(session.call(about, api.get_metadata(name)).await) };
    match fetched(session, read).await {
        FetchResult::Known(Err(problem)) => {
            matches!(
                problem.kind,
                ProblemKind::NoNamespace | ProblemKind::NotFound
            )
        }
        FetchResult::Known(Ok(_)) | FetchResult::Missing { .. } => false,
    }
}
