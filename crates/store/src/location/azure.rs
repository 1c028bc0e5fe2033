//! Provider `azure`: Azure Blob Storage.
//!
//! The settings are those of Velero's plugin for Azure (`velero-plugin-for-microsoft-azure` and Velero's
//! `pkg/util/azure`, v1.18). Unlike it, this program never asks the resource manager for the keys of the storage account:
//! without `storageAccountKeyEnvVar` the identity itself needs the role "Storage Blob Data Contributor".

use std::{collections::BTreeMap, sync::Arc};

use backup_core::api::BackupStorageLocationSpec;
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};

use super::{backend::Backend, http_client, settings};
use crate::StoreError;

type Variables = BTreeMap<String, String>;

/// Every setting that Velero's plugin has, and `insecureSkipTLSVerify`. `resourceGroup` and `subscriptionId` say where the
/// account is managed, `useAAD` what is always done without a key; blocks are 8 MiB (`blockSizeInBytes`).
const KEYS: [&str; 9] = [
    "storageAccount",
    "storageAccountURI",
    "storageAccountKeyEnvVar",
    "activeDirectoryAuthorityURI",
    "insecureSkipTLSVerify",
    "resourceGroup",
    "subscriptionId",
    "useAAD",
    "blockSizeInBytes",
];

pub(super) fn open(
    spec: &BackupStorageLocationSpec,
    secret: Option<&[u8]>,
    ca: Option<&[u8]>,
) -> Result<Backend, StoreError> {
    let container = settings::bucket(&spec.object_storage.bucket, "container")?;
    let config = &spec.config;
    settings::known(config, &KEYS)?;
    let account = settings::get(config, "storageAccount").ok_or_else(|| {
        StoreError::config(
            "spec.config[storageAccount]",
            "it is missing: the name of the storage account is needed",
        )
    })?;
    let variables = secret.map(parse).transpose()?.unwrap_or_default();
    let endpoint = settings::endpoint(config, "storageAccountURI")?;
    let (domain, authority) = cloud(&variables)?;
    let url = match &endpoint {
        Some(url) => url.as_str().trim_end_matches('/').to_owned(),
        None => format!("https://{account}.blob.{domain}"),
    };
    let plain = url.starts_with("http://");
    let options = http_client::options(ca, plain, settings::flag(config, "insecureSkipTLSVerify")?)?;
    let authority = settings::get(config, "activeDirectoryAuthorityURI").unwrap_or(authority);
    // Without a Secret: what the environment offers (workload identity, managed identity).
    let builder =
        if secret.is_some() { MicrosoftAzureBuilder::new() } else { MicrosoftAzureBuilder::from_env() };
    let builder = builder
        .with_account(account)
        .with_container_name(&container)
        .with_endpoint(url)
        .with_authority_host(authority)
        .with_allow_http(plain)
        .with_retry(http_client::retry())
        .with_client_options(options)
        .with_http_connector(http_client::connector());
    let builder = authorize(builder, settings::get(config, "storageAccountKeyEnvVar"), &variables)?;
    // The error's own text may hold parts of the key.
    let store = builder.build().map_err(|_| {
        credential(format!(
            "no client can be made for container {container} of {account}: the key of the storage account is expected to be \
             base64, and client, secret and tenant to belong together"
        ))
    })?;
    let store = Arc::new(store);
    Ok(Backend {
        endpoint: endpoint.map(|url| url.to_string()),
        signer: Some(store.clone()),
        ..Backend::new(store.clone(), store, format!("azure://{account}/{container}"))
    })
}

fn credential(message: impl Into<String>) -> StoreError {
    StoreError::config("spec.credential", message)
}

