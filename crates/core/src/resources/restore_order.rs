//! The order in which a restore processes types.

use std::str::FromStr;

use super::{DEFINITIONS, NAMESPACES};

/// Types restored first, in this order: each may be needed by a later one.
///
/// Velero's default order (`pkg/cmd/server/config/config.go`, v1.18) with full names.
const HIGH: &[&str] = &[
    DEFINITIONS,
    NAMESPACES,
    "storageclasses.storage.k8s.io",
    "volumesnapshotclasses.snapshot.storage.k8s.io",
    "volumesnapshotcontents.snapshot.storage.k8s.io",
    "volumesnapshots.snapshot.storage.k8s.io",
    "datauploads.velero.io",
    "persistentvolumes",
    "persistentvolumeclaims",
    "clusterroles.rbac.authorization.k8s.io",
    "roles.rbac.authorization.k8s.io",
    "serviceaccounts",
    "clusterrolebindings.rbac.authorization.k8s.io",
    "rolebindings.rbac.authorization.k8s.io",
    "secrets",
    "configmaps",
    "limitranges",
    "priorityclasses.scheduling.k8s.io",
    "pods",
    "replicasets.apps",
    "clusterclasses.cluster.x-k8s.io",
    "endpoints",
    "services",
];

/// Types restored last, in this order.
const LOW: &[&str] = &[
    "clusterbootstraps.run.tanzu.vmware.com",
    "clusters.cluster.x-k8s.io",
    "clusterresourcesets.addons.cluster.x-k8s.io",
    "apps.kappctrl.k14s.io",
    "packageinstalls.packaging.carvel.dev",
];

/// Types that come first and types that come last, each in order; the others are between them, by
/// name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreOrder {
    high: Vec<String>,
    low: Vec<String>,
}

impl Default for RestoreOrder {
    fn default() -> Self {
        let [high, low] =
            [HIGH, LOW].map(|names| names.iter().map(|name| (*name).to_owned()).collect());
        Self { high, low }
    }
}

/// As in Velero's flag `--restore-resource-priorities` (`pkg/types/priority.go`, v1.18): the first
/// types, `-`, the last types.
impl FromStr for RestoreOrder {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names: Vec<&str> = text.split(',').map(str::trim).collect();
        let mut parts = names.split(|name| *name == "-");
        let [high, low] = [parts.next(), parts.next()].map(Option::unwrap_or_default);
        if parts.next().is_some() {
            return Err(
                "\"-\" separates what comes first from what comes last, and can be given once"
                    .to_owned(),
            );
        }
        if names != [""] && names.contains(&"") {
            return Err(
                "expected names of resources, separated by commas; one is empty".to_owned(),
            );
        }
        Ok(Self {
            high: non_empty(high),
            low: non_empty(low),
        })
    }
}

impl RestoreOrder {
    /// Sorts types, given as `plural.group`. `resolve` completes a name as users write it.
    pub fn sort(&self, types: &mut [String], resolve: &dyn Fn(&str) -> Option<String>) {
        let high = completed(&self.high, resolve);
        let low = completed(&self.low, resolve);
        types.sort_by_cached_key(|name| {
            if let Some(place) = high.iter().position(|other| other == name) {
                (place, String::new())
            } else if let Some(place) = low.iter().position(|other| other == name) {
                (high.len() + 1 + place, String::new())
            } else {
                (high.len(), name.clone())
            }
        });
    }
}

fn non_empty(names: &[&str]) -> Vec<String> {
    names
        .iter()
        .filter(|name| !name.is_empty())
        .map(|name| (*name).to_owned())
        .collect()
}

fn completed(names: &[String], resolve: &dyn Fn(&str) -> Option<String>) -> Vec<String> {
    names
        .iter()
        .map(|name| resolve(name).unwrap_or_else(|| name.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(order: &RestoreOrder, types: &[&str]) -> Vec<String> {
        let mut types: Vec<String> = types.iter().map(|name| (*name).to_owned()).collect();
        order.sort(&mut types, &|name| {
            (name == "po").then(|| "pods".to_owned())
        });
        types
    }

    #[test]
    fn what_others_need_is_restored_first() {
        let types = [
            "clusters.cluster.x-k8s.io",
            "widgets.example.com",
            "services",
            "apples.example.com",
            "pods",
            "namespaces",
            "customresourcedefinitions.apiextensions.k8s.io",
            "persistentvolumeclaims",
        ];
        assert_eq!(
            sorted(&RestoreOrder::default(), &types),
            [
                "customresourcedefinitions.apiextensions.k8s.io",
                "namespaces",
                "persistentvolumeclaims",
                "pods",
                "services",
                "apples.example.com",
                "widgets.example.com",
                "clusters.cluster.x-k8s.io",
            ]
        );
    }

    #[test]
    fn the_default_order_is_that_of_velero() {
        let first = [
            "customresourcedefinitions.apiextensions.k8s.io",
            "namespaces",
            "storageclasses.storage.k8s.io",
            "volumesnapshotclasses.snapshot.storage.k8s.io",
            "volumesnapshotcontents.snapshot.storage.k8s.io",
            "volumesnapshots.snapshot.storage.k8s.io",
            "datauploads.velero.io",
            "persistentvolumes",
            "persistentvolumeclaims",
            "clusterroles.rbac.authorization.k8s.io",
            "roles.rbac.authorization.k8s.io",
            "serviceaccounts",
            "clusterrolebindings.rbac.authorization.k8s.io",
            "rolebindings.rbac.authorization.k8s.io",
            "secrets",
            "configmaps",
            "limitranges",
            "priorityclasses.scheduling.k8s.io",
            "pods",
            "replicasets.apps",
            "clusterclasses.cluster.x-k8s.io",
            "endpoints",
            "services",
        ];
        let last = [
            "clusterbootstraps.run.tanzu.vmware.com",
            "clusters.cluster.x-k8s.io",
            "clusterresourcesets.addons.cluster.x-k8s.io",
            "apps.kappctrl.k14s.io",
            "packageinstalls.packaging.carvel.dev",
        ];
        let expected = [
            &first[..],
            &["cronjobs.batch", "deployments.apps", "zebras.example.com"],
            &last,
        ]
        .concat();
        let mut types = expected.clone();
        types.sort_unstable();
        assert_eq!(sorted(&RestoreOrder::default(), &types), expected);
    }

    #[test]
    fn an_order_of_ones_own_takes_the_place_of_the_other() {
        let types = ["apples.example.com", "pods", "secrets", "services"];
        for (text, expected) in [
            (
                "services,po,-,apples.example.com",
                ["services", "pods", "secrets", "apples.example.com"],
            ),
            (
                "services",
                ["services", "apples.example.com", "pods", "secrets"],
            ),
            (
                "-, pods",
                ["apples.example.com", "secrets", "services", "pods"],
            ),
            ("", ["apples.example.com", "pods", "secrets", "services"]),
        ] {
            assert_eq!(sorted(&text.parse().unwrap(), &types), expected, "{text}");
        }
        for text in ["a,-,b,-,c", "a,,b", ","] {
            assert!(text.parse::<RestoreOrder>().is_err(), "{text}");
        }
    }
}
