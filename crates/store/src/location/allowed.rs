//! Hosts that a BackupStorageLocation may send credentials to, and folders that it may use.

use std::path::{Path, PathBuf};

use backup_core::{api::BackupStorageLocationSpec, selection::glob_match};
use url::Url;

use super::{plugin::plugin_of, settings};
use crate::StoreError;

/// System folders that no location may be in unless they are allowed explicitly.
const SYSTEM: [&str; 12] = [
    "/bin",
    "/boot",
    "/credentials",
    "/dev",
    "/etc",
    "/lib",
    "/lib64",
    "/proc",
    "/run",
    "/sbin",
    "/sys",
    "/usr",
];

/// A setting that names a host to which credentials are sent.
struct Endpoint {
    provider: &'static str,
    setting: &'static str,
    /// Hosts of the provider itself.
    own: &'static [&'static str],
    /// Whether the host gets a reusable secret: a token or a password. A signature is valid for one
    /// request only.
    reveals: bool,
}

const ENDPOINTS: [Endpoint; 4] = [
    Endpoint {
        provider: "velero.io/aws",
        setting: "s3Url",
        own: &["*.amazonaws.com", "*.amazonaws.com.cn", "*.api.aws"],
        reveals: false,
    },
    Endpoint {
        provider: "velero.io/gcp",
        setting: "storeEndpoint",
        own: &["*.googleapis.com"],
        reveals: true,
    },
    Endpoint {
        provider: "velero.io/azure",
        setting: "storageAccountURI",
        own: &[
            "*.blob.core.windows.net",
            "*.blob.core.chinacloudapi.cn",
            "*.blob.core.usgovcloudapi.net",
            "*.blob.storage.azure.net",
        ],
        reveals: true,
    },
    Endpoint {
        provider: "velero.io/azure",
        setting: "activeDirectoryAuthorityURI",
        own: &[
            "login.microsoftonline.com",
            "login.microsoftonline.us",
            "login.windows.net",
            "login.chinacloudapi.cn",
            "login.partner.microsoftonline.cn",
        ],
        reveals: true,
    },
];

/// Places that the operator of this program allows.
#[derive(Clone, Debug, Default)]
pub struct AllowedPlaces {
    /// Hosts, with `*` for any part. If empty, every host is allowed that receives no secret, or
    /// only one from the location's own Secret.
    pub endpoints: Vec<String>,
    /// Folders for provider `local`. If empty: all but system folders and those that contain a path
    /// in `own`.
    pub folders: Vec<PathBuf>,
    /// Files and folders of this program.
    pub own: Vec<PathBuf>,
}

impl AllowedPlaces {
    /// Refuses a location outside of these places. A folder is checked by its real path, so this
    /// reads the file system.
    pub fn check(&self, spec: &BackupStorageLocationSpec) -> Result<(), StoreError> {
        self.check_endpoints(spec)?;
        if plugin_of(&spec.provider) != "velero.io/local" {
            return Ok(());
        }
        let folders = real_paths(&self.folders);
        let own = real_paths(&self.own);
        let bucket = Path::new(&spec.object_storage.bucket);
        Self {
            folders,
            own,
            endpoints: Vec::new(),
        }
        .check_folder(bucket, &real_path(bucket))
    }

    /// Refuses a URL that leads to a host outside of these places; `setting` names it in the error,
    /// which does not repeat the URL, as that may contain a secret.
    pub fn check_url(&self, setting: &str, text: &str) -> Result<Url, StoreError> {
        let url = Url::parse(text)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https"))
            .filter(|url| url.username().is_empty() && url.password().is_none());
        let Some((url, host)) = url.and_then(|url| {
            let host = url.host_str()?.to_owned();
            Some((url, host))
        }) else {
            let message = "an http:// or https:// URL without user and password is expected";
            return Err(StoreError::config(setting, message));
        };
        let listed = &self.endpoints;
        if listed.is_empty() || listed.iter().any(|pattern| is_host(pattern, &host)) {
            return Ok(url);
        }
        let message = format!(
            "{host} is not in --allowed-endpoints ({}): correct it, or add it to that flag of the controller",
            listed.join(", ")
        );
        Err(StoreError::config(setting, message))
    }

    fn check_endpoints(&self, spec: &BackupStorageLocationSpec) -> Result<(), StoreError> {
        let provider = plugin_of(&spec.provider);
        let own_secret = spec.credential.is_some();
        let config = &spec.config;
        // The key of a storage account only signs, and no token is sent.
        let signs = settings::get(config, "storageAccountKeyEnvVar").is_some();
        for Endpoint {
            setting,
            own,
            reveals,
            ..
        } in ENDPOINTS.iter().filter(|one| one.provider == provider)
        {
            let Some(text) = settings::get(config, setting) else {
                continue;
            };
            let is_safe = own_secret || signs || !reveals;
            if self.endpoints.is_empty() && is_safe {
                continue;
            }
            let Some(host) = Url::parse(text)
                .ok()
                .and_then(|url| url.host_str().map(str::to_owned))
            else {
                return Err(settings::invalid(
                    setting,
                    text,
                    "an http:// or https:// URL",
                ));
            };
            if own.iter().any(|pattern| is_host(pattern, &host))
                || self.endpoints.iter().any(|pattern| is_host(pattern, &host))
            {
                continue;
            }
            let message = if self.endpoints.is_empty() {
                format!(
                    "{host} is no host of the provider, and would get the credentials that this program has for all locations: \
                     name it in the flag --allowed-endpoints of the controller, or name a Secret for it in spec.credential"
                )
            } else {
                format!(
                    "{host} is neither a host of the provider nor in --allowed-endpoints ({}): correct it, or add it to that flag \
                     of the controller",
                    self.endpoints.join(", ")
                )
            };
            return Err(StoreError::config(
                &format!("spec.config[{setting}]"),
                message,
            ));
        }
        Ok(())
    }

