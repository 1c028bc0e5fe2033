//! A certificate authority for one test world.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};

/// A CA and the folder of the certificates that it signs.
pub struct Pki {
    folder: PathBuf,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// Paths of a certificate and its key, PEM.
#[derive(Clone, Debug)]
pub struct Identity {
    pub cert: PathBuf,
    pub key: PathBuf,
}

impl Pki {
    /// A new CA; its certificate is `ca.crt` in the folder.
    pub fn new(folder: &Path) -> anyhow::Result<Self> {
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "backup-tests");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        std::fs::write(folder.join("ca.crt"), issuer.pem())?;
        Ok(Self {
            folder: folder.to_owned(),
            issuer,
        })
    }

    /// Path of the CA's certificate.
    pub fn ca(&self) -> PathBuf {
        self.folder.join("ca.crt")
    }

    pub fn ca_pem(&self) -> String {
        self.issuer.pem()
    }

    /// A serving certificate for loopback, and for Services of the installation.
    pub fn server(&self, name: &str) -> anyhow::Result<Identity> {
        let mut params = CertificateParams::new(vec![
            "127.0.0.1".into(),
            "localhost".into(),
            "kubernetes.default.svc".into(),
            // For an API server and a store that pods connect to: the first address of Services,
            // and the node's.
            "10.96.0.1".into(),
            crate::node::ADDRESS.to_string(),
            // The name by which the API server verifies a webhook that is registered by its
            // Service.
            "*.velero.svc".into(),
        ])?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(name, params)
    }

    /// A client certificate for a user and groups.
    pub fn client(&self, name: &str, user: &str, groups: &[&str]) -> anyhow::Result<Identity> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, user);
        for group in groups {
            params
                .distinguished_name
                .push(DnType::OrganizationName, *group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(name, params)
    }

    fn sign(&self, name: &str, mut params: CertificateParams) -> anyhow::Result<Identity> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        let cert = params
            .signed_by(&key, &self.issuer)
            .with_context(|| format!("sign certificate {name}"))?;
        let identity = Identity {
            cert: self.folder.join(format!("{name}.crt")),
            key: self.folder.join(format!("{name}.key")),
        };
        std::fs::write(&identity.cert, cert.pem())?;
        std::fs::write(&identity.key, key.serialize_pem())?;
        Ok(identity)
    }
}

impl std::fmt::Debug for Pki {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pki")
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}
