//! Finds the ClusterRole of ours that allows a request which RBAC has refused, and how to bind it.

/// A ClusterRole of `deploy/base/people-rbac.yaml`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    ClusterViewer,
    LockOperator,
    LockView,
    Operator,
    Reader,
    Restorer,
    Viewer,
}

impl Role {
    /// The role with the fewest rights that allows the request; `resource` includes the subresource
    /// (`services/proxy`).
    pub(crate) fn for_request(verb: &str, group: &str, resource: &str) -> Option<Self> {
        let reads = ["get", "list", "watch"].contains(&verb);
        let writes = ["create", "update", "patch", "delete"].contains(&verb);
        Some(match (group, resource) {
            ("", "namespaces" | "persistentvolumeclaims" | "persistentvolumes")
            | ("apiextensions.k8s.io", "customresourcedefinitions")
            | ("storage.k8s.io", "csidrivers")
            | ("snapshot.storage.k8s.io", "volumesnapshotclasses")
                if reads =>
            {
                Self::ClusterViewer
            }
            (
                "velero.io",
                "backups"
                | "restores"
                | "schedules"
                | "backupstoragelocations"
                | "volumesnapshotlocations"
                | "deletebackuprequests"
                | "datauploads"
                | "datadownloads"
                | "backuprepositories",
            )
            | ("coordination.k8s.io", "leases")
            | ("" | "events.k8s.io", "events")
                if reads =>
            {
                Self::Viewer
            }
            ("velero.io", "serverstatusrequests") if ["create", "get"].contains(&verb) => {
                Self::Viewer
            }
            ("velero.io", "backups" | "schedules") if writes => Self::Operator,
            ("velero.io", "deletebackuprequests") if ["create", "delete"].contains(&verb) => {
                Self::Operator
            }
            ("coordination.k8s.io", "leases") if verb == "update" => Self::Operator,
            ("velero.io", "restores") if writes => Self::Restorer,
            ("velero.io", "downloadrequests") if ["create", "get"].contains(&verb) => Self::Reader,
            ("", "services/proxy") if verb == "get" => Self::Reader,
            _ => return None,
        })
    }

    /// The role that allows the request named in the API server's refusal.
    pub(crate) fn for_refusal(message: &str) -> Option<Self> {
        let (_, refused) = message.split_once(" cannot ")?;
        let (verb, refused) = refused.split_once(" resource \"")?;
        let (resource, refused) = refused.split_once('"')?;
        let (_, refused) = refused.split_once(" in API group \"")?;
        let (group, _) = refused.split_once('"')?;
        Self::for_request(verb, group, resource)
    }

    const fn name(self) -> &'static str {
        match self {
            Self::ClusterViewer => "backup-cluster-viewer",
            Self::LockOperator => "backup-lock-operator",
            Self::LockView => "backup-lock-view",
            Self::Operator => "backup-operator",
            Self::Reader => "backup-reader",
            Self::Restorer => "backup-restorer",
            Self::Viewer => "backup-viewer",
        }
    }

    /// Further rights of the role that an administrator should know about.
    const fn warning(self) -> &'static str {
        match self {
            Self::Reader => ", which reads all that is in backups, Secrets among it,",
            Self::Operator | Self::Restorer => ", in effect a cluster administrator,",
            Self::ClusterViewer | Self::LockOperator | Self::LockView | Self::Viewer => "",
        }
    }

    /// How to get the role bound.
    pub(crate) fn remedy(self, namespace: &str) -> String {
        let role = self.name();
        let warning = self.warning();
        if self == Self::ClusterViewer {
            return format!(
                "It takes the ClusterRole {role} in the whole cluster. An administrator gives it: \
                 kubectl create clusterrolebinding {role}-NAME --clusterrole={role} --user=NAME"
            );
        }
        format!(
            "It takes the ClusterRole {role}{warning} in namespace {namespace}. An administrator gives it: \
             kubectl -n {namespace} create rolebinding {role}-NAME --clusterrole={role} --user=NAME"
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    const SHIPPED: &str = include_str!("../../../deploy/base/people-rbac.yaml");

    fn allows(role: Role, verb: &str, group: &str, resource: &str) -> bool {
        let documents = SHIPPED
            .split("\n---\n")
            .map(|text| serde_saphyr::from_str::<Value>(text).unwrap());
        let found = documents
            .into_iter()
            .find(|one| one["metadata"]["name"] == role.name())
            .unwrap();
        let has = |rule: &Value, field: &str, wanted: &str| {
            rule[field]
                .as_array()
                .unwrap()
                .iter()
                .any(|one| one == wanted)
        };
        found["rules"].as_array().unwrap().iter().any(|rule| {
            has(rule, "apiGroups", group)
                && has(rule, "resources", resource)
                && has(rule, "verbs", verb)
        })
    }

    /// A role that a remedy names allows the request.
    #[test]
    fn a_role_that_is_named_allows_what_was_refused() {
        let resources = [
            ("", "namespaces"),
            ("", "persistentvolumeclaims"),
            ("", "events"),
            ("", "services/proxy"),
            ("", "secrets"),
            ("apiextensions.k8s.io", "customresourcedefinitions"),
            (
                "admissionregistration.k8s.io",
                "validatingwebhookconfigurations",
            ),
            ("coordination.k8s.io", "leases"),
            ("events.k8s.io", "events"),
            ("velero.io", "backups"),
            ("velero.io", "restores"),
            ("velero.io", "schedules"),
            ("velero.io", "backupstoragelocations"),
            ("velero.io", "volumesnapshotlocations"),
            ("velero.io", "deletebackuprequests"),
            ("velero.io", "datauploads"),
            ("velero.io", "datadownloads"),
            ("velero.io", "downloadrequests"),
            ("velero.io", "serverstatusrequests"),
            ("velero.io", "backuprepositories"),
        ];
        let mut named = 0;
        for (group, resource) in resources {
            for verb in [
                "get", "list", "watch", "create", "update", "patch", "delete",
            ] {
                let Some(role) = Role::for_request(verb, group, resource) else {
                    continue;
                };
                let what = format!("{role:?}: {verb} {group}/{resource}");
                assert!(allows(role, verb, group, resource), "{what}");
                named += 1;
            }
        }
        assert!(named > 30, "{named}");
    }

    #[test]
    fn what_the_api_server_says_names_the_role() {
        let refusal = |verb: &str, resource: &str, group: &str| {
            format!(
                "x is forbidden: User \"jane\" cannot {verb} resource \"{resource}\" in API group \"{group}\" in the namespace \"velero\""
            )
        };
        for (verb, resource, group, role) in [
            ("list", "namespaces", "", Some(Role::ClusterViewer)),
            ("list", "backups", "velero.io", Some(Role::Viewer)),
            ("create", "restores", "velero.io", Some(Role::Restorer)),
            ("get", "services/proxy", "", Some(Role::Reader)),
            ("create", "backupstoragelocations", "velero.io", None),
            ("list", "secrets", "", None),
        ] {
            assert_eq!(
                Role::for_refusal(&refusal(verb, resource, group)),
                role,
                "{verb} {resource}"
            );
        }
        assert_eq!(Role::for_refusal("services \"x\" is forbidden"), None);
    }
}
