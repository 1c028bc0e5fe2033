//! Paths inside the tarball.

use crate::StoreError;

/// First entry of a tarball.
pub(super) const VERSION: &str = "metadata/version";
/// Suffix of the version in a path, if it is the group's preferred one.
const PREFERRED: &str = "-preferredversion";
/// Maximum length of a path, as in Linux (bytes).
const MAX_PATH: usize = 4096;
/// Maximum length of a namespace's name (bytes): a label of DNS.
const MAX_NAMESPACE: usize = 63;
/// Maximum length of a version (bytes): a label of DNS.
const MAX_VERSION: usize = 63;
/// Maximum length of `<resource>.<group>` (bytes): a label and a subdomain of DNS.
const MAX_RESOURCE: usize = 63 + 1 + 253;

/// Names an item and its place in the tarball.
#[derive(Clone, Copy, Debug)]
pub struct ItemPath<'a> {
    /// `pods`, `deployments.apps`.
    pub group_resource: &'a str,
    /// Version of the API that the item was read with: `v1`.
    pub version: &'a str,
    /// Whether that is the group's preferred version. Others have no unversioned path, and are not
    /// restored by default.
    pub preferred: bool,
    /// Namespace; `None` for cluster-scoped items.
    pub namespace: Option<&'a str>,
    pub name: &'a str,
}

/// The path of an item in a version that is not the preferred one of its group.
pub(super) fn versioned(
    group_resource: &str,
    version: &str,
    namespace: Option<&str>,
    name: &str,
) -> String {
    plain(&format!("{group_resource}/{version}"), namespace, name)
}

/// The path of an item, without a version.
pub(super) fn plain(group_resource: &str, namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(namespace) => format!("resources/{group_resource}/namespaces/{namespace}/{name}.json"),
        None => format!("resources/{group_resource}/cluster/{name}.json"),
    }
}

impl ItemPath<'_> {
    /// The paths to write, in this order. Errors: a part that would leave its folder.
    pub(super) fn paths(&self) -> Result<Vec<String>, StoreError> {
        let Self {
            group_resource,
            version,
            namespace,
            name,
            ..
        } = *self;
        let path = plain(group_resource, namespace, name);
        for part in [group_resource, version, namespace.unwrap_or("-"), name] {
            if !is_part(part) {
                let detail = format!("{part:?} cannot be part of a path");
                return Err(StoreError::Item { path, detail });
            }
        }
        Ok(if self.preferred {
            let preferred = format!("{version}{PREFERRED}");
            vec![path, versioned(group_resource, &preferred, namespace, name)]
        } else {
            vec![versioned(group_resource, version, namespace, name)]
        })
    }
}

fn is_part(part: &str) -> bool {
    !part.is_empty() && part != "." && part != ".." && !part.contains(['/', '\0'])
}

#[derive(Debug, PartialEq, Eq)]
pub enum Entry<'a> {
    Item {
        /// `pods`, `deployments.apps`.
        group_resource: &'a str,
        namespace: Option<&'a str>,
        name: &'a str,
    },
    /// An item at a path that includes the version it was read with.
    Versioned {
        group_resource: &'a str,
        version: &'a str,
        /// Whether the path says that this is the group's preferred version.
        preferred: bool,
        namespace: Option<&'a str>,
        name: &'a str,
    },
    Version,
    Other,
}

/// Parses a path. Errors: why the path must not be followed.
pub(super) fn parse(path: &[u8]) -> Result<Entry<'_>, &'static str> {
    let path = std::str::from_utf8(path).map_err(|_| "its path is not UTF-8")?;
    if path.len() > MAX_PATH {
        return Err("its path has more than 4096 bytes");
    }
    if path.contains('\0') {
        return Err("its path has a zero byte");
    }
    if path.starts_with('/') {
        return Err("its path is absolute");
    }
    let parts: Vec<&str> = path
        .split('/')
        .filter(|part| !part.is_empty() && *part != ".")
        .collect();
    if parts.contains(&"..") {
        return Err("its path leaves the archive");
    }
    let entry = match parts[..] {
        ["metadata", "version"] => Entry::Version,
        ["resources", group_resource, "cluster", file] => item(group_resource, None, None, file),
        ["resources", group_resource, "namespaces", namespace, file] => {
            item(group_resource, None, Some(namespace), file)
        }
        ["resources", group_resource, version, "cluster", file] => {
            item(group_resource, Some(version), None, file)
        }
        [
            "resources",
            group_resource,
            version,
            "namespaces",
            namespace,
            file,
        ] => item(group_resource, Some(version), Some(namespace), file),
        _ => Entry::Other,
    };
    if let Entry::Item {
        group_resource,
        namespace,
        ..
    }
    | Entry::Versioned {
        group_resource,
        namespace,
        ..
    } = entry
    {
        if group_resource.len() > MAX_RESOURCE {
            return Err("its resource has a longer name than any in Kubernetes");
        }
        if namespace.is_some_and(|namespace| namespace.len() > MAX_NAMESPACE) {
            return Err("its namespace has a longer name than any in Kubernetes");
        }
    }
    if matches!(entry, Entry::Versioned { version, .. } if version.len() > MAX_VERSION) {
        return Err("its version has a longer name than any in Kubernetes");
    }
    Ok(entry)
}

