//! From flags, environment and kubeconfig to a client and the namespace of the installation.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use backup_core::text::causes;
use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;
use kube::{
    Client, Config,
    client::ClientBuilder,
    config::{AuthInfo, KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use tower::util::MapResponseLayer;

use crate::{
    Terminal,
    cli::{GlobalArgs, Token},
    error::{Problem, no_credentials},
    home::home,
    session::Session,
};

/// How long a single request may take unless `--request-timeout` says otherwise.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a part of what is shown may take, with all its requests, unless one request alone may
/// take longer.
const PART_TIMEOUT: Duration = Duration::from_secs(10);

impl Session {
    /// Reads the configuration. Nothing is sent yet.
    pub(crate) async fn connect(terminal: &Terminal) -> Result<Self, Problem> {
        if let Some(session) = &terminal.session {
            return Ok(session.clone());
        }
        let flags = &terminal.flags;
        let (mut config, proxy_of_cluster) = read_config(terminal).await?;
        if let Some(server) = &flags.server {
            config.cluster_url = parse_server(server)?;
        }
        config.proxy_url = proxy(proxy_of_cluster, terminal, &config.cluster_url)?;
        check_server_by(&mut config, flags);
        act_as(&mut config.auth_info, flags);
        // A user waits for the answer: our own few retries with short steps instead of 15 with
        // steps of minutes.
        config.default_retry = false;
        let given = flags.request_timeout.map(|timeout| {
            if timeout.is_zero() {
                Duration::from_hours(24 * 365)
            } else {
                timeout.as_std()
            }
        });
        let request_timeout = given.unwrap_or(REQUEST_TIMEOUT);
        let part_timeout = given.unwrap_or_default().max(PART_TIMEOUT);
        config.connect_timeout = Some(request_timeout.min(REQUEST_TIMEOUT));
        let server = config
            .cluster_url
            .to_string()
            .trim_end_matches('/')
            .to_owned();
        let own_namespace = config.default_namespace.clone();
        let warnings = terminal.api_warnings.clone();
        let noting = MapResponseLayer::new(move |response| warnings.note(response));
        let client =
            ClientBuilder::try_from(config).map(|builder| builder.with_layer(&noting).build());
        let client: Client = client.map_err(|error| match error {
            kube::Error::Auth(error) => no_credentials(&server, &error),
            error => Problem::other(format!("cannot set up the connection to {server}: {}", causes(&error)))
                .with_remedy(
                    "Check the certificates, keys and proxy of this cluster and user in the kubeconfig.",
                ),
        })?;
        let namespace = installation_namespace(terminal);
        Ok(Self {
            client,
            namespace,
            own_namespace,
            server,
            request_timeout,
            part_timeout,
        })
    }
}

/// The proxy to the API server: the proxy of its cluster in the kubeconfig, otherwise the one that
/// the environment names, as kubectl has it (Go's `net/http`, `ProxyFromEnvironment`). kube holds
/// NO_PROXY against the address of the proxy (5.0), so it is asked here.
fn proxy(
    of_cluster: Option<String>,
    terminal: &Terminal,
    server: &Uri,
) -> Result<Option<Uri>, Problem> {
    let Some(given) = of_cluster.or_else(|| proxy_of_environment(terminal, server)) else {
        return Ok(None);
    };
    let url = if given.contains("://") {
        given
    } else {
        format!("http://{given}")
    };
    // It may hold a password.
    let parsed = url.parse().map_err(|error| {
        Problem::other(format!("the address of the proxy is no URL: {error}"))
            .with_remedy("Correct HTTPS_PROXY, or the cluster's proxy-url in the kubeconfig.")
    })?;
    Ok(Some(parsed))
}

fn proxy_of_cluster(kubeconfig: &Kubeconfig, flags: &GlobalArgs) -> Option<String> {
    let context = flags
        .context
        .as_ref()
        .or(kubeconfig.current_context.as_ref());
    let of_context = kubeconfig
        .contexts
        .iter()
        .find(|one| Some(&one.name) == context);
    let name = flags
        .cluster
        .as_ref()
        .or_else(|| Some(&of_context?.context.as_ref()?.cluster))?;
    let cluster = kubeconfig
        .clusters
        .iter()
        .find(|one| one.name == *name)?
        .cluster
        .as_ref()?;
    cluster.proxy_url.clone().filter(|url| !url.is_empty())
}

fn proxy_of_environment(terminal: &Terminal, server: &Uri) -> Option<String> {
    let host = server.host().unwrap_or_default().trim_matches(['[', ']']);
    let is_local = host == "localhost"
        || host
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback());
    let without = Matcher::builder()
        .all("http://proxy")
        .no(proxy_variable("NO_PROXY", terminal).unwrap_or_default())
        .build();
    let name = if server.scheme_str() == Some("https") {
        "HTTPS_PROXY"
    } else {
        "HTTP_PROXY"
    };
    proxy_variable(name, terminal).filter(|_| !is_local && without.intercept(server).is_some())
}

/// The environment variable with this name, or with the same name in lower case.
fn proxy_variable(name: &str, terminal: &Terminal) -> Option<String> {
    terminal
        .var(name)
        .or_else(|| terminal.var(&name.to_lowercase()))
}

/// Flags about the API server's certificate go over the kubeconfig.
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

/// Flags about the user go over the kubeconfig. A token counts alone: a certificate beside it would
/// win.
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
    if let Some(file) = &flags.client_certificate {
        who.client_certificate = Some(file.display().to_string());
        who.client_certificate_data = None;
    }
    if let Some(file) = &flags.client_key {
        who.client_key = Some(file.display().to_string());
        who.client_key_data = None;
    }
    if flags.as_user.is_some() {
        who.impersonate.clone_from(&flags.as_user);
        who.impersonate_uid.clone_from(&flags.as_uid);
    }
    if !flags.as_group.is_empty() {
        who.impersonate_groups = Some(flags.as_group.clone());
    }
}

