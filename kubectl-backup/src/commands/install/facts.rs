//! Reads what the cluster has that the choices of an installation depend on. Changes nothing, and
//! never fails as a whole: a part that cannot be read is missing, with its reason.

use std::collections::BTreeSet;

use backup_core::cluster;
use backup_deploy::kind;
use futures::{
    FutureExt as _,
    future::{LocalBoxFuture, try_join_all},
};
use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment},
    core::v1::Node,
    storage::v1::StorageClass,
};

use super::{
    objects,
    platform::{NodeFacts, Platform},
    preflight::MONITORING,
};
use crate::{
    commands::{
        prelude::*,
        volumes::{self, Why},
    },
    fetched::within,
};

/// Definitions that show what else is in the cluster.
pub(super) const OPENSHIFT: &str = "clusterversions.config.openshift.io";
pub(super) const ARGO_CD: &str = "applications.argoproj.io";
pub(super) const FLUX: &str = "kustomizations.kustomize.toolkit.fluxcd.io";
/// DaemonSet of the network that gives pods of EKS addresses of the VPC, and its namespace.
const VPC_NETWORK: &str = "aws-node";
const SYSTEM_NAMESPACE: &str = "kube-system";
/// Name that Velero's command and its chart give the Deployment of the server.
const VELERO: &str = "velero";
/// Maximum time to read one part.
const MAX_READ_TIME: Duration = Duration::from_mins(1);

/// The drivers whose volumes can be snapshotted, or why there are none.
pub(super) type Snapshottable = Result<Vec<String>, Why>;

/// What the cluster has.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    /// The version that the API server reports, such as `v1.33.4-eks-ba24e9c`.
    pub(super) version: FetchResult<String>,
    pub(super) nodes: FetchResult<Vec<NodeFacts>>,
    /// The definitions that were looked for and exist.
    pub(super) definitions: FetchResult<BTreeSet<&'static str>>,
    /// Whether the DaemonSet [`VPC_NETWORK`] exists.
    pub(super) has_vpc_network: FetchResult<bool>,
    /// The level to which Pod Security restricts pods in the installation's namespace.
    pub(super) pod_security: FetchResult<String>,
    pub(super) storage_classes: FetchResult<Vec<StorageClassFacts>>,
    /// Namespaces in which a Velero server runs.
    pub(super) velero: FetchResult<Vec<String>>,
    pub(super) snapshots: FetchResult<Snapshottable>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StorageClassFacts {
    pub(super) name: String,
    pub(super) provisioner: String,
}

impl Facts {
    /// The platform, by the parts that could be read.
    pub(super) fn platform(&self) -> Platform {
        let version = self.version.known().map_or("", String::as_str);
        let nodes = self.nodes.known().map_or(&[][..], Vec::as_slice);
        Platform::of(version, nodes, self.has(OPENSHIFT))
    }

    /// Whether the definition is known to exist.
    pub(super) fn has(&self, definition: &str) -> bool {
        let known = self.definitions.known();
        known.is_some_and(|known| known.contains(definition))
    }
}

/// Reads all parts at the same time; `snapshots` was read before, with the volumes.
pub(super) async fn read(session: &Session, snapshots: FetchResult<Snapshottable>) -> Facts {
    let (version, nodes, definitions, has_vpc_network, pod_security, storage_classes, velero) = futures::join!(
        part(version(session)),
        part(volumes::all(session, |node: Node| Some(NodeFacts::of(
            &node
        )))),
        part(definitions(session)),
        part(has_vpc_network(session)),
        part(pod_security(session)),
        part(volumes::all(session, storage_class)),
        part(velero(session)),
    );
    Facts {
        version,
        nodes,
        definitions,
        has_vpc_network,
        pod_security,
        storage_classes,
        velero,
        snapshots,
    }
}

/// Reads one part within its time. Boxed: a caller that reads many parts would be a large future.
pub(super) fn part<'a, T: 'a>(
    read: impl Future<Output = Result<T, Problem>> + 'a,
) -> LocalBoxFuture<'a, FetchResult<T>> {
    within(MAX_READ_TIME, read).boxed_local()
}

async fn version(session: &Session) -> Result<String, Problem> {
    let about = About::called("get", "version", "version", "");
    let version = session.call(about, session.client.apiserver_version());
    Ok(version.await?.git_version)
}

async fn definitions(session: &Session) -> Result<BTreeSet<&'static str>, Problem> {
    let Some(kind) = kind("CustomResourceDefinition") else {
        return Ok(BTreeSet::new());
    };
    let names = [OPENSHIFT, ARGO_CD, FLUX].into_iter().chain(MONITORING);
    let asked = names.map(|name| async move {
        let found = objects::metadata(session, kind, name).await?;
        Ok::<_, Problem>(found.map(|_| name))
    });
    Ok(try_join_all(asked).await?.into_iter().flatten().collect())
}

async fn has_vpc_network(session: &Session) -> Result<bool, Problem> {
    let api: Api<DaemonSet> = Api::namespaced(session.client.clone(), SYSTEM_NAMESPACE);
    let about = About::of::<DaemonSet>("get", VPC_NETWORK);
    let found = session.call(about, api.get_metadata(VPC_NETWORK)).await;
    Ok(optional(found)?.is_some())
}

async fn pod_security(session: &Session) -> Result<String, Problem> {
    let found = match kind("Namespace") {
        Some(kind) => objects::metadata(session, kind, &session.namespace).await?,
        None => None,
    };
    let labels = found.as_ref().and_then(|found| found.labels.as_ref());
    Ok(cluster::pod_security(labels).to_owned())
}

