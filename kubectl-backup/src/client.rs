//! From flags, environment and kubeconfig to a client and the namespace of the installation.

use std::{fmt::Debug, future::Future, path::PathBuf, time::Duration};

use k8s_openapi::NamespaceResourceScope;
use kube::{
    Api, Client, Config, Resource,
    api::ListParams,
    config::{AuthInfo, KubeConfigOptions, Kubeconfig, KubeconfigError},
};

use serde::de::DeserializeOwned;

use crate::{
    Terminal,
    cli::{GlobalArgs, Token},
    error::{About, Problem, causes},
};

/// How long a single request may take unless `--request-timeout` says otherwise.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Objects in one page of a list.
pub const PAGE: u32 = 500;

/// A connection to a cluster and the installation in it.
#[derive(Clone)]
pub struct Session {
    /// The client; it does not retry by itself.
    pub client: Client,
    /// Namespace of the installation.
    pub namespace: String,
    /// URL of the API server, for messages.
    pub server: String,
    /// How long a single request may take.
    pub request_timeout: Duration,
}

impl Session {
    /// Reads the configuration. Nothing is sent yet.
    pub async fn connect(flags: &GlobalArgs, terminal: &Terminal) -> Result<Self, Problem> {
        let mut config = read_config(flags, terminal).await?;
        if let Some(server) = &flags.server {
            config.cluster_url = parse_server(server)?;
        }
        check_server_by(&mut config, flags);
        act_as(&mut config.auth_info, flags);
        // A person sits before it: our own few retries with short steps instead of 15 with steps of minutes.
        config.default_retry = false;
        let request_timeout = match flags.request_timeout {
            None => REQUEST_TIMEOUT,
            Some(timeout) if timeout.is_zero() => Duration::from_hours(24 * 365),
            Some(timeout) => timeout.as_std(),
        };
        config.connect_timeout = Some(request_timeout.min(REQUEST_TIMEOUT));
        let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        let client = Client::try_from(config).map_err(|error| Problem::Kubeconfig {
            message: format!("cannot set up the connection to {server}: {}", causes(&error)),
            remedy: "Check the certificates, keys and proxy of this cluster and user in the kubeconfig."
                .to_owned(),
        })?;
        Ok(Self { client, namespace: installation_namespace(flags, terminal), server, request_timeout })
    }

    /// The installation's objects of a kind.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Sends one request, with the deadline, and explains what goes wrong.
    pub async fn call<T>(
        &self,
        about: About<'_>,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, Problem> {
        match tokio::time::timeout(self.request_timeout, request).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(about.explain(error, &self.server, &self.namespace)),
            Err(_) => Err(about.slow(&self.server, self.request_timeout)),
        }
    }

    /// Lists page by page, and keeps of each object what `keep` gives: no more than a page of whole objects is in memory.
    /// A list that expires between two pages (410) is read anew, once.
    pub async fn list<K, T>(
        &self,
        about: About<'_>,
        api: &Api<K>,
        params: ListParams,
        mut keep: impl FnMut(K) -> Option<T>,
    ) -> Result<Vec<T>, Problem>
    where
        K: Clone + DeserializeOwned + Debug,
    {
        let mut params = params.limit(PAGE);
        let (mut kept, mut is_second) = (Vec::new(), false);
        loop {
            let page = match self.call(about, api.list(&params)).await {
                Err(Problem::Api { code: 410, .. }) if params.continue_token.is_some() && !is_second => {
                    (params.continue_token, is_second) = (None, true);
                    kept.clear();
                    continue;
                }
                answer => answer?,
            };
            kept.extend(page.items.into_iter().filter_map(&mut keep));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params.continue_token = Some(token),
                None => return Ok(kept),
            }
        }
    }
}

/// What the flags say of the API server's certificate goes over what the kubeconfig says of it.
fn check_server_by(config: &mut Config, flags: &GlobalArgs) {
    if flags.insecure_skip_tls_verify {
        config.accept_invalid_certs = true;
    }
    if let Some(file) = &flags.certificate_authority {
        config.accept_invalid_certs = false;
        config.root_cert_file = Some(file.clone());
    }
    if flags.tls_server_name.is_some() {
        config.tls_server_name.clone_from(&flags.tls_server_name);
    }
}