fn authorize(
    builder: MicrosoftAzureBuilder,
    key_variable: Option<&str>,
    variables: &Variables,
) -> Result<MicrosoftAzureBuilder, StoreError> {
    let get = |name: &str| variables.get(name).filter(|value| !value.is_empty());
    if let Some(name) = key_variable {
        let key = get(name).cloned().or_else(|| std::env::var(name).ok()).ok_or_else(|| {
            StoreError::config(
                "spec.config[storageAccountKeyEnvVar]",
                format!("variable {name} is neither in the Secret nor in the environment"),
            )
        })?;
        return Ok(builder.with_access_key(key));
    }
    let unsupported = [
        ("AZURE_CLIENT_CERTIFICATE", "a client secret or workload identity"),
        ("AZURE_CLIENT_CERTIFICATE_PATH", "a client secret or workload identity"),
        ("AZURE_USERNAME", "a service principal or workload identity"),
    ];
    if let Some((name, instead)) = unsupported.into_iter().find(|(name, _)| get(name).is_some()) {
        return Err(credential(format!(
            "{name} cannot be honoured, and is not silently ignored: use {instead}"
        )));
    }
    let named = |name: &str| get(name).cloned();
    let (client, secret, tenant) =
        (named("AZURE_CLIENT_ID"), named("AZURE_CLIENT_SECRET"), named("AZURE_TENANT_ID"));
    let token = "AZURE_FEDERATED_TOKEN_FILE";
    let token = match (&client, &secret, &tenant) {
        (Some(_), Some(_), Some(_)) => None,
        (_, Some(_), _) => {
            return Err(credential(
                "AZURE_CLIENT_SECRET is there, but AZURE_CLIENT_ID or AZURE_TENANT_ID is missing",
            ));
        }
        // A managed identity, or the token that workload identity mounts.
        (_, None, _) => named(token).or_else(|| std::env::var(token).ok()),
    };
    let settings = [
        (AzureConfigKey::ClientId, client),
        (AzureConfigKey::ClientSecret, secret),
        (AzureConfigKey::AuthorityId, tenant),
        (AzureConfigKey::FederatedTokenFile, token),
    ];
    let known = settings.into_iter().filter_map(|(key, value)| Some((key, value?)));
    Ok(known.fold(builder, |builder, (key, value)| builder.with_config(key, value)))
}

/// The names of a cloud in lower case, the domain of its storage accounts, and who signs in there.
const CLOUDS: [(&[&str], &str, &str); 3] = [
    (&["", "azurecloud", "azurepubliccloud"], "core.windows.net", "https://login.microsoftonline.com"),
    (&["azurechina", "azurechinacloud"], "core.chinacloudapi.cn", "https://login.chinacloudapi.cn"),
    (
        &["azureusgovernment", "azureusgovernmentcloud"],
        "core.usgovcloudapi.net",
        "https://login.microsoftonline.us",
    ),
];

/// The domain of the storage accounts, and who signs in there.
fn cloud(variables: &Variables) -> Result<(&'static str, &'static str), StoreError> {
    let name = variables.get("AZURE_CLOUD_NAME").map(String::as_str).unwrap_or_default();
    let lower = name.to_ascii_lowercase();
    let known = CLOUDS.into_iter().find(|(names, ..)| names.contains(&lower.as_str()));
    known.map(|(_, domain, authority)| (domain, authority)).ok_or_else(|| {
        credential(format!(
            "AZURE_CLOUD_NAME {name:?} is not known: expected AzurePublicCloud, AzureChinaCloud or AzureUSGovernmentCloud"
        ))
    })
}

/// `NAME=value` lines, as godotenv reads them. Errors never hold any of the file's text.
fn parse(file: &[u8]) -> Result<Variables, StoreError> {
    let text = std::str::from_utf8(file).map_err(|_| credential("the Secret's value is not UTF-8"))?;
    dotenvy::from_read_iter(file).collect::<Result<_, _>>().map_err(|error| {
        let number = match error {
            dotenvy::Error::LineParse(wrong, _) => text.lines().position(|line| line.trim() == wrong.trim()),
            _ => None,
        };
        let at = number.map_or_else(String::new, |number| format!("line {} of ", number + 1));
        credential(format!(
            "{at}the Secret's value is not NAME=value; a file of AZURE_… variables is expected"
        ))
    })
}