fn storage_class(class: StorageClass) -> Option<StorageClassFacts> {
    Some(StorageClassFacts {
        name: class.metadata.name?,
        provisioner: class.provisioner,
    })
}

async fn velero(session: &Session) -> Result<Vec<String>, Problem> {
    let resource = ApiResource::erase::<Deployment>(&());
    let api: Api<DynamicObject> = Api::all_with(session.client.clone(), &resource);
    let params = ListParams::default().fields(&format!("metadata.name={VELERO}"));
    let about = About::of::<Deployment>("list", "");
    session
        .list(about, &api, params, |deployment| {
            let is_server = cluster::runs_velero(&deployment.data);
            is_server.then(|| deployment.namespace().unwrap_or_default())
        })
        .await
}

#[cfg(test)]
mod tests {
    use backup_testkit::{FakeApi, Fault, failure, status};

    use super::*;

    const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

    async fn read_from(api: &FakeApi) -> Facts {
        let session = Session {
            client: api.client(),
            namespace: "velero".to_owned(),
            own_namespace: "default".to_owned(),
            server: "https://cluster".to_owned(),
            request_timeout: MAX_READ_TIME,
            part_timeout: MAX_READ_TIME,
        };
        read(&session, FetchResult::Known(Err(Why::NoDriver))).await
    }

    fn server(namespace: &str, image: &str) -> Value {
        json!({ "metadata": { "name": VELERO, "namespace": namespace }, "spec": { "replicas": 1, "template": {
            "spec": { "containers": [{ "image": image, "args": ["server"] }] } } } })
    }

    #[tokio::test]
    async fn an_empty_cluster_has_none_of_it() {
        let api = FakeApi::new().with_object("/version", version_of("v1.34.4"));
        let facts = read_from(&api).await;
        assert_eq!(facts.version.known().unwrap(), "v1.34.4");
        assert_eq!(facts.nodes.known(), Some(&Vec::new()));
        assert_eq!(facts.definitions.known(), Some(&BTreeSet::new()));
        assert_eq!(facts.has_vpc_network.known(), Some(&false));
        assert_eq!(facts.pod_security.known().unwrap(), "privileged");
        assert_eq!(facts.storage_classes.known(), Some(&Vec::new()));
        assert_eq!(facts.velero.known(), Some(&Vec::new()));
        assert_eq!(facts.platform(), Platform::Other);
        assert!(api.log().iter().all(|line| line.starts_with("GET ")));
    }

    fn version_of(git_version: &str) -> Value {
        json!({ "major": "1", "minor": "34", "gitVersion": git_version, "gitCommit": "", "gitTreeState": "",
            "buildDate": "", "goVersion": "", "compiler": "", "platform": "" })
    }

    #[tokio::test]
    async fn each_part_is_read_from_its_objects() {
        let labels = json!({ "pod-security.kubernetes.io/enforce": "restricted" });
        let api = FakeApi::new()
            .with_object("/version", version_of("v1.33.4-eks-ba24e9c"))
            .with_object(
                "/api/v1/nodes/a",
                json!({ "metadata": { "name": "a", "labels": { "kubernetes.io/os": "linux" } } }),
            )
            .with_object(
                &format!("{DEFINITIONS}/{ARGO_CD}"),
                json!({ "metadata": { "name": ARGO_CD } }),
            )
            .with_object(
                "/apis/apps/v1/namespaces/kube-system/daemonsets/aws-node",
                json!({ "metadata": { "name": VPC_NETWORK } }),
            )
            .with_object(
                "/api/v1/namespaces/velero",
                json!({ "metadata": { "name": "velero", "labels": labels } }),
            )
            .with_object(
                "/apis/storage.k8s.io/v1/storageclasses/gp3",
                json!({ "metadata": { "name": "gp3" }, "provisioner": "ebs.csi.aws.com" }),
            )
            .with_object(
                "/apis/apps/v1/namespaces/old/deployments/velero",
                server("old", "velero/velero:v1.18.0"),
            )
            .with_object(
                "/apis/apps/v1/namespaces/ui/deployments/velero",
                server("ui", "example.com/ui:v1"),
            );
        let facts = read_from(&api).await;
        let nodes = facts.nodes.known().unwrap();
        assert!(nodes.len() == 1 && nodes[0].takes_pods, "{nodes:?}");
        assert_eq!(facts.definitions.known(), Some(&BTreeSet::from([ARGO_CD])));
        assert_eq!(facts.has_vpc_network.known(), Some(&true));
        assert_eq!(facts.pod_security.known().unwrap(), "restricted");
        let gp3 = StorageClassFacts {
            name: "gp3".to_owned(),
            provisioner: "ebs.csi.aws.com".to_owned(),
        };
        assert_eq!(facts.storage_classes.known(), Some(&vec![gp3]));
        assert_eq!(facts.velero.known(), Some(&vec!["old".to_owned()]));
        assert_eq!(facts.platform(), Platform::Eks);
    }

    #[tokio::test]
    async fn a_part_that_is_refused_is_missing_and_the_others_are_read() {
        let api = FakeApi::new().with_object("/version", version_of("v1.34.4"));
        api.fault(|_, request| {
            let message = "nodes is forbidden";
            let answer = failure(403, "Forbidden", message, json!({}));
            let is_nodes = request.path == "/api/v1/nodes";
            is_nodes.then(|| Fault::Answer(status(403, answer)))
        });
        let facts = read_from(&api).await;
        let refused: FetchResult<Vec<NodeFacts>> =
            FetchResult::missing("cannot list nodes: nodes is forbidden");
        assert_eq!(facts.nodes, refused);
        assert!(facts.version.known().is_some() && facts.storage_classes.known().is_some());
    }
}