/// Who the flags say goes over who the kubeconfig says. A token counts alone: a certificate beside it would win.
fn act_as(who: &mut AuthInfo, flags: &GlobalArgs) {
    if let Some(Token(token)) = &flags.token {
        *who = AuthInfo {
            token: Some(token.clone().into()),
            impersonate: who.impersonate.take(),
            impersonate_uid: who.impersonate_uid.take(),
            impersonate_groups: who.impersonate_groups.take(),
            impersonate_user_extra: who.impersonate_user_extra.take(),
            ..AuthInfo::default()
        };
    }
    let path = |file: &PathBuf| Some(file.display().to_string());
    if let Some(file) = &flags.client_certificate {
        (who.client_certificate, who.client_certificate_data) = (path(file), None);
    }
    if let Some(file) = &flags.client_key {
        (who.client_key, who.client_key_data) = (path(file), None);
    }
    if flags.as_user.is_some() {
        who.impersonate.clone_from(&flags.as_user);
        who.impersonate_uid.clone_from(&flags.as_uid);
    }
    if !flags.as_group.is_empty() {
        who.impersonate_groups = Some(flags.as_group.clone());
    }
}

/// As velero's own command resolves it (Velero `pkg/client/factory.go`): flag, then `~/.config/velero/config.json`,
/// then `$VELERO_NAMESPACE`, then `velero`.
pub fn installation_namespace(flags: &GlobalArgs, terminal: &Terminal) -> String {
    flags
        .namespace
        .clone()
        .or_else(|| {
            let path = PathBuf::from(terminal.var("HOME")?).join(".config/velero/config.json");
            let config: serde_json::Value = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
            config.get("namespace")?.as_str().filter(|name| !name.is_empty()).map(str::to_owned)
        })
        .or_else(|| terminal.var("VELERO_NAMESPACE"))
        .unwrap_or_else(|| "velero".to_owned())
}

async fn read_config(flags: &GlobalArgs, terminal: &Terminal) -> Result<Config, Problem> {
    let Some((kubeconfig, source)) = read_kubeconfig(flags, terminal)? else {
        if let Some(server) = &flags.server {
            return Ok(Config::new(parse_server(server)?));
        }
        if terminal.has_var("KUBERNETES_SERVICE_HOST") {
            return Config::incluster().map_err(|error| Problem::Kubeconfig {
                message: format!("cannot use the service account of this pod: {}", causes(&error)),
                remedy: "Mount a service account token into the pod, or name a file with --kubeconfig."
                    .to_owned(),
            });
        }
        return Err(Problem::Kubeconfig {
            message: "there is no kubeconfig: --kubeconfig and $KUBECONFIG name none, and ~/.kube/config does not exist"
                .to_owned(),
            remedy: "Name one with --kubeconfig FILE.".to_owned(),
        });
    };
    let options = KubeConfigOptions {
        context: flags.context.clone(),
        cluster: flags.cluster.clone(),
        user: flags.user.clone(),
    };
    let contexts: Vec<String> = kubeconfig.contexts.iter().map(|context| context.name.clone()).collect();
    let known_user =
        flags.user.as_ref().is_none_or(|user| kubeconfig.auth_infos.iter().any(|known| known.name == *user));
    if let (false, Some(user)) = (known_user, &flags.user) {
        return Err(Problem::Kubeconfig {
            message: format!("{source} has no user {user:?}"),
            remedy: "`kubectl config get-users` lists them.".to_owned(),
        });
    }
    let read = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    if let (Err(KubeconfigError::CurrentContextNotSet), Some(server)) = (&read, &flags.server) {
        return Ok(Config::new(parse_server(server)?));
    }
    read.map_err(|error| explain_config(&error, &source, &contexts))
}

/// The kubeconfig that the flags choose, if there is one that can be read.
pub fn kubeconfig(flags: &GlobalArgs, terminal: &Terminal) -> Option<Kubeconfig> {
    read_kubeconfig(flags, terminal).ok().flatten().map(|(kubeconfig, _)| kubeconfig)
}

