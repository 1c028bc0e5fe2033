//! Signatures in cosign's format, by a key.

use std::sync::Arc;

use anyhow::Context as _;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use rustls::{
    SignatureScheme,
    crypto::ring::sign::any_ecdsa_type,
    pki_types::{PrivateKeyDer, pem::PemObject as _},
    sign::SigningKey,
};
use serde_json::json;

use super::oci::{CONFIG, Descriptor, Layout, MANIFEST};

const PAYLOAD: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
const SIGNATURE: &str = "dev.cosignproject.cosign/signature";
const SCHEME: SignatureScheme = SignatureScheme::ECDSA_NISTP256_SHA256;

/// Characters of a line of PEM.
const PEM_WIDTH: usize = 64;

/// A key for ECDSA on the curve P-256.
pub(super) struct Key(Arc<dyn SigningKey>);

impl Key {
    /// A key that is not encrypted, of PKCS #8 or SEC 1.
    pub(super) fn from_pem(pem: &[u8]) -> anyhow::Result<Self> {
        let key = PrivateKeyDer::from_pem_slice(pem).context(
            "expected a private key as PEM that is not encrypted, such as of \
             `openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256`",
        )?;
        let key = any_ecdsa_type(&key).context("expected a key for ECDSA")?;
        key.choose_scheme(&[SCHEME])
            .context("expected a key on the curve P-256")?;
        Ok(Self(key))
    }

    /// The signature of SHA-256 of these bytes, in base64, as of `cosign sign-blob`.
    pub(super) fn sign(&self, bytes: &[u8]) -> anyhow::Result<String> {
        let signer = self
            .0
            .choose_scheme(&[SCHEME])
            .context("the key does not sign on the curve P-256")?;
        Ok(BASE64_STANDARD.encode(signer.sign(bytes)?))
    }

    /// The public key, for `cosign verify --key`.
    pub(super) fn public_pem(&self) -> anyhow::Result<String> {
        let public = self.0.public_key().context("the key has no public part")?;
        let text = BASE64_STANDARD.encode(&public[..]);
        let mut pem = "-----BEGIN PUBLIC KEY-----\n".to_owned();
        for (index, character) in text.chars().enumerate() {
            if index > 0 && index.is_multiple_of(PEM_WIDTH) {
                pem.push('\n');
            }
            pem.push(character);
        }
        pem.push_str("\n-----END PUBLIC KEY-----\n");
        Ok(pem)
    }
}

/// Signs a manifest of a layout: adds the signature under the tag where cosign looks for it.
/// `name` is the manifest's repository in a registry.
pub(super) fn sign(
    layout: &mut Layout,
    manifest: &Descriptor,
    name: &str,
    key: &Key,
) -> anyhow::Result<()> {
    let payload = json!({
        "critical": {
            "identity": { "docker-reference": name },
            "image": { "docker-manifest-digest": manifest.digest },
            "type": "cosign container image signature",
        },
        "optional": null,
    })
    .to_string()
    .into_bytes();
    let signature = key.sign(&payload)?;
    let mut layer = layout.blob(PAYLOAD, payload);
    layer.annotations.insert(SIGNATURE.to_owned(), signature);
    let config = layout.json(
        CONFIG,
        &json!({
            "architecture": "",
            "os": "",
            "config": {},
            "rootfs": { "type": "layers", "diff_ids": [layer.digest] },
        }),
    );
    let signed = layout.json(
        MANIFEST,
        &json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": config,
            "layers": [layer],
        }),
    );
    layout.tag(&signed, &tag(manifest));
    Ok(())
}

/// Tag of the signature of a manifest.
fn tag(manifest: &Descriptor) -> String {
    format!("{}.sig", manifest.digest.replace(':', "-"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::release::oci::{
        INDEX,
        tests::{assert_complete, bytes, read},
    };

    fn key() -> Key {
        let pem = rcgen::KeyPair::generate().unwrap().serialize_pem();
        Key::from_pem(pem.as_bytes()).unwrap()
    }

    /// Whether the signature of these bytes is that of the key.
    fn verifies(key: &Key, bytes: &[u8], signature: &str) -> bool {
        let signature = BASE64_STANDARD.decode(signature).unwrap();
        // The point is the end of the public key: 0x04 and two coordinates.
        let public = key.0.public_key().unwrap();
        let point = &public[public.len() - 65..];
        rustls::crypto::ring::default_provider()
            .signature_verification_algorithms
            .mapping
            .iter()
            .filter(|(scheme, _)| *scheme == SCHEME)
            .flat_map(|(_, algorithms)| algorithms.iter())
            .any(|algorithm| algorithm.verify_signature(point, bytes, &signature).is_ok())
    }

    #[test]
    fn a_signature_is_found_by_tag_names_the_digest_and_verifies() {
        let key = key();
        let mut layout = Layout::default();
        let index = layout.json(INDEX, &json!({ "schemaVersion": 2, "manifests": [] }));
        sign(&mut layout, &index, "registry.example.com/b/c", &key).unwrap();
        assert_complete(&layout);
        let tag = format!("sha256-{}.sig", &index.digest["sha256:".len()..]);
        let signed = read(&layout, &layout.tagged(&tag).unwrap().digest);
        let layer = &signed["layers"][0];
        let digest = layer["digest"].as_str().unwrap();
        let payload = read(&layout, digest);
        assert_eq!(
            payload["critical"]["image"]["docker-manifest-digest"],
            json!(index.digest)
        );
        let signature = layer["annotations"][SIGNATURE].as_str().unwrap();
        assert!(verifies(&key, bytes(&layout, digest), signature));
        assert!(!verifies(&key, b"other", signature));
    }

    #[test]
    fn the_public_key_is_pem_with_lines_of_64_characters() {
        let pem = key().public_pem().unwrap();
        let lines: Vec<_> = pem.lines().collect();
        assert_eq!(lines[0], "-----BEGIN PUBLIC KEY-----");
        // 91 bytes: the algorithm and the point.
        assert_eq!([lines[1].len(), lines[2].len()], [64, 60]);
        assert_eq!(lines[3..], ["-----END PUBLIC KEY-----"]);
    }

    #[test]
    fn what_is_no_key_for_p_256_is_refused() {
        let other = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
        let other = other.serialize_pem();
        let cases = [
            ("text", "as PEM that is not encrypted"),
            (other.as_str(), "P-256"),
        ];
        for (pem, expected) in cases {
            let error = Key::from_pem(pem.as_bytes()).err().unwrap();
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
