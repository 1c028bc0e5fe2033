//! Installs the project into a cluster from `deploy/`, as a person would, except that the programs run as processes of
//! the test and not as Deployments.

use std::{collections::BTreeMap, path::Path};

use anyhow::Context as _;
use k8s_openapi::{
    ByteString,
    api::{
        admissionregistration::v1::ValidatingWebhookConfiguration,
        core::v1::{Namespace, Secret},
    },
};
use kube::{
    Api, Client, Discovery, ResourceExt as _,
    api::{DynamicObject, Patch, PatchParams},
    core::ObjectMeta,
    discovery::Scope,
};

use crate::binaries::root;

/// The namespace of the installation.
pub const NAMESPACE: &str = "velero";
const MANAGER: &str = "backup-tests";
/// What stands for programs that run in the cluster: here they are processes.
const LEFT_OUT: [&str; 4] =
    ["Deployment", "Service", "PodDisruptionBudget", "ValidatingWebhookConfiguration"];

/// Applies the CRDs and waits until they are served, then everything of `deploy/base` but the workloads and the webhook
/// registration.
pub async fn install(client: &Client) -> anyhow::Result<()> {
    for document in documents(&root().join("deploy/crds"))? {
        apply(&crd_api(client), &document).await?;
    }
    wait_for_crds(client).await?;
    let mut base: Vec<DynamicObject> = documents(&root().join("deploy/base"))?
        .into_iter()
        .filter(|object| !LEFT_OUT.contains(&kind(object)))
        .collect();
    // A namespace comes before what is in it.
    base.sort_by_key(|object| kind(object) != "Namespace");
    let discovery = Discovery::new(client.clone()).run_aggregated().await?;
    for object in &base {
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
    let document = documents(&root().join("deploy/base"))?
        .into_iter()
        .find(|object| kind(object) == "ValidatingWebhookConfiguration")
        .context("no ValidatingWebhookConfiguration in deploy/base")?;
    let mut configuration: ValidatingWebhookConfiguration =
        serde_json::from_value(serde_json::to_value(&document)?)?;
    for webhook in configuration.webhooks.iter_mut().flatten() {
        webhook.client_config.service = None;
        webhook.client_config.url = Some(format!("{url}/validate"));
        webhook.client_config.ca_bundle = Some(ByteString(ca_pem.as_bytes().to_vec()));
    }
    let api: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let patch = Patch::Apply(&configuration);
    api.patch(&configuration.name_any(), &PatchParams::apply(MANAGER).force(), &patch).await?;
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
    let mut all = Vec::new();
    for file in files.iter().filter(|path| path.file_name().is_some_and(|name| name != "kustomization.yaml"))
    {
        let text = std::fs::read_to_string(file)?;
        let values: Vec<serde_json::Value> =
            serde_saphyr::from_multiple(&text).with_context(|| format!("{} is not YAML", file.display()))?;
        for value in values.into_iter().filter(|value| !value.is_null()) {
            all.push(
                serde_json::from_value(value).with_context(|| format!("an object in {}", file.display()))?,
            );
        }
    }
    Ok(all)
}

fn kind(object: &DynamicObject) -> &str {
    object.types.as_ref().map_or("", |types| types.kind.as_str())
}

fn crd_api(client: &Client) -> Api<DynamicObject> {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
    Api::all_with(client.clone(), &kube::core::ApiResource::erase::<CustomResourceDefinition>(&()))
}

async fn wait_for_crds(client: &Client) -> anyhow::Result<()> {
    use crate::wait::{eventually, when};
    let wanted: Vec<String> =
        documents(&root().join("deploy/crds"))?.iter().map(kube::ResourceExt::name_any).collect();
    let api = crd_api(client);
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
