//! The key of a storage account, as the resource manager gives it to an identity that may list it.
//!
//! Velero's plugin does so where neither the key nor `useAAD` is given (`pkg/util/azure/storage.go`,
//! `exchangeStorageAccountAccessKey`, v1.18). object_store (0.14) signs in to storage only.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use http::{
    Method, Request, StatusCode,
    header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE},
};
use object_store::{
    CredentialProvider,
    azure::{AzureAccessKey, AzureCredential},
    client::{HttpClient, HttpRequest},
};
use serde::{Deserialize, de::DeserializeOwned};
use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};
use url::{Url, form_urlencoded::Serializer};

use super::SignIn;
use crate::{error::cause, http_failure::HttpFailure};

/// How long a key is used before it is asked for once more: it may be rotated.
const HELD: Duration = Duration::from_mins(10);

/// How long it may take to sign in and to get the key.
const DEADLINE: Duration = Duration::from_secs(20);

const API_VERSION: &str = "2023-05-01";

/// Which account it is, for the resource manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) subscription: String,
    pub(super) resource_group: String,
    pub(super) name: String,
}

/// Who is asked for what.
#[derive(Clone, Debug)]
pub(super) struct Services {
    /// Where people and programs sign in.
    pub(super) authority: String,
    pub(super) resource_manager: String,
    /// What tells a machine who it is.
    pub(super) instance_metadata: String,
}

#[derive(Debug)]
pub(super) struct AccountKey {
    pub(super) client: HttpClient,
    pub(super) sign_in: SignIn,
    pub(super) services: Services,
    pub(super) account: Account,
    pub(super) held: Mutex<Option<Held>>,
}

#[derive(Clone, Debug)]
pub(super) struct Held {
    key: Arc<AzureCredential>,
    since: Instant,
}

type AnyError = Box<dyn std::error::Error + Send + Sync>;

impl AccountKey {
    async fn list(&self) -> Result<Arc<AzureCredential>, AnyError> {
        let token = self.token().await?;
        let Account { subscription, resource_group, name } = &self.account;
        let mut url = Url::parse(&self.services.resource_manager)?;
        let path = [
            "subscriptions",
            subscription,
            "resourceGroups",
            resource_group,
            "providers",
            "Microsoft.Storage",
            "storageAccounts",
            name,
            "listKeys",
        ];
        url.path_segments_mut()
            .map_err(|()| "the resource manager has no address")?
            .pop_if_empty()
            .extend(path);
        url.query_pairs_mut().append_pair("api-version", API_VERSION);
        let request = Request::builder().method(Method::POST).uri(url.as_str());
        let request = request.header(AUTHORIZATION, format!("Bearer {token}")).header(CONTENT_LENGTH, "0");
        let answer: Keys = self.ask(request.body(String::new().into())?).await?;
        let full = answer.keys.into_iter().find(|key| key.permissions.eq_ignore_ascii_case("full"));
        let key =
            full.ok_or_else(|| format!("the storage account {name} has no key with all permissions"))?;
        // The error's own text may hold parts of the key.
        let key = AzureAccessKey::try_new(&key.value).map_err(|_| "the key is not base64")?;
        Ok(Arc::new(AzureCredential::AccessKey(key)))
    }

    /// A token for the resource manager.
    async fn token(&self) -> Result<String, AnyError> {
        let Services { resource_manager, instance_metadata, .. } = &self.services;
        let SignIn { client, secret, tenant, token_file } = &self.sign_in;
        match (client, tenant, secret, token_file) {
            (Some(client), Some(tenant), Some(secret), _) => {
                self.signed_in(tenant, &[("client_id", client), ("client_secret", secret)]).await
            }
            (Some(client), Some(tenant), None, Some(file)) => {
                let assertion = tokio::fs::read_to_string(file).await;
                let assertion = assertion.map_err(|error| format!("{file}: {error}"))?;
                let of_workload = [
                    ("client_id", client.as_str()),
                    ("client_assertion", assertion.trim()),
                    ("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"),
                ];
                self.signed_in(tenant, &of_workload).await
            }
            _ => {
                let mut query = vec![("api-version", "2018-02-01"), ("resource", resource_manager.as_str())];
                query.extend(client.as_deref().map(|client| ("client_id", client)));
                let url = format!("{instance_metadata}/metadata/identity/oauth2/token?{}", encoded(&query));
                let request = Request::builder().uri(url).header("Metadata", "true");
                Ok(self.ask::<Token>(request.body(String::new().into())?).await?.access_token)
            }
        }
    }

    async fn signed_in(&self, tenant: &str, identity: &[(&str, &str)]) -> Result<String, AnyError> {
        let scope = format!("{}/.default", self.services.resource_manager);
        let form = [identity, &[("grant_type", "client_credentials"), ("scope", &scope)]].concat();
        let url = format!("{}/{tenant}/oauth2/v2.0/token", self.services.authority.trim_end_matches('/'));
        let request = Request::builder().method(Method::POST).uri(url);
        let request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        Ok(self.ask::<Token>(request.body(encoded(&form).into())?).await?.access_token)
    }

    async fn ask<A: DeserializeOwned>(&self, request: HttpRequest) -> Result<A, AnyError> {
        let answer = self.client.execute(request).await?.into_body().bytes().await?;
        // Its text may hold parts of the answer.
        serde_json::from_slice(&answer).map_err(|_| "the answer is not what was expected".into())
    }

    fn failed(&self, source: AnyError) -> object_store::Error {
        let status = cause::<HttpFailure>(&*source).and_then(HttpFailure::status);
        if status != Some(StatusCode::FORBIDDEN.as_u16()) {
            return object_store::Error::Generic { store: "account key", source };
        }
        let message = "the identity may not list the keys of the storage account \
                       (Microsoft.Storage/storageAccounts/listkeys/action): give it a role that may, or set useAAD to \"true\" and \
                       give it the role \"Storage Blob Data Contributor\"";
        object_store::Error::PermissionDenied { path: self.account.name.clone(), source: message.into() }
    }
}

#[async_trait]
impl CredentialProvider for AccountKey {
    type Credential = AzureCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AzureCredential>> {
        let mut held = self.held.lock().await;
        let before = held.clone();
        if let Some(before) = before.as_ref().filter(|before| before.since.elapsed() < HELD) {
            return Ok(Arc::clone(&before.key));
        }
        let listed = timeout(DEADLINE, self.list()).await.unwrap_or_else(|elapsed| Err(elapsed.into()));
        match (listed, before) {
            (Ok(key), _) => Ok(Arc::clone(&held.insert(Held { key, since: Instant::now() }).key)),
            (Err(error), Some(before)) => {
                tracing::warn!(account = self.account.name, %error, "the key of the account cannot be asked for once more yet");
                Ok(before.key)
            }
            (Err(error), None) => Err(self.failed(error)),
        }
    }
}

fn encoded(pairs: &[(&str, &str)]) -> String {
    Serializer::new(String::new()).extend_pairs(pairs).finish()
}

#[derive(Deserialize)]
struct Token {
    access_token: String,
}

#[derive(Deserialize)]
struct Keys {
    #[serde(default)]
    keys: Vec<Key>,
}

#[derive(Deserialize)]
struct Key {
    #[serde(default)]
    permissions: String,
    #[serde(default)]
    value: String,
}

#[cfg(test)]
mod tests;
