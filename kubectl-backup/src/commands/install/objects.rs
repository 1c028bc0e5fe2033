//! The objects of an installation in the cluster: applies, finds and removes them.

use std::collections::{BTreeMap, BTreeSet};

use backup_core::{cluster::INSTALLATION, labels::PART_OF};
use backup_deploy::{KINDS, Kind, Mode, Options, PROGRAMS, Stage, id, kind};
use kube::{
    api::{DeleteParams, Patch, PatchParams, PropagationPolicy},
    core::GroupVersionKind,
};
use tokio::time::sleep;

use crate::{backoff::pauses, commands::prelude::*};

/// Annotation of the webhook's Deployment with the installation's [`Options`], as JSON.
pub(crate) const OPTIONS_ANNOTATION: &str = "kubectl-backup/options";
/// Maximum number of tries of a write while the API server is away.
const MAX_ATTEMPTS: usize = 6;

/// The API for a kind, in the installation's namespace if the kind is namespaced.
pub(crate) fn api(session: &Session, kind: &Kind) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk(kind.group, kind.version, kind.kind);
    let resource = ApiResource::from_gvk_with_plural(&gvk, kind.plural);
    let client = session.client.clone();
    if kind.namespaced {
        Api::namespaced_with(client, &session.namespace, &resource)
    } else {
        Api::all_with(client, &resource)
    }
}

/// Kind, group and name, as kubectl prints them.
pub(crate) fn full_name(kind: &Kind, name: &str) -> String {
    let dot = if kind.group.is_empty() { "" } else { "." };
    format!("{}{dot}{}/{name}", kind.kind.to_lowercase(), kind.group)
}

/// The full name of an object.
pub(super) fn full_name_of(object: &Value) -> String {
    let (name_of_kind, name) = id(object);
    kind(name_of_kind).map_or_else(
        || format!("{name_of_kind}/{name}"),
        |kind| full_name(kind, name),
    )
}

/// The effect of applying an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Outcome {
    Created,
    Changed,
    Unchanged,
}

impl Outcome {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Changed => "changed",
            Self::Unchanged => "unchanged",
        }
    }
}

/// Applies an object; `before` is its previous metadata. Applying is idempotent, so transient
/// errors are retried.
pub(super) async fn apply(
    session: &Session,
    object: &Value,
    before: Option<&ObjectMeta>,
) -> Result<Outcome, Problem> {
    let (name_of_kind, name) = id(object);
    let Some(kind) = kind(name_of_kind) else {
        return Err(Problem::other(format!(
            "the kind {name_of_kind} is not one that is installed"
        )));
    };
    let api = api(session, kind);
    let lower = kind.kind.to_lowercase();
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let applied = while_away(async || {
        let about = About::called("apply", &lower, kind.plural, name);
        session
            .call(about, api.patch(name, &params, &Patch::Apply(object)))
            .await
    })
    .await?;
    let Some(before) = before else {
        return Ok(Outcome::Created);
    };
    Ok(if is_same(before, &applied.metadata) {
        Outcome::Unchanged
    } else {
        Outcome::Changed
    })
}

/// Whether an object is unchanged. Status updates by the cluster in between do not count.
fn is_same(before: &ObjectMeta, after: &ObjectMeta) -> bool {
    let is_as_specified = before.generation.is_some()
        && before.generation == after.generation
        && before.labels == after.labels
        && annotations_without_revision(before) == annotations_without_revision(after);
    is_as_specified || before.resource_version == after.resource_version
}

/// The annotations, except the revision, which the cluster writes.
fn annotations_without_revision(meta: &ObjectMeta) -> BTreeMap<String, String> {
    let mut all = meta.annotations.clone().unwrap_or_default();
    all.remove("deployment.kubernetes.io/revision");
    all
}

/// The metadata of an object; `None` if it does not exist.
pub(crate) async fn metadata(
    session: &Session,
    kind: &Kind,
    name: &str,
) -> Result<Option<ObjectMeta>, Problem> {
    let lower = kind.kind.to_lowercase();
    let about = About::called("get", &lower, kind.plural, name);
    let api = api(session, kind);
    match session.call(about, api.get_metadata(name)).await {
        Err(problem) if is_absent(&problem) => Ok(None),
        other => Ok(Some(other?.metadata)),
    }
}

