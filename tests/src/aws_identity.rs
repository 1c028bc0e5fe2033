//! The services from which pods and nodes get AWS credentials: instance metadata, the pod identity
//! agent, and the token service (STS). All give out the keys of the kit's S3 server, and an empty
//! session token, as that server knows none.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use anyhow::bail;
use axum::{Router, body::Bytes, extract::Request, http::StatusCode, routing::any};
use http_body_util::BodyExt as _;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::{
    object_store::{ACCESS, SECRET},
    pki::{Identity, Pki},
    served::Served,
};

/// Token that the cluster's token file must hold.
pub const TOKEN: &str = "token-of-the-pod";
/// The role that pods and profiles assume.
pub const ROLE: &str = "arn:aws:iam::123456789012:role/backup";

const METADATA: &str = "/latest/meta-data/iam/security-credentials/";

/// Number of times that credentials were given out, by method.
type Given = BTreeMap<String, u32>;

/// A running server; ends when dropped.
pub struct AwsIdentity {
    server: Served,
    ca: String,
    told: Arc<Mutex<Told>>,
}

#[derive(Default)]
struct Told {
    given: Given,
    refused: Vec<String>,
}

impl AwsIdentity {
    pub async fn start(folder: &std::path::Path) -> anyhow::Result<Self> {
        let pki = Pki::new(folder)?;
        let identity: Identity = pki.server("aws")?;
        let told = Arc::<Mutex<Told>>::default();
        let recorder = Arc::clone(&told);
        let app = Router::new().fallback(any(move |request: Request| answer(request, recorder)));
        Ok(Self {
            server: Served::start(&identity, app).await?,
            ca: pki.ca_pem(),
            told,
        })
    }

    pub fn url(&self) -> String {
        format!("https://{}", self.server.address())
    }

    pub fn ca_pem(&self) -> &str {
        &self.ca
    }

    /// Number of times that credentials were given out by this method since the last call. Errors:
    /// a request that AWS would refuse.
    pub fn given(&self, way: &str) -> anyhow::Result<u32> {
        let Ok(mut told) = self.told.lock() else {
            bail!("the server has panicked")
        };
        let Told { given, refused } = std::mem::take(&mut *told);
        if let Some(refused) = refused.first() {
            bail!("refused: {refused}");
        }
        Ok(given.get(way).copied().unwrap_or_default())
    }
}

async fn answer(request: Request, told: Arc<Mutex<Told>>) -> (StatusCode, String) {
    let (head, body) = request.into_parts();
    let body = body
        .collect()
        .await
        .map(http_body_util::Collected::to_bytes)
        .unwrap_or_default();
    let answered = given_for(&head, &body);
    if let Ok(mut told) = told.lock() {
        match &answered {
            Ok((Some(way), _)) => *told.given.entry((*way).to_owned()).or_default() += 1,
            Ok((None, _)) => {}
            Err(why) => told
                .refused
                .push(format!("{} {}: {why}", head.method, head.uri.path())),
        }
    }
    match answered {
        Ok((_, body)) => (StatusCode::OK, body),
        Err(why) => (StatusCode::FORBIDDEN, why),
    }
}

/// The method by which credentials are given out (if they are), and the answer.
fn given_for(
    head: &http::request::Parts,
    body: &Bytes,
) -> Result<(Option<&'static str>, String), String> {
    let header = |name: &str| {
        head.headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    };
    // Real services refuse unknown headers.
    if head.headers.contains_key("if-none-match") {
        return Err("If-None-Match is not for who gives out credentials".to_owned());
    }
    let expires = Timestamp::now() + SignedDuration::from_hours(1);
    let keys = || {
        json!({ "Code": "Success", "Type": "AWS-HMAC", "AccessKeyId": ACCESS, "SecretAccessKey": SECRET, "Token": "",
            "Expiration": expires })
        .to_string()
    };
    let token = "token-of-the-instance";
    match head.uri.path() {
        "/latest/api/token" if head.method == http::Method::PUT => Ok((None, token.to_owned())),
        path if path.starts_with("/latest/") && header("x-aws-ec2-metadata-token") != token => {
            Err("without the token of the instance".to_owned())
        }
        METADATA => Ok((None, "node".to_owned())),
        path if path == format!("{METADATA}node") => Ok((Some("instance"), keys())),
        "/v1/credentials" if header("authorization") == TOKEN => Ok((Some("pod"), keys())),
        "/" => {
            let query = head.uri.query().unwrap_or_default().as_bytes();
            let pairs = url::form_urlencoded::parse(query).chain(url::form_urlencoded::parse(body));
            let asked: BTreeMap<String, String> = pairs
                .map(|(name, value)| (name.into_owned(), value.into_owned()))
                .collect();
            let said = |name: &str| asked.get(name).map(String::as_str).unwrap_or_default();
            if said("RoleArn") != ROLE || said("RoleSessionName").is_empty() {
                return Err("the role is another one".to_owned());
            }
            let way = match said("Action") {
                "AssumeRoleWithWebIdentity" if said("WebIdentityToken") == TOKEN => "token",
                "AssumeRole" if header("authorization").contains(&format!("={ACCESS}/")) => "role",
                _ => return Err("nobody is known who asks so".to_owned()),
            };
            if way == "role" && !header("authorization").contains("/us-east-1/sts/aws4_request") {
                return Err("signed for another service".to_owned());
            }
            let action = said("Action");
            let answer = format!(
                "<{action}Response xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><{action}Result><Credentials>\
                 <AccessKeyId>{ACCESS}</AccessKeyId><SecretAccessKey>{SECRET}</SecretAccessKey>\
                 <SessionToken></SessionToken><Expiration>{expires}</Expiration></Credentials></{action}Result>\
                 </{action}Response>"
            );
            Ok((Some(way), answer))
        }
        _ => Err("there is nothing".to_owned()),
    }
}
