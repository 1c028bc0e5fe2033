//! Provider `azure`: Azure Blob Storage.
//!
//! Has the settings of Velero's plugin for Azure (`velero-plugin-for-microsoft-azure` and Velero's
//! `pkg/util/azure`, v1.18). Without `storageAccountKeyEnvVar` and `useAAD` the key of the storage
//! account is requested, as there. Unlike there, if the account's subscription and resource group
//! are unknown, the identity itself is used; it needs the role "Storage Blob Data Contributor"
//! then.

use std::{collections::BTreeMap, sync::Arc};

use backup_core::api::BackupStorageLocationSpec;
use object_store::{ClientOptions, azure::MicrosoftAzureBuilder, client::HttpConnector as _};

use super::{backend::Backend, held_credential::HeldCredential, http_client, settings};
use crate::StoreError;

mod account_key;
mod certificate;
mod sign_in;

use account_key::{Account, AccountKey};
use sign_in::{Proof, SignIn, StorageToken, Tokens};

type Variables = BTreeMap<String, String>;

/// The metadata service that issues tokens to a machine.
const INSTANCE_METADATA: &str = "http://169.254.169.254";

/// All settings of Velero's plugin, and `insecureSkipTLSVerify`. Blocks are 8 MiB
/// (`blockSizeInBytes`).
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

/// Checks the settings as far as no credentials are needed.
pub(super) fn check(spec: &BackupStorageLocationSpec) -> Result<(), StoreError> {
    settings::known(spec, None, &KEYS)?;
    storage_account(&spec.config).map(drop)
}

fn storage_account(config: &BTreeMap<String, String>) -> Result<&str, StoreError> {
    settings::get(config, "storageAccount").ok_or_else(|| {
        StoreError::config(
            "spec.config[storageAccount]",
            "it is missing: the name of the storage account is needed",
        )
    })
}

pub(super) fn open(
    spec: &BackupStorageLocationSpec,
    secret: Option<&[u8]>,
    ca: Option<&[u8]>,
) -> Result<Backend, StoreError> {
    let container = settings::bucket(&spec.object_storage.bucket, "container")?;
    let config = &spec.config;
    settings::known(spec, ca, &KEYS)?;
    let account = storage_account(config)?;
    let variables = secret.map(parse).transpose()?.unwrap_or_default();
    let endpoint = settings::endpoint(config, "storageAccountURI")?;
    let cloud = cloud(&variables)?;
    let url = match &endpoint {
        Some(url) => url.as_str().trim_end_matches('/').to_owned(),
        None => format!("https://{account}.blob.{}", cloud.domain),
    };
    let plain = url.starts_with("http://");
    let options =
        http_client::options(ca, plain, settings::flag(config, "insecureSkipTLSVerify")?)?;
    let authority = settings::get(config, "activeDirectoryAuthorityURI").unwrap_or(cloud.authority);
    // Without a Secret: credentials from the environment (workload identity, managed identity).
    let builder = if secret.is_some() {
        MicrosoftAzureBuilder::new()
    } else {
        MicrosoftAzureBuilder::from_env()
    };
    let builder = builder
        .with_account(account)
        .with_container_name(&container)
        .with_endpoint(url)
        .with_authority_host(authority)
        .with_allow_http(plain)
        .with_retry(http_client::retry())
        .with_client_options(options.clone())
        .with_http_connector(http_client::connector());
    let builder = if let Some(name) = settings::get(config, "storageAccountKeyEnvVar") {
        builder.with_access_key(key_in(name, &variables)?)
    } else {
        let sign_in = SignIn::of(&variables, secret.is_none())?;
        let held = HeldCredential::default();
        if let Some(account) = managed(config, account, &variables, secret.is_none())? {
            let tokens = tokens(&options, sign_in, authority)?;
            let resource_manager = cloud.resource_manager.to_owned();
            builder.with_credentials(Arc::new(AccountKey {
                tokens,
                resource_manager,
                account,
                held,
            }))
        } else if matches!(sign_in.proof, Proof::Certificate(_)) {
            let tokens = tokens(&options, sign_in, authority)?;
            builder.with_credentials(Arc::new(StorageToken { tokens, held }))
        } else {
            sign_in.apply(builder)
        }
    };
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
        ..Backend::new(
            store.clone(),
            store,
            format!("azure://{account}/{container}"),
        )
    })
}

