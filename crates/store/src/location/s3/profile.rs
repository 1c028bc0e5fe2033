//! AWS credentials files: INI with a section per profile.

use ini::{Ini, ParseOption, Properties};
use object_store::aws::AwsCredential;

use crate::StoreError;

/// The identity that a profile sets for requests.
#[derive(Debug, PartialEq)]
pub(super) enum Identity {
    Keys(AwsCredential),
    /// A role to assume.
    Role(Role, RoleSource),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Role {
    pub arn: String,
    pub session: Option<String>,
    pub external_id: Option<String>,
    /// Requested lifetime of its credentials (seconds).
    pub duration: Option<String>,
}

/// The credentials with which a role is assumed.
#[derive(Debug, PartialEq)]
pub(super) enum RoleSource {
    Keys(AwsCredential),
    /// The identity of the pod or node.
    Environment,
    /// A file with a token of the cluster.
    TokenFile(String),
}

/// The identity of a profile. Errors never hold any of the file's text.
///
/// Resolved like in AWS's own clients (`aws-sdk-go-v2`, `config/resolve_credentials.go`):
/// `role_arn` is assumed with the keys of `source_profile`, the keys of the profile itself, the
/// environment (`credential_source`), or a token.
pub(super) fn parse(file: &[u8], profile: &str) -> Result<Identity, StoreError> {
    let text = std::str::from_utf8(file)
        .map_err(|_| config("the Secret's value is not UTF-8".to_owned()))?;
    // Keys may hold quotes and backslashes; AWS's own parser gives them no meaning.
    let options = ParseOption {
        enabled_quote: false,
        enabled_escape: false,
        ..ParseOption::default()
    };
    let ini = Ini::load_from_str_opt(text, options).map_err(|error| {
        config(format!(
            "the Secret's value is not an AWS credentials file: syntax error in line {}",
            error.line
        ))
    })?;
    let found = Profile::find(&ini, profile)?;
    let Some(arn) = found.value("role_arn") else {
        return match found.unsupported(&[
            "credential_process",
            "web_identity_token_file",
            "sso_session",
        ]) {
            Some(refusal) => Err(refusal),
            None => found.keys().map(Identity::Keys),
        };
    };
    if found.value("mfa_serial").is_some() {
        return Err(config(format!(
            "profile [{profile}] of the credentials file says mfa_serial, and a controller has no code to enter: use a role that \
             does not need one"
        )));
    }
    let role = Role {
        arn,
        session: found.value("role_session_name"),
        external_id: found.value("external_id"),
        duration: found.value("duration_seconds"),
    };
    let source = match (
        found.value("source_profile"),
        found.value("web_identity_token_file"),
    ) {
        (Some(source), _) if source != profile => {
            let source = Profile::find(&ini, &source)?;
            if let Some(refusal) =
                source.unsupported(&["role_arn", "credential_process", "sso_session"])
            {
                return Err(refusal);
            }
            RoleSource::Keys(source.keys()?)
        }
        (None, Some(token)) => RoleSource::TokenFile(token),
        _ => {
            if found.value("credential_source").is_some() {
                RoleSource::Environment
            } else {
                RoleSource::Keys(found.keys()?)
            }
        }
    };
    Ok(Identity::Role(role, source))
}

fn config(message: String) -> StoreError {
    StoreError::config("spec.credential", message)
}

struct Profile<'a> {
    name: &'a str,
    section: &'a Properties,
}

impl<'a> Profile<'a> {
    fn find(ini: &'a Ini, name: &'a str) -> Result<Self, StoreError> {
        let section = ini
            .section(Some(name))
            .or_else(|| ini.section(Some(format!("profile {name}"))));
        let section = section.ok_or_else(|| {
            config(format!(
                "the credentials file has no profile [{name}]; see spec.config[profile]"
            ))
        })?;
        Ok(Self { name, section })
    }

    fn value(&self, key: &str) -> Option<String> {
        self.section
            .get(key)
            .map(str::trim)
            .filter(|value| !value.is_empty())
            .map(ToOwned::to_owned)
    }

    fn required(&self, key: &str) -> Result<String, StoreError> {
        self.value(key).ok_or_else(|| {
            config(format!(
                "profile [{}] of the credentials file has no {key}",
                self.name
            ))
        })
    }

    /// The error for a profile that has no keys but one of these settings.
    fn unsupported(&self, others: &[&str]) -> Option<StoreError> {
        let other = others.iter().find(|other| self.value(other).is_some())?;
        self.value("aws_access_key_id").is_none().then(|| {
            config(format!(
                "profile [{}] of the credentials file says {other}, which cannot be honoured here: give it \
                 aws_access_key_id and aws_secret_access_key, or role_arn with the source_profile of such keys, or use no \
                 Secret, and the identity of the pod or node",
                self.name
            ))
        })
    }

