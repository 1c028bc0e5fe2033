//! Secrets: tokens of service accounts are issued by the cluster, never brought along.

use super::json::{self, Object};

const TOKEN: &str = "kubernetes.io/service-account-token";
const ACCOUNT: &str = "kubernetes.io/service-account.name";

fn is_token(item: &Object) -> bool {
    item.get("type").and_then(|t| t.as_str()) == Some(TOKEN)
}

/// A token that the cluster made by itself is made again when its account is restored.
pub(crate) fn skip_reason(item: &Object) -> Option<&'static str> {
    let account = json::text(item, &["metadata", "annotations"], ACCOUNT)?;
    let name = json::text(item, &["metadata"], "name")?;
    let generated = name
        .strip_prefix(account)
        .and_then(|rest| rest.strip_prefix("-token-"))
        .is_some_and(|s| s.len() == 5);
    (is_token(item) && generated).then_some("the cluster issues tokens of service accounts itself")
}

/// A token Secret that a person asked for comes back empty; the token controller fills it for the new account.
pub(crate) fn rewrite(item: &mut Object) {
    if is_token(item) {
        json::remove(item, &["metadata", "annotations"], &["kubernetes.io/service-account.uid"]);
        json::remove(item, &["data"], &["token", "ca.crt", "namespace"]);
    }
}
