//! Another validating webhook for Backups and Restores, beside ours. Each object says what this
//! webhook does to its creation, or to a new state of an object of Percona's operator, so one
//! webhook serves any number of clients at once.

use std::{path::Path, time::Duration};

use axum::{Json, Router, routing::post};
use backup_core::api::{Backup, BackupSpec};
use k8s_openapi::{ByteString, api::admissionregistration::v1::ValidatingWebhookConfiguration};
use kube::{
    Api, Client,
    core::{
        DynamicObject,
        admission::{AdmissionRequest, AdmissionResponse},
    },
};
use serde_json::json;

use crate::{
    api::{ApiExt as _, dry_run},
    install::NAMESPACE,
    pki::Pki,
    served::{Served, deny, reviewed},
    wait::{Probe, eventually},
};

/// The annotation with what is done to the creation of an object, as words separated by commas:
/// `delay-500` waits for 500 ms first, a number (`403`) denies with that code, any other word
/// (`AlreadyExists`) denies with that reason, `retry-1` adds a retry delay of 1 s to a denial. This
/// webhook is not called for objects without it.
pub const ANNOTATION: &str = "test/deny";
const NAME: &str = "sibling-webhook";
const START: Duration = Duration::from_secs(30);

/// A running sibling. Its server ends when it is dropped; [`Sibling::remove`] also removes its
/// registration.
pub struct Sibling {
    client: Client,
    served: Served,
}

/// The settings in the annotation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Wish {
    delay: Duration,
    denial: Option<(u16, String)>,
    retry: u32,
}

impl Sibling {
    /// Starts and registers the webhook, and waits until the API server calls it. Its certificates
    /// are in `folder`.
    pub async fn start(client: &Client, folder: &Path) -> anyhow::Result<Self> {
        let folder = folder.join(NAME);
        std::fs::create_dir_all(&folder)?;
        let pki = Pki::new(&folder)?;
        let validate = |Json(review)| reviewed(review, decide);
        let app = Router::new().route("/validate", post(validate));
        let served = Served::start(&pki.server(NAME)?, app).await?;
        let sibling = Self {
            client: client.clone(),
            served,
        };
        sibling.register(&pki).await?;
        Ok(sibling)
    }

    pub fn calls(&self) -> u64 {
        self.served.calls()
    }

    /// Removes the registration. For a moment the API server may still call the webhook, and
    /// refuses what it cannot review.
    pub async fn remove(self) -> anyhow::Result<()> {
        Ok(self.registrations().delete_object(NAME).await?)
    }

    async fn register(&self, pki: &Pki) -> anyhow::Result<()> {
        let address = self.served.address();
        let ca = serde_json::to_value(ByteString(pki.ca_pem().into_bytes()))?;
        let configuration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": { "name": NAME },
            "webhooks": [{
                "name": "sibling.webhook.test", "admissionReviewVersions": ["v1"],
                "clientConfig": { "url": format!("https://{address}/validate"), "caBundle": ca },
                "rules": [{ "apiGroups": ["velero.io"], "apiVersions": ["*"],
                    "resources": ["backups", "restores"], "operations": ["CREATE"] },
                    { "apiGroups": ["ps.percona.com"], "apiVersions": ["*"], "resources": ["*/status"],
                    "operations": ["UPDATE"] }],
                "matchConditions": [{ "name": "wants-it",
                    "expression": format!("'{ANNOTATION}' in object.metadata.?annotations.orValue({{}})") }],
                "failurePolicy": "Fail", "sideEffects": "None", "timeoutSeconds": 10,
            }],
        });
        self.registrations()
            .apply_object(NAME, &configuration)
            .await?;
        let backups: Api<Backup> = Api::namespaced(self.client.clone(), NAMESPACE);
        let mut probe = Backup::new("is-the-sibling-there", BackupSpec::default());
        probe.metadata.annotations = Some([(ANNOTATION.to_owned(), "403".to_owned())].into());
        eventually("the sibling webhook is asked", START, async || {
            let before = self.calls();
            let answer = backups.create(&dry_run(), &probe).await;
            anyhow::Ok(match answer {
                Err(_) if self.calls() > before => Probe::Ready(()),
                other => Probe::NotYet(format!("{:?}", other.map(|_| ()))),
            })
        })
        .await
    }

    fn registrations(&self) -> Api<ValidatingWebhookConfiguration> {
        Api::all(self.client.clone())
    }
}

impl Wish {
    fn of(text: &str) -> Self {
        let mut wish = Self::default();
        for word in text
            .split(',')
            .map(str::trim)
            .filter(|word| !word.is_empty())
        {
            if let Some(millis) = word.strip_prefix("delay-") {
                wish.delay = Duration::from_millis(millis.parse().unwrap_or_default());
            } else if let Some(seconds) = word.strip_prefix("retry-") {
                wish.retry = seconds.parse().unwrap_or_default();
            } else if let Ok(code) = word.parse() {
                wish.denial = Some((code, if code == 403 { "Forbidden" } else { "" }.to_owned()));
            } else {
                wish.denial = Some((409, word.to_owned()));
            }
        }
        wish
    }
}

async fn decide(
    request: AdmissionRequest<DynamicObject>,
    response: AdmissionResponse,
) -> AdmissionResponse {
    let annotations = request
        .object
        .as_ref()
        .and_then(|object| object.metadata.annotations.as_ref());
    let text = annotations
        .and_then(|all| all.get(ANNOTATION))
        .cloned()
        .unwrap_or_default();
    let wish = Wish::of(&text);
    tokio::time::sleep(wish.delay).await;
    let Some((code, reason)) = wish.denial else {
        return response;
    };
    let mut response = deny(response, code, &reason, "the sibling webhook denies this");
    if wish.retry > 0 {
        response.result.details =
            serde_json::from_value(json!({ "retryAfterSeconds": wish.retry })).ok();
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_the_annotation_add_up() {
        let denial = |code, reason: &str| Some((code, reason.to_owned()));
        for (text, delay, expected, retry) in [
            ("", 0, None, 0),
            ("403", 0, denial(403, "Forbidden"), 0),
            ("AlreadyExists", 0, denial(409, "AlreadyExists"), 0),
            ("delay-250", 250, None, 0),
            ("delay-250, 429, retry-1", 250, denial(429, ""), 1),
        ] {
            let wish = Wish {
                delay: Duration::from_millis(delay),
                denial: expected,
                retry,
            };
            assert_eq!(Wish::of(text), wish, "{text:?}");
        }
    }
}
