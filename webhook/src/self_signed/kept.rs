//! Content of the Secret: the served certificate, the next one, and their authorities.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Context as _;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::core::ObjectMeta;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use time::OffsetDateTime;

use super::SECRET;
use crate::tls::Pair;

/// Clocks differ: a certificate is valid from this time before its creation.
const CLOCK_TOLERANCE: Duration = Duration::from_hours(24);
/// Maximum number of authorities named at once.
const MAX_AUTHORITIES: usize = 4;

#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SecretContent {
    pub served: Pair,
    pub next: Option<Pair>,
    /// PEM; the last one belongs to the newest certificate.
    pub authorities: Vec<Vec<u8>>,
}

impl SecretContent {
    /// A first certificate, where the registration has these authorities already.
    pub(crate) fn first(made: NewCertificate, named: &[u8]) -> Self {
        let mut authorities = pems(named);
        authorities.retain(|authority| *authority != made.authority);
        authorities.truncate(MAX_AUTHORITIES - 1);
        authorities.push(made.authority);
        Self {
            served: made.pair,
            next: None,
            authorities,
        }
    }

    pub(crate) fn announce(&mut self, made: NewCertificate) {
        self.authorities.push(made.authority);
        self.next = Some(made.pair);
    }

    pub(crate) fn switch(&mut self) {
        if let Some(next) = self.next.take() {
            self.served = next;
        }
    }

    pub(crate) fn retire(&mut self) {
        let last = self.authorities.len().saturating_sub(1);
        self.authorities.drain(..last);
    }

    pub(crate) fn bundle(&self) -> Vec<u8> {
        self.authorities.concat()
    }

    pub(crate) fn of(secret: &Secret) -> anyhow::Result<Self> {
        let served = Pair {
            cert: required_data(secret, "tls.crt")?,
            key: required_data(secret, "tls.key")?,
        };
        let next = match (data(secret, "next.crt"), data(secret, "next.key")) {
            (Some(cert), Some(key)) => Some(Pair { cert, key }),
            _ => None,
        };
        Ok(Self {
            served,
            next,
            authorities: pems(&required_data(secret, "ca.crt")?),
        })
    }

    /// The Secret with this content; with the metadata of the one before, if there is one.
    pub(crate) fn secret(&self, before: Option<&Secret>) -> Secret {
        let mut data: BTreeMap<String, ByteString> = BTreeMap::new();
        let mut put =
            |key: &str, bytes: &[u8]| data.insert(key.to_owned(), ByteString(bytes.to_vec()));
        put("tls.crt", &self.served.cert);
        put("tls.key", &self.served.key);
        put("ca.crt", &self.bundle());
        if let Some(next) = &self.next {
            put("next.crt", &next.cert);
            put("next.key", &next.key);
        }
        Secret {
            metadata: before.map_or_else(new_metadata, |secret| secret.metadata.clone()),
            data: Some(data),
            type_: Some("kubernetes.io/tls".to_owned()),
            ..Secret::default()
        }
    }
}

/// The value of a key in the Secret.
fn data(secret: &Secret, key: &str) -> Option<Vec<u8>> {
    Some(secret.data.as_ref()?.get(key)?.0.clone())
}

fn required_data(secret: &Secret, key: &str) -> anyhow::Result<Vec<u8>> {
    data(secret, key)
        .with_context(|| format!("Secret {SECRET} has no {key}; delete it to have it made again"))
}

fn new_metadata() -> ObjectMeta {
    let exclude = backup_core::labels::EXCLUDE_FROM_BACKUP.to_owned();
    ObjectMeta {
        name: Some(SECRET.to_owned()),
        labels: Some(BTreeMap::from([(exclude, "true".to_owned())])),
        ..ObjectMeta::default()
    }
}

/// The certificates of a bundle, one by one.
fn pems(bundle: &[u8]) -> Vec<Vec<u8>> {
    let text = String::from_utf8_lossy(bundle);
    let ends = text.split_inclusive("-----END CERTIFICATE-----");
    let blocks =
        ends.filter_map(|block| Some(&block[block.find("-----BEGIN CERTIFICATE-----")?..]));
    blocks
        .map(|block| format!("{block}\n").into_bytes())
        .collect()
}

