//! Content of the Secret: the served certificate, the next one, and their authorities.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Context as _;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::core::ObjectMeta;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use time::OffsetDateTime;
use x509_parser::pem::Pem;

use super::SECRET;
use crate::tls::Pair;

/// Clocks differ: a certificate is valid from this time before its creation.
const BEFORE: Duration = Duration::from_hours(24);
/// Maximum number of authorities named at once.
const AUTHORITIES: usize = 4;

#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Kept {
    pub served: Pair,
    pub next: Option<Pair>,
    /// PEM; the last one belongs to the newest certificate.
    pub authorities: Vec<Vec<u8>>,
}

impl Kept {
    /// A first certificate, where the registration has these authorities already.
    pub(crate) fn first(made: Made, named: &[u8]) -> Self {
        let mut authorities = pems(named);
        authorities.retain(|authority| *authority != made.authority);
        authorities.truncate(AUTHORITIES - 1);
        authorities.push(made.authority);
        Self { served: made.pair, next: None, authorities }
    }

    pub(crate) fn announce(&mut self, made: Made) {
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
        let data = |key: &str| Some(secret.data.as_ref()?.get(key)?.0.clone());
        let needed = |key: &str| {
            data(key)
                .with_context(|| format!("Secret {SECRET} has no {key}; delete it to have it made again"))
        };
        let served = Pair { cert: needed("tls.crt")?, key: needed("tls.key")? };
        let next = match (data("next.crt"), data("next.key")) {
            (Some(cert), Some(key)) => Some(Pair { cert, key }),
            _ => None,
        };
        Ok(Self { served, next, authorities: pems(&needed("ca.crt")?) })
    }

    /// The Secret with this content; with the metadata of the one before, if there is one.
    pub(crate) fn secret(&self, before: Option<&Secret>) -> Secret {
        let exclude = backup_core::labels::EXCLUDE_FROM_BACKUP.to_owned();
        let new = || ObjectMeta {
            name: Some(SECRET.to_owned()),
            labels: Some(BTreeMap::from([(exclude, "true".to_owned())])),
            ..ObjectMeta::default()
        };
        let mut data: BTreeMap<String, ByteString> = BTreeMap::new();
        let mut put = |key: &str, bytes: &[u8]| data.insert(key.to_owned(), ByteString(bytes.to_vec()));
        put("tls.crt", &self.served.cert);
        put("tls.key", &self.served.key);
        put("ca.crt", &self.bundle());
        if let Some(next) = &self.next {
            put("next.crt", &next.cert);
            put("next.key", &next.key);
        }
        Secret {
            metadata: before.map_or_else(new, |secret| secret.metadata.clone()),
            data: Some(data),
            type_: Some("kubernetes.io/tls".to_owned()),
            ..Secret::default()
        }
    }
}

/// The certificates of a bundle, one by one.
fn pems(bundle: &[u8]) -> Vec<Vec<u8>> {
    let text = String::from_utf8_lossy(bundle);
    let ends = text.split_inclusive("-----END CERTIFICATE-----");
    let blocks = ends.filter_map(|block| Some(&block[block.find("-----BEGIN CERTIFICATE-----")?..]));
    blocks.map(|block| format!("{block}\n").into_bytes()).collect()
}

/// Expiry of a certificate.
pub(crate) fn end(pem: &[u8]) -> anyhow::Result<jiff::Timestamp> {
    let cannot = "the certificate can't be read";
    let pem = Pem::iter_from_buffer(pem).next().context(cannot)?.context(cannot)?;
    let end = pem.parse_x509().context(cannot)?.validity().not_after.timestamp();
    Ok(jiff::Timestamp::from_second(end)?)
}

/// A certificate and its authority, which signs once, and whose key is discarded.
pub(crate) struct Made {
    pub pair: Pair,
    pub authority: Vec<u8>,
}

/// Makes a certificate for these names and addresses, valid from `now`.
pub(crate) fn make(names: &[String], now: jiff::Timestamp, lifetime: Duration) -> anyhow::Result<Made> {
    let now = OffsetDateTime::from_unix_timestamp(now.as_second())?;
    let mut authority = CertificateParams::new(Vec::<String>::new())?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    // A unique name for each, so that a certificate identifies its authority among two.
    let key = KeyPair::generate()?;
    let serial = backup_core::digest::sha256(key.public_key_raw());
    authority.distinguished_name.push(DnType::CommonName, format!("backup-webhook-ca-{}", &serial[..16]));
    let mut serving = CertificateParams::new(names)?;
    serving.distinguished_name.push(DnType::CommonName, names.first().context("no name")?.as_str());
    serving.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    for params in [&mut authority, &mut serving] {
        params.not_before = now - BEFORE;
        params.not_after = now + lifetime;
    }
    let authority = CertifiedIssuer::self_signed(authority, key)?;
    let key = KeyPair::generate()?;
    let cert = serving.signed_by(&key, &authority)?;
    let pair = Pair { cert: cert.pem().into_bytes(), key: key.serialize_pem().into_bytes() };
    Ok(Made { pair, authority: authority.pem().replace("\r\n", "\n").into_bytes() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made() -> Made {
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
        let mut kept = Kept::first(one, b"");
        let mut steps: Vec<Kept> = vec![kept.clone()];
        kept.announce(two);
        steps.push(kept.clone());
        kept.switch();
        steps.push(kept.clone());
        kept.retire();
        steps.push(kept.clone());
        let bundles: Vec<Vec<u8>> = steps.iter().map(Kept::bundle).collect();
        let both = [first.clone(), second.clone()].concat();
        assert!(bundles == [first, both.clone(), both, second]);
        assert!(steps[1].served == steps[0].served && steps[2].served != steps[0].served);
        for kept in steps {
            assert!(Kept::of(&kept.secret(None)).unwrap() == kept);
        }
    }

    #[test]
    fn a_first_certificate_goes_beside_the_authorities_that_are_named() {
        let named: Vec<Vec<u8>> = (0..6).map(|_| made().authority).collect();
        let kept = Kept::first(made(), &named.concat());
        assert_eq!(kept.authorities.len(), AUTHORITIES);
        assert!(kept.authorities[..3] == named[..3]);
    }

    #[test]
    fn a_certificate_ends_when_it_should() {
        let left = end(&made().pair.cert).unwrap().duration_since(jiff::Timestamp::now());
        assert!((3590..=3600).contains(&left.as_secs()), "{left}");
        assert!(end(b"junk").is_err());
    }

    #[test]
    fn a_secret_that_lacks_a_part_says_what_to_do() {
        let mut secret = Kept::first(made(), b"").secret(None);
        secret.data.as_mut().unwrap().remove("tls.key");
        let error = Kept::of(&secret).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("tls.key") && error.contains("delete it"), "{error}");
    }
}
