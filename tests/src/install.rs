//! Installs the project into a cluster from `deploy/`, as a person would, except that the programs run as processes of
//! the test and not as Deployments.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::{Path, PathBuf},
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
use kube::{
    Api, Client, Discovery, ResourceExt,
    api::{DynamicObject, Patch, PatchParams},
    core::ObjectMeta,
    discovery::Scope,
};

use serde_json::json;

use crate::binaries::root;

/// The namespace of the installation.
pub const NAMESPACE: &str = "velero";
const MANAGER: &str = "backup-tests";
/// The Service that stands for the webhook.
const SERVICE: &str = "backup-webhook";
/// What stands for programs that run in the cluster: here they are processes.
const LEFT_OUT: [&str; 4] =
    ["Deployment", "Service", "PodDisruptionBudget", "ValidatingWebhookConfiguration"];
/// Applies the CRDs and waits until they are served, then everything of `deploy/base` but the workloads and the webhook
/// registration.
pub async fn install(client: &Client) -> anyhow::Result<()> {
    install_crds(client, documents(&root().join("deploy/crds"))?).await?;
    let base = documents(&root().join("deploy/base"))?.into_iter();
    apply_all(client, base).await
}

/// Puts every policy of `deploy/base` in force.
pub async fn install_policies(client: &Client) -> anyhow::Result<()> {
    let base = documents(&root().join("deploy/base"))?.into_iter();
    apply_all(client, base.filter(|object| kind(object).starts_with("ValidatingAdmissionPolicy"))).await
}

/// Applies what a profile of `deploy/profiles` brings, and registers the webhook for its kinds under a URL. The programs
/// need the flag `--guard` with its name.
pub async fn install_profile(client: &Client, name: &str, url: &str, ca_pem: &str) -> anyhow::Result<()> {
    let folder = root().join("deploy/profiles").join(name);
    apply_all(client, documents(&folder)?.into_iter()).await?;
    register(client, &folder, url, ca_pem).await
}

/// Applies the definitions of another operator's kinds, `tests/crds/<name>.yaml`, and waits until they are served.
pub async fn install_test_crds(client: &Client, name: &str) -> anyhow::Result<()> {
    let file = root().join("tests/crds").join(format!("{name}.yaml"));
    install_crds(client, documents_of(&file)?).await
}

/// Applies definitions of others from files, and waits until they are served.
pub async fn install_definitions(client: &Client, files: &[PathBuf]) -> anyhow::Result<()> {
    let mut definitions = Vec::new();
    for file in files {
        definitions.append(&mut documents_of(file)?);
    }
    install_crds(client, definitions).await
}

async fn install_crds(client: &Client, definitions: Vec<DynamicObject>) -> anyhow::Result<()> {
    let api = crd_api(client);
    for definition in &definitions {
        apply(&api, definition).await?;
    }
    wait_for_crds(&api, definitions.iter().map(ResourceExt::name_any).collect()).await
}

/// Applies objects, all but workloads and registrations.
async fn apply_all(client: &Client, objects: impl Iterator<Item = DynamicObject>) -> anyhow::Result<()> {
    let mut objects: Vec<DynamicObject> =
        objects.filter(|object| !LEFT_OUT.contains(&kind(object))).collect();
    // A namespace comes before what is in it.
    objects.sort_by_key(|object| kind(object) != "Namespace");
    let discovery = Discovery::new(client.clone()).run_aggregated().await?;
    for object in &objects {
        let api = api_of(client, &discovery, object)?;
        apply(&api, object).await?;
    }
    Ok(())
}

/// Where an object of a manifest belongs; without a namespace of its own, in that of the installation.
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

/// Registers the webhook under a URL on loopback.
pub async fn register_webhook(client: &Client, url: &str, ca_pem: &str) -> anyhow::Result<()> {
    register(client, &root().join("deploy/base"), url, ca_pem).await
}