/// A certificate and its authority, which signs once, and whose key is discarded.
pub(crate) struct NewCertificate {
    pub pair: Pair,
    pub authority: Vec<u8>,
}

/// Makes a certificate for these names and addresses, valid from `now`.
pub(crate) fn make(
    names: &[String],
    now: jiff::Timestamp,
    lifetime: Duration,
) -> anyhow::Result<NewCertificate> {
    let now = OffsetDateTime::from_unix_timestamp(now.as_second())?;
    let mut authority = CertificateParams::new(Vec::<String>::new())?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    // A unique name for each, so that a certificate identifies its authority among two.
    let key = KeyPair::generate()?;
    let serial = backup_core::digest::sha256(key.public_key_raw());
    authority.distinguished_name.push(
        DnType::CommonName,
        format!("backup-webhook-ca-{}", &serial[..16]),
    );
    let mut serving = CertificateParams::new(names)?;
    serving.distinguished_name.push(
        DnType::CommonName,
        names.first().context("no name")?.as_str(),
    );
    serving.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    for params in [&mut authority, &mut serving] {
        params.not_before = now - CLOCK_TOLERANCE;
        params.not_after = now + lifetime;
    }
    let authority = CertifiedIssuer::self_signed(authority, key)?;
    let key = KeyPair::generate()?;
    let cert = serving.signed_by(&key, &authority)?;
    let pair = Pair {
        cert: cert.pem().into_bytes(),
        key: key.serialize_pem().into_bytes(),
    };
    Ok(NewCertificate {
        pair,
        authority: authority.pem().replace("\r\n", "\n").into_bytes(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::end;

    fn made() -> NewCertificate {
        make(
            &["s.velero.svc".to_owned(), "127.0.0.1".to_owned()],
            jiff::Timestamp::now(),
            Duration::from_hours(1),
        )
        .unwrap()
    }

    #[test]
    fn a_rotation_is_kept_and_read_again_after_each_step() {
        let (one, two) = (made(), made());
        let (first, second) = (one.authority.clone(), two.authority.clone());
        assert_ne!(first, second);
        let mut kept = SecretContent::first(one, b"");
        let mut steps: Vec<SecretContent> = vec![kept.clone()];
        kept.announce(two);
        steps.push(kept.clone());
        kept.switch();
        steps.push(kept.clone());
        kept.retire();
        steps.push(kept.clone());
        let bundles: Vec<Vec<u8>> = steps.iter().map(SecretContent::bundle).collect();
        let both = [first.clone(), second.clone()].concat();
        assert!(bundles == [first, both.clone(), both, second]);
        assert!(steps[1].served == steps[0].served && steps[2].served != steps[0].served);
        for kept in steps {
            assert!(SecretContent::of(&kept.secret(None)).unwrap() == kept);
        }
    }

    #[test]
    fn a_first_certificate_goes_beside_the_authorities_that_are_named() {
        let named: Vec<Vec<u8>> = (0..6).map(|_| made().authority).collect();
        let kept = SecretContent::first(made(), &named.concat());
        assert_eq!(kept.authorities.len(), MAX_AUTHORITIES);
        assert!(kept.authorities[..3] == named[..3]);
    }

    #[test]
    fn a_certificate_ends_when_it_should() {
        let left = end(&made().pair.cert)
            .unwrap()
            .duration_since(jiff::Timestamp::now());
        assert!((3590..=3600).contains(&left.as_secs()), "{left}");
        assert!(end(b"junk").is_err());
    }

    #[test]
    fn a_secret_that_lacks_a_part_says_what_to_do() {
        let mut secret = SecretContent::first(made(), b"").secret(None);
        secret.data.as_mut().unwrap().remove("tls.key");
        let error = SecretContent::of(&secret)
            .map(|_| ())
            .unwrap_err()
            .to_string();
        assert_says!(error, "tls.key", "delete it");
    }
}
