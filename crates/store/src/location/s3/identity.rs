//! The identity used for requests to S3: the keys of a Secret, a role, or the environment's.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use http::{Method, Request, header::CONTENT_TYPE};
use jiff::Timestamp;
use object_store::{
    ClientOptions, CredentialProvider, StaticCredentialProvider,
    aws::{
        AmazonS3Builder, AmazonS3ConfigKey, AwsAuthorizer, AwsCredential, AwsCredentialProvider,
    },
    client::{HttpClient, HttpConnector as _},
};
use serde::Deserialize;
use url::form_urlencoded::Serializer;

use super::{
    Variables,
    profile::{Identity, Role, RoleSource, parse},
};
use crate::{
    StoreError,
    error::AnyError,
    location::{
        held_credential::{HeldCredential, Lasting},
        http_client,
    },
};

/// Variables that give pods and nodes an identity. Other variables of AWS locate the store, which
/// is configured by the location only.
const OF_IDENTITY: [&str; 10] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_METADATA_ENDPOINT",
];

const STS_VARIABLE: &str = "AWS_ENDPOINT_URL_STS";

/// Credentials are renewed this long before they expire (5 minutes).
const RENEWAL_MARGIN: Duration = Duration::from_mins(5);

/// Sets the identity that a client uses. `secret` is a credentials file; without one, the
/// environment decides.
pub(super) fn identify(
    builder: AmazonS3Builder,
    secret: Option<&[u8]>,
    profile: &str,
    region: &str,
    options: &ClientOptions,
    variables: &Variables<'_>,
) -> Result<AmazonS3Builder, StoreError> {
    let sts = variables(STS_VARIABLE).unwrap_or_else(|| {
        format!(
            "https://sts.{region}.{domain}",
            domain = super::domain(region)
        )
    });
    let Some(secret) = secret else {
        return Ok(of_environment(builder, &sts, variables));
    };
    let (role, source) = match parse(secret, profile)? {
        Identity::Keys(keys) => return Ok(builder.with_credentials(fixed(keys))),
        Identity::Role(role, source) => (role, source),
    };
    let source = match source {
        RoleSource::Keys(keys) => fixed(keys),
        RoleSource::Environment => {
            let built = of_environment(builder.clone(), &sts, variables).build();
            built
                .map_err(|error| {
                    StoreError::from_store("open", "the identity of the environment", &error)
                })?
                .credentials()
                .clone()
        }
        RoleSource::TokenFile(file) => {
            let settings = [
                (AmazonS3ConfigKey::WebIdentityTokenFile, Some(file)),
                (AmazonS3ConfigKey::RoleArn, Some(role.arn)),
                (AmazonS3ConfigKey::RoleSessionName, role.session),
                (AmazonS3ConfigKey::StsEndpoint, Some(sts)),
            ];
            let known = settings
                .into_iter()
                .filter_map(|(key, value)| Some((key, value?)));
            return Ok(known.fold(builder, |builder, (key, value)| {
                builder.with_config(key, value)
            }));
        }
    };
    let client = http_client::connector()
        .connect(options)
        .map_err(|error| StoreError::from_store("open", &sts, &error))?;
    let held = HeldCredential::default();
    let role = AssumedRole {
        client,
        source,
        role,
        endpoint: sts,
        region: region.to_owned(),
        held,
    };
    Ok(builder.with_credentials(Arc::new(role)))
}

fn fixed(keys: AwsCredential) -> AwsCredentialProvider {
    Arc::new(StaticCredentialProvider::new(keys))
}

fn of_environment(
    builder: AmazonS3Builder,
    sts: &str,
    variables: &Variables<'_>,
) -> AmazonS3Builder {
    let builder = builder.with_config(AmazonS3ConfigKey::StsEndpoint, sts);
    OF_IDENTITY.into_iter().fold(builder, |builder, name| {
        let key: Result<AmazonS3ConfigKey, _> = name.to_ascii_lowercase().parse();
        match (key, variables(name)) {
            (Ok(key), Some(value)) => builder.with_config(key, value),
            _ => builder,
        }
    })
}

/// The credentials of a role, requested with the credentials of another identity, and renewed
/// before they expire.
///
/// object_store (0.14) can assume a role only with a token.
#[derive(Debug)]
struct AssumedRole {
    client: HttpClient,
    source: AwsCredentialProvider,
    role: Role,
    endpoint: String,
    region: String,
    held: HeldCredential<AwsCredential>,
}

