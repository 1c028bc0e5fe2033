//! Installs the project into a cluster from `deploy/`, as a user would, except that the programs
//! run as processes of the test and not as Deployments.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use k8s_openapi::{
    ByteString,
    api::{
        admissionregistration::v1::{ServiceReference, ValidatingWebhookConfiguration},
        core::v1::{Namespace, Pod, Secret, Service, ServiceAccount},
        rbac::v1::RoleBinding,
    },
};
use kube::{Api, Client, Discovery, ResourceExt, api::DynamicObject, discovery::Scope};
use serde_json::json;

use crate::{
    api::{ApiExt as _, all_objects, objects_in},
    binaries::root,
    wait::{Probe, TIMEOUT, eventually, when},
};

pub const NAMESPACE: &str = "velero";
const CRD_VERSION: &str = "apiextensions.k8s.io/v1";
/// The Service of the webhook.
pub(crate) const SERVICE: &str = "backup-webhook";
/// Objects of programs that run in the cluster, which are processes here.
const LEFT_OUT: [&str; 4] = [
    "Deployment",
    "Service",
    "PodDisruptionBudget",
    "ValidatingWebhookConfiguration",
];

/// Applies the CRDs and waits until they are served, then the namespace, and all of `deploy/base`
/// except the workloads and the webhook registration.
pub async fn install(client: &Client) -> anyhow::Result<()> {
    install_crds(client, documents(&root().join("deploy/crds"))?).await?;
    apply_all(client, documents(&root().join("deploy/once"))?.into_iter()).await?;
    let base = documents(&root().join("deploy/base"))?.into_iter();
    apply_all(client, base).await
}

/// Applies every policy of `deploy/base`.
pub(crate) async fn install_policies(client: &Client) -> anyhow::Result<()> {
    let base = documents(&root().join("deploy/base"))?.into_iter();
    apply_all(
        client,
        base.filter(|object| kind(object).starts_with("ValidatingAdmissionPolicy")),
    )
    .await
}

/// Applies the objects of a profile in `deploy/profiles`, and registers the webhook for its kinds
/// under a URL. The programs need the flag `--guard` with its name.
pub async fn install_profile(
    client: &Client,
    name: &str,
    url: &str,
    ca_pem: &str,
) -> anyhow::Result<()> {
    let folder = root().join("deploy/profiles").join(name);
    apply_all(client, documents(&folder)?.into_iter()).await?;
    register(client, &folder, url, None, ca_pem).await
}

/// Applies the definitions of another operator's kinds, `tests/crds/<name>.yaml`, and waits until
/// they are served.
pub async fn install_test_crds(client: &Client, name: &str) -> anyhow::Result<()> {
    let file = root().join("tests/crds").join(format!("{name}.yaml"));
    install_crds(client, documents_of(&file)?).await
}

/// Defines a namespaced kind with any fields, and waits until it is served. Returns the name of the
/// definition.
pub async fn define_kind(client: &Client, group: &str, kind: &str) -> anyhow::Result<String> {
    let singular = kind.to_lowercase();
    let name = format!("{singular}s.{group}");
    let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let definition = json!({ "apiVersion": CRD_VERSION, "kind": "CustomResourceDefinition",
        "metadata": { "name": name },
        "spec": { "group": group, "scope": "Namespaced",
            "names": { "plural": format!("{singular}s"), "singular": singular, "kind": kind },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } }] } });
    install_crds(client, vec![serde_json::from_value(definition)?]).await?;
    let objects = all_objects(client, &format!("{group}/v1"), kind);
    eventually("the kind is served", TIMEOUT, async || {
        objects.list_all().await.map(|_| Probe::Ready(()))
    })
    .await?;
    Ok(name)
}