/// As velero's own command resolves it (Velero `pkg/client/factory.go`): flag, then
/// `~/.config/velero/config.json`, then `$VELERO_NAMESPACE`, then `velero`.
pub(crate) fn installation_namespace(terminal: &Terminal) -> String {
    let flags = &terminal.flags;
    flags
        .namespace
        .clone()
        .or_else(|| {
            let path = home(terminal)?.join(".config/velero/config.json");
            let config: serde_json::Value =
                serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
            config
                .get("namespace")?
                .as_str()
                .filter(|name| !name.is_empty())
                .map(str::to_owned)
        })
        .or_else(|| terminal.var("VELERO_NAMESPACE"))
        .unwrap_or_else(|| "velero".to_owned())
}

/// The configuration, and the proxy that the kubeconfig has for the cluster.
async fn read_config(terminal: &Terminal) -> Result<(Config, Option<String>), Problem> {
    let flags = &terminal.flags;
    let Some((kubeconfig, source)) = read_kubeconfig(terminal)? else {
        if let Some(server) = &flags.server {
            return Ok((Config::new(parse_server(server)?), None));
        }
        if terminal.has_var("KUBERNETES_SERVICE_HOST") {
            let config = Config::incluster().map_err(|error| {
                Problem::other(format!(
                    "cannot use the service account of this pod: {}",
                    causes(&error)
                ))
                .with_remedy(
                    "Mount a service account token into the pod, or name a file with --kubeconfig.",
                )
            })?;
            return Ok((config, None));
        }
        return Err(Problem::other(
            "there is no kubeconfig: --kubeconfig and $KUBECONFIG name none, and ~/.kube/config does not exist",
        )
        .with_remedy("Name one with --kubeconfig FILE."));
    };
    let options = KubeConfigOptions {
        context: flags.context.clone(),
        cluster: flags.cluster.clone(),
        user: flags.user.clone(),
    };
    let contexts: Vec<String> = kubeconfig
        .contexts
        .iter()
        .map(|context| context.name.clone())
        .collect();
    let known_user = flags.user.as_ref().is_none_or(|user| {
        kubeconfig
            .auth_infos
            .iter()
            .any(|known| known.name == *user)
    });
    if !known_user && let Some(user) = &flags.user {
        return Err(Problem::other(format!("{source} has no user {user:?}"))
            .with_remedy("`kubectl config get-users` lists them."));
    }
    let proxy = proxy_of_cluster(&kubeconfig, flags);
    let read = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    if let Err(KubeconfigError::CurrentContextNotSet) = &read
        && let Some(server) = &flags.server
    {
        return Ok((Config::new(parse_server(server)?), proxy));
    }
    let config = read.map_err(|error| explain_config(&error, &source, &contexts))?;
    Ok((config, proxy))
}

