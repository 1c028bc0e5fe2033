//! The Secret with the password of all repositories.

use std::collections::BTreeMap;

use backup_client::errors::found;
use backup_core::{
    data_movement::{PASSWORD_KEY, PASSWORD_SECRET},
    digest::hex,
    repository_records::version_of,
};
use k8s_openapi::{
    ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::Api;

use crate::{
    error::ReconcileError,
    volumes::data_mover::{DataMover, objects::create_once},
};

/// Length of a new password (bytes; two hex digits each).
const PASSWORD_BYTES: usize = 32;

/// What is known of the Secret. The password itself is never kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PasswordSecret {
    Absent,
    /// The Secret has no password under the key.
    NoKey {
        version: String,
    },
    Present {
        version: String,
    },
}

impl PasswordSecret {
    fn of(secret: Option<&Secret>) -> Self {
        let Some(secret) = secret else {
            return Self::Absent;
        };
        let version = version_of(&secret.metadata);
        let data = secret.data.as_ref();
        let password = data.and_then(|data| data.get(PASSWORD_KEY));
        if password.is_some_and(|password| !password.0.is_empty()) {
            Self::Present { version }
        } else {
            Self::NoKey { version }
        }
    }

    /// Changes with the Secret; empty without one.
    pub(super) fn version(&self) -> &str {
        match self {
            Self::Absent => "",
            Self::NoKey { version } | Self::Present { version } => version,
        }
    }
}

impl DataMover {
    pub(super) async fn password_secret(&self) -> Result<PasswordSecret, ReconcileError> {
        let api: Api<Secret> = self.cluster.api();
        let secret = found(api.get(PASSWORD_SECRET).await, PASSWORD_SECRET)?;
        Ok(PasswordSecret::of(secret.as_ref()))
    }

    /// Creates the Secret with a random password. Create-only: a password is never replaced.
    pub(super) async fn make_password(&self) -> Result<(), ReconcileError> {
        let secret = Secret {
            metadata: ObjectMeta {
                name: Some(PASSWORD_SECRET.to_owned()),
                ..ObjectMeta::default()
            },
            data: Some(BTreeMap::from([(
                PASSWORD_KEY.to_owned(),
                ByteString(random_password()?.into_bytes()),
            )])),
            type_: Some("Opaque".to_owned()),
            ..Secret::default()
        };
        create_once(self, &self.cluster.api(), &secret).await?;
        tracing::info!(
            secret = PASSWORD_SECRET,
            "there is a password for repositories of volume data: keep a copy of this Secret outside of the cluster"
        );
        Ok(())
    }
}

pub(super) fn random_password() -> Result<String, ReconcileError> {
    let mut bytes = [0; PASSWORD_BYTES];
    rustls::crypto::ring::default_provider()
        .secure_random
        .fill(&mut bytes)
        .map_err(|_| {
            ReconcileError::Postponed(
                "the system gives no random bytes for the password of repositories".to_owned(),
            )
        })?;
    Ok(hex(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_long_and_never_the_same() {
        let first = random_password().unwrap();
        assert_eq!(first.len(), 2 * PASSWORD_BYTES);
        assert_ne!(first, random_password().unwrap());
    }

    #[test]
    fn an_empty_password_is_none() {
        assert_eq!(PasswordSecret::of(None), PasswordSecret::Absent);
        let secret = |password: &str| Secret {
            data: Some(BTreeMap::from([(
                PASSWORD_KEY.to_owned(),
                ByteString(password.into()),
            )])),
            ..Secret::default()
        };
        let empty = PasswordSecret::of(Some(&secret("")));
        assert!(matches!(empty, PasswordSecret::NoKey { .. }));
        let other = PasswordSecret::of(Some(&Secret::default()));
        assert!(matches!(other, PasswordSecret::NoKey { .. }));
        let given = PasswordSecret::of(Some(&secret("static-passw0rd")));
        assert!(matches!(given, PasswordSecret::Present { .. }));
        assert!(!format!("{given:?}").contains("passw0rd"));
    }
}
