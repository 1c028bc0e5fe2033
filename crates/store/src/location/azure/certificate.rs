//! Sign-in with a certificate: the client assertion is signed with the certificate's key (RFC 7523;
//! "client assertion" in the documentation of the Microsoft identity platform), as Velero does
//! (`pkg/util/azure/credential.go`, v1.18).

use std::sync::Arc;

use base64::{
    Engine as _,
    prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD},
};
use jiff::Timestamp;
use rustls::{
    SignatureScheme,
    crypto::ring::sign::any_supported_type,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    sign::SigningKey,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// Lifetime of a signed assertion (s).
const LIFETIME_SECONDS: i64 = 600;

pub(super) struct Certificate {
    key: Arc<dyn SigningKey>,
    /// The certificate of the key first.
    chain: Vec<CertificateDer<'static>>,
    sends_chain: bool,
}

impl Certificate {
    /// A certificate with its RSA key, and optionally its issuers, in PEM. `sends_chain`: the other
    /// side knows the issuer but not the certificate. Errors: what is wrong with it, without any of
    /// its text.
    pub(super) fn parse(pem: &[u8], sends_chain: bool) -> Result<Self, &'static str> {
        let key = PrivateKeyDer::from_pem_slice(pem).map_err(|_| {
            "it holds no private key in PEM, or one with a password (a PKCS#12 file is converted by `openssl pkcs12 -in FILE -nodes`)"
        })?;
        let key = any_supported_type(&key).map_err(|_| "its private key can not be used")?;
        if key
            .choose_scheme(&[SignatureScheme::RSA_PSS_SHA256])
            .is_none()
        {
            return Err("its private key is not an RSA key");
        }
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
        let mut chain = chain.map_err(|_| "its certificates are not PEM")?;
        let public = key
            .public_key()
            .ok_or("its private key has no public key")?;
        let own = chain
            .iter()
            .position(|der| der.windows(public.len()).any(|part| part == &*public))
            .ok_or("it holds no certificate of its private key")?;
        chain[..=own].rotate_right(1);
        Ok(Self {
            key,
            chain,
            sends_chain,
        })
    }

    /// The client assertion: a signed token for `audience`.
    pub(super) fn assertion(&self, client: &str, audience: &str) -> Result<String, &'static str> {
        let failed = "the private key of the certificate does not sign";
        let own = self.chain.first().ok_or(failed)?;
        let mut header = json!({
            "alg": "PS256", "typ": "JWT", "x5t#S256": BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(own)),
        });
        if self.sends_chain {
            header["x5c"] = self
                .chain
                .iter()
                .map(|der| BASE64_STANDARD.encode(der))
                .collect();
        }
        let now = Timestamp::now().as_second();
        let claims = json!({
            "aud": audience, "iss": client, "sub": client, "jti": format!("{:032x}", fastrand::u128(..)),
            "nbf": now, "iat": now, "exp": now + LIFETIME_SECONDS,
        });
        let said = format!("{}.{}", encoded(&header), encoded(&claims));
        let signer = self
            .key
            .choose_scheme(&[SignatureScheme::RSA_PSS_SHA256])
            .ok_or(failed)?;
        let signature = signer.sign(said.as_bytes()).map_err(|_| failed)?;
        Ok(format!(
            "{said}.{}",
            BASE64_URL_SAFE_NO_PAD.encode(signature)
        ))
    }
}

fn encoded(part: &Value) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(part.to_string())
}

#[cfg(test)]
pub(super) mod tests {
    use rustls::crypto::ring::default_provider;

    use super::*;

    /// The certificate of another key, then one with its own key. Made for these tests, and useless
    /// elsewhere.
    pub(crate) const PEM: &str = include_str!("certificate/rsa.pem");

    /// The parts of a token: header and claims; and whether this key has signed it.
    fn read(token: &str, key: &dyn SigningKey) -> (Value, Value, bool) {
        let (said, signature) = token.rsplit_once('.').unwrap();
        let (header, claims) = said.split_once('.').unwrap();
        let part = |text: &str| {
            serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(text).unwrap()).unwrap()
        };
        // The last field of the encoded public key: 270 bytes for 2,048 bits.
        let public = key.public_key().unwrap();
        let public = &public[public.len() - 270..];
        let algorithms = default_provider().signature_verification_algorithms;
        let known = algorithms
            .mapping
            .iter()
            .find(|(scheme, _)| *scheme == SignatureScheme::RSA_PSS_SHA256);
        let signature = BASE64_URL_SAFE_NO_PAD.decode(signature).unwrap();
        let signed = known.unwrap().1[0]
            .verify_signature(public, said.as_bytes(), &signature)
            .is_ok();
        (part(header), part(claims), signed)
    }

    #[test]
    fn a_client_signs_who_it_is_and_to_whom_it_says_so() {
        let certificate = Certificate::parse(PEM.as_bytes(), false).unwrap();
        let token = certificate.assertion("c", "https://login/t").unwrap();
        let (header, claims, signed) = read(&token, &*certificate.key);
        assert!(signed);
        assert_eq!(
            (&header["alg"], &header["x5c"]),
            (&json!("PS256"), &Value::Null)
        );
        assert_eq!(
            (&claims["iss"], &claims["sub"], &claims["aud"]),
            (&json!("c"), &json!("c"), &json!("https://login/t"))
        );
        assert_eq!(
            claims["exp"].as_i64().unwrap() - claims["nbf"].as_i64().unwrap(),
            LIFETIME_SECONDS
        );
        assert_ne!(
            token,
            certificate.assertion("c", "https://login/t").unwrap()
        );
        let altered = token.replace(
            &BASE64_URL_SAFE_NO_PAD.encode(claims.to_string()),
            &BASE64_URL_SAFE_NO_PAD.encode("{}"),
        );
        assert!(!read(&altered, &*certificate.key).2);
    }

    #[test]
    fn the_chain_is_sent_where_it_is_asked_for_with_that_of_the_key_first() {
        let certificate = Certificate::parse(PEM.as_bytes(), true).unwrap();
        let (header, ..) = read(&certificate.assertion("c", "a").unwrap(), &*certificate.key);
        let chain = header["x5c"].as_array().unwrap();
        let own = BASE64_STANDARD.decode(chain[0].as_str().unwrap()).unwrap();
        assert_eq!(
            header["x5t#S256"],
            json!(BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(own)))
        );
        assert_eq!(chain.len(), 2);
    }

    #[test]
    fn what_is_no_certificate_with_its_key_is_named() {
        let (certificates, key) = PEM.split_at(PEM.find("-----BEGIN PRIVATE").unwrap());
        let other = &certificates[..certificates.rfind("-----BEGIN CERTIFICATE").unwrap()];
        for (pem, words) in [
            ("nothing".to_owned(), "openssl pkcs12"),
            (certificates.to_owned(), "no private key"),
            (key.to_owned(), "no certificate of its private key"),
            (format!("{other}{key}"), "no certificate of its private key"),
        ] {
            let error = Certificate::parse(pem.as_bytes(), false).err().unwrap();
            assert_says!(error, words);
        }
    }
}
