//! The certificates that replicas of the webhook really serve: a handshake with each, verified by
//! the rules of the API server. Pods are reached by a port forward; if the registration names a URL
//! instead of a Service, the URL is checked.

use std::{collections::BTreeMap, sync::Arc};

use futures::future::join_all;
use k8s_openapi::{
    api::{
        admissionregistration::v1::{
            ServiceReference, ValidatingWebhookConfiguration, WebhookClientConfig,
        },
        core::v1::{Pod, Service},
    },
    apimachinery::pkg::util::intstr::IntOrString,
};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

use super::{
    Finding, Topic,
    webhook::{EXPIRY_WARNING_SECS, NAME, RENEWAL},
};
use crate::{
    commands::prelude::*,
    print::{day, seconds, until},
};

const ON: Topic = Topic("replicas");
/// Maximum number of replicas that are checked.
const MAX_REPLICAS: usize = 10;
/// Timeout for one replica; shorter than a check, so that other replicas are reported.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_millis(1200);

/// The check of the certificate that a replica serves.
enum CertificateCheck {
    /// A certificate that the API server accepts, and its expiry.
    Trusted(Timestamp),
    /// A certificate that the API server rejects, and why.
    Refused(String),
    /// The certificate could not be read, and why.
    Unknown(String),
}

/// Checks the certificates of all replicas. There is nothing to compare with unless the
/// registration names an authority.
pub(super) async fn served(session: &Session, now: Timestamp) -> Result<Vec<Finding>, Problem> {
    let api: Api<ValidatingWebhookConfiguration> = Api::all(session.client.clone());
    let about = About::of::<ValidatingWebhookConfiguration>("get", NAME);
    let found = optional(session.call(about, api.get(NAME)).await)?;
    let webhook = found.and_then(|found| found.webhooks?.into_iter().next());
    let Some(WebhookClientConfig {
        ca_bundle: Some(bundle),
        service,
        url,
    }) = webhook.map(|webhook| webhook.client_config)
    else {
        return Ok(Vec::new());
    };
    let Some(trust) = trust(&bundle.0) else {
        return Ok(vec![ON.unknown("the caBundle cannot be read", None)]);
    };
    let seen = match (service, url) {
        (Some(service), _) => behind(session, &service, trust).await?,
        (None, Some(url)) => {
            let served = in_time(at(&url, trust)).await;
            vec![(url, served)]
        }
        (None, None) => Vec::new(),
    };
    Ok(findings(seen, now))
}

fn findings(seen: Vec<(String, CertificateCheck)>, now: Timestamp) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut ends = Vec::new();
    for (replica, served) in seen {
        let replica = plain(&replica);
        match served {
            CertificateCheck::Trusted(end) => ends.push(end),
            CertificateCheck::Refused(why) => {
                let text =
                    format!("{replica} serves a certificate that the API server refuses: {why}");
                findings.push(ON.bad(text, RENEWAL));
            }
            CertificateCheck::Unknown(why) => {
                findings.push(ON.unknown(&format!("what {replica} serves: {}", plain(&why)), None));
            }
        }
    }
    if let Some(end) = ends.iter().min().copied() {
        let count = ends.len();
        let what = if count == 1 {
            "1 replica serves a certificate"
        } else {
            "replicas serve certificates"
        };
        let number = if count == 1 {
            String::new()
        } else {
            format!("{count} ")
        };
        let text = format!(
            "{number}{what} that the API server takes; the first ends {} ({})",
            until(end, now),
            day(end)
        );
        findings.push(if seconds(now, end) < EXPIRY_WARNING_SECS {
            ON.warn(text, RENEWAL)
        } else {
            ON.good(text)
        });
    }
    findings
}

/// A client configuration that trusts only the authorities of this bundle.
fn trust(bundle: &[u8]) -> Option<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(bundle).filter_map(Result::ok));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .ok()?;
    (!roots.is_empty())
        .then(|| Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}

async fn in_time(look: impl Future<Output = CertificateCheck>) -> CertificateCheck {
    tokio::time::timeout(HANDSHAKE_TIMEOUT, look)
        .await
        .unwrap_or_else(|_| {
            CertificateCheck::Unknown(format!("no answer within {HANDSHAKE_TIMEOUT:?}"))
        })
}

/// Checks a URL, from where this program runs.
async fn at(url: &str, trust: Arc<ClientConfig>) -> CertificateCheck {
    let Some((host, port)) = url.parse::<http::Uri>().ok().and_then(|url| {
        let port = url.port_u16().unwrap_or(443);
        Some((url.host()?.trim_matches(['[', ']']).to_owned(), port))
    }) else {
        return CertificateCheck::Unknown("it is no URL".to_owned());
    };
    match TcpStream::connect((host.as_str(), port)).await {
        Ok(stream) => handshake(stream, trust, host).await,
        Err(error) => CertificateCheck::Unknown(format!("from here it cannot be reached: {error}")),
    }
}