fn item<'a>(
    group_resource: &'a str,
    version: Option<&'a str>,
    namespace: Option<&'a str>,
    file: &'a str,
) -> Entry<'a> {
    let Some(name) = file.strip_suffix(".json").filter(|name| !name.is_empty()) else {
        return Entry::Other;
    };
    let Some(folder) = version else {
        return Entry::Item {
            group_resource,
            namespace,
            name,
        };
    };
    let preferred = folder.strip_suffix(PREFERRED);
    let version = preferred.unwrap_or(folder);
    Entry::Versioned {
        group_resource,
        version,
        preferred: preferred.is_some(),
        namespace,
        name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path<'a>(
        group_resource: &'a str,
        namespace: Option<&'a str>,
        name: &'a str,
    ) -> ItemPath<'a> {
        ItemPath {
            group_resource,
            version: "v1",
            preferred: true,
            namespace,
            name,
        }
    }

    #[test]
    fn an_item_of_the_preferred_version_has_two_paths_the_plain_one_first() {
        assert_eq!(
            path("pods", Some("ns"), "p").paths().unwrap(),
            [
                "resources/pods/namespaces/ns/p.json",
                "resources/pods/v1-preferredversion/namespaces/ns/p.json"
            ]
        );
        assert_eq!(
            path(
                "clusterroles.rbac.authorization.k8s.io",
                None,
                "system:node"
            )
            .paths()
            .unwrap(),
            [
                "resources/clusterroles.rbac.authorization.k8s.io/cluster/system:node.json",
                "resources/clusterroles.rbac.authorization.k8s.io/v1-preferredversion/cluster/system:node.json"
            ]
        );
        let other = ItemPath {
            preferred: false,
            version: "v1beta1",
            ..path("jobs.batch", Some("a"), "b")
        };
        assert_eq!(
            other.paths().unwrap(),
            ["resources/jobs.batch/v1beta1/namespaces/a/b.json"]
        );
    }

    #[test]
    fn a_part_that_would_leave_its_folder_is_refused() {
        for bad in ["", ".", "..", "a/b", "../x", "a\0"] {
            for item in [
                path(bad, None, "n"),
                path("pods", Some(bad), "n"),
                path("pods", None, bad),
            ] {
                assert!(item.paths().unwrap_err().is_item());
            }
        }
    }

    #[test]
    fn a_path_says_which_item_it_holds_and_in_which_version() {
        let item = |group_resource, namespace, name| {
            Ok(Entry::Item {
                group_resource,
                namespace,
                name,
            })
        };
        let versioned = |preferred, namespace| {
            let (group_resource, version, name) = ("pods", "v1", "p");
            Ok(Entry::Versioned {
                group_resource,
                version,
                preferred,
                namespace,
                name,
            })
        };
        let table = [
            ("metadata/version", Ok(Entry::Version)),
            (
                "resources/pods/namespaces/a/p.json",
                item("pods", Some("a"), "p"),
            ),
            (
                "./resources/pods/namespaces/a/p.json",
                item("pods", Some("a"), "p"),
            ),
            (
                "resources/nodes/cluster/n.json.json",
                item("nodes", None, "n.json"),
            ),
            (
                "resources/pods/v1-preferredversion/namespaces/a/p.json",
                versioned(true, Some("a")),
            ),
            (
                "resources/pods/v1/namespaces/a/p.json",
                versioned(false, Some("a")),
            ),
            ("resources/pods/v1/cluster/p.json", versioned(false, None)),
            ("resources/pods/v1/cluster/p", Ok(Entry::Other)),
            ("resources/pods/cluster/.json", Ok(Entry::Other)),
            ("resources/pods/cluster/p.yaml", Ok(Entry::Other)),
            ("something/else", Ok(Entry::Other)),
            ("", Ok(Entry::Other)),
            (
                "/resources/pods/cluster/p.json",
                Err("its path is absolute"),
            ),
            (
                "resources/../../etc/passwd",
                Err("its path leaves the archive"),
            ),
            (
                "resources/pods/namespaces/../p.json",
                Err("its path leaves the archive"),
            ),
            (
                "resources/pods/cluster/a\0b.json",
                Err("its path has a zero byte"),
            ),
        ];
        for (path, expected) in table {
            assert_eq!(parse(path.as_bytes()), expected, "{path}");
        }
        assert!(parse(b"resources/\xff").is_err());
    }

    #[test]
    fn what_is_longer_than_anything_in_a_cluster_is_refused() {
        let name = |length: usize| "x".repeat(length);
        for (path, most) in [
            (
                plain("pods", None, &name(4096)),
                "its path has more than 4096 bytes",
            ),
            (
                plain("pods", Some(&name(64)), "p"),
                "its namespace has a longer name than any in Kubernetes",
            ),
            (
                plain(&name(318), None, "p"),
                "its resource has a longer name than any in Kubernetes",
            ),
            (
                versioned(&name(318), "v1", None, "p"),
                "its resource has a longer name than any in Kubernetes",
            ),
            (
                versioned("pods", &name(64), None, "p"),
                "its version has a longer name than any in Kubernetes",
            ),
        ] {
            assert_eq!(parse(path.as_bytes()), Err(most));
        }
        for path in [
            plain("pods", None, &name(4000)),
            plain(&name(317), Some(&name(63)), &name(253)),
        ] {
            assert!(
                matches!(parse(path.as_bytes()), Ok(Entry::Item { .. })),
                "{path}"
            );
        }
    }
}
