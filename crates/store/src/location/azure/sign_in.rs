//! Identities that sign in to Azure, and the tokens they get for services.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use http::{Method, Request, header::CONTENT_TYPE};
use object_store::{
    CredentialProvider,
    azure::{AzureConfigKey, AzureCredential, MicrosoftAzureBuilder},
    client::{HttpClient, HttpRequest},
};
use serde::{Deserialize, de::DeserializeOwned};
use url::form_urlencoded::Serializer;

use super::{Variables, certificate::Certificate, credential, variable};
use crate::{
    StoreError,
    error::AnyError,
    location::{
        held_credential::{HeldCredential, Lasting},
        http_client,
    },
};

/// A token is renewed this long before it expires (5 minutes).
const RENEWAL_MARGIN: Duration = Duration::from_mins(5);

/// Audience of a token for storage, the same in every cloud.
const STORAGE: &str = "https://storage.azure.com";

/// An application of a tenant, or the managed identity of the machine.
#[derive(Clone, Default)]
pub(super) struct SignIn {
    pub(super) client: Option<String>,
    pub(super) tenant: Option<String>,
    pub(super) proof: Proof,
}

/// How an application authenticates.
#[derive(Clone, Default)]
pub(super) enum Proof {
    /// By the managed identity of the machine.
    #[default]
    None,
    Secret(String),
    Certificate(Arc<Certificate>),
    /// The token file that workload identity mounts.
    TokenFile(String),
}

impl std::fmt::Debug for SignIn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SignIn")
    }
}

impl SignIn {
    /// From the variables of a Secret, or of this process, in Velero's order.
    /// Errors: variables that do not belong together, or are not supported.
    pub(super) fn of(variables: &Variables, of_process: bool) -> Result<Self, StoreError> {
        let client = variable(variables, of_process, "AZURE_CLIENT_ID");
        let tenant = variable(variables, of_process, "AZURE_TENANT_ID");
        let is_application = client.is_some() && tenant.is_some();
        let proof = if let Some(secret) = variable(variables, of_process, "AZURE_CLIENT_SECRET") {
            if !is_application {
                return Err(incomplete_application("AZURE_CLIENT_SECRET"));
            }
            Proof::Secret(secret)
        } else if let Some((name, certificate)) =
            certificate(|name| variable(variables, of_process, name))?
        {
            if !is_application {
                return Err(incomplete_application(name));
            }
            Proof::Certificate(Arc::new(certificate))
        } else if variable(variables, false, "AZURE_USERNAME").is_some() {
            return Err(credential(
                "AZURE_USERNAME cannot be honoured, and is not silently ignored: use a service principal or workload identity",
            ));
        } else {
            // The token is mounted into this process, with or without a Secret.
            variable(variables, true, "AZURE_FEDERATED_TOKEN_FILE")
                .map_or(Proof::None, Proof::TokenFile)
        };
        Ok(Self {
            client,
            tenant,
            proof,
        })
    }

    /// Configures object_store (0.14), which supports all but certificates.
    pub(super) fn apply(self, builder: MicrosoftAzureBuilder) -> MicrosoftAzureBuilder {
        let proof = match self.proof {
            Proof::Secret(secret) => Some((AzureConfigKey::ClientSecret, secret)),
            Proof::TokenFile(file) => Some((AzureConfigKey::FederatedTokenFile, file)),
            Proof::Certificate(_) | Proof::None => None,
        };
        let client = self.client.map(|client| (AzureConfigKey::ClientId, client));
        let tenant = self
            .tenant
            .map(|tenant| (AzureConfigKey::AuthorityId, tenant));
        let known = [client, tenant, proof].into_iter().flatten();
        known.fold(builder, |builder, (key, value)| {
            builder.with_config(key, value)
        })
    }
}

/// The error for a proof, in variable `name`, without a client or a tenant.
fn incomplete_application(name: &str) -> StoreError {
    credential(format!(
        "{name} is there, but AZURE_CLIENT_ID or AZURE_TENANT_ID is missing"
    ))
}

/// The certificate in the variables or in the file they name, and the name of that variable.
fn certificate(
    get: impl Fn(&str) -> Option<String>,
) -> Result<Option<(&'static str, Certificate)>, StoreError> {
    const TEXT: &str = "AZURE_CLIENT_CERTIFICATE";
    const FILE: &str = "AZURE_CLIENT_CERTIFICATE_PATH";
    let (name, pem) = match (get(TEXT), get(FILE)) {
        (Some(text), _) => (TEXT, text.into_bytes()),
        (None, Some(file)) => {
            let read = std::fs::read(&file);
            (
                FILE,
                read.map_err(|error| {
                    credential(format!("{FILE}: {file} can not be read: {error}"))
                })?,
            )
        }
        (None, None) => return Ok(None),
    };
    let sends_chain = get("AZURE_CLIENT_SEND_CERTIFICATE_CHAIN")
        .is_some_and(|flag| flag == "1" || flag.eq_ignore_ascii_case("true"));
    let certificate = Certificate::parse(&pem, sends_chain);
    certificate
        .map(|certificate| Some((name, certificate)))
        .map_err(|wrong| credential(format!("{name}: {wrong}")))
}