/// All pods of a Service, or one finding that says why there are none.
async fn behind(
    session: &Session,
    service: &ServiceReference,
    trust: Arc<ClientConfig>,
) -> Result<Vec<(String, CertificateCheck)>, Problem> {
    let ServiceReference {
        name, namespace, ..
    } = service;
    let services: Api<Service> = Api::namespaced(session.client.clone(), namespace);
    let found = optional(
        session
            .call(About::of::<Service>("get", name), services.get(name))
            .await,
    )?;
    let Some(found) = found else {
        return Ok(no_replica(service, "it does not exist"));
    };
    let spec = found.spec.unwrap_or_default();
    let wanted = service.port.unwrap_or(443);
    let port = spec
        .ports
        .into_iter()
        .flatten()
        .find(|port| port.port == wanted);
    let target = port.map(|port| port.target_port.unwrap_or(IntOrString::Int(port.port)));
    let selector: BTreeMap<String, String> = spec.selector.unwrap_or_default();
    let selector: Vec<String> = selector
        .iter()
        .map(|(label, value)| format!("{label}={value}"))
        .collect();
    let pods: Api<Pod> = Api::namespaced(session.client.clone(), namespace);
    let params = ListParams::default().labels(&selector.join(",")).limit(100);
    let listed = session
        .call(About::of::<Pod>("list", ""), pods.list(&params))
        .await?;
    let running = listed.items.into_iter().filter(runs).take(MAX_REPLICAS);
    let host = format!("{name}.{namespace}.svc");
    let looks: Vec<_> = running
        .filter_map(|pod| Some((pod.name_any(), port_of(&pod, target.as_ref()?)?)))
        .map(async |(pod, port)| {
            let served = in_time(through(
                session,
                &pods,
                &pod,
                port,
                Arc::clone(&trust),
                &host,
            ))
            .await;
            (pod, served)
        })
        .collect();
    if looks.is_empty() {
        return Ok(no_replica(service, "no pod runs that has its port"));
    }
    Ok(join_all(looks).await)
}

/// The result for a Service that leads to no replica, and why.
fn no_replica(service: &ServiceReference, why: &str) -> Vec<(String, CertificateCheck)> {
    vec![(
        format!("Service {}/{}", service.namespace, service.name),
        CertificateCheck::Unknown(why.to_owned()),
    )]
}

fn runs(pod: &Pod) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    phase == Some("Running") && pod.metadata.deletion_timestamp.is_none()
}

/// The port of the pod to which the Service's target port refers.
fn port_of(pod: &Pod, target: &IntOrString) -> Option<u16> {
    let number = match target {
        IntOrString::Int(number) => *number,
        IntOrString::String(name) => {
            let containers = pod.spec.as_ref()?.containers.iter();
            let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
            ports
                .find(|port| port.name.as_ref() == Some(name))?
                .container_port
        }
    };
    u16::try_from(number).ok()
}

/// Checks a pod by a port forward.
async fn through(
    session: &Session,
    pods: &Api<Pod>,
    pod: &str,
    port: u16,
    trust: Arc<ClientConfig>,
    host: &str,
) -> CertificateCheck {
    let mut forward = match pods.portforward(pod, &[port]).await {
        Ok(forward) => forward,
        Err(error) => {
            let about = About::called("forward to", "pod", "pods/portforward", pod);
            return CertificateCheck::Unknown(session.explain(&about, error).to_string());
        }
    };
    match forward.take_stream(port) {
        Some(stream) => handshake(stream, trust, host.to_owned()).await,
        None => CertificateCheck::Unknown("the port forward has no stream".to_owned()),
    }
}

async fn handshake(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    trust: Arc<ClientConfig>,
    host: String,
) -> CertificateCheck {
    let Ok(name) = ServerName::try_from(host) else {
        return CertificateCheck::Unknown(
            "its name is none that a certificate can have".to_owned(),
        );
    };
    match TlsConnector::from(trust).connect(name, stream).await {
        Ok(stream) => {
            let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
            match chain.first().and_then(|certificate| end(certificate)) {
                Some(end) => CertificateCheck::Trusted(end),
                None => CertificateCheck::Unknown("its certificate cannot be read".to_owned()),
            }
        }
        Err(error) => {
            let why = error.to_string();
            let refused = error
                .get_ref()
                .and_then(|error| error.downcast_ref::<rustls::Error>());
            match refused {
                Some(rustls::Error::InvalidCertificate(_)) => CertificateCheck::Refused(why),
                _ => CertificateCheck::Unknown(why),
            }
        }
    }
}

