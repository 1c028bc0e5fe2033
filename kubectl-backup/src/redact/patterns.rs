//! Finds texts that look like secrets.

use std::borrow::Cow;

use regex::{Captures, Regex};

use super::REDACTED;

/// The text before the secret (`$1`) and after it (`$2`) is kept.
const PATTERNS: [&str; 9] = [
    r"(?s)()-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\z)",
    // User name and password in a URL, and the whole query: it may contain the signature of a
    // bucket URL.
    r#"(?i)\b([a-z][a-z0-9+.-]*://)[^/\s"'@\\]+(@)"#,
    r#"(?i)\b([a-z][a-z0-9+.-]*://[^\s"'?<>\\]+\?)[^\s"'<>\\]+"#,
    // The API server authenticates to the webhook by this path; its message contains the path when
    // no replica answers.
    r"(/validate/)[0-9A-Za-z_-]+",
    r#"(?i)(\bauthorization\\?["']?[ \t]*[:=][ \t]*\\?["']?)(?:(?:bearer|basic)[ \t]+)?[^\s"',\\]+"#,
    r"(?i)(\bbearer[ \t]+)[A-Za-z0-9._~+/=-]{16,}",
    // An AWS key; a Kubernetes or OIDC token (three Base64 parts, the first beginning with an
    // opening brace).
    r"(\b)(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    r"(\b)eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*",
    r#"(?i)(\bsecret=)[^\s"',;&]+"#,
];

/// A value after `=` or `:` whose name is typical of secrets, with or without quotes.
const NAMED: &str = concat!(
    r"(?i)((?:password|passwd|passphrase|token|signature|(?:client|shared)[_-]?secret|secret[_-]?key",
    r#"|(?:access|account|api|private|encryption)[_-]?key(?:[_-]?id)?|connection[_-]?string)\\?["']?[ \t]*[:=][ \t]*)"#,
    r#"(\\?"[^"\n]*"|'[^'\n]*'|[^\s"',;&}\])]+)"#
);

/// Values that are never secrets.
const PLAIN: [&str; 5] = ["true", "false", "null", "{", "["];

pub(crate) struct SecretPatterns {
    patterns: Vec<Regex>,
    named: Regex,
}

impl SecretPatterns {
    /// Fails if a pattern is invalid.
    pub(crate) fn new() -> Result<Self, regex::Error> {
        let patterns = PATTERNS
            .into_iter()
            .map(Regex::new)
            .collect::<Result<_, _>>()?;
        Ok(Self {
            patterns,
            named: Regex::new(NAMED)?,
        })
    }

    /// Replaces everything in the text that looks like a secret.
    pub(crate) fn take_out(&self, text: String) -> String {
        let hidden = format!("${{1}}{REDACTED}${{2}}");
        let mut text = text;
        for pattern in &self.patterns {
            if let Cow::Owned(less) = pattern.replace_all(&text, hidden.as_str()) {
                text = less;
            }
        }
        let named = self.named.replace_all(&text, |found: &Captures<'_>| {
            if PLAIN.contains(&&found[2]) {
                found[0].to_owned()
            } else {
                format!("{}{REDACTED}", &found[1])
            }
        });
        match named {
            Cow::Owned(less) => less,
            Cow::Borrowed(_) => text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_a_secret_is_taken_out_and_nothing_else() {
        let patterns = SecretPatterns::new().unwrap();
        for (text, expected) in [
            ("password=hunter2 next", "password=REDACTED next"),
            (
                r#"{"password":"hunter 2","user":"jane"}"#,
                r#"{"password":REDACTED,"user":"jane"}"#,
            ),
            (
                r#"msg="{\"dbPassword\":\"hunter2\"} failed""#,
                r#"msg="{\"dbPassword\":REDACTED} failed""#,
            ),
            (
                "  aws_secret_access_key = hunter2\nnext",
                "  aws_secret_access_key = REDACTED\nnext",
            ),
            (
                "AccountKey=hunter2==;EndpointSuffix=core",
                "AccountKey=REDACTED;EndpointSuffix=core",
            ),
            ("--token=hunter2", "--token=REDACTED"),
            (
                "https://jane:hunter2@s3.example.com/b",
                "https://REDACTED@s3.example.com/b",
            ),
            (
                r#"Get "https://s3/b/k?X-Amz-Signature=hunter2&a=b": EOF"#,
                r#"Get "https://s3/b/k?REDACTED": EOF"#,
            ),
            (
                "https://w.velero.svc:443/validate/0123ab_d: no",
                "https://w.velero.svc:443/validate/REDACTED: no",
            ),
            (
                "Authorization: Basic aHVudGVyMg==",
                "Authorization: REDACTED",
            ),
            ("with Bearer aHVudGVyMi1odW50ZXIy.", "with Bearer REDACTED"),
            ("key AKIAIOSFODNN7EXAMPLE of", "key REDACTED of"),
            (
                "got eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrIn0.c2ln-x",
                "got REDACTED",
            ),
            (
                "a\n-----BEGIN RSA PRIVATE KEY-----\nhunter2\n-----END RSA PRIVATE KEY-----\nb",
                "a\nREDACTED\nb",
            ),
            ("-----BEGIN PRIVATE KEY-----\nhunter2", "REDACTED"),
        ] {
            assert_eq!(patterns.take_out(text.to_owned()), expected);
        }
        for text in [
            "automountServiceAccountToken: false",
            "- serviceAccountToken:\n    path: token",
            "secretName: backup-webhook-tls",
            "secretKeyRef:\n  key: cloud\n  name: cloud-credentials",
            "secrets \"db\" is forbidden: User \"jane\" cannot get resource",
            "https://s3.example.com:9000/bucket/backups/a.tar.gz",
            "kubectl backup describe nightly   # level=error",
            "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        ] {
            assert_eq!(patterns.take_out(text.to_owned()), text);
        }
    }
}
