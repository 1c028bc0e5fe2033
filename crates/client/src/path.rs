//! URL paths of collections.

use std::fmt::Write as _;

/// The path of the objects of a resource. `api_version` is `v1` or `apps/v1`.
pub fn collection(api_version: &str, plural: &str, namespace: Option<&str>) -> String {
    let root = if api_version.contains('/') {
        "/apis/"
    } else {
        "/api/"
    };
    match namespace {
        Some(namespace) => format!("{root}{api_version}/namespaces/{namespace}/{plural}"),
        None => format!("{root}{api_version}/{plural}"),
    }
}

/// Encodes a name as one segment of a path. Some kinds (RBAC) allow names with characters that are
/// special in a URL.
pub fn segment(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~:@!$&'()*+,;=".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// Whether the API server accepts this as the name of any object (`ValidatePathSegmentName` in
/// apimachinery).
pub fn is_segment(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '%'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_follow_group_and_scope() {
        assert_eq!(
            collection("v1", "pods", Some("a")),
            "/api/v1/namespaces/a/pods"
        );
        assert_eq!(
            collection("apps/v1", "deployments", Some("a")),
            "/apis/apps/v1/namespaces/a/deployments"
        );
        assert_eq!(collection("v1", "namespaces", None), "/api/v1/namespaces");
    }

    #[test]
    fn a_name_stays_one_segment() {
        assert_eq!(segment("system:node"), "system:node");
        assert_eq!(segment("a b?c#d"), "a%20b%3Fc%23d");
        for bad in ["", ".", "..", "a/b", "a%2fb"] {
            assert!(!is_segment(bad), "{bad}");
        }
        assert!(is_segment("system:node"));
    }
}
