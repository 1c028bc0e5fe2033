//! AWS credentials files: INI with a section per profile.

use ini::{Ini, ParseOption};
use object_store::aws::AwsCredential;

use crate::StoreError;

/// The credential of a profile. Errors never hold any of the file's text.
pub(super) fn parse(file: &[u8], profile: &str) -> Result<AwsCredential, StoreError> {
    let config = |message: String| StoreError::config("spec.credential", message);
    let text = std::str::from_utf8(file).map_err(|_| config("the Secret's value is not UTF-8".to_owned()))?;
    // Keys may hold quotes and backslashes; AWS's own parser gives them no meaning.
    let options = ParseOption { enabled_quote: false, enabled_escape: false, ..ParseOption::default() };
    let ini = Ini::load_from_str_opt(text, options).map_err(|error| {
        config(format!(
            "the Secret's value is not an AWS credentials file: syntax error in line {}",
            error.line
        ))
    })?;
    let section =
        ini.section(Some(profile)).or_else(|| ini.section(Some(format!("profile {profile}")))).ok_or_else(
            || config(format!("the credentials file has no profile [{profile}]; see spec.config[profile]")),
        )?;
    let value =
        |key: &str| section.get(key).map(str::trim).filter(|value| !value.is_empty()).map(ToOwned::to_owned);
    let other_ways =
        ["role_arn", "source_profile", "credential_process", "web_identity_token_file", "sso_session"];
    if value("aws_access_key_id").is_none()
        && let Some(key) = other_ways.into_iter().find(|key| value(key).is_some())
    {
        return Err(config(format!(
            "profile [{profile}] of the credentials file says {key}, which cannot be honoured: give it aws_access_key_id \
             and aws_secret_access_key, or use no Secret, and the identity of the pod or node"
        )));
    }
    let required = |key: &str| {
        value(key).ok_or_else(|| config(format!("profile [{profile}] of the credentials file has no {key}")))
    };
    Ok(AwsCredential {
        key_id: required("aws_access_key_id")?,
        secret_key: required("aws_secret_access_key")?,
        token: value("aws_session_token"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# comment\n[default]\naws_access_key_id = AKIA1\naws_secret_access_key=se\\c\"r#e;t/+=\n\n\
                        [other]\r\naws_access_key_id=AKIA2\r\naws_secret_access_key = s2\r\naws_session_token = t2\r\n\
                        [profile third]\naws_access_key_id=AKIA3\naws_secret_access_key=s3\n[half]\naws_access_key_id=AKIA4\n";

    #[test]
    fn the_profile_asked_for_is_taken() {
        let table = [
            ("default", "AKIA1", "se\\c\"r#e;t/+=", None),
            ("other", "AKIA2", "s2", Some("t2")),
            ("third", "AKIA3", "s3", None),
        ];
        for (profile, id, key, token) in table {
            let credential = parse(FILE.as_bytes(), profile).unwrap();
            assert_eq!(credential.key_id, id);
            assert_eq!(credential.secret_key, key);
            assert_eq!(credential.token.as_deref(), token);
        }
    }

    #[test]
    fn an_error_says_what_is_missing_and_shows_no_secret() {
        let table: [(&[u8], &str, &str); 5] = [
            (b"[default]\nrole_arn=arn:TOPSECRET\n", "default", "says role_arn, which cannot be honoured"),
            (FILE.as_bytes(), "nope", "no profile [nope]"),
            (FILE.as_bytes(), "half", "no aws_secret_access_key"),
            (b"[default\nTOPSECRET", "default", "line"),
            (b"\xff\xfe", "default", "UTF-8"),
        ];
        for (file, profile, expected) in table {
            let error = parse(file, profile).unwrap_err();
            assert_eq!(error.category(), "config");
            assert!(
                error.to_string().contains(expected) && !error.to_string().contains("SECRET\""),
                "{error}"
            );
            assert!(!error.to_string().contains("TOPSECRET"), "{error}");
        }
    }
}