fn end(certificate: &CertificateDer<'_>) -> Option<Timestamp> {
    let (_, certificate) = x509_parser::parse_x509_certificate(certificate).ok()?;
    Timestamp::from_second(certificate.validity().not_after.timestamp()).ok()
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
    use rustls::{ServerConfig, pki_types::PrivateKeyDer};
    use tokio_rustls::TlsAcceptor;

    use super::*;
    use crate::print::Tone;

    type Authority = CertifiedIssuer<'static, KeyPair>;

    fn authority() -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    }

    /// Checks a server whose certificate has this name and expires in this year.
    async fn look(
        signed_by: &Authority,
        trusted: &Authority,
        name: &str,
        year: i32,
    ) -> CertificateCheck {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, signed_by).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let server =
            ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let server = server.unwrap().with_no_client_auth();
        let server = server
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        let (near, far) = tokio::io::duplex(16 * 1024);
        tokio::spawn(async move {
            TlsAcceptor::from(Arc::new(server))
                .accept(far)
                .await
                .map(drop)
        });
        let trust = trust(trusted.pem().as_bytes()).unwrap();
        handshake(near, trust, "backup-webhook.velero.svc".to_owned()).await
    }

    #[tokio::test]
    async fn a_certificate_is_judged_as_the_api_server_judges_it() {
        let (ours, other, name) = (authority(), authority(), "backup-webhook.velero.svc");
        let CertificateCheck::Trusted(end) = look(&ours, &ours, name, 2090).await else {
            panic!("it is refused")
        };
        assert_eq!(end.to_string(), "2090-01-01T00:00:00Z");
        for served in [
            look(&other, &ours, name, 2090).await,
            look(&ours, &ours, "another.velero.svc", 2090).await,
            look(&ours, &ours, name, 2020).await,
        ] {
            let CertificateCheck::Refused(why) = served else {
                panic!("it is taken")
            };
            assert_says!(why, "invalid peer certificate");
        }
        let (near, far) = tokio::io::duplex(64);
        drop(far);
        let trust = trust(ours.pem().as_bytes()).unwrap();
        assert!(matches!(
            handshake(near, trust, name.to_owned()).await,
            CertificateCheck::Unknown(_)
        ));
    }

    #[test]
    fn one_replica_that_is_refused_is_broken_whatever_the_others_serve() {
        let now: Timestamp = "2026-11-03T05:00:00Z".parse().unwrap();
        let day = |days: i64| now + Duration::from_hours(24 * u64::try_from(days).unwrap());
        let of = |served: Vec<CertificateCheck>| {
            let seen = served
                .into_iter()
                .map(|served| ("pod".to_owned(), served))
                .collect();
            findings(seen, now)
                .into_iter()
                .map(|finding| (finding.tone, finding.text))
                .collect::<Vec<_>>()
        };
        let found = of(vec![
            CertificateCheck::Trusted(day(60)),
            CertificateCheck::Trusted(day(30)),
        ]);
        let text = "2 replicas serve certificates that the API server takes; the first ends in 30d (2026-12-03)";
        assert_eq!(found, [(Tone::Good, text.to_owned())]);
        assert_eq!(of(vec![CertificateCheck::Trusted(day(6))])[0].0, Tone::Warn);
        let found = of(vec![
            CertificateCheck::Trusted(day(60)),
            CertificateCheck::Refused("Expired".to_owned()),
        ]);
        assert_eq!(
            (found.len(), found[0].0, found[1].0),
            (2, Tone::Bad, Tone::Good)
        );
        assert_says!(
            found[0].1,
            "pod serves a certificate that the API server refuses: Expired"
        );
        assert_eq!(
            of(vec![CertificateCheck::Unknown("no".to_owned())])[0].0,
            Tone::Unknown
        );
    }

    #[test]
    fn a_service_leads_to_a_port_by_number_or_by_name() {
        let pod: Pod = serde_json::from_value(json!({ "spec": { "containers": [
            { "name": "a" }, { "name": "b", "ports": [{ "name": "reviews", "containerPort": 10250 }] } ] } }))
        .unwrap();
        for (target, expected) in [
            (IntOrString::Int(9443), Some(9443)),
            (IntOrString::String("reviews".to_owned()), Some(10250)),
            (IntOrString::String("health".to_owned()), None),
            (IntOrString::Int(-1), None),
        ] {
            assert_eq!(port_of(&pod, &target), expected, "{target:?}");
        }
    }
}
