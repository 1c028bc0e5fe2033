//! Service accounts add the ClusterRoleBindings that name them, and their ClusterRoles, as related
//! items.

use std::collections::HashMap;

use async_trait::async_trait;
use backup_client::page::Listing;
use backup_core::api::Backup;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::Client;
use serde_json::Value;
use tokio::sync::OnceCell;

use super::{
    action::{BackupActionOutput, BackupItemAction},
    list::for_each,
};
use crate::{ActionError, ItemId, action::BuiltInAction, json::text};

const BINDINGS: &str = "clusterrolebindings.rbac.authorization.k8s.io";
const ROLES: &str = "clusterroles.rbac.authorization.k8s.io";

/// Bindings by namespace and name of the service account. Only bindings that name one are kept, by
/// name.
type Bindings = HashMap<(String, String), Vec<Bound>>;

#[derive(Clone, Debug, PartialEq)]
struct Bound {
    binding: String,
    /// `None` if the binding does not refer to a ClusterRole.
    role: Option<String>,
}

/// `velero.io/service-account`, on ServiceAccounts (Velero
/// `pkg/backup/actions/service_account_action.go`, v1.18). Bindings are listed once for a backup,
/// at the first service account.
pub(crate) struct ServiceAccountAction {
    client: Client,
    bindings: OnceCell<Result<Bindings, String>>,
}

impl ServiceAccountAction {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            bindings: OnceCell::new(),
        }
    }
}

impl Bound {
    fn items(&self) -> impl Iterator<Item = ItemId> + '_ {
        self.role
            .iter()
            .map(|role| ItemId::new(ROLES, None, role))
            .chain(std::iter::once(ItemId::new(BINDINGS, None, &self.binding)))
    }
}

impl BuiltInAction for ServiceAccountAction {
    const NAME: &'static str = "velero.io/service-account";
    const RESOURCE: &'static str = "serviceaccounts";
}

#[async_trait]
impl BackupItemAction for ServiceAccountAction {
    async fn execute(
        &self,
        account: &Value,
        _: &Backup,
    ) -> Result<BackupActionOutput, ActionError> {
        let key = ["/metadata/namespace", "/metadata/name"]
            .map(|at| text(account, at).unwrap_or_default());
        let [namespace, name] = key.map(str::to_owned);
        // A failed list is not retried for each account: it was retried already, for half a minute.
        let bindings = self
            .bindings
            .get_or_init(|| list(&self.client))
            .await
            .as_ref()
            .map_err(|reason| ActionError::Retryable {
                action: Self::NAME.to_owned(),
                reason: format!(
                    "the ClusterRoleBindings that name it could not be listed: {reason}"
                ),
            })?;
        let bound = bindings
            .get(&(namespace, name))
            .map_or(&[][..], Vec::as_slice);
        Ok(BackupActionOutput {
            additional: bound.iter().flat_map(Bound::items).collect(),
            ..BackupActionOutput::default()
        })
    }
}

fn add(bindings: &mut Bindings, text: &str) -> Result<(), serde_json::Error> {
    let binding: ClusterRoleBinding = serde_json::from_str(text)?;
    let role = (binding.role_ref.kind == "ClusterRole").then_some(binding.role_ref.name);
    let bound = Bound {
        binding: binding.metadata.name.unwrap_or_default(),
        role,
    };
    for subject in binding
        .subjects
        .into_iter()
        .flatten()
        .filter(|subject| subject.kind == "ServiceAccount")
    {
        let all = bindings
            .entry((subject.namespace.unwrap_or_default(), subject.name))
            .or_default();
        // A binding may name an account twice.
        if !all.contains(&bound) {
            all.push(bound.clone());
        }
    }
    Ok(())
}

async fn list(client: &Client) -> Result<Bindings, String> {
    let group = "rbac.authorization.k8s.io";
    let listing = Listing::v1(group, "ClusterRoleBinding", "clusterrolebindings", None);
    let mut bindings = Bindings::new();
    for_each(client, listing, |binding| add(&mut bindings, binding)).await?;
    Ok(bindings)
}

#[cfg(test)]
mod tests {
    use backup_testkit::{FakeApi, Fault};
    use serde_json::json;

    use super::*;

    const PATH: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";

    fn binding(name: &str, role: &Value, subjects: &Value) -> Value {
        json!({ "metadata": { "name": name }, "roleRef": role, "subjects": subjects })
    }

    fn account(name: &str) -> Value {
        json!({ "metadata": { "name": name, "namespace": "a" } })
    }

    async fn names(action: &ServiceAccountAction, account_name: &str) -> Vec<String> {
        let output = action
            .execute(&account(account_name), &Backup::default())
            .await
            .unwrap();
        output.additional.into_iter().map(|id| id.name).collect()
    }

    #[tokio::test]
    async fn bindings_that_name_the_account_come_along_with_their_roles_and_are_listed_once() {
        let role = json!({ "kind": "ClusterRole", "name": "reader" });
        let one = json!({ "kind": "ServiceAccount", "name": "one", "namespace": "a" });
        let api = FakeApi::new();
        for (name, role, subjects) in [
            (
                "read",
                &role,
                json!([one, one, { "kind": "User", "name": "two" }]),
            ),
            ("odd", &json!({ "kind": "Role", "name": "r" }), json!([one])),
            (
                "other",
                &role,
                json!([{ "kind": "ServiceAccount", "name": "one", "namespace": "b" }]),
            ),
            ("nobody", &role, Value::Null),
        ] {
            api.put(&format!("{PATH}/{name}"), binding(name, role, &subjects));
        }
        let action = ServiceAccountAction::new(api.client());
        assert_eq!(names(&action, "one").await, ["odd", "reader", "read"]);
        assert!(names(&action, "two").await.is_empty());
        assert_eq!(api.log(), [format!("GET {PATH}")]);
    }

    #[tokio::test]
    async fn a_list_that_is_refused_is_an_error_of_each_account_and_is_not_repeated() {
        let api = FakeApi::new();
        api.fault(|_, _| Some(Fault::refuse(403, "Forbidden", "forbidden")));
        let action = ServiceAccountAction::new(api.client());
        for _ in 0..3 {
            let error = action
                .execute(&account("one"), &Backup::default())
                .await
                .unwrap_err()
                .to_string();
            assert_says!(error, "forbidden");
        }
        assert_eq!(api.log().len(), 1);
    }
}
