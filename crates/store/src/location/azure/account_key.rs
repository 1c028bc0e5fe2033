//! The key of a storage account, as the resource manager gives it to an identity that may list it.
//!
//! Velero's plugin does so where neither the key nor `useAAD` is given
//! (`pkg/util/azure/storage.go`, `exchangeStorageAccountAccessKey`, v1.18). object_store (0.14)
//! signs in to storage only.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use http::{
    Method, Request, StatusCode,
    header::{AUTHORIZATION, CONTENT_LENGTH},
};
use object_store::{
    CredentialProvider,
    azure::{AzureAccessKey, AzureCredential},
};
use serde::Deserialize;
use tokio::time::Instant;
use url::Url;

use super::sign_in::Tokens;
use crate::{
    error::{AnyError, cause},
    http_failure::HttpFailure,
    location::held_credential::{HeldCredential, Lasting},
};

/// Time after which a key is requested again (10 minutes): it may be rotated.
const KEY_TTL: Duration = Duration::from_mins(10);

const API_VERSION: &str = "2023-05-01";

/// Identifies the account in the resource manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) subscription: String,
    pub(super) resource_group: String,
    pub(super) name: String,
}

#[derive(Debug)]
pub(super) struct AccountKey {
    pub(super) tokens: Tokens,
    pub(super) resource_manager: String,
    pub(super) account: Account,
    pub(super) held: HeldCredential<AzureCredential>,
}

impl AccountKey {
    async fn list(&self) -> Result<Lasting<AzureCredential>, AnyError> {
        let token = self
            .tokens
            .token(&self.resource_manager)
            .await?
            .access_token;
        let Account {
            subscription,
            resource_group,
            name,
        } = &self.account;
        let mut url = Url::parse(&self.resource_manager)?;
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
        url.query_pairs_mut()
            .append_pair("api-version", API_VERSION);
        let request = Request::builder().method(Method::POST).uri(url.as_str());
        let request = request
            .header(AUTHORIZATION, format!("Bearer {token}"))
            .header(CONTENT_LENGTH, "0");
        let answer: Keys = self.tokens.ask(request.body(String::new().into())?).await?;
        let full = answer
            .keys
            .into_iter()
            .find(|key| key.permissions.eq_ignore_ascii_case("full"));
        let key = full
            .ok_or_else(|| format!("the storage account {name} has no key with all permissions"))?;
        // The error's own text may hold parts of the key.
        let key = AzureAccessKey::try_new(&key.value).map_err(|_| "the key is not base64")?;
        let credential = Arc::new(AzureCredential::AccessKey(key));
        // A key does not expire.
        Ok(Lasting {
            credential,
            renew: Instant::now() + KEY_TTL,
            end: None,
        })
    }

    fn failed(&self, source: AnyError) -> object_store::Error {
        let status = cause::<HttpFailure>(&*source).and_then(HttpFailure::status);
        if status != Some(StatusCode::FORBIDDEN.as_u16()) {
            return object_store::Error::Generic {
                store: "account key",
                source,
            };
        }
        let message = "the identity may not list the keys of the storage account \
                       (Microsoft.Storage/storageAccounts/listkeys/action): give it a role that may, or set useAAD to \"true\" and \
                       give it the role \"Storage Blob Data Contributor\"";
        object_store::Error::PermissionDenied {
            path: self.account.name.clone(),
            source: message.into(),
        }
    }
}

#[async_trait]
impl CredentialProvider for AccountKey {
    type Credential = AzureCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AzureCredential>> {
        self.held
            .get(&self.account.name, self.list())
            .await
            .map_err(|error| self.failed(error))
    }
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