/// Registers an API group without a server, and waits until the API server knows it. Returns the
/// name of the APIService.
pub async fn register_unreachable_group(client: &Client, group: &str) -> anyhow::Result<String> {
    let name = format!("v1.{group}");
    let service = json!({ "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": { "name": name },
        "spec": { "group": group, "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 100,
            "insecureSkipTLSVerify": true, "service": { "name": "nobody", "namespace": "default" } } });
    api_services(client).create_json(service).await?;
    eventually("the group is known as stale", TIMEOUT, async || {
        let groups = serde_json::to_string(&client.list_api_groups_aggregated().await?)?;
        anyhow::Ok(when(
            groups.contains(group) && groups.contains("Stale"),
            "not in discovery",
        ))
    })
    .await?;
    Ok(name)
}

pub fn api_services(client: &Client) -> Api<DynamicObject> {
    all_objects(client, "apiregistration.k8s.io/v1", "APIService")
}

/// Applies definitions of other projects from files, and waits until they are served.
pub(crate) async fn install_definitions(client: &Client, files: &[PathBuf]) -> anyhow::Result<()> {
    let mut definitions = Vec::new();
    for file in files {
        definitions.append(&mut documents_of(file)?);
    }
    install_crds(client, definitions).await
}

async fn install_crds(client: &Client, definitions: Vec<DynamicObject>) -> anyhow::Result<()> {
    let api = all_objects(client, CRD_VERSION, "CustomResourceDefinition");
    for definition in &definitions {
        apply(&api, definition).await?;
    }
    crds_served(
        client,
        &definitions
            .iter()
            .map(ResourceExt::name_any)
            .collect::<Vec<_>>(),
    )
    .await
}

/// Applies objects, except workloads and registrations.
async fn apply_all(
    client: &Client,
    objects: impl Iterator<Item = DynamicObject>,
) -> anyhow::Result<()> {
    let objects: Vec<DynamicObject> = objects
        .filter(|object| !LEFT_OUT.contains(&kind(object)))
        .collect();
    let discovery = Discovery::new(client.clone()).run_aggregated().await?;
    for object in &objects {
        let api = api_of(client, &discovery, object)?;
        apply(&api, object).await?;
    }
    Ok(())
}

/// Applies all objects of a file, workloads as well.
pub(crate) async fn apply_file(client: &Client, file: &Path) -> anyhow::Result<()> {
    let discovery = Discovery::new(client.clone()).run_aggregated().await?;
    for object in documents_of(file)? {
        apply(&api_of(client, &discovery, &object)?, &object).await?;
    }
    Ok(())
}

/// The API of an object of a manifest; without a namespace in the object, in that of the
/// installation.
pub fn api_of(
    client: &Client,
    discovery: &Discovery,
    object: &DynamicObject,
) -> anyhow::Result<Api<DynamicObject>> {
    let types = object.types.as_ref().context("no kind")?;
    let gvk = kube::core::GroupVersionKind::try_from(types)?;
    let (resource, capabilities) = discovery
        .resolve_gvk(&gvk)
        .with_context(|| format!("{} {} is not served", types.api_version, types.kind))?;
    Ok(match capabilities.scope {
        Scope::Namespaced => Api::namespaced_with(
            client.clone(),
            object.namespace().as_deref().unwrap_or(NAMESPACE),
            &resource,
        ),
        Scope::Cluster => Api::all_with(client.clone(), &resource),
    })
}

/// Registers the webhook under a URL on loopback. Ours adds the path itself; a control has a fixed
/// `path`.
pub(crate) async fn register_webhook(
    client: &Client,
    url: &str,
    path: Option<&str>,
    ca_pem: &str,
) -> anyhow::Result<()> {
    register(client, &root().join("deploy/base"), url, path, ca_pem).await
}

/// Registers every webhook of the configurations in a folder under a URL.
async fn register(
    client: &Client,
    folder: &Path,
    url: &str,
    path: Option<&str>,
    ca_pem: &str,
) -> anyhow::Result<()> {
    let configurations = registrations(folder, url, ca_pem)?;
    if configurations.is_empty() {
        anyhow::bail!("no ValidatingWebhookConfiguration in {}", folder.display());
    }
    let port = url::Url::parse(url)?
        .port()
        .with_context(|| format!("no port in {url}"))?;
    let api: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    for mut configuration in configurations {
        ask_by_service(client, SERVICE, port, path, &mut configuration).await?;
        api.apply_object(&configuration.name_any(), &configuration)
            .await?;
    }
    Ok(())
}

