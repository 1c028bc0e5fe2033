//! Registers a webhook for the objects of one namespace, as `deploy/` does for all.

use std::path::Path;

use anyhow::Context as _;
use backup_tests::install::{self, NAMESPACE};
use k8s_openapi::{
    api::{
        admissionregistration::v1::{ServiceReference, ValidatingWebhookConfiguration, WebhookClientConfig},
        core::v1::Service,
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
    core::ObjectMeta,
};
use serde_json::json;

const MANAGER: &str = "bench";

/// Who is asked about the objects of a namespace.
pub struct Registration<'a> {
    /// The folder with the registration that this one is made after.
    pub folder: &'a Path,
    /// The namespace; registration and Service have its name.
    pub namespace: &'a str,
    pub port: u16,
    pub path: &'a str,
    pub ca_pem: &'a str,
}

/// Registers it, in place of who was registered for the namespace before. Rules, conditions and limits are those of
/// `deploy/`, but for deletions: here they are how rounds are cleaned up.
pub async fn register(client: &Client, registration: &Registration<'_>) -> anyhow::Result<()> {
    let name = registration.namespace;
    // By a Service, because the API server speaks to one as it does in production. Nothing forwards for Services here,
    // but one that stands for a name outside of the cluster needs nobody.
    let service = json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": name },
        "spec": { "type": "ExternalName", "externalName": "localhost" } });
    let patch = PatchParams::apply(MANAGER).force();
    let services: Api<Service> = Api::namespaced(client.clone(), NAMESPACE);
    services.patch(name, &patch, &Patch::Apply(&service)).await.context("a Service on loopback")?;

    let made = install::registrations(registration.folder, "https://unused", registration.ca_pem)?;
    let mut webhooks: Vec<_> = made.into_iter().flat_map(|one| one.webhooks.unwrap_or_default()).collect();
    webhooks.retain(|webhook| !webhook.name.starts_with("deletions."));
    for (number, webhook) in webhooks.iter_mut().enumerate() {
        webhook.name = format!("w{number}.{name}.velero.io");
        webhook.client_config = WebhookClientConfig {
            ca_bundle: webhook.client_config.ca_bundle.take(),
            service: Some(ServiceReference {
                name: name.to_owned(),
                namespace: NAMESPACE.to_owned(),
                path: Some(registration.path.to_owned()),
                port: Some(registration.port.into()),
            }),
            url: None,
        };
        webhook.namespace_selector = Some(LabelSelector {
            match_labels: Some([("kubernetes.io/metadata.name".to_owned(), name.to_owned())].into()),
            ..LabelSelector::default()
        });
    }
    let configuration = ValidatingWebhookConfiguration {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        webhooks: Some(webhooks),
    };
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    configurations.patch(name, &patch, &Patch::Apply(&configuration)).await.context("a registration")?;
    Ok(())
}
