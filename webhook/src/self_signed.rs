//! A certificate of our own, for clusters without cert-manager: a CA that signs once and is thrown away, and a serving
//! certificate in a Secret that all replicas share. To renew it, delete the Secret and restart the webhook.

use std::collections::BTreeMap;

use anyhow::{Context, anyhow};
use backup_lock::errors::plain;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{Api, Client, api::PostParams, core::ObjectMeta};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};

use crate::tls::Pair;

const SECRET: &str = "backup-webhook-tls";
/// Certificates are good from long ago, because clocks differ, until long after.
const YEARS: (i32, i32) = (2025, 2045);

/// A certificate and who vouches for it.
pub(crate) struct Made {
    pub pair: Pair,
    pub ca: Vec<u8>,
}

/// The certificate from the Secret, or a new one put there. If two replicas try, the first wins and both use it.
pub(crate) async fn load_or_make(client: &Client, namespace: &str, service: &str) -> anyhow::Result<Made> {
    let secrets = Api::<Secret>::namespaced(client.clone(), namespace);
    let read = || async {
        let secret = secrets.get_opt(SECRET).await;
        secret.map_err(|error| anyhow!("could not read Secret {SECRET}: {}", plain(&error)))
    };
    if let Some(secret) = read().await? {
        return made_of(secret);
    }
    let secret = secret_of(make(namespace, service).context("could not make a certificate")?);
    // Create-only: never written over one that is there.
    match secrets.create(&PostParams::default(), &secret).await {
        Ok(secret) => made_of(secret),
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            made_of(read().await?.with_context(|| format!("Secret {SECRET} went away while it was read"))?)
        }
        Err(error) => Err(anyhow!("could not create Secret {SECRET}: {}", plain(&error))),
    }
}

fn make(namespace: &str, service: &str) -> Result<Made, rcgen::Error> {
    let mut ca = CertificateParams::new(Vec::<String>::new())?;
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    ca.distinguished_name.push(DnType::CommonName, "backup-webhook-ca");
    let mut serving = CertificateParams::new(vec![
        format!("{service}.{namespace}.svc"),
        format!("{service}.{namespace}.svc.cluster.local"),
    ])?;
    serving.distinguished_name.push(DnType::CommonName, format!("{service}.{namespace}.svc"));
    serving.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    for params in [&mut ca, &mut serving] {
        params.not_before = rcgen::date_time_ymd(YEARS.0, 1, 1);
        params.not_after = rcgen::date_time_ymd(YEARS.1, 1, 1);
    }
    let ca = CertifiedIssuer::self_signed(ca, KeyPair::generate()?)?;
    let key = KeyPair::generate()?;
    let cert = serving.signed_by(&key, &ca)?;
    let pair = Pair { cert: cert.pem().into_bytes(), key: key.serialize_pem().into_bytes() };
    Ok(Made { pair, ca: ca.pem().into_bytes() })
}

fn secret_of(made: Made) -> Secret {
    let data = [("tls.crt", made.pair.cert), ("tls.key", made.pair.key), ("ca.crt", made.ca)];
    let labels = BTreeMap::from([(backup_core::labels::EXCLUDE_FROM_BACKUP.to_owned(), "true".to_owned())]);
    Secret {
        metadata: ObjectMeta { name: Some(SECRET.to_owned()), labels: Some(labels), ..ObjectMeta::default() },
        data: Some(data.into_iter().map(|(key, value)| (key.to_owned(), ByteString(value))).collect()),
        type_: Some("kubernetes.io/tls".to_owned()),
        ..Secret::default()
    }
}

fn made_of(secret: Secret) -> anyhow::Result<Made> {
    let mut data = secret.data.unwrap_or_default();
    let mut take = |key: &str| {
        let value = data
            .remove(key)
            .with_context(|| format!("Secret {SECRET} has no {key}; delete it to have it made anew"));
        value.map(|ByteString(bytes)| bytes)
    };
    Ok(Made { pair: Pair { cert: take("tls.crt")?, key: take("tls.key")? }, ca: take("ca.crt")? })
}

#[cfg(test)]
mod tests {
    use axum_server::tls_rustls::RustlsConfig;
    use backup_testkit::FakeApi;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn replicas_share_one_certificate_that_can_be_served() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let api = FakeApi::new();
        let client = api.client();
        let (one, two) =
            tokio::join!(load_or_make(&client, "velero", "s"), load_or_make(&client, "velero", "s"));
        let (one, two) = (one.unwrap(), two.unwrap());
        assert!(one.pair == two.pair && one.ca == two.ca);
        assert_eq!(api.writes(), 1);
        RustlsConfig::from_pem(one.pair.cert, one.pair.key).await.unwrap();
    }

    #[tokio::test]
    async fn a_secret_that_lacks_a_part_says_what_to_do() {
        let api = FakeApi::new();
        api.put(
            "/api/v1/namespaces/velero/secrets/backup-webhook-tls",
            json!({"metadata": {}, "data": {"tls.crt": ""}}),
        );
        let error = load_or_make(&api.client(), "velero", "s").await.map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("tls.key") && error.contains("delete it"), "{error}");
    }
}