    fn keys(&self) -> Result<AwsCredential, StoreError> {
        let token = self.value("aws_session_token");
        // The client panics on a token that is no valid header value.
        if token
            .as_ref()
            .is_some_and(|token| !token.bytes().all(|byte| byte.is_ascii_graphic()))
        {
            return Err(config(format!(
                "aws_session_token of profile [{}] of the credentials file is not a token of AWS",
                self.name
            )));
        }
        Ok(AwsCredential {
            key_id: self.required("aws_access_key_id")?,
            secret_key: self.required("aws_secret_access_key")?,
            token,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# comment\n[default]\naws_access_key_id = AKIA1\naws_secret_access_key=se\\c\"r#e;t/+=\n\n\
                        [other]\r\naws_access_key_id=AKIA2\r\naws_secret_access_key = s2\r\naws_session_token = t2\r\n\
                        [profile third]\naws_access_key_id=AKIA3\naws_secret_access_key=s3\n[half]\naws_access_key_id=AKIA4\n\
                        [cross]\nrole_arn=arn:r\nsource_profile=other\nexternal_id=e\nrole_session_name=n\n\
                        [own]\nrole_arn=arn:r\naws_access_key_id=AKIA5\naws_secret_access_key=s5\n\
                        [self]\nrole_arn=arn:r\nsource_profile=self\naws_access_key_id=AKIA5\naws_secret_access_key=s5\n\
                        [node]\nrole_arn=arn:r\ncredential_source=Ec2InstanceMetadata\n\
                        [web]\nrole_arn=arn:r\nweb_identity_token_file=/token\n\
                        [chain]\nrole_arn=arn:r\nsource_profile=cross\n\
                        [nowhere]\nrole_arn=arn:r\nsource_profile=nope\n";

    fn keys(id: &str, key: &str, token: Option<&str>) -> AwsCredential {
        let (key_id, secret_key) = (id.to_owned(), key.to_owned());
        AwsCredential {
            key_id,
            secret_key,
            token: token.map(ToOwned::to_owned),
        }
    }

    #[test]
    fn the_profile_asked_for_is_taken() {
        for (profile, expected) in [
            ("default", keys("AKIA1", "se\\c\"r#e;t/+=", None)),
            ("other", keys("AKIA2", "s2", Some("t2"))),
            ("third", keys("AKIA3", "s3", None)),
        ] {
            assert_eq!(
                parse(FILE.as_bytes(), profile).unwrap(),
                Identity::Keys(expected)
            );
        }
    }

    #[test]
    fn a_role_is_taken_on_by_what_the_profile_says() {
        for (profile, expected) in [
            ("cross", RoleSource::Keys(keys("AKIA2", "s2", Some("t2")))),
            ("own", RoleSource::Keys(keys("AKIA5", "s5", None))),
            ("self", RoleSource::Keys(keys("AKIA5", "s5", None))),
            ("node", RoleSource::Environment),
            ("web", RoleSource::TokenFile("/token".to_owned())),
        ] {
            let Identity::Role(role, source) = parse(FILE.as_bytes(), profile).unwrap() else {
                panic!("{profile} is a role")
            };
            assert_eq!(
                (role.arn.as_str(), source),
                ("arn:r", expected),
                "{profile}"
            );
            assert_eq!(role.external_id.is_some(), profile == "cross");
        }
    }

    #[test]
    fn each_known_key_of_a_profile_is_read_or_refused() {
        const OTHER: &str = "[other]\naws_access_key_id=c\naws_secret_access_key=d\n";
        const KEYS: &str = "[default]\naws_access_key_id=a\naws_secret_access_key=b\n";
        let shown = |base: &str, key: Option<&str>| {
            let value = if key == Some("source_profile") {
                "other"
            } else {
                "1"
            };
            let line = key.map_or_else(String::new, |key| format!("{key}={value}\n"));
            parse(format!("{OTHER}{base}{line}").as_bytes(), "default").map(|identity| {
                match identity {
                    Identity::Keys(keys) => format!("{} {:?}", keys.key_id, keys.token),
                    Identity::Role(role, RoleSource::Keys(keys)) => {
                        format!("{role:?} {} {:?}", keys.key_id, keys.token)
                    }
                    Identity::Role(role, source) => format!("{role:?} {source:?}"),
                }
            })
        };
        // AWS's own clients prefer keys to these settings.
        let excused = [
            "credential_process",
            "sso_session",
            "web_identity_token_file",
        ];
        let keys = ["aws_session_token", "role_arn"].into_iter().chain(excused);
        backup_testkit::assert_each_key_counts(keys, &excused, |key| shown(KEYS, key));
        let of_role = [
            "aws_session_token",
            "role_session_name",
            "external_id",
            "duration_seconds",
            "source_profile",
            "web_identity_token_file",
            "credential_source",
            "mfa_serial",
        ];
        let role = format!("{KEYS}role_arn=arn:r\n");
        backup_testkit::assert_each_key_counts(of_role, &[], |key| shown(&role, key));
    }

    #[test]
    fn an_error_says_what_is_missing_and_shows_no_secret() {
        let table: [(&[u8], &str, &str); 9] = [
            (b"[default]\nrole_arn=arn:TOPSECRET\n", "default", "has no aws_access_key_id"),
            (b"[default]\nsso_session=TOPSECRET\n", "default", "says sso_session, which cannot be honoured"),
            (FILE.as_bytes(), "chain", "profile [cross] of the credentials file says role_arn"),
            (FILE.as_bytes(), "nowhere", "no profile [nope]"),
            (FILE.as_bytes(), "nope", "no profile [nope]"),
            (FILE.as_bytes(), "half", "no aws_secret_access_key"),
            (
                "[default]\naws_access_key_id=a\naws_secret_access_key=b\naws_session_token=TOPSECRETü"
                    .as_bytes(),
                "default",
                "is not a token",
            ),
            (b"[default\nTOPSECRET", "default", "line"),
            (b"\xff\xfe", "default", "UTF-8"),
        ];
        for (file, profile, expected) in table {
            let error = parse(file, profile).unwrap_err();
            assert_eq!(error.category(), "config");
            assert_says!(error, expected);
            assert!(!error.to_string().contains("TOPSECRET"), "{error}");
        }
    }
}