fn credential(message: impl Into<String>) -> StoreError {
    StoreError::config("spec.credential", message)
}

/// The key of the storage account.
fn key_in(name: &str, variables: &Variables) -> Result<String, StoreError> {
    let key = variables
        .get(name)
        .filter(|value| !value.is_empty())
        .cloned();
    key.or_else(|| std::env::var(name).ok()).ok_or_else(|| {
        StoreError::config(
            "spec.config[storageAccountKeyEnvVar]",
            format!("variable {name} is neither in the Secret nor in the environment"),
        )
    })
}

/// The subscription and resource group of the storage account, if its key is to be requested.
fn managed(
    config: &BTreeMap<String, String>,
    account: &str,
    variables: &Variables,
    of_process: bool,
) -> Result<Option<Account>, StoreError> {
    let use_identity = settings::flag(config, "useAAD")?;
    let subscription = settings::get(config, "subscriptionId")
        .map(str::to_owned)
        .or_else(|| variable(variables, of_process, "AZURE_SUBSCRIPTION_ID"));
    let resource_group = settings::get(config, "resourceGroup")
        .map(str::to_owned)
        .or_else(|| variable(variables, of_process, "AZURE_RESOURCE_GROUP"));
    Ok(match (subscription, resource_group) {
        (Some(subscription), Some(resource_group)) if !use_identity => Some(Account {
            subscription,
            resource_group,
            name: account.to_owned(),
        }),
        _ => None,
    })
}

fn tokens(options: &ClientOptions, sign_in: SignIn, authority: &str) -> Result<Tokens, StoreError> {
    // A machine gets its token over HTTP. The other services' addresses include the scheme.
    let client = http_client::connector()
        .connect(&options.clone().with_allow_http(true))
        .map_err(|error| StoreError::from_store("open", authority, &error))?;
    Ok(Tokens {
        client,
        sign_in,
        authority: authority.to_owned(),
        instance_metadata: INSTANCE_METADATA.to_owned(),
    })
}

/// A variable of the Secret; without a Secret, of this process.
fn variable(variables: &Variables, of_process: bool, name: &str) -> Option<String> {
    variables
        .get(name)
        .cloned()
        .or_else(|| std::env::var(name).ok().filter(|_| of_process))
        .filter(|value| !value.is_empty())
}

/// Addresses of one Azure cloud.
#[derive(Debug, PartialEq, Eq)]
struct Cloud {
    /// In lower case.
    names: &'static [&'static str],
    /// Domain of its storage accounts.
    domain: &'static str,
    authority: &'static str,
    resource_manager: &'static str,
}

const CLOUDS: [Cloud; 3] = [
    Cloud {
        names: &["", "azurecloud", "azurepubliccloud"],
        domain: "core.windows.net",
        authority: "https://login.microsoftonline.com",
        resource_manager: "https://management.azure.com",
    },
    Cloud {
        names: &["azurechina", "azurechinacloud"],
        domain: "core.chinacloudapi.cn",
        authority: "https://login.chinacloudapi.cn",
        resource_manager: "https://management.chinacloudapi.cn",
    },
    Cloud {
        names: &["azureusgovernment", "azureusgovernmentcloud"],
        domain: "core.usgovcloudapi.net",
        authority: "https://login.microsoftonline.us",
        resource_manager: "https://management.usgovcloudapi.net",
    },
];

fn cloud(variables: &Variables) -> Result<&'static Cloud, StoreError> {
    let name = variables
        .get("AZURE_CLOUD_NAME")
        .map(String::as_str)
        .unwrap_or_default();
    let lower = name.to_ascii_lowercase();
    CLOUDS.iter().find(|cloud| cloud.names.contains(&lower.as_str())).ok_or_else(|| {
        credential(format!(
            "AZURE_CLOUD_NAME {name:?} is not known: expected AzurePublicCloud, AzureChinaCloud or AzureUSGovernmentCloud"
        ))
    })
}

