//! Service accounts bring along the ClusterRoleBindings that name them, and the ClusterRoles of these.

use std::collections::HashMap;

use backup_core::{api::Backup, resources::ResourceType};
use futures::future::BoxFuture;
use kube::Client;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::OnceCell;

use super::json::text;
use crate::backup::{
    action::{ActionError, AppliesTo, BackupItemAction, Executed, ItemId},
    collect::walk::{self, Patience, Step},
    page::Listing,
};

const NAME: &str = "velero.io/service-account";
const BINDINGS: &str = "clusterrolebindings.rbac.authorization.k8s.io";
const ROLES: &str = "clusterroles.rbac.authorization.k8s.io";
/// Bindings in one page; each is small.
const PAGE: u32 = 500;

/// Bindings by namespace and name of the service account. Only what names one is kept, as names.
type Bindings = HashMap<(String, String), Vec<Bound>>;

#[derive(Clone, Debug, PartialEq)]
struct Bound {
    binding: String,
    /// None if the binding names something else than a ClusterRole.
    role: Option<String>,
}

/// `velero.io/service-account`, on ServiceAccounts (Velero `pkg/backup/actions/service_account_action.go`, v1.18). Bindings
/// are listed once for a backup, when the first service account comes by.
pub struct ServiceAccountAction {
    applies_to: AppliesTo,
    client: Client,
    bindings: OnceCell<Result<Bindings, String>>,
}

impl ServiceAccountAction {
    /// For one backup.
    pub fn new(client: Client) -> Self {
        let applies_to =
            AppliesTo { included_resources: vec!["serviceaccounts".to_owned()], ..AppliesTo::default() };
        Self { applies_to, client, bindings: OnceCell::new() }
    }

    async fn bound(&self, account: &Value) -> Result<Executed, ActionError> {
        let key = ["/metadata/namespace", "/metadata/name"].map(|at| text(account, at).unwrap_or_default());
        let [namespace, name] = key.map(str::to_owned);
        // A list that failed is not tried again for each of many accounts: it has been, for half a minute.
        let bindings = self.bindings.get_or_init(|| list(&self.client)).await.as_ref().map_err(|reason| {
            ActionError::Passing {
                action: NAME.to_owned(),
                reason: format!("the ClusterRoleBindings that name it could not be listed: {reason}"),
            }
        })?;
        let bound = bindings.get(&(namespace, name)).map_or(&[][..], Vec::as_slice);
        Ok(Executed { additional: bound.iter().flat_map(Bound::items).collect(), ..Executed::default() })
    }
}

impl Bound {
    fn items(&self) -> impl Iterator<Item = ItemId> + '_ {
        let item = |group_resource: &str, name: &str| ItemId {
            group_resource: group_resource.to_owned(),
            namespace: None,
            name: name.to_owned(),
        };
        self.role
            .iter()
            .map(move |role| item(ROLES, role))
            .chain(std::iter::once(item(BINDINGS, &self.binding)))
    }
}

impl BackupItemAction for ServiceAccountAction {
    fn name(&self) -> &'static str {
        NAME
    }

    fn applies_to(&self) -> &AppliesTo {
        &self.applies_to
    }

    fn execute<'a>(&'a self, item: &'a Value, _: &'a Backup) -> BoxFuture<'a, Result<Executed, ActionError>> {
        Box::pin(self.bound(item))
    }
}

/// What is needed of a ClusterRoleBinding.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Binding {
    metadata: Named,
    #[serde(default)]
    subjects: Option<Vec<Subject>>,
    role_ref: Role,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

#[derive(Deserialize)]
struct Subject {
    kind: String,
    name: String,
    #[serde(default)]
    namespace: String,
}

#[derive(Deserialize)]
struct Role {
    kind: String,
    name: String,
}

fn add(bindings: &mut Bindings, text: &str) -> Result<(), serde_json::Error> {
    let binding: Binding = serde_json::from_str(text)?;
    let role = (binding.role_ref.kind == "ClusterRole").then_some(binding.role_ref.name);
    let bound = Bound { binding: binding.metadata.name, role };
    for subject in binding.subjects.into_iter().flatten().filter(|subject| subject.kind == "ServiceAccount") {
        let all = bindings.entry((subject.namespace, subject.name)).or_default();
        // A binding may name an account twice.
        if !all.contains(&bound) {
            all.push(bound.clone());
        }
    }
    Ok(())
}

async fn list(client: &Client) -> Result<Bindings, String> {
    let resource = ResourceType {
        group: "rbac.authorization.k8s.io".to_owned(),
        version: "v1".to_owned(),
        plural: "clusterrolebindings".to_owned(),
        kind: "ClusterRoleBinding".to_owned(),
        ..ResourceType::default()
    };
    let listing = Listing { resource, namespace: None, selector: String::new() };
    let mut steps = walk::start(client.clone(), vec![listing], PAGE, Patience::default());
    let mut bindings = Bindings::new();
    while let Some(step) = steps.recv().await {
        match step {
            Step::Items { items, .. } => {
                for item in items {
                    add(&mut bindings, item.get()).map_err(|error| format!("one is malformed: {error}"))?;
                }
            }
            Step::Done => return Ok(bindings),
            Step::Vanished { .. } => return Err("the type is not served".to_owned()),
            Step::Failed { reason, .. } => return Err(reason),
        }
    }
    Err("the walk through the list ended unexpectedly".to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::backup::collect::fake::{Api, status};

    const PATH: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";

    fn binding(name: &str, role: &Value, subjects: &Value) -> Value {
        json!({ "metadata": { "name": name }, "roleRef": role, "subjects": subjects })
    }

    fn account(name: &str) -> Value {
        json!({ "metadata": { "name": name, "namespace": "a" } })
    }

    async fn names(action: &ServiceAccountAction, account_name: &str) -> Vec<String> {
        let executed = action.bound(&account(account_name)).await.unwrap();
        executed.additional.into_iter().map(|id| id.name).collect()
    }

    #[tokio::test]
    async fn bindings_that_name_the_account_come_along_with_their_roles_and_are_listed_once() {
        let role = json!({ "kind": "ClusterRole", "name": "reader" });
        let one = json!({ "kind": "ServiceAccount", "name": "one", "namespace": "a" });
        let api = Api::default().list(
            PATH,
            vec![
                binding("read", &role, &json!([one, one, { "kind": "User", "name": "two" }])),
                binding("odd", &json!({ "kind": "Role", "name": "r" }), &json!([one])),
                binding(
                    "other",
                    &role,
                    &json!([{ "kind": "ServiceAccount", "name": "one", "namespace": "b" }]),
                ),
                binding("nobody", &role, &Value::Null),
            ],
        );
        let (client, api) = api.client();
        let action = ServiceAccountAction::new(client);
        assert_eq!(names(&action, "one").await, ["reader", "read", "odd"]);
        assert!(names(&action, "two").await.is_empty());
        assert_eq!(api.paths(), [PATH]);
    }

    #[tokio::test]
    async fn a_list_that_is_refused_is_an_error_of_each_account_and_is_not_repeated() {
        let api = Api::default().fault(|_, _| Some(status(403, "forbidden")));
        let (client, api) = api.client();
        let action = ServiceAccountAction::new(client);
        for _ in 0..3 {
            let error = action.bound(&account("one")).await.unwrap_err().to_string();
            assert!(error.contains("forbidden"), "{error}");
        }
        assert_eq!(api.paths().len(), 1);
    }
}