/// Has the API server call the webhooks of a configuration on a loopback port by a Service of this
/// name, because it then connects as in production: by many connections, which a proxy spreads over
/// replicas. For a URL on loopback it keeps a single one. No proxy serves Services here, but a
/// Service for a name outside of the cluster needs none.
pub async fn ask_by_service(
    client: &Client,
    service: &str,
    port: u16,
    path: Option<&str>,
    configuration: &mut ValidatingWebhookConfiguration,
) -> anyhow::Result<()> {
    let object = json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": service },
        "spec": { "type": "ExternalName", "externalName": "localhost" } });
    let services: Api<Service> = Api::namespaced(client.clone(), NAMESPACE);
    services.apply_object(service, &object).await?;
    for webhook in configuration.webhooks.iter_mut().flatten() {
        webhook.client_config.url = None;
        webhook.client_config.service = Some(ServiceReference {
            name: service.to_owned(),
            namespace: NAMESPACE.to_owned(),
            path: path.map(str::to_owned),
            port: Some(port.into()),
        });
    }
    Ok(())
}

/// The path by which the API server calls our webhook, once the webhook has written it into its
/// registration.
pub async fn webhook_path(client: &Client) -> anyhow::Result<String> {
    let api: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    eventually(
        "the webhook has a path",
        Duration::from_secs(30),
        async || {
            let webhooks = api
                .get("backup-webhook")
                .await?
                .webhooks
                .unwrap_or_default();
            let service = webhooks
                .into_iter()
                .find_map(|webhook| webhook.client_config.service);
            let path = service.and_then(|service| service.path);
            anyhow::Ok(path.map_or_else(|| Probe::NotYet("none".to_owned()), Probe::Ready))
        },
    )
    .await
}

/// The webhook configurations in a folder, with a URL in place of the Service; those for deletions
/// only if requested.
pub fn registrations(
    folder: &Path,
    url: &str,
    ca_pem: &str,
) -> anyhow::Result<Vec<ValidatingWebhookConfiguration>> {
    let mut configurations = Vec::new();
    for object in documents(folder)?
        .iter()
        .filter(|object| kind(object) == "ValidatingWebhookConfiguration")
    {
        let mut configuration: ValidatingWebhookConfiguration =
            serde_json::from_value(serde_json::to_value(object)?)?;
        for webhook in configuration.webhooks.iter_mut().flatten() {
            webhook.client_config.service = None;
            webhook.client_config.url = Some(format!("{url}/validate"));
            webhook.client_config.ca_bundle = Some(ByteString(ca_pem.as_bytes().to_vec()));
        }
        configurations.push(configuration);
    }
    Ok(configurations)
}

/// Makes the Service of the controller, as in `deploy/base`, lead to an address, by a pod that
/// represents the process there. There are no nodes, so no controller would find the pod: the
/// endpoints are written here.
pub(crate) async fn lead_to_files(
    client: &Client,
    number: usize,
    address: SocketAddr,
) -> anyhow::Result<()> {
    const NAME: &str = "backup-controller";
    let base = documents(&root().join("deploy/base"))?;
    let service = base
        .into_iter()
        .find(|object| kind(object) == "Service" && object.name_any() == NAME);
    let mut service = service.context("no Service of the controller")?;
    let port = service.data["spec"]["ports"][0]["name"]
        .as_str()
        .context("its port has no name")?
        .to_owned();
    service.data["spec"]["selector"] = serde_json::Value::Null;
    let services: Api<Service> = Api::namespaced(client.clone(), NAMESPACE);
    services.apply_object(NAME, &service).await?;
    let (name, ip) = (format!("{NAME}-{number}"), address.ip().to_string());
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
        "spec": { "containers": [{ "name": "controller", "image": NAME }] } });
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    pods.apply_object(&name, &pod).await?;
    pods.merge_patch_status(&name, json!({ "podIP": ip, "podIPs": [{ "ip": ip }] }))
        .await?;
    let endpoints = objects_in(client, NAMESPACE, "v1", "Endpoints");
    let known = endpoints
        .get_opt(NAME)
        .await?
        .map(|known| known.data["subsets"].clone());
    let mut subsets = known
        .as_ref()
        .and_then(|known| known.as_array().cloned())
        .unwrap_or_default();
    subsets.push(json!({
        "addresses": [{ "ip": ip, "targetRef": { "kind": "Pod", "namespace": NAMESPACE, "name": name } }],
        "ports": [{ "name": port, "port": address.port() }] }));
    let object = json!({ "apiVersion": "v1", "kind": "Endpoints", "metadata": { "name": NAME }, "subsets": subsets });
    endpoints.apply_object(NAME, &object).await?;
    Ok(())
}