/// The kubeconfig and where it comes from, as kubectl finds it: the flag's file; every file of `$KUBECONFIG` that
/// exists, merged; `~/.kube/config`.
fn read_kubeconfig(flags: &GlobalArgs, terminal: &Terminal) -> Result<Option<(Kubeconfig, String)>, Problem> {
    let read = |path: &PathBuf| {
        Kubeconfig::read_from(path).map_err(|error| unreadable(&error, &path.display().to_string()))
    };
    if let Some(path) = &flags.kubeconfig {
        return Ok(Some((read(path)?, path.display().to_string())));
    }
    if let Some(list) = terminal.var("KUBECONFIG") {
        let files: Vec<PathBuf> = std::env::split_paths(&list)
            .filter(|path| !path.as_os_str().is_empty() && path.exists())
            .collect();
        if files.is_empty() {
            return Err(Problem::Kubeconfig {
                message: format!("$KUBECONFIG names {list}, which does not exist"),
                remedy: "Correct or unset it, or name a file with --kubeconfig.".to_owned(),
            });
        }
        let mut merged = Kubeconfig::default();
        for file in &files {
            merged =
                merged.merge(read(file)?).map_err(|error| unreadable(&error, &file.display().to_string()))?;
        }
        return Ok(Some((merged, format!("$KUBECONFIG ({list})"))));
    }
    let Some(home) = terminal.var("HOME") else { return Ok(None) };
    let path = PathBuf::from(home).join(".kube/config");
    if path.exists() { Ok(Some((read(&path)?, path.display().to_string()))) } else { Ok(None) }
}

fn unreadable(error: &KubeconfigError, path: &str) -> Problem {
    let (message, remedy) = match error {
        KubeconfigError::ReadConfig(io, _) => (
            format!("cannot read the kubeconfig {path}: {io}"),
            "Check the path and its permissions, or name another file with --kubeconfig.",
        ),
        // The parser quotes the lines around the mistake, and those may be keys: only its first line is shown.
        KubeconfigError::Parse(parse) => (
            format!(
                "the kubeconfig {path} is not valid YAML: {}",
                parse.to_string().lines().next().unwrap_or_default().trim_start_matches("error: ")
            ),
            "Correct the file, or name another with --kubeconfig.",
        ),
        other => (
            format!("cannot use the kubeconfig {path}: {}", causes(other)),
            "Correct the file, or name another with --kubeconfig.",
        ),
    };
    Problem::Kubeconfig { message, remedy: remedy.to_owned() }
}

fn explain_config(error: &KubeconfigError, source: &str, contexts: &[String]) -> Problem {
    let known = if contexts.is_empty() {
        "it has none".to_owned()
    } else {
        format!("it has {}", contexts.join(", "))
    };
    let (message, remedy) = match error {
        KubeconfigError::CurrentContextNotSet => {
            (format!("{source} sets no current context"), format!("Choose one with --context; {known}."))
        }
        KubeconfigError::LoadContext(name) => {
            (format!("{source} has no context {name:?}"), format!("Choose one with --context; {known}."))
        }
        KubeconfigError::LoadClusterOfContext(name) => (
            format!("{source} has no cluster {name:?}"),
            "Choose one with --cluster; `kubectl config get-clusters` lists them.".to_owned(),
        ),
        KubeconfigError::MissingClusterUrl => (
            format!("the cluster chosen in {source} has no server"),
            "Set it with `kubectl config set-cluster NAME --server=URL`, or give --server.".to_owned(),
        ),
        other => (
            format!("cannot use the kubeconfig {source}: {}", causes(other)),
            "Correct the file, or name another with --kubeconfig.".to_owned(),
        ),
    };
    Problem::Kubeconfig { message, remedy }
}

fn parse_server(server: &str) -> Result<http::Uri, Problem> {
    let with_scheme = if server.contains("://") { server.to_owned() } else { format!("https://{server}") };
    with_scheme.parse().map_err(|error| Problem::Usage {
        message: format!("--server {server:?} is not a URL: {error}"),
        remedy: Some("It looks like https://host:6443.".to_owned()),
    })
}
