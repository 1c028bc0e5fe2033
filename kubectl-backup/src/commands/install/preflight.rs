//! Reads what exists before an installation. Changes nothing.

use std::collections::BTreeMap;

use backup_core::cluster;
use backup_deploy::{KINDS, Kind, Mode, id, kind};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::{api::authorization::v1::ResourceAttributes, apimachinery::pkg::version::Info};

use super::{objects, plan::Plan};
use crate::commands::{doctor::cluster::may, prelude::*};

/// Maximum number of concurrent requests.
const MAX_CONCURRENT_REQUESTS: usize = 8;

/// The state of the cluster before an installation.
pub(super) struct ClusterState {
    pub(super) version: Info,
    /// Metadata of existing objects of the plan, of definitions and of the namespace, by kind and
    /// name.
    pub(super) there: BTreeMap<(&'static str, String), ObjectMeta>,
    /// Required permissions that the user lacks.
    pub(super) lacking: Vec<String>,
    /// Name of a Velero server in the namespace.
    pub(super) velero: Option<String>,
    /// Whether the cluster serves PodMonitors and PrometheusRules.
    pub(super) has_monitoring: bool,
}

impl ClusterState {
    /// Metadata of the existing object of this name.
    pub(super) fn found(&self, object: &Value) -> Option<&ObjectMeta> {
        let (name_of_kind, name) = id(object);
        self.get(name_of_kind, name)
    }

    pub(super) fn get(&self, name_of_kind: &str, name: &str) -> Option<&ObjectMeta> {
        let kind = kind(name_of_kind)?;
        self.there.get(&(kind.kind, name.to_owned()))
    }
}

/// The definitions of the other server, which guard mode needs.
pub(super) const GUARDED: [&str; 2] = ["backups.velero.io", "restores.velero.io"];
const DEFINITION: &str = "CustomResourceDefinition";
/// The definitions of Prometheus' operator that `deploy/monitoring` needs.
pub(super) const MONITORING: [&str; 2] = [
    "podmonitors.monitoring.coreos.com",
    "prometheusrules.monitoring.coreos.com",
];

pub(super) async fn observe(session: &Session, plan: &Plan) -> Result<ClusterState, Problem> {
    let about = About::called("get", "version", "version", "");
    let version = session
        .call(about, session.client.apiserver_version())
        .await?;
    let planned = plan.objects.iter().map(id);
    let more = [("Namespace", session.namespace.as_str())];
    let definitions = GUARDED
        .iter()
        .chain(&MONITORING)
        .map(|name| (DEFINITION, *name));
    let looked = planned
        .chain(more)
        .chain(definitions)
        .filter_map(|(name_of_kind, name)| Some((kind(name_of_kind)?, name)));
    let mut there: BTreeMap<(&'static str, String), ObjectMeta> = stream::iter(looked)
        .map(async |(kind, name): (&'static Kind, &str)| {
            let found = objects::metadata(session, kind, name).await?;
            Ok::<_, Problem>(found.map(|found| ((kind.kind, name.to_owned()), found)))
        })
        .buffer_unordered(MAX_CONCURRENT_REQUESTS)
        .try_filter_map(async |found| Ok(found))
        .try_collect()
        .await?;
    let has_monitoring = MONITORING
        .iter()
        .all(|name| there.remove(&(DEFINITION, (*name).to_owned())).is_some());
    let lacking = lacking(session, plan).await?;
    Ok(ClusterState {
        version,
        there,
        lacking,
        velero: velero(session).await?,
        has_monitoring,
    })
}

async fn velero(session: &Session) -> Result<Option<String>, Problem> {
    let Some(kind) = kind("Deployment") else {
        return Ok(None);
    };
    let about = About::called("list", "deployment", kind.plural, "");
    let api = objects::api(session, kind);
    let found = session
        .list(about, &api, ListParams::default(), |deployment| {
            cluster::runs_velero(&deployment.data).then(|| deployment.name_any())
        })
        .await?;
    Ok(found.into_iter().next())
}

/// Permissions that the user lacks: to apply each kind, and to grant the controller its rights.
async fn lacking(session: &Session, plan: &Plan) -> Result<Vec<String>, Problem> {
    let kinds = KINDS
        .iter()
        .filter(|kind| !plan.names(kind.kind).is_empty());
    let asked = kinds.flat_map(|kind| {
        ["create", "patch"].map(|verb| (verb, kind.group, kind.plural, kind.namespaced))
    });
    // To grant rights, a user must have them, or be permitted to grant any.
    let gives_all = (plan.options.mode == Mode::Engine).then_some(("*", "*", "*", false));
    let asked = asked.chain(gives_all);
    let lacking: Vec<Option<String>> = stream::iter(asked)
        .map(
            async |(verb, group, plural, namespaced): (&str, &str, &str, bool)| {
                let attributes = ResourceAttributes {
                    verb: Some(verb.to_owned()),
                    group: Some(group.to_owned()),
                    resource: Some(plural.to_owned()),
                    namespace: namespaced.then(|| session.namespace.clone()),
                    ..ResourceAttributes::default()
                };
                let is_allowed = may(session, attributes).await?;
                let what = if verb == "*" {
                    "give the controller all rights".to_owned()
                } else {
                    format!("{verb} {plural}")
                };
                Ok::<_, Problem>((!is_allowed).then_some(what))
            },
        )
        .buffered(MAX_CONCURRENT_REQUESTS)
        .try_collect()
        .await?;
    Ok(lacking.into_iter().flatten().collect())
}