impl Role {
    /// The request for its credentials.
    fn form(&self) -> String {
        let mut form = Serializer::new(String::new());
        form.append_pair("Action", "AssumeRole")
            .append_pair("Version", "2011-06-15");
        form.append_pair("RoleArn", &self.arn);
        form.append_pair(
            "RoleSessionName",
            self.session.as_deref().unwrap_or("backup-controller"),
        );
        let more = [
            ("ExternalId", &self.external_id),
            ("DurationSeconds", &self.duration),
        ];
        for (name, value) in more
            .into_iter()
            .filter_map(|(name, value)| Some((name, value.as_ref()?)))
        {
            form.append_pair(name, value);
        }
        form.finish()
    }
}

impl AssumedRole {
    async fn assume(&self) -> Result<Lasting<AwsCredential>, AnyError> {
        let source = self.source.get_credential().await?;
        let request = Request::builder().method(Method::POST).uri(&self.endpoint);
        let request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        let mut request = request.body(self.role.form().into())?;
        AwsAuthorizer::new(&source, "sts", &self.region).try_authorize(&mut request, None)?;
        let answer = http_client::body(&self.client, request).await?;
        let answer: Answer = quick_xml::de::from_reader(&answer[..])?;
        let Credentials {
            access_key_id,
            secret_access_key,
            session_token,
            expiration,
        } = answer.assume_role_result.credentials;
        let credential = AwsCredential {
            key_id: access_key_id,
            secret_key: secret_access_key,
            token: Some(session_token),
        };
        let lasts =
            Duration::try_from(expiration.duration_since(Timestamp::now())).unwrap_or_default();
        Ok(Lasting::until(credential, lasts, RENEWAL_MARGIN))
    }
}

#[async_trait]
impl CredentialProvider for AssumedRole {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        let held = self.held.get(&self.role.arn, self.assume()).await;
        held.map_err(|source| object_store::Error::Generic {
            store: "role",
            source,
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    assume_role_result: AssumeRoleResult,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AssumeRoleResult {
    credentials: Credentials,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Credentials {
    access_key_id: String,
    secret_access_key: String,
    session_token: String,
    expiration: Timestamp,
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex as Shared;

    use jiff::SignedDuration;
    use object_store::client::{HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService};

    use super::*;

    /// A token service whose credentials expire this number of seconds from now, or which is down.
    #[derive(Clone, Debug, Default)]
    struct TokenService(Arc<Shared<(u32, Option<i64>)>>);

    #[async_trait]
    impl HttpService for TokenService {
        async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
            let body = request.body().as_bytes().unwrap().clone();
            assert!(
                std::str::from_utf8(&body)
                    .unwrap()
                    .contains("&ExternalId=e%26f"),
                "{body:?}"
            );
            let mut state = self.0.lock().unwrap();
            state.0 += 1;
            let down = || HttpError::new(HttpErrorKind::Connect, std::io::Error::other("down"));
            let expires = Timestamp::now() + SignedDuration::from_secs(state.1.ok_or_else(down)?);
            let answer = format!(
                "<AssumeRoleResponse><AssumeRoleResult><Credentials><AccessKeyId>A{}</AccessKeyId><SecretAccessKey>s\
                 </SecretAccessKey><SessionToken>t</SessionToken><Expiration>{expires}</Expiration></Credentials>\
                 </AssumeRoleResult></AssumeRoleResponse>",
                state.0
            );
            Ok(http::Response::new(answer.into()))
        }
    }

    #[tokio::test]
    async fn a_role_is_taken_on_again_before_it_expires_and_used_to_its_end() {
        let service = TokenService::default();
        let keys = AwsCredential {
            key_id: "k".to_owned(),
            secret_key: "s".to_owned(),
            token: None,
        };
        let role = Role {
            arn: "arn:r".to_owned(),
            session: None,
            external_id: Some("e&f".to_owned()),
            duration: None,
        };
        let assumed = AssumedRole {
            client: HttpClient::new(service.clone()),
            source: fixed(keys),
            role,
            endpoint: "https://sts".to_owned(),
            region: "r".to_owned(),
            held: HeldCredential::default(),
        };
        // Lifetime of the service's credentials (seconds), and the credentials that are used then;
        // `None` if there are none.
        for (lasts, expected) in [
            (None, None),
            (Some(-1), Some("A2")),
            (None, None),
            (Some(200), Some("A4")),
            (None, Some("A4")),
            (Some(3600), Some("A6")),
            (None, Some("A6")),
        ] {
            service.0.lock().unwrap().1 = lasts;
            let credential = assumed.get_credential().await.ok();
            assert_eq!(
                credential.as_ref().map(|one| one.key_id.as_str()),
                expected,
                "{lasts:?}"
            );
        }
        assert_eq!(
            service.0.lock().unwrap().0,
            6,
            "what lasts is not asked for again"
        );
    }
}