/// `NAME=value` lines, as godotenv reads them. Errors never hold any of the file's text.
fn parse(file: &[u8]) -> Result<Variables, StoreError> {
    let text =
        std::str::from_utf8(file).map_err(|_| credential("the Secret's value is not UTF-8"))?;
    dotenvy::from_read_iter(file)
        .collect::<Result<_, _>>()
        .map_err(|error| {
            let number = match error {
                dotenvy::Error::LineParse(wrong, _) => {
                    text.lines().position(|line| line.trim() == wrong.trim())
                }
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

    const PRINCIPAL: &str = "# comment\nAZURE_TENANT_ID=t\nexport AZURE_CLIENT_ID = 'c'\nAZURE_CLIENT_SECRET=\"TOPSECRET==\"\n";

    #[test]
    fn a_credentials_file_is_read_as_it_is_meant() {
        let variables = parse(PRINCIPAL.as_bytes()).unwrap();
        assert_eq!(variables["AZURE_CLIENT_ID"], "c");
        assert_eq!(variables["AZURE_CLIENT_SECRET"], "TOPSECRET==");
        assert_says!(parse(b"TOPSECRET").unwrap_err(), "line 1");
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
            assert_eq!(cloud(&variables).unwrap().domain, suffix);
        }
        let other = Variables::from([("AZURE_CLOUD_NAME".to_owned(), "Mars".to_owned())]);
        assert_says!(cloud(&other).unwrap_err(), "Mars");
    }

    #[test]
    fn every_honoured_way_to_sign_in_makes_a_client() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (account, variable) = (
            ("storageAccount", "acct"),
            ("storageAccountKeyEnvVar", "MY_KEY"),
        );
        let emulator = ("storageAccountURI", "http://127.0.0.1:10000/acct");
        let key = "MY_KEY=S0VZ\nAZURE_CLOUD_NAME=AzurePublicCloud\n";
        let (group, subscription) = (("resourceGroup", "g"), ("subscriptionId", "s"));
        let of_program = |more: &str| format!("AZURE_TENANT_ID=t\nAZURE_CLIENT_ID=c\n{more}");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), certificate::tests::PEM).unwrap();
        let in_file = of_program(&format!(
            "AZURE_CLIENT_CERTIFICATE_PATH={}",
            file.path().display()
        ));
        let in_secret = of_program(&format!(
            "AZURE_CLIENT_CERTIFICATE=\"{}\"\nAZURE_CLIENT_SEND_CERTIFICATE_CHAIN=true\n",
            certificate::tests::PEM
        ));
        let table: [(&[(&str, &str)], &str); 8] = [
            (&[account], &in_file),
            (&[account], &in_secret),
            (&[account, group, subscription], &in_secret),
            (&[account, group, subscription], PRINCIPAL),
            (&[account, variable, ("resourceGroup", "g")], key),
            (
                &[account, ("useAAD", "true"), ("subscriptionId", "s")],
                PRINCIPAL,
            ),
            (&[account, emulator, variable], key),
            (&[account], "AZURE_CLIENT_ID=c\n"),
        ];
        for (config, secret) in table {
            let opened = open(&spec("azure", "c", config), Some(secret.as_bytes()), None);
            assert_eq!(
                opened.map(|backend| backend.url).unwrap(),
                "azure://acct/c",
                "{config:?}"
            );
        }
    }

    #[test]
    fn each_known_variable_of_a_sign_in_is_read_or_refused() {
        let keys = [
            "AZURE_CLIENT_ID",
            "AZURE_TENANT_ID",
            "AZURE_CLIENT_SECRET",
            "AZURE_CLIENT_CERTIFICATE",
            "AZURE_CLIENT_CERTIFICATE_PATH",
            "AZURE_FEDERATED_TOKEN_FILE",
            "AZURE_USERNAME",
        ];
        backup_testkit::assert_each_key_counts(keys, &[], |key| {
            let base = ["AZURE_CLIENT_ID", "AZURE_TENANT_ID"]
                .map(|name| (name.to_owned(), "base".to_owned()));
            let mut variables = Variables::from(base);
            variables.extend(key.map(|key| (key.to_owned(), "other".to_owned())));
            let SignIn {
                client,
                tenant,
                proof,
            } = SignIn::of(&variables, false)?;
            let proof = match proof {
                Proof::Secret(secret) => secret,
                Proof::TokenFile(file) => format!("token in {file}"),
                Proof::Certificate(_) => "a certificate".to_owned(),
                Proof::None => "none".to_owned(),
            };
            Ok::<_, StoreError>(format!("{client:?} {tenant:?} {proof}"))
        });
    }

    #[test]
    fn the_key_is_asked_for_where_the_account_is_known_and_the_identity_is_not_to_be_used() {
        type Row<'a> = (&'a [(&'a str, &'a str)], &'a str, Option<[&'a str; 2]>);
        let (group, subscription) = (("resourceGroup", "g"), ("subscriptionId", "s"));
        let in_secret = "AZURE_RESOURCE_GROUP=of-secret\nAZURE_SUBSCRIPTION_ID=of-secret\n";
        let table: [Row<'_>; 6] = [
            (&[group, subscription], "", Some(["s", "g"])),
            (&[group], in_secret, Some(["of-secret", "g"])),
            (
                &[group, subscription, ("useAAD", "false")],
                "",
                Some(["s", "g"]),
            ),
            (&[group, subscription, ("useAAD", "true")], "", None),
            (&[group], "", None),
            (&[], "", None),
        ];
        for (config, secret, expected) in table {
            let config = spec("azure", "c", config).config;
            let variables = parse(secret.as_bytes()).unwrap();
            let found = managed(&config, "acct", &variables, false).unwrap();
            let found = found
                .as_ref()
                .map(|found| [found.subscription.as_str(), found.resource_group.as_str()]);
            assert_eq!(found, expected, "{config:?}");
        }
    }

    #[test]
    fn each_known_setting_is_read_or_refused() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let base = spec("azure", "c", &[("storageAccount", "acct")]);
        // The key is requested where both are given, and useAAD is not.
        let managed = [
            ("storageAccount", "acct"),
            ("resourceGroup", "g"),
            ("subscriptionId", "s"),
        ];
        let managed = spec("azure", "c", &managed);
        let open = |spec: &BackupStorageLocationSpec| {
            let found = managed_account(spec)?;
            open(spec, Some(PRINCIPAL.as_bytes()), None)
                .map(|backend| format!("{:?} {found:?}", backend.store))
        };
        let values = [
            ("storageAccountURI", "http://127.0.0.1:10000/acct"),
            (
                "activeDirectoryAuthorityURI",
                "https://login.microsoftonline.us",
            ),
            ("insecureSkipTLSVerify", "true"),
            ("useAAD", "true"),
        ];
        let of_key = ["resourceGroup", "subscriptionId", "useAAD"];
        let (beside, alone): (Vec<&str>, Vec<&str>) =
            KEYS.iter().copied().partition(|key| of_key.contains(key));
        settings::assert_each_is_read(&base, &alone, &values, open);
        settings::assert_each_is_read(&managed, &beside, &values, open);
    }

    fn managed_account(
        spec: &BackupStorageLocationSpec,
    ) -> Result<Option<[String; 2]>, StoreError> {
        let found = managed(&spec.config, "acct", &parse(PRINCIPAL.as_bytes())?, false)?;
        Ok(found.map(|found| [found.subscription, found.resource_group]))
    }

    #[test]
    fn what_is_wrong_is_named_and_no_secret_is_shown() {
        let (account, variable) = (("storageAccount", "acct"), "storageAccountKeyEnvVar");
        let table: &[Refused<'_>] = &[
            ("", &[account], PRINCIPAL, "spec.objectStorage.bucket"),
            ("c", &[], PRINCIPAL, "spec.config[storageAccount]"),
            (
                "c",
                &[account, ("useAad", "true")],
                PRINCIPAL,
                "spec.config[useAad]",
            ),
            (
                "c",
                &[account, ("storageAccountURI", "nowhere")],
                PRINCIPAL,
                "spec.config[storageAccountURI]",
            ),
            (
                "c",
                &[account, (variable, "NO_KEY")],
                PRINCIPAL,
                "spec.config[storageAccountKeyEnvVar]",
            ),
            (
                "c",
                &[account],
                "AZURE_CLIENT_SECRET=TOPSECRET",
                "spec.credential",
            ),
            (
                "c",
                &[account],
                "AZURE_CLIENT_CERTIFICATE=TOPSECRET",
                "spec.credential",
            ),
            (
                "c",
                &[account],
                "AZURE_CLIENT_CERTIFICATE_PATH=/not/there",
                "spec.credential",
            ),
            (
                "c",
                &[account],
                "AZURE_USERNAME=u\nAZURE_PASSWORD=TOPSECRET",
                "spec.credential",
            ),
            (
                "c",
                &[account, (variable, "K")],
                "K=TOP SECRET",
                "spec.credential",
            ),
            ("c", &[account], "AZURE_CLOUD_NAME=Mars", "spec.credential"),
        ];
        assert_refused("azure", table);
    }
}