/// Registers every webhook of the configurations in a folder under a URL.
async fn register(client: &Client, folder: &Path, url: &str, ca_pem: &str) -> anyhow::Result<()> {
    let configurations = registrations(folder, url, ca_pem)?;
    if configurations.is_empty() {
        anyhow::bail!("no ValidatingWebhookConfiguration in {}", folder.display());
    }
    let port = url::Url::parse(url)?.port().with_context(|| format!("no port in {url}"))?;
    // By a Service, because the API server then speaks to it as it does in production: with many connections, which
    // a proxy spreads over replicas. Over a URL on loopback it holds a single one. Nothing forwards for Services here,
    // but one that stands for a name outside of the cluster needs nobody.
    let service = json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": SERVICE },
        "spec": { "type": "ExternalName", "externalName": "localhost" } });
    let services: Api<Service> = Api::namespaced(client.clone(), NAMESPACE);
    services.patch(SERVICE, &PatchParams::apply(MANAGER).force(), &Patch::Apply(&service)).await?;
    let api: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    for mut configuration in configurations {
        for webhook in configuration.webhooks.iter_mut().flatten() {
            webhook.client_config.url = None;
            webhook.client_config.service = Some(ServiceReference {
                name: SERVICE.to_owned(),
                namespace: NAMESPACE.to_owned(),
                path: Some("/validate".to_owned()),
                port: Some(port.into()),
            });
        }
        let patch = Patch::Apply(&configuration);
        api.patch(&configuration.name_any(), &PatchParams::apply(MANAGER).force(), &patch).await?;
    }
    Ok(())
}

/// The webhook configurations in a folder, with a URL in place of the Service; those for deletions only if wanted.
pub fn registrations(
    folder: &Path,
    url: &str,
    ca_pem: &str,
) -> anyhow::Result<Vec<ValidatingWebhookConfiguration>> {
    let mut configurations = Vec::new();
    for object in documents(folder)?.iter().filter(|object| kind(object) == "ValidatingWebhookConfiguration")
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

/// Has the Service of the controller, as `deploy/base` has it, lead to an address, by a pod that stands for the process there.
/// There are no nodes, so nobody would find the pod by itself: the endpoints are written here.
pub async fn lead_to_files(client: &Client, number: usize, address: SocketAddr) -> anyhow::Result<()> {
    const NAME: &str = "backup-controller";
    let base = documents(&root().join("deploy/base"))?;
    let service = base.into_iter().find(|object| kind(object) == "Service" && object.name_any() == NAME);
    let mut service = service.context("no Service of the controller")?;
    let port = service.data["spec"]["ports"][0]["name"].as_str().context("its port has no name")?.to_owned();
    service.data["spec"]["selector"] = serde_json::Value::Null;
    let parameters = PatchParams::apply(MANAGER).force();
    let services: Api<Service> = Api::namespaced(client.clone(), NAMESPACE);
    services.patch(NAME, &parameters, &Patch::Apply(&service)).await?;
    let (name, ip) = (format!("{NAME}-{number}"), address.ip().to_string());
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
        "spec": { "containers": [{ "name": "controller", "image": NAME }] } });
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    pods.patch(&name, &parameters, &Patch::Apply(&pod)).await?;
    let status = json!({ "status": { "podIP": ip, "podIPs": [{ "ip": ip }] } });
    pods.patch_status(&name, &PatchParams::default(), &Patch::Strategic(status)).await?;
    let endpoints: Api<DynamicObject> = Api::namespaced_with(
        client.clone(),
        NAMESPACE,
        &kube::core::ApiResource::erase::<k8s_openapi::api::core::v1::Endpoints>(&()),
    );
    let known = endpoints.get_opt(NAME).await?.map(|known| known.data["subsets"].clone());
    let mut subsets = known.as_ref().and_then(|known| known.as_array().cloned()).unwrap_or_default();
    subsets.push(json!({
        "addresses": [{ "ip": ip, "targetRef": { "kind": "Pod", "namespace": NAMESPACE, "name": name } }],
        "ports": [{ "name": port, "port": address.port() }] }));
    let object =
        json!({ "apiVersion": "v1", "kind": "Endpoints", "metadata": { "name": NAME }, "subsets": subsets });
    endpoints.patch(NAME, &parameters, &Patch::Apply(&object)).await?;
    Ok(())
}

