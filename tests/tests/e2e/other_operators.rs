//! Races reported by users of other operators, on definitions of the same shape: without us, and
//! with us. The operators are simulated by writing their states.

use backup_tests::install::{install_profile, install_test_crds};

use kube::api::{Patch, PatchParams};

use crate::prelude::*;

crate::tests! {
    of_two_restores_of_one_xtradb_cluster_one_begins,
    of_a_backup_and_a_restore_of_one_mongodb_one_begins,
    a_backup_of_percona_postgresql_waits_for_the_end_of_a_restore,
    a_completed_backup_of_cloudnative_pg_stays_so,
    a_cluster_of_cloudnative_pg_is_not_backed_up_while_it_is_restored,
}

const SOON: Duration = Duration::from_secs(30);
pub(crate) const NAMESPACE: &str = "databases";

/// An operator, as described in its profile.
pub(crate) struct Operator {
    pub(crate) profile: &'static str,
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
    version: "pxc.percona.com/v1",
    backup: "PerconaXtraDBClusterBackup",
    restore: "PerconaXtraDBClusterRestore",
    account: "percona-xtradb-cluster-operator",
    state: "state",
    spec: |cluster| json!({ "pxcCluster": cluster }),
};
pub(crate) const PSMDB: Operator = Operator {
    profile: "percona-psmdb",
    version: "psmdb.percona.com/v1",
    backup: "PerconaServerMongoDBBackup",
    restore: "PerconaServerMongoDBRestore",
    account: "percona-server-mongodb-operator",
    state: "state",
    spec: |cluster| json!({ "clusterName": cluster }),
};
pub(crate) const PG: Operator = Operator {
    profile: "percona-pg",
    version: "pgv2.percona.com/v2",
    backup: "PerconaPGBackup",
    restore: "PerconaPGRestore",
    account: "percona-postgresql-operator",
    state: "state",
    spec: |cluster| json!({ "pgCluster": cluster }),
};
pub(crate) const CNPG: Operator = Operator {
    profile: "cloudnative-pg",
    version: "postgresql.cnpg.io/v1",
    backup: "Backup",
    restore: "Cluster",
    account: "",
    state: "phase",
    spec: |cluster| json!({ "cluster": { "name": cluster } }),
};

