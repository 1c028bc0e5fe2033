//! The target of a request: an object or a list, and the filter of the list.

use serde_json::Value;

use crate::Request;

/// The object or the list at a path.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// Without the subresource.
    pub(crate) path: String,
    pub(crate) group: String,
    pub(crate) namespace: Option<String>,
    pub(crate) plural: String,
    /// `None`: all of them.
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
}

impl Target {
    /// `/api/<version>/…` or `/apis/<group>/<version>/…`, then
    /// `[namespaces/<namespace>/]<plural>[/<name>[/<subresource>]]`.
    pub(crate) fn of(path: &str) -> Self {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let (group, rest) = match parts.as_slice() {
            ["apis", group, _, rest @ ..] => (*group, rest),
            ["api", _, rest @ ..] => ("", rest),
            other => ("", other),
        };
        let (namespace, rest) = match rest {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (Some(*namespace), rest),
            rest => (None, rest),
        };
        let at = |n: usize| rest.get(n).map(|part| (*part).to_owned());
        let subresource = at(2);
        let path = match &subresource {
            Some(subresource) => path
                .strip_suffix(subresource.as_str())
                .unwrap_or(path)
                .trim_end_matches('/'),
            None => path,
        };
        Self {
            path: path.to_owned(),
            group: group.to_owned(),
            namespace: namespace.map(str::to_owned),
            plural: at(0).unwrap_or_default(),
            name: at(1),
            subresource,
        }
    }

    /// Whether the object at this path is in this list. `/apis/velero.io/v1/backups` lists every
    /// namespace.
    pub(crate) fn lists(&self, path: &str) -> bool {
        let other = Self::of(path);
        self.group == other.group
            && self.plural == other.plural
            && other.name.is_some()
            && (self.namespace.is_none() || self.namespace == other.namespace)
    }
}

/// The filter of a list or a watch: by name, and by equality, inequality and existence of labels.
#[derive(Clone)]
pub(crate) struct Selection {
    name: Option<String>,
    labels: String,
}

impl Selection {
    pub(crate) fn of(request: &Request) -> Self {
        let name = request
            .parameter("fieldSelector")
            .strip_prefix("metadata.name=");
        Self {
            name: name.map(str::to_owned),
            labels: request.parameter("labelSelector").to_owned(),
        }
    }

    pub(crate) fn selects(&self, object: &Value) -> bool {
        let label = |key: &str| object["metadata"]["labels"][key].as_str();
        let named = self
            .name
            .as_deref()
            .is_none_or(|name| object["metadata"]["name"] == name);
        named
            && self
                .labels
                .split(',')
                .filter(|one| !one.is_empty())
                .all(|one| {
                    if let Some((key, value)) = one.split_once("!=") {
                        label(key) != Some(value)
                    } else if let Some((key, value)) = one.split_once('=') {
                        label(key) == Some(value.trim_start_matches('='))
                    } else if let Some(key) = one.strip_prefix('!') {
                        label(key).is_none()
                    } else {
                        label(one).is_some()
                    }
                })
    }
}