/// Creates a namespace unless it exists.
pub async fn ensure_namespace(client: &Client, name: &str) -> anyhow::Result<()> {
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
    Api::<Namespace>::all(client.clone())
        .apply_object(name, &namespace)
        .await?;
    Ok(())
}

/// Creates a ServiceAccount in the namespace of the installation, and binds a ClusterRole to it
/// there.
pub(crate) async fn ensure_account(
    client: &Client,
    name: &str,
    role: Option<&str>,
) -> anyhow::Result<()> {
    let account =
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name } });
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), NAMESPACE);
    accounts.apply_object(name, &account).await?;
    let Some(role) = role else { return Ok(()) };
    let binding = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": { "name": name },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
        "subjects": [{ "kind": "ServiceAccount", "name": name, "namespace": NAMESPACE }] });
    let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), NAMESPACE);
    bindings.apply_object(name, &binding).await?;
    Ok(())
}

pub async fn ensure_secret(
    client: &Client,
    namespace: &str,
    name: &str,
    key: &str,
    value: &str,
) -> anyhow::Result<()> {
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name },
        "data": { key: ByteString(value.as_bytes().to_vec()) } });
    Api::<Secret>::namespaced(client.clone(), namespace)
        .apply_object(name, &secret)
        .await?;
    Ok(())
}

/// All documents of the YAML files in a folder, files in order of name.
pub fn documents(folder: &Path) -> anyhow::Result<Vec<DynamicObject>> {
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .with_context(|| format!("read {}", folder.display()))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    files.retain(|path| path.extension().is_some_and(|ext| ext == "yaml"));
    files.sort();
    files.retain(|path| {
        path.file_name()
            .is_some_and(|name| name != "kustomization.yaml")
    });
    let mut all = Vec::new();
    for file in files {
        all.extend(documents_of(&file)?);
    }
    Ok(all)
}

fn documents_of(file: &Path) -> anyhow::Result<Vec<DynamicObject>> {
    let text = std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
    let values: Vec<serde_json::Value> = serde_saphyr::from_multiple(&text)
        .with_context(|| format!("{} is not YAML", file.display()))?;
    let objects = values
        .into_iter()
        .filter(|value| !value.is_null())
        .map(serde_json::from_value);
    objects
        .collect::<Result<_, _>>()
        .with_context(|| format!("an object in {}", file.display()))
}

fn kind(object: &DynamicObject) -> &str {
    object
        .types
        .as_ref()
        .map_or("", |types| types.kind.as_str())
}

/// Waits until definitions of these names are established.
pub async fn crds_served(client: &Client, names: &[String]) -> anyhow::Result<()> {
    let crds = all_objects(client, CRD_VERSION, "CustomResourceDefinition");
    for name in names {
        let established = |crd: &DynamicObject| {
            let conditions = crd.data["status"]["conditions"]
                .as_array()
                .into_iter()
                .flatten();
            conditions
                .into_iter()
                .any(|one| one["type"] == "Established" && one["status"] == "True")
        };
        crds.wait_until(name, "is established", Duration::from_secs(30), established)
            .await?;
    }
    Ok(())
}

async fn apply(api: &Api<DynamicObject>, object: &DynamicObject) -> anyhow::Result<()> {
    let name = object.name_any();
    api.apply_object(&name, object)
        .await
        .with_context(|| format!("apply {} {name}", kind(object)))?;
    Ok(())
}
