//! One object, as the text that the API server sent.

use std::time::Duration;

use backup_core::resources::ResourceType;
use backup_runtime::{path, retry};
use kube::{
    Client,
    core::{DynamicObject, Resource as _, params::GetParams, request::Request},
};

use backup_runtime::page::api_resource;

/// How long one object is asked for.
const BUDGET: Duration = Duration::from_secs(30);

/// Reads an object; none if it does not exist, or no object can have this name.
///
/// # Errors
/// If it can't be read within 30 s, or for good.
pub async fn object(
    client: &Client,
    resource: &ResourceType,
    namespace: Option<&str>,
    name: &str,
) -> Result<Option<String>, kube::Error> {
    let all = DynamicObject::url_path(&api_resource(resource), namespace);
    // The client takes a name as it is; some types may have any character in theirs but a slash and a percent sign.
    if !path::is_segment(name) {
        return Ok(None);
    }
    let name = &path::segment(name);
    let request = || async {
        let get = Request::new(all.as_str()).get(name, &GetParams::default());
        client.request_text(get.map_err(kube::Error::BuildRequest)?).await
    };
    match retry::read(BUDGET, request).await {
        Ok(text) => Ok(Some(text)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}