/// Whether the object does not exist: also true if the cluster does not serve its kind or has no
/// such namespace.
fn is_absent(problem: &Problem) -> bool {
    matches!(
        problem.kind,
        ProblemKind::NotFound | ProblemKind::NotServed | ProblemKind::NoNamespace
    )
}

/// Whether a definition is served.
pub(super) async fn is_established(session: &Session, name: &str) -> Result<bool, Problem> {
    let Some(kind) = kind("CustomResourceDefinition") else {
        return Ok(true);
    };
    let about = About::called("get", "definition", kind.plural, name);
    let found = optional(session.call(about, api(session, kind).get(name)).await)?;
    let conditions = found.and_then(|found| found.data["status"]["conditions"].as_array().cloned());
    Ok(conditions
        .into_iter()
        .flatten()
        .any(|one| one["type"] == "Established" && one["status"] == "True"))
}

/// An object of the installation that exists in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InstalledObject {
    pub(crate) kind: &'static Kind,
    pub(crate) name: String,
    /// Whether this command applied it.
    pub(crate) is_applied: bool,
}

/// All objects with our label, except definitions and the namespace.
pub(crate) async fn labelled(session: &Session) -> Result<Vec<InstalledObject>, Problem> {
    let mut all = Vec::new();
    for kind in KINDS.iter().filter(|kind| kind.stage != Stage::Once) {
        let params = ListParams::default().labels(&format!("{PART_OF}={INSTALLATION}"));
        let lower = kind.kind.to_lowercase();
        let about = About::called("list", &lower, kind.plural, "");
        let api = api(session, kind);
        match session.call(about, api.list_metadata(&params)).await {
            Err(problem) if problem.kind == ProblemKind::NotServed => {}
            listed => all.extend(listed?.items.into_iter().map(|item| InstalledObject {
                kind,
                name: item.name_any(),
                is_applied: is_applied(&item.metadata),
            })),
        }
    }
    Ok(all)
}

fn is_applied(metadata: &ObjectMeta) -> bool {
    let managers = metadata.managed_fields.iter().flatten();
    managers.into_iter().any(|one| {
        one.manager.as_deref() == Some(FIELD_MANAGER) && one.operation.as_deref() == Some("Apply")
    })
}

/// Removes objects that this command applied earlier and that are no longer planned. Returns their
/// names.
pub(super) async fn prune(session: &Session, planned: &[Value]) -> Result<Vec<String>, Problem> {
    let planned: BTreeSet<(&str, &str)> = planned.iter().map(id).collect();
    let mut removed = Vec::new();
    for InstalledObject {
        kind,
        name,
        is_applied,
    } in labelled(session).await?
    {
        if is_applied && !planned.contains(&(kind.kind, name.as_str())) {
            delete(session, kind, &name).await?;
            removed.push(full_name(kind, &name));
        }
    }
    Ok(removed)
}

/// Deletes an object; a Deployment is deleted after its pods. An object that is already gone is no
/// error.
pub(crate) async fn delete(session: &Session, kind: &Kind, name: &str) -> Result<(), Problem> {
    let lower = kind.kind.to_lowercase();
    let with_pods = kind.kind == "Deployment";
    let policy = if with_pods {
        PropagationPolicy::Foreground
    } else {
        PropagationPolicy::Background
    };
    let params = DeleteParams {
        propagation_policy: Some(policy),
        ..DeleteParams::default()
    };
    let api = api(session, kind);
    let deleted = while_away(async || {
        let about = About::called("delete", &lower, kind.plural, name);
        session.call(about, api.delete(name, &params)).await
    });
    match deleted.await {
        Err(problem) if is_absent(&problem) => Ok(()),
        other => other.map(drop),
    }
}

/// Sends an idempotent request, and retries it while the API server is away.
async fn while_away<T>(mut send: impl AsyncFnMut() -> Result<T, Problem>) -> Result<T, Problem> {
    let mut pauses = pauses().take(MAX_ATTEMPTS - 1);
    loop {
        match (send().await, pauses.next()) {
            (Err(problem), Some(pause)) if problem.is_transient() => sleep(pause).await,
            (answer, _) => return answer,
        }
    }
}