impl Operator {
    /// Defines the operator's kinds.
    pub(crate) async fn define(&self, world: &World) -> anyhow::Result<()> {
        install_test_crds(&world.client, self.profile).await?;
        ensure_namespace(&world.client, NAMESPACE).await?;
        if self.account.is_empty() {
            return Ok(());
        }
        let rbac = "rbac.authorization.k8s.io";
        let binding = json!({ "apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding",
            "metadata": { "name": self.profile },
            "roleRef": { "apiGroup": rbac, "kind": "ClusterRole", "name": "cluster-admin" },
            "subjects": [{ "kind": "ServiceAccount", "name": self.account, "namespace": NAMESPACE }] });
        objects_in(
            &world.client,
            NAMESPACE,
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
        eventually("the webhook is asked", SOON, async || {
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

    fn api(&self, world: &World, kind: &str) -> Api<DynamicObject> {
        objects_in(&world.client, NAMESPACE, self.version, kind)
    }

    pub(crate) fn object(&self, kind: &str, name: &str, spec: &Value) -> Value {
        json!({ "apiVersion": self.version, "kind": kind, "metadata": { "name": name }, "spec": spec })
    }

    async fn create(
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

    async fn set_state(
        &self,
        world: &World,
        kind: &str,
        name: &str,
        state: &str,
    ) -> anyhow::Result<()> {
        let client = match self.account {
            "" => world.client.clone(),
            account => {
                world
                    .plane
                    .impersonate(&format!("system:serviceaccount:{NAMESPACE}:{account}"))
                    .await?
            }
        };
        let status = json!({ self.state: state });
        let api = objects_in(&client, NAMESPACE, self.version, kind);
        let written = eventually("the operator has its rights", SOON, async || {
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

/// Creates two objects of one cluster at once. Returns which of them were refused.
async fn at_once(
    world: &World,
    operator: &Operator,
    kinds: [&str; 2],
    cluster: &str,
) -> anyhow::Result<Vec<String>> {
    let names = [format!("{cluster}-one"), format!("{cluster}-two")];
    let (one, two) = tokio::join!(
        operator.create(world, kinds[0], &names[0], cluster),
        operator.create(world, kinds[1], &names[1], cluster),
    );
    let mut refused = Vec::new();
    for created in [one, two].into_iter().filter(Result::is_err) {
        let error = refusal(created)?;
        ensure!(error.code == 403, "{error:?}");
        refused.push(error.message);
    }
    Ok(refused)
}

/// Without us, each saw the other, and both failed.
async fn of_two_restores_of_one_xtradb_cluster_one_begins(world: &mut World) -> anyhow::Result<()> {
    PXC.define(world).await?;
    let refused = at_once(world, &PXC, [PXC.restore; 2], "alone").await?;
    ensure!(
        refused.is_empty(),
        "the race as it was reported was not seen without us: {refused:?}"
    );
    PXC.guard(world).await?;
    for n in 0..10 {
        let refused = at_once(world, &PXC, [PXC.restore; 2], &format!("guarded-{n}")).await?;
        ensure!(refused.len() == 1, "round {n}: {refused:?}");
        says(&refused[0], &["Restore", "databases/guarded-"])?;
    }
    PXC.create(world, PXC.restore, "first", "states").await?;
    for state in ["Stopping Cluster", "Restoring", "Point-in-time recovering"] {
        PXC.set_state(world, PXC.restore, "first", state).await?;
        refusal(PXC.create(world, PXC.backup, "meanwhile", "states").await)?;
    }
    PXC.set_state(world, PXC.restore, "first", "Succeeded")
        .await?;
    PXC.create(world, PXC.backup, "after", "states").await
}

/// Without us, each waited for the other for ever (PSMDB #2317).
async fn of_a_backup_and_a_restore_of_one_mongodb_one_begins(
    world: &mut World,
) -> anyhow::Result<()> {
    PSMDB.define(world).await?;
    let refused = at_once(world, &PSMDB, [PSMDB.backup, PSMDB.restore], "alone").await?;
    ensure!(
        refused.is_empty(),
        "the race as it was reported was not seen without us: {refused:?}"
    );
    PSMDB.guard(world).await?;
    for n in 0..10 {
        let refused = at_once(
            world,
            &PSMDB,
            [PSMDB.backup, PSMDB.restore],
            &format!("guarded-{n}"),
        )
        .await?;
        ensure!(refused.len() == 1, "round {n}: {refused:?}");
    }
    // The operator's tool keeps its own lock a little longer than the object says.
    PSMDB
        .create(world, PSMDB.restore, "settles", "settles")
        .await?;
    PSMDB
        .set_state(world, PSMDB.restore, "settles", "running")
        .await?;
    PSMDB
        .set_state(world, PSMDB.restore, "settles", "ready")
        .await?;
    let error = refusal(
        PSMDB
            .create(world, PSMDB.backup, "too-early", "settles")
            .await,
    )?;
    says(&error.message, &["databases/settles"])
}

async fn a_backup_of_percona_postgresql_waits_for_the_end_of_a_restore(
    world: &mut World,
) -> anyhow::Result<()> {
    PG.define(world).await?;
    PG.create(world, PG.restore, "alone", "alone").await?;
    PG.create(world, PG.backup, "alone", "alone")
        .await
        .context("the race was not seen without us")?;
    PG.guard(world).await?;
    PG.create(world, PG.restore, "first", "guarded").await?;
    PG.set_state(world, PG.restore, "first", "Running").await?;
    let error = refusal(PG.create(world, PG.backup, "meanwhile", "guarded").await)?;
    says(&error.message, &["databases/first"])?;
    let (dry_run, failed) = (
        PatchParams {
            dry_run: true,
            ..PatchParams::default()
        },
        json!({ "state": "Failed" }),
    );
    eventually("only the operator ends it", SOON, async || {
        let patch = Patch::Merge(json!({ "status": failed }));
        let forged = PG
            .api(world, PG.restore)
            .patch_status("first", &dry_run, &patch)
            .await;
        let said = forged.map_or_else(|error| error.to_string(), |_| "admitted".to_owned());
        anyhow::Ok(when(said.contains("percona-postgresql-operator"), said))
    })
    .await?;
    PG.set_state(world, PG.restore, "first", "Failed").await?;
    PG.create(world, PG.backup, "after", "guarded").await
}

/// A gate that ran at every check turned `completed` back into `pending` (CNPG #11010).
async fn a_completed_backup_of_cloudnative_pg_stays_so(world: &mut World) -> anyhow::Result<()> {
    CNPG.define(world).await?;
    CNPG.create(world, CNPG.backup, "alone", "alone").await?;
    CNPG.set_state(world, CNPG.backup, "alone", "completed")
        .await?;
    CNPG.set_state(world, CNPG.backup, "alone", "pending")
        .await
        .context("not seen without us")?;
    CNPG.guard(world).await?;
    CNPG.create(world, CNPG.backup, "nightly", "guarded")
        .await?;
    CNPG.set_state(world, CNPG.backup, "nightly", "running")
        .await?;
    CNPG.set_state(world, CNPG.backup, "nightly", "completed")
        .await?;
    let error = refusal(
        CNPG.set_state(world, CNPG.backup, "nightly", "pending")
            .await,
    )?;
    says(&error.message, &["has ended"])
}

async fn a_cluster_of_cloudnative_pg_is_not_backed_up_while_it_is_restored(
    world: &mut World,
) -> anyhow::Result<()> {
    CNPG.define(world).await?;
    CNPG.guard(world).await?;
    let recovery = json!({ "bootstrap": { "recovery": { "source": "origin" } } });
    let clusters = CNPG.api(world, CNPG.restore);
    clusters
        .create_json(CNPG.object(CNPG.restore, "back", &recovery))
        .await?;
    let error = refusal(CNPG.create(world, CNPG.backup, "too-early", "back").await)?;
    says(&error.message, &["Restore", "databases/back"])?;
    clusters
        .merge_patch_status("back", json!({ "currentPrimary": "back-1" }))
        .await?;
    CNPG.create(world, CNPG.backup, "in-time", "back").await?;
    // It continues to live: with another primary and another spec, while a backup of it runs.
    clusters
        .merge_patch_status("back", json!({ "currentPrimary": "back-2" }))
        .await?;
    clusters
        .merge_patch("back", json!({ "spec": { "instances": 3 } }))
        .await?;
    Ok(())
}
