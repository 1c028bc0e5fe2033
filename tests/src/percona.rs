//! Percona's operator for MySQL, as far as the lock is concerned: its kinds and its account.

use serde_json::json;

use crate::{
    World,
    api::{ApiExt as _, objects_in},
    install::{ensure_namespace, install_test_crds},
    wait::{Probe, eventually},
};

/// The profile that guards the operator.
pub const PROFILE: &str = "percona-ps";
/// The namespace of the operator's objects here.
pub const NAMESPACE: &str = "db";
pub const VERSION: &str = "ps.percona.com/v1";
pub const BACKUP: &str = "PerconaServerMySQLBackup";
pub const RESTORE: &str = "PerconaServerMySQLRestore";
/// The operator's account in the profile.
pub const OPERATOR: &str = "system:serviceaccount:db:percona-server-mysql-operator";

/// Defines the operator's kinds, creates the namespace, and grants the account its rights there.
pub async fn ensure(world: &World) -> anyhow::Result<()> {
    install_test_crds(&world.client, PROFILE).await?;
    ensure_namespace(&world.client, NAMESPACE).await?;
    let rbac = "rbac.authorization.k8s.io";
    let binding = json!({ "apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding", "metadata": { "name": "percona" },
        "roleRef": { "apiGroup": rbac, "kind": "ClusterRole", "name": "cluster-admin" },
        "subjects": [{ "apiGroup": rbac, "kind": "User", "name": OPERATOR }] });
    objects_in(
        &world.client,
        NAMESPACE,
        &format!("{rbac}/v1"),
        "RoleBinding",
    )
    .apply_object("percona", &binding)
    .await?;
    let own = objects_in(
        &world.plane.impersonate(OPERATOR).await?,
        NAMESPACE,
        VERSION,
        BACKUP,
    );
    eventually(
        "the operator has its rights",
        crate::world::controllers::POINT_TIMEOUT,
        async || own.list_all().await.map(|_| Probe::Ready(())),
    )
    .await
}
