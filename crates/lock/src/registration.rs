//! The location of a cluster's ledgers, and the namespaces in which an installation works: both
//! from the webhook's registration. There is one for each cluster, and only administrators write
//! it, so all programs of all installations agree.

mod coverage;

use std::{collections::BTreeSet, sync::Arc};

use backup_core::labels::INSTALLATIONS_ANNOTATION;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::{Api, Client};
use parking_lot::RwLock;

pub use coverage::{GuardedRequest, Labels};

/// The part of the registration that programs of an installation need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// The namespace of its Service, where the ledgers are. `None` for a registration by URL.
    pub service_namespace: Option<String>,
    /// The namespaces in its annotation, and the namespace of the Service.
    pub installations: BTreeSet<String>,
}

impl Registration {
    /// The name of the `ValidatingWebhookConfiguration`.
    pub const NAME: &str = "backup-webhook";

    /// The current registration, or `None` if there is none.
    pub async fn read(client: Client) -> kube::Result<Option<Self>> {
        let api: Api<ValidatingWebhookConfiguration> = Api::all(client);
        Ok(api.get_opt(Self::NAME).await?.as_ref().map(Self::of))
    }

    pub fn of(configuration: &ValidatingWebhookConfiguration) -> Self {
        let services = configuration
            .webhooks
            .iter()
            .flatten()
            .map(|webhook| &webhook.client_config.service);
        let service_namespace = services
            .flatten()
            .map(|service| service.namespace.clone())
            .next();
        let annotations = configuration.metadata.annotations.as_ref();
        let named = annotations
            .and_then(|all| all.get(INSTALLATIONS_ANNOTATION))
            .map_or("", String::as_str);
        let named = named
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty())
            .map(str::to_owned);
        Self {
            installations: named.chain(service_namespace.clone()).collect(),
            service_namespace,
        }
    }
}

/// The namespaces in which an installation works: only their Backups and Restores have claims. All
/// clones share them.
#[derive(Clone, Debug, Default)]
pub struct Installations(Arc<RwLock<BTreeSet<String>>>);

impl Installations {
    /// Replaces them. Returns whether that was a change.
    pub fn update(&self, namespaces: BTreeSet<String>) -> bool {
        let changed = *self.0.read() != namespaces;
        if changed {
            *self.0.write() = namespaces;
        }
        changed
    }

    pub fn contain(&self, namespace: &str) -> bool {
        self.0.read().contains(namespace)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn registration(annotation: Option<&str>, client_config: &Value) -> Registration {
        let webhook = json!({ "name": "x", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": client_config });
        let annotations = annotation.map(|text| json!({ INSTALLATIONS_ANNOTATION: text }));
        let object = json!({ "metadata": { "annotations": annotations }, "webhooks": [webhook] });
        Registration::of(&serde_json::from_value(object).unwrap())
    }

    #[test]
    fn the_service_and_the_annotation_name_installations() {
        let service = json!({ "service": { "name": "backup-webhook", "namespace": "velero" } });
        let url = json!({ "url": "https://example.test/validate" });
        for (annotation, config, ledgers, installations) in [
            (None, &service, Some("velero"), &["velero"][..]),
            (
                Some("team-b, ,velero"),
                &service,
                Some("velero"),
                &["team-b", "velero"],
            ),
            (Some("team-b"), &url, None, &["team-b"]),
            (None, &url, None, &[]),
        ] {
            let found = registration(annotation, config);
            assert_eq!(
                found.service_namespace.as_deref(),
                ledgers,
                "{annotation:?}"
            );
            assert!(
                found.installations.iter().eq(installations),
                "{annotation:?}: {found:?}"
            );
        }
    }
}