    /// `shown` is the path in the location, `real` the same without links.
    fn check_folder(&self, shown: &Path, real: &Path) -> Result<(), StoreError> {
        let why = if self.folders.is_empty() {
            let system = SYSTEM.iter().any(|folder| real.starts_with(folder));
            let held = self.own.iter().find(|own| own.starts_with(real));
            if system {
                "it is a folder of the system".to_owned()
            } else if let Some(own) = held {
                format!("it holds {} of this program", own.display())
            } else {
                return Ok(());
            }
        } else if self.folders.iter().any(|folder| real.starts_with(folder)) {
            return Ok(());
        } else {
            "it is in none of the folders that are allowed".to_owned()
        };
        let message = format!(
            "{} cannot be used: {why}. Use another folder, or name it in the flag --allowed-local-paths of the controller",
            shown.display()
        );
        Err(StoreError::config("spec.objectStorage.bucket", message))
    }
}

/// Whether a host matches a pattern; IPv6 addresses with or without their brackets.
fn is_host(pattern: &str, host: &str) -> bool {
    glob_match(&bare_host(pattern), &bare_host(host))
}

/// A host in lower case, without the brackets of an IPv6 address.
fn bare_host(text: &str) -> String {
    text.trim().trim_matches(['[', ']']).to_ascii_lowercase()
}

fn real_paths(paths: &[PathBuf]) -> Vec<PathBuf> {
    paths.iter().map(|path| real_path(path)).collect()
}