#[cfg(test)]
mod immutable;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Refused, assert_refused, spec};

    const PRINCIPAL: &str =
        "# comment\nAZURE_TENANT_ID=t\nexport AZURE_CLIENT_ID = 'c'\nAZURE_CLIENT_SECRET=\"TOPSECRET==\"\n";

    #[test]
    fn a_credentials_file_is_read_as_it_is_meant() {
        let variables = parse(PRINCIPAL.as_bytes()).unwrap();
        assert_eq!(variables["AZURE_CLIENT_ID"], "c");
        assert_eq!(variables["AZURE_CLIENT_SECRET"], "TOPSECRET==");
        assert!(parse(b"TOPSECRET").unwrap_err().to_string().contains("line 1"));
    }

    #[test]
    fn clouds_are_known_by_their_names() {
        for (name, suffix) in [
            ("", "core.windows.net"),
            ("AzurePublicCloud", "core.windows.net"),
            ("AzureUSGovernmentCloud", "core.usgovcloudapi.net"),
            ("AzureChinaCloud", "core.chinacloudapi.cn"),
        ] {
            let variables = Variables::from([("AZURE_CLOUD_NAME".to_owned(), name.to_owned())]);
            assert_eq!(cloud(&variables).unwrap().0, suffix);
        }
        let other = Variables::from([("AZURE_CLOUD_NAME".to_owned(), "Mars".to_owned())]);
        assert!(cloud(&other).unwrap_err().to_string().contains("Mars"));
    }

    #[test]
    fn every_honoured_way_to_sign_in_makes_a_client() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (account, variable) = (("storageAccount", "acct"), ("storageAccountKeyEnvVar", "MY_KEY"));
        let emulator = ("storageAccountURI", "http://127.0.0.1:10000/acct");
        let key = "MY_KEY=S0VZ\nAZURE_CLOUD_NAME=AzurePublicCloud\n";
        let table: [(&[(&str, &str)], &str); 4] = [
            (&[account, variable, ("resourceGroup", "g")], key),
            (&[account, ("useAAD", "true"), ("subscriptionId", "s")], PRINCIPAL),
            (&[account, emulator, variable], key),
            (&[account], "AZURE_CLIENT_ID=c\n"),
        ];
        for (config, secret) in table {
            let opened = open(&spec("azure", "c", config), Some(secret.as_bytes()), None);
            assert_eq!(opened.map(|backend| backend.url).unwrap(), "azure://acct/c", "{config:?}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_and_no_secret_is_shown() {
        let (account, variable) = (("storageAccount", "acct"), "storageAccountKeyEnvVar");
        let table: &[Refused<'_>] = &[
            ("", &[account], PRINCIPAL, "spec.objectStorage.bucket"),
            ("c", &[], PRINCIPAL, "spec.config[storageAccount]"),
            ("c", &[account, ("useAad", "true")], PRINCIPAL, "spec.config[useAad]"),
            ("c", &[account, ("storageAccountURI", "nowhere")], PRINCIPAL, "spec.config[storageAccountURI]"),
            ("c", &[account, (variable, "NO_KEY")], PRINCIPAL, "spec.config[storageAccountKeyEnvVar]"),
            ("c", &[account], "AZURE_CLIENT_SECRET=TOPSECRET", "spec.credential"),
            ("c", &[account], "AZURE_CLIENT_CERTIFICATE=TOPSECRET", "spec.credential"),
            ("c", &[account, (variable, "K")], "K=TOP SECRET", "spec.credential"),
            ("c", &[account], "AZURE_CLOUD_NAME=Mars", "spec.credential"),
        ];
        assert_refused("azure", table);
    }
}
