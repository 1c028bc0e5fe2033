//! The operators that our webhook guards besides Velero, simulated by writing the states of their
//! objects.

use backup_tests::{
    install::{install_profile, install_test_crds},
    percona,
};

use crate::prelude::*;

const DATABASES: &str = "databases";

/// An operator, as described in its profile.
pub(crate) struct Operator {
    pub(crate) profile: &'static str,
    /// The namespace of its objects here, and of its account.
    pub(crate) namespace: &'static str,
    pub(crate) version: &'static str,
    pub(crate) backup: &'static str,
    pub(crate) restore: &'static str,
    /// Its account; empty: any account.
    pub(crate) account: &'static str,
    /// The field of the status with an object's progress.
    pub(crate) state: &'static str,
    /// The spec of a backup or restore, for a database cluster.
    pub(crate) spec: fn(&str) -> Value,
}

pub(crate) const PXC: Operator = Operator {
    profile: "percona-pxc",
    namespace: DATABASES,
    version: "pxc.percona.com/v1",
    backup: "PerconaXtraDBClusterBackup",
    restore: "PerconaXtraDBClusterRestore",
    account: "percona-xtradb-cluster-operator",
    state: "state",
    spec: |cluster| json!({ "pxcCluster": cluster }),
};
pub(crate) const PSMDB: Operator = Operator {
    profile: "percona-psmdb",
    namespace: DATABASES,
    version: "psmdb.percona.com/v1",
    backup: "PerconaServerMongoDBBackup",
    restore: "PerconaServerMongoDBRestore",
    account: "percona-server-mongodb-operator",
    state: "state",
    spec: |cluster| json!({ "clusterName": cluster }),
};
pub(crate) const PG: Operator = Operator {
    profile: "percona-pg",
    namespace: DATABASES,
    version: "pgv2.percona.com/v2",
    backup: "PerconaPGBackup",
    restore: "PerconaPGRestore",
    account: "percona-postgresql-operator",
    state: "state",
    spec: |cluster| json!({ "pgCluster": cluster }),
};
pub(crate) const CNPG: Operator = Operator {
    profile: "cloudnative-pg",
    namespace: DATABASES,
    version: "postgresql.cnpg.io/v1",
    backup: "Backup",
    restore: "Cluster",
    account: "",
    state: "phase",
    spec: |cluster| json!({ "cluster": { "name": cluster } }),
};

pub(crate) const PS: Operator = Operator {
    profile: percona::PROFILE,
    namespace: percona::NAMESPACE,
    version: percona::VERSION,
    backup: percona::BACKUP,
    restore: percona::RESTORE,
    account: "percona-server-mysql-operator",
    state: "state",
    spec: |cluster| json!({ "clusterName": cluster }),
};

impl Operator {
    /// Defines the operator's kinds.
    pub(crate) async fn define(&self, world: &World) -> anyhow::Result<()> {
        install_test_crds(&world.client, self.profile).await?;
        ensure_namespace(&world.client, self.namespace).await?;
        if self.account.is_empty() {
            return Ok(());
        }
        let rbac = "rbac.authorization.k8s.io";
        let binding = json!({ "apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding",
            "metadata": { "name": self.profile },
            "roleRef": { "apiGroup": rbac, "kind": "ClusterRole", "name": "cluster-admin" },
            "subjects": [{ "kind": "ServiceAccount", "name": self.account, "namespace": self.namespace }] });
        objects_in(
            &world.client,
            self.namespace,
            &format!("{rbac}/v1"),
            "RoleBinding",
        )
        .apply_object(self.profile, &binding)
        .await?;
        Ok(())
    }

    /// Registers our webhook for the operator's kinds, and waits until it is called: an object that
    /// names no cluster is refused.
    pub(crate) async fn guard(&self, world: &World) -> anyhow::Result<()> {
        let front = world.webhook_front.as_ref().context("no webhook")?;
        let url = format!("https://{}", front.address());
        install_profile(&world.client, self.profile, &url, &world.webhook_ca).await?;
        eventually("the webhook is asked", TIMEOUT, async || {
            let nameless = self.object(self.backup, "probe", &(self.spec)(""));
            let answer = self
                .api(world, self.backup)
                .create(&dry_run(), &serde_json::from_value(nameless)?)
                .await;
            let text = answer
                .err()
                .map(|error| error.to_string())
                .unwrap_or_default();
            anyhow::Ok(when(text.contains("admission webhook"), text))
        })
        .await
    }

    pub(crate) fn api(&self, world: &World, kind: &str) -> Api<DynamicObject> {
        objects_in(&world.client, self.namespace, self.version, kind)
    }

    pub(crate) fn object(&self, kind: &str, name: &str, spec: &Value) -> Value {
        json!({ "apiVersion": self.version, "kind": kind, "metadata": { "name": name }, "spec": spec })
    }

    pub(crate) async fn create(
        &self,
        world: &World,
        kind: &str,
        name: &str,
        cluster: &str,
    ) -> anyhow::Result<()> {
        let spec = (self.spec)(cluster);
        self.api(world, kind)
            .create_json(self.object(kind, name, &spec))
            .await?;
        Ok(())
    }

    pub(crate) async fn set_state(
        &self,
        world: &World,
        kind: &str,
        name: &str,
        state: &str,
    ) -> anyhow::Result<()> {
        let client = match self.account {
            "" => world.client.clone(),
            account => {
                let user = format!("system:serviceaccount:{}:{account}", self.namespace);
                world.plane.impersonate(&user).await?
            }
        };
        let status = json!({ self.state: state });
        let api = objects_in(&client, self.namespace, self.version, kind);
        let written = eventually("the operator has its rights", TIMEOUT, async || {
            anyhow::Ok(match api.merge_patch_status(name, status.clone()).await {
                Err(kube::Error::Api(error)) if error.message.contains("cannot patch") => {
                    Probe::NotYet(error.message)
                }
                other => Probe::Ready(other.map(drop)),
            })
        })
        .await?;
        Ok(written?)
    }
}
