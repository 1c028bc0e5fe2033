//! One object of a backup.

/// A user's name for an object: `shop/deployments/web`, or `persistentvolumes/pv-1` without a
/// namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectName<'a> {
    pub namespace: Option<&'a str>,
    /// As the user wrote it: `deployments.apps`, `deployment` or `deploy`.
    pub of_type: &'a str,
    pub name: &'a str,
}

impl<'a> ObjectName<'a> {
    /// Means no namespace.
    pub const CLUSTER: &'static str = ".";

    /// Returns `None` if the text is neither `NAMESPACE/TYPE/NAME` nor `TYPE/NAME`.
    pub fn parse(text: &'a str) -> Option<Self> {
        let parts: Vec<&str> = text.split('/').collect();
        let (namespace, of_type, name) = match *parts.as_slice() {
            [of_type, name] | [Self::CLUSTER, of_type, name] => (None, of_type, name),
            [namespace, of_type, name] => (Some(namespace), of_type, name),
            _ => return None,
        };
        let named = !of_type.is_empty() && !name.is_empty() && namespace != Some("");
        named.then_some(Self {
            namespace,
            of_type,
            name,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_two_or_three_parts() {
        let of = |namespace, of_type, name| {
            Some(ObjectName {
                namespace,
                of_type,
                name,
            })
        };
        for (text, expected) in [
            (
                "shop/deployments.apps/web",
                of(Some("shop"), "deployments.apps", "web"),
            ),
            ("pv/pv-1", of(None, "pv", "pv-1")),
            (
                "./clusterroles/system:node",
                of(None, "clusterroles", "system:node"),
            ),
            ("web", None),
            ("shop/deployments/web/status", None),
            ("shop/deployments/", None),
            ("shop//web", None),
            ("/deployments/web", None),
            ("", None),
        ] {
            assert_eq!(ObjectName::parse(text), expected, "{text:?}");
        }
    }
}