/// Makes a namespace; one that exists is fine.
pub async fn ensure_namespace(client: &Client, name: &str) -> anyhow::Result<()> {
    let namespace = Namespace {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        ..Namespace::default()
    };
    let api: Api<Namespace> = Api::all(client.clone());
    api.patch(name, &PatchParams::apply(MANAGER), &Patch::Apply(&namespace)).await?;
    Ok(())
}

/// Makes a ServiceAccount in the namespace of the installation, and binds a ClusterRole to it there.
pub async fn ensure_account(client: &Client, name: &str, role: Option<&str>) -> anyhow::Result<()> {
    let parameters = PatchParams::apply(MANAGER).force();
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name } });
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), NAMESPACE);
    accounts.patch(name, &parameters, &Patch::Apply(&account)).await?;
    let Some(role) = role else { return Ok(()) };
    let binding = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": { "name": name },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
        "subjects": [{ "kind": "ServiceAccount", "name": name, "namespace": NAMESPACE }] });
    let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), NAMESPACE);
    bindings.patch(name, &parameters, &Patch::Apply(&binding)).await?;
    Ok(())
}

/// Writes a Secret with one key.
pub async fn ensure_secret(
    client: &Client,
    namespace: &str,
    name: &str,
    key: &str,
    value: &str,
) -> anyhow::Result<()> {
    let secret = Secret {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        data: Some(BTreeMap::from([(key.to_owned(), ByteString(value.as_bytes().to_vec()))])),
        ..Secret::default()
    };
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    api.patch(name, &PatchParams::apply(MANAGER), &Patch::Apply(&secret)).await?;
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
    files.retain(|path| path.file_name().is_some_and(|name| name != "kustomization.yaml"));
    let mut all = Vec::new();
    for file in files {
        all.extend(documents_of(&file)?);
    }
    Ok(all)
}

/// All documents of a YAML file.
pub fn documents_of(file: &Path) -> anyhow::Result<Vec<DynamicObject>> {
    let text = std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
    let values: Vec<serde_json::Value> =
        serde_saphyr::from_multiple(&text).with_context(|| format!("{} is not YAML", file.display()))?;
    let objects = values.into_iter().filter(|value| !value.is_null()).map(serde_json::from_value);
    objects.collect::<Result<_, _>>().with_context(|| format!("an object in {}", file.display()))
}

fn kind(object: &DynamicObject) -> &str {
    object.types.as_ref().map_or("", |types| types.kind.as_str())
}

fn crd_api(client: &Client) -> Api<DynamicObject> {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
    Api::all_with(client.clone(), &kube::core::ApiResource::erase::<CustomResourceDefinition>(&()))
}

async fn wait_for_crds(api: &Api<DynamicObject>, wanted: Vec<String>) -> anyhow::Result<()> {
    use crate::wait::{eventually, when};
    eventually("CRDs established", std::time::Duration::from_secs(30), async || {
        let mut waiting = wanted.clone();
        for crd in api.list(&kube::api::ListParams::default()).await? {
            let established = crd.data["status"]["conditions"].as_array().is_some_and(|conditions| {
                conditions
                    .iter()
                    .any(|condition| condition["type"] == "Established" && condition["status"] == "True")
            });
            waiting.retain(|name| !(established && *name == crd.name_any()));
        }
        Ok::<_, kube::Error>(when(waiting.is_empty(), waiting.join(", ")))
    })
    .await
}

async fn apply(api: &Api<DynamicObject>, object: &DynamicObject) -> anyhow::Result<()> {
    api.patch(&object.name_any(), &PatchParams::apply(MANAGER).force(), &Patch::Apply(object))
        .await
        .with_context(|| format!("apply {} {}", kind(object), object.name_any()))?;
    Ok(())
}