/// Gets tokens.
#[derive(Debug)]
pub(super) struct Tokens {
    pub(super) client: HttpClient,
    pub(super) sign_in: SignIn,
    /// The sign-in service.
    pub(super) authority: String,
    /// The machine's metadata service.
    pub(super) instance_metadata: String,
}

impl Tokens {
    /// A token for a service.
    pub(super) async fn token(&self, service: &str) -> Result<Token, AnyError> {
        let SignIn {
            client: Some(client),
            tenant: Some(tenant),
            proof,
        } = &self.sign_in
        else {
            return self.of_machine(service).await;
        };
        let url = format!(
            "{}/{tenant}/oauth2/v2.0/token",
            self.authority.trim_end_matches('/')
        );
        let proof = match proof {
            Proof::None => return self.of_machine(service).await,
            Proof::Secret(secret) => vec![("client_secret", secret.clone())],
            Proof::TokenFile(file) => {
                let token = tokio::fs::read_to_string(file).await;
                assertion_fields(token.map_err(|error| format!("{file}: {error}"))?.trim())
            }
            Proof::Certificate(certificate) => {
                assertion_fields(&certificate.assertion(client, &url)?)
            }
        };
        let scope = format!("{service}/.default");
        let mut form = vec![
            ("client_id", client.as_str()),
            ("grant_type", "client_credentials"),
            ("scope", &scope),
        ];
        form.extend(proof.iter().map(|(name, value)| (*name, value.as_str())));
        let request = Request::builder().method(Method::POST).uri(url);
        let request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        self.ask(request.body(encoded(&form).into())?).await
    }

    async fn of_machine(&self, service: &str) -> Result<Token, AnyError> {
        let mut query = vec![("api-version", "2018-02-01"), ("resource", service)];
        query.extend(
            self.sign_in
                .client
                .as_deref()
                .map(|client| ("client_id", client)),
        );
        let url = format!(
            "{}/metadata/identity/oauth2/token?{}",
            self.instance_metadata,
            encoded(&query)
        );
        let request = Request::builder().uri(url).header("Metadata", "true");
        self.ask(request.body(String::new().into())?).await
    }

    pub(super) async fn ask<A: DeserializeOwned>(
        &self,
        request: HttpRequest,
    ) -> Result<A, AnyError> {
        let answer = http_client::body(&self.client, request).await?;
        // The error's text may hold parts of the answer.
        serde_json::from_slice(&answer).map_err(|_| "the answer is not what was expected".into())
    }
}

/// The fields of a form that prove an application's identity by a token.
fn assertion_fields(token: &str) -> Vec<(&'static str, String)> {
    let of_type = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
    vec![
        ("client_assertion", token.to_owned()),
        ("client_assertion_type", of_type.to_owned()),
    ]
}

fn encoded(pairs: &[(&str, &str)]) -> String {
    Serializer::new(String::new()).extend_pairs(pairs).finish()
}

#[derive(Deserialize)]
pub(super) struct Token {
    pub(super) access_token: String,
    /// Seconds.
    #[serde(default)]
    expires_in: serde_json::Value,
}

impl Token {
    /// The metadata service sends a string, other services a number.
    fn lasts(&self) -> Duration {
        let text = self.expires_in.as_str().and_then(|text| text.parse().ok());
        Duration::from_secs(self.expires_in.as_u64().or(text).unwrap_or(0))
    }
}

/// Signs in to storage itself.
#[derive(Debug)]
pub(super) struct StorageToken {
    pub(super) tokens: Tokens,
    pub(super) held: HeldCredential<AzureCredential>,
}

#[async_trait]
impl CredentialProvider for StorageToken {
    type Credential = AzureCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AzureCredential>> {
        let renew = async {
            let token = self.tokens.token(STORAGE).await?;
            let lasts = token.lasts();
            Ok(Lasting::until(
                AzureCredential::BearerToken(token.access_token),
                lasts,
                RENEWAL_MARGIN,
            ))
        };
        let held = self.held.get("the storage of Azure", renew).await;
        held.map_err(|source| object_store::Error::Generic {
            store: "sign in",
            source,
        })
    }
}