/// An installation in the namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Installation {
    /// The chosen options, if this command made the installation.
    pub(crate) options: Option<Options>,
    pub(crate) mode: Mode,
    /// The tag of the images.
    pub(crate) version: String,
    /// Whether it belongs to a Helm release.
    pub(crate) is_of_helm: bool,
}

impl Installation {
    /// Fails if the installation belongs to a Helm release: only Helm may change it.
    pub(crate) fn check_tool(&self, namespace: &str) -> Result<(), Problem> {
        if !self.is_of_helm {
            return Ok(());
        }
        Err(Problem::other(format!(
            "the installation in namespace {namespace} is a release of Helm"
        ))
        .with_remedy(
            "Use Helm for it: helm upgrade, helm uninstall. `helm list -A` shows the release.",
        ))
    }
}

/// A cluster has one webhook: cluster-scoped objects belong to the installation that the
/// registration refers to. Fails if that installation is in another namespace.
pub(crate) async fn check_home(session: &Session) -> Result<(), Problem> {
    let namespace = &session.namespace;
    let home = home(session).await?;
    let Some(home) = home.filter(|home| home != namespace) else {
        return Ok(());
    };
    let home = plain(&home);
    let message =
        format!("the installation of this cluster is in namespace {home}, not in {namespace}");
    Err(Problem::other(message).with_remedy(format!(
        "Choose it with -n {home}. Another controller takes an overlay: docs/operate/install.md#several-installations"
    )))
}

/// The namespace of the registration's Service; without a registration, of the service account in
/// the role binding.
async fn home(session: &Session) -> Result<Option<String>, Problem> {
    for (name_of_kind, place) in [
        (
            "ValidatingWebhookConfiguration",
            "/webhooks/0/clientConfig/service/namespace",
        ),
        ("ClusterRoleBinding", "/subjects/0/namespace"),
    ] {
        let (Some(kind), [name, _]) = (kind(name_of_kind), PROGRAMS) else {
            continue;
        };
        let lower = kind.kind.to_lowercase();
        let about = About::called("get", &lower, kind.plural, name);
        let found = optional(session.call(about, api(session, kind).get(name)).await)?;
        let found = found.filter(|found| backup_deploy::is_ours(found.metadata.labels.as_ref()));
        if let Some(home) = found
            .as_ref()
            .and_then(|found| found.data.pointer(place)?.as_str())
        {
            return Ok(Some(home.to_owned()));
        }
    }
    Ok(None)
}

/// The installation in the namespace, recognized by the Deployment of a program.
pub(crate) async fn installed(session: &Session) -> Result<Option<Installation>, Problem> {
    let Some(kind) = kind("Deployment") else {
        return Ok(None);
    };
    for program in PROGRAMS {
        let about = About::called("get", "deployment", kind.plural, program);
        let found = optional(session.call(about, api(session, kind).get(program)).await)?;
        if let Some(found) =
            found.filter(|found| backup_deploy::is_ours(found.metadata.labels.as_ref()))
        {
            return Ok(Some(of_deployment(&found)));
        }
    }
    Ok(None)
}

fn of_deployment(deployment: &DynamicObject) -> Installation {
    let noted = deployment.annotations().get(OPTIONS_ANNOTATION);
    let container = &deployment.data["spec"]["template"]["spec"]["containers"][0];
    let mut args = container["args"].as_array().into_iter().flatten();
    let is_guard = args.any(|arg| *arg == "--guard=velero");
    Installation {
        options: noted.and_then(|noted| serde_json::from_str(noted).ok()),
        mode: if is_guard { Mode::Guard } else { Mode::Engine },
        version: plain(version_of(&deployment.data)),
        is_of_helm: is_of_helm(&deployment.metadata),
    }
}

/// Whether an object belongs to a Helm release (Helm `pkg/action/validate.go`).
pub(super) fn is_of_helm(metadata: &ObjectMeta) -> bool {
    let label = metadata
        .labels
        .as_ref()
        .and_then(|labels| labels.get("app.kubernetes.io/managed-by"));
    label.is_some_and(|tool| tool == "Helm")
}

/// The tag of a Deployment's image.
pub(super) fn version_of(deployment: &Value) -> &str {
    let image = deployment["spec"]["template"]["spec"]["containers"][0]["image"]
        .as_str()
        .unwrap_or_default();
    image.rsplit_once(':').map_or(image, |(_, tag)| tag)
}