/// The kubeconfig that the flags choose, if there is one that can be read.
pub(crate) fn kubeconfig(terminal: &Terminal) -> Option<Kubeconfig> {
    read_kubeconfig(terminal)
        .ok()
        .flatten()
        .map(|(kubeconfig, _)| kubeconfig)
}

/// The kubeconfig and where it comes from, as kubectl finds it: the flag's file; every file of
/// `$KUBECONFIG` that exists, merged; `~/.kube/config`.
fn read_kubeconfig(terminal: &Terminal) -> Result<Option<(Kubeconfig, String)>, Problem> {
    if let Some(path) = &terminal.flags.kubeconfig {
        return Ok(Some((read_file(path)?, path.display().to_string())));
    }
    if let Some(list) = terminal.var("KUBECONFIG") {
        let files: Vec<PathBuf> = std::env::split_paths(&list)
            .filter(|path| !path.as_os_str().is_empty() && path.exists())
            .collect();
        if files.is_empty() {
            return Err(
                Problem::other(format!("$KUBECONFIG names {list}, which does not exist"))
                    .with_remedy("Correct or unset it, or name a file with --kubeconfig."),
            );
        }
        let mut merged = Kubeconfig::default();
        for file in &files {
            merged = merged
                .merge(read_file(file)?)
                .map_err(|error| explain_config(&error, &file.display().to_string(), &[]))?;
        }
        return Ok(Some((merged, format!("$KUBECONFIG ({list})"))));
    }
    let Some(home) = home(terminal) else {
        return Ok(None);
    };
    let path = home.join(".kube/config");
    if path.exists() {
        Ok(Some((read_file(&path)?, path.display().to_string())))
    } else {
        Ok(None)
    }
}

fn read_file(path: &Path) -> Result<Kubeconfig, Problem> {
    Kubeconfig::read_from(path)
        .map_err(|error| explain_config(&error, &path.display().to_string(), &[]))
}

const OTHER_FILE: &str = "Correct the file, or name another with --kubeconfig.";

fn explain_config(error: &KubeconfigError, source: &str, contexts: &[String]) -> Problem {
    let known = if contexts.is_empty() {
        "it has none".to_owned()
    } else {
        format!("it has {}", contexts.join(", "))
    };
    let (message, remedy) = match error {
        KubeconfigError::ReadConfig(io, _) => (
            format!("cannot read the kubeconfig {source}: {io}"),
            "Check the path and its permissions, or name another file with --kubeconfig."
                .to_owned(),
        ),
        // The parser quotes the lines around the mistake, and those may be keys: only its first
        // line is shown.
        KubeconfigError::Parse(parse) => {
            let why = parse.to_string();
            let why = why
                .lines()
                .next()
                .unwrap_or_default()
                .trim_start_matches("error: ");
            (
                format!("the kubeconfig {source} is not valid YAML: {why}"),
                OTHER_FILE.to_owned(),
            )
        }
        KubeconfigError::CurrentContextNotSet => (
            format!("{source} sets no current context"),
            format!("Choose one with --context; {known}."),
        ),
        KubeconfigError::LoadContext(name) => (
            format!("{source} has no context {name:?}"),
            format!("Choose one with --context; {known}."),
        ),
        KubeconfigError::LoadClusterOfContext(name) => (
            format!("{source} has no cluster {name:?}"),
            "Choose one with --cluster; `kubectl config get-clusters` lists them.".to_owned(),
        ),
        KubeconfigError::MissingClusterUrl => (
            format!("the cluster chosen in {source} has no server"),
            "Set it with `kubectl config set-cluster NAME --server=URL`, or give --server."
                .to_owned(),
        ),
        other => (
            format!("cannot use the kubeconfig {source}: {}", causes(other)),
            OTHER_FILE.to_owned(),
        ),
    };
    Problem::other(message).with_remedy(remedy)
}

fn parse_server(server: &str) -> Result<http::Uri, Problem> {
    let with_scheme = if server.contains("://") {
        server.to_owned()
    } else {
        format!("https://{server}")
    };
    with_scheme.parse().map_err(|error| {
        Problem::usage(format!("--server {server:?} is not a URL: {error}"))
            .with_remedy("It looks like https://host:6443.")
    })
}