/// Resolves links in the existing part of a path.
fn real_path(path: &Path) -> PathBuf {
    let real = path
        .ancestors()
        .find_map(|part| Some((part, std::fs::canonicalize(part).ok()?)));
    match real {
        Some((part, real)) => path
            .strip_prefix(part)
            .map_or_else(|_| real.clone(), |rest| real.join(rest)),
        None => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use backup_core::api::common::SecretKey;

    use super::*;
    use crate::testing::spec;

    fn allowed(endpoints: &[&str], folders: &[&str]) -> AllowedPlaces {
        let endpoints = endpoints.iter().map(|host| (*host).to_owned()).collect();
        let own = ["/tmp", "/plugins", "/srv/kubeconfig"]
            .map(PathBuf::from)
            .to_vec();
        AllowedPlaces {
            endpoints,
            folders: folders.iter().map(PathBuf::from).collect(),
            own,
        }
    }

    /// Without a list, a location is refused only if it would reveal a secret.
    #[test]
    fn credentials_of_all_locations_go_to_hosts_of_the_provider_or_of_the_list() {
        const LISTED: &[&str] = &["*.example.com", "[::1]", "10.0.0.7"];
        // provider, setting, its value; whether it is allowed without a list, without a list but
        // with its own Secret, with the list.
        for (provider, setting, value, expected) in [
            ("aws", "s3Url", "http://minio:9000", [true, true, false]),
            ("aws", "s3Url", "https://S3.example.com", [true, true, true]),
            (
                "aws",
                "s3Url",
                "https://s3.eu-west-1.amazonaws.com",
                [true, true, true],
            ),
            (
                "velero.io/aws",
                "s3Url",
                "https://amazonaws.com.evil.net",
                [true, true, false],
            ),
            ("aws", "s3Url", "http://[::1]:9000", [true, true, true]),
            ("aws", "s3Url", "http://10.0.0.7:9000", [true, true, true]),
            ("aws", "s3Url", "http://10.0.0.70", [true, true, false]),
            (
                "gcp",
                "storeEndpoint",
                "https://storage.googleapis.com",
                [true, true, true],
            ),
            (
                "gcp",
                "storeEndpoint",
                "https://storage-x.p.googleapis.com",
                [true, true, true],
            ),
            (
                "gcp",
                "storeEndpoint",
                "https://evil.net",
                [false, true, false],
            ),
            (
                "gcp",
                "storeEndpoint",
                "https://evilgoogleapis.com",
                [false, true, false],
            ),
            (
                "gcp",
                "storeEndpoint",
                "https://storage.googleapis.com@evil.net",
                [false, true, false],
            ),
            (
                "gcp",
                "storeEndpoint",
                "https://evil.net/storage.googleapis.com",
                [false, true, false],
            ),
            ("gcp", "storeEndpoint", "nowhere", [false, true, false]),
            (
                "azure",
                "storageAccountURI",
                "https://a.blob.core.windows.net",
                [true, true, true],
            ),
            (
                "azure",
                "storageAccountURI",
                "https://a.z01.blob.storage.azure.net",
                [true, true, true],
            ),
            (
                "azure",
                "storageAccountURI",
                "https://evil.net",
                [false, true, false],
            ),
            (
                "azure",
                "activeDirectoryAuthorityURI",
                "https://login.microsoftonline.us/",
                [true, true, true],
            ),
            (
                "azure",
                "activeDirectoryAuthorityURI",
                "https://adfs.example.com",
                [false, true, true],
            ),
            (
                "velero.io/azure",
                "activeDirectoryAuthorityURI",
                "https://evil.net",
                [false, true, false],
            ),
            // A provider that has no such setting.
            ("gcp", "s3Url", "https://evil.net", [true, true, true]),
            (
                "acme.io/store",
                "s3Url",
                "https://evil.net",
                [true, true, true],
            ),
        ] {
            let default = spec(provider, "b", &[(setting, value)]);
            let mut own = default.clone();
            own.credential = Some(SecretKey {
                name: "mine".into(),
                key: "k".into(),
                optional: None,
            });
            let found = [(&[][..], &default), (&[], &own), (LISTED, &default)]
                .map(|(list, spec)| allowed(list, &[]).check(spec).is_ok());
            assert_eq!(found, expected, "{provider} {value}");
            assert_eq!(
                allowed(LISTED, &[]).check(&own).is_ok(),
                expected[2],
                "{provider} {value}"
            );
        }
        let key = [
            ("storageAccountURI", "https://evil.net"),
            ("storageAccountKeyEnvVar", "KEY"),
        ];
        allowed(&[], &[]).check(&spec("azure", "b", &key)).unwrap();
        let refused =
            allowed(&[], &[]).check(&spec("gcp", "b", &[("storeEndpoint", "https://evil.net")]));
        let said = refused.unwrap_err().to_string();
        assert_says!(said, "storeEndpoint", "--allowed-endpoints");
    }

    #[test]
    fn a_url_leads_to_a_host_of_the_list_and_is_not_repeated() {
        const LISTED: &[&str] = &["*.example.com", "[::1]"];
        for (url, without_list, with_list) in [
            ("https://hooks.example.com/a", true, true),
            ("http://[::1]:8080/", true, true),
            ("http://alertmanager.monitoring.svc:9093/a?b=c", true, false),
            ("https://evil.net/example.com", true, false),
            ("https://x:TOPSECRET@hooks.example.com", false, false),
            ("https://x@hooks.example.com", false, false),
            ("ftp://hooks.example.com/TOPSECRET", false, false),
            ("hooks.example.com/TOPSECRET", false, false),
            ("", false, false),
        ] {
            for (list, expected) in [(&[][..], without_list), (LISTED, with_list)] {
                let checked = allowed(list, &[]).check_url("--notify-url", url);
                assert_eq!(checked.is_ok(), expected, "{url} {list:?}");
                if let Err(error) = checked {
                    let text = error.to_string();
                    assert!(text.starts_with("--notify-url: "), "{text}");
                    assert!(!text.contains("TOPSECRET"), "{text}");
                }
            }
        }
    }

    #[test]
    fn a_folder_is_none_of_the_system_and_holds_nothing_of_the_program() {
        for (folder, without_list, with_list) in [
            ("/backups", true, true),
            ("/backups/team", true, true),
            ("/mnt/nas", true, false),
            ("/tmp/trial", true, false),
            ("/tmp", false, false),
            ("/", false, false),
            ("/plugins", false, false),
            ("/srv", false, false),
            ("/srv/backups", true, false),
            ("/etc", false, false),
            ("/run/secrets/kubernetes.io/serviceaccount", false, false),
            ("/proc/self/root/backups", false, false),
            ("/backups-of-others", true, false),
        ] {
            let path = Path::new(folder);
            assert_eq!(
                allowed(&[], &[]).check_folder(path, path).is_ok(),
                without_list,
                "{folder}"
            );
            assert_eq!(
                allowed(&[], &["/backups"]).check_folder(path, path).is_ok(),
                with_list,
                "{folder}"
            );
        }
        let system = allowed(&[], &["/etc/backups"]);
        let (listed, refused) = (Path::new("/etc/backups/a"), Path::new("/etc"));
        assert!(
            system.check_folder(listed, listed).is_ok(),
            "what is said is said"
        );
        let said = system
            .check_folder(refused, refused)
            .unwrap_err()
            .to_string();
        assert_says!(said, "--allowed-local-paths");
    }

    #[test]
    fn a_link_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/etc", &link).unwrap();
        for (bucket, fine) in [
            (link.join("backups"), false),
            (folder.path().join("backups"), true),
        ] {
            let spec = spec("local", bucket.to_str().unwrap(), &[]);
            assert_eq!(
                AllowedPlaces::default().check(&spec).is_ok(),
                fine,
                "{bucket:?}"
            );
        }
    }
}
