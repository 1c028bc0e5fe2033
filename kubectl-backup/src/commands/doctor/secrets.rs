//! Secrets that something of the installation needs. Their values are never shown.

use k8s_openapi::api::core::v1::Secret;

use super::{Finding, Topic};
use crate::commands::prelude::*;

/// A finding if a key of a Secret does not exist or has no value. `user` says whose Secret it is,
/// after its name.
pub(super) async fn problem(
    session: &Session,
    on: Topic,
    user: &str,
    (name, key): (&str, &str),
) -> Option<Finding> {
    let namespace = &session.namespace;
    let found = optional(session.get::<Secret>(name).await);
    let name = plain(name);
    let entry = plain(key);
    let secret = format!("Secret {name} {user}");
    let edit = format!("kubectl -n {namespace} edit secret {name}");
    match found {
        Ok(Some(found)) => {
            let value = found.data.as_ref().and_then(|data| data.get(key));
            match value {
                None => {
                    let remedy = format!("Add it: {edit}");
                    Some(on.bad(format!("{secret} has no key {entry}"), remedy))
                }
                Some(value) if value.0.trim_ascii().is_empty() => {
                    let text = format!("{secret} has no value under the key {entry}");
                    Some(on.bad(text, format!("Set it: {edit}")))
                }
                Some(_) => None,
            }
        }
        Ok(None) => {
            let remedy = format!(
                "kubectl -n {namespace} create secret generic {name} --from-file={entry}=FILE"
            );
            Some(on.bad(format!("{secret} does not exist"), remedy))
        }
        Err(problem) => Some(on.unknown(
            &format!("whether {secret} exists: {problem}"),
            problem.remedy,
        )),
    }
}
