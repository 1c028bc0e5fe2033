use std::sync::Arc as Shared;

use object_store::client::{HttpClient, HttpError, HttpRequest, HttpResponse, HttpService};
use parking_lot::Mutex as Lock;
use serde_json::{Value, json};

use super::{
    super::{
        certificate::{Certificate, tests::PEM},
        sign_in::{Proof, SignIn, StorageToken},
    },
    *,
};
use crate::{StoreError, location::Connector};
use object_store::{ClientOptions, Result, client::HttpConnector};

/// Accepts every sign-in and returns keys, unless it refuses; records the requests: path, query or
/// form, and authorization.
#[derive(Clone, Debug, Default)]
struct Azure {
    asked: Shared<Lock<Vec<(String, String, String)>>>,
    /// Status with which requests for keys are refused.
    refuses: Shared<Lock<Option<u16>>>,
}

impl HttpConnector for Azure {
    fn connect(&self, _: &ClientOptions) -> Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait]
impl HttpService for Azure {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let header = |name: &str| {
            request
                .headers()
                .get(name)
                .map(|value| value.to_str().unwrap().to_owned())
                .unwrap_or_default()
        };
        let uri = request.uri();
        let said = match uri.query() {
            Some(query) => query.to_owned(),
            None => String::from_utf8(request.body().as_bytes().unwrap().to_vec()).unwrap(),
        };
        let url = format!("{}{}", uri.authority().unwrap(), uri.path());
        let mut asked = self.asked.lock();
        asked.push((url, said, header("authorization") + &header("metadata")));
        let (status, answer) = if uri.path().ends_with("token") {
            (
                200,
                json!({ "access_token": "TOKEN", "expires_in": "3599" }),
            )
        } else if let Some(status) = *self.refuses.lock() {
            (
                status,
                json!({ "error": { "code": "AuthorizationFailed", "message": "no" } }),
            )
        } else {
            let key = |name: &str, permissions: &str, value: &str| json!({ "keyName": name, "permissions": permissions, "value": value });
            (
                200,
                json!({ "keys": [key("kerb1", "READ", "bm8="), key("key1", "FULL", "S0VZ")] }),
            )
        };
        let answer: Value = answer;
        Ok(http::Response::builder()
            .status(status)
            .body(answer.to_string().into())
            .unwrap())
    }
}

fn tokens(azure: &Azure, sign_in: SignIn) -> Tokens {
    let _ = rustls::crypto::ring::default_provider().install_default();
    Tokens {
        client: Connector(azure.clone())
            .connect(&ClientOptions::new())
            .unwrap(),
        sign_in,
        authority: "https://login".to_owned(),
        instance_metadata: "http://metadata".to_owned(),
    }
}

fn account_key(azure: &Azure, sign_in: SignIn) -> AccountKey {
    AccountKey {
        tokens: tokens(azure, sign_in),
        resource_manager: "https://manager".to_owned(),
        account: Account {
            subscription: "s".to_owned(),
            resource_group: "g (x)".to_owned(),
            name: "acct".to_owned(),
        },
        held: HeldCredential::default(),
    }
}

fn principal(proof: Proof) -> SignIn {
    SignIn {
        client: Some("c".to_owned()),
        tenant: Some("t".to_owned()),
        proof,
    }
}

fn with_secret() -> SignIn {
    principal(Proof::Secret("TOP&SECRET".to_owned()))
}

fn with_certificate() -> SignIn {
    principal(Proof::Certificate(Arc::new(
        Certificate::parse(PEM.as_bytes(), false).unwrap(),
    )))
}

fn key() -> AzureCredential {
    AzureCredential::AccessKey(AzureAccessKey::try_new("S0VZ").unwrap())
}

#[tokio::test]
async fn an_identity_of_each_kind_gets_the_key_of_the_account() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "ASSERTION\n").unwrap();
    let workload = principal(Proof::TokenFile(file.path().display().to_string()));
    let machine = SignIn {
        client: Some("c".to_owned()),
        ..SignIn::default()
    };
    let of_tenant = "login/t/oauth2/v2.0/token";
    for (sign_in, url, said, header) in [
        (
            with_secret(),
            of_tenant,
            vec![
                "client_secret=TOP%26SECRET",
                "scope=https%3A%2F%2Fmanager%2F.default",
            ],
            "",
        ),
        (
            with_certificate(),
            of_tenant,
            vec!["client_assertion=ey", "jwt-bearer", "client_id=c"],
            "",
        ),
        (
            workload,
            of_tenant,
            vec!["client_assertion=ASSERTION", "jwt-bearer", "client_id=c"],
            "",
        ),
        (
            machine,
            "metadata/metadata/identity/oauth2/token",
            vec!["resource=https%3A%2F%2Fmanager", "client_id=c"],
            "true",
        ),
    ] {
        let azure = Azure::default();
        assert_eq!(
            *account_key(&azure, sign_in).get_credential().await.unwrap(),
            key()
        );
        let asked = azure.asked.lock();
        assert_eq!((asked[0].0.as_str(), asked[0].2.as_str()), (url, header));
        assert!(
            said.iter().all(|word| asked[0].1.contains(word)),
            "{:?}",
            asked[0]
        );
        let listed = "manager/subscriptions/s/resourceGroups/g%20(x)/providers/Microsoft.Storage/storageAccounts/acct/listKeys";
        assert_eq!(
            (asked[1].0.as_str(), asked[1].2.as_str()),
            (listed, "Bearer TOKEN")
        );
        assert_eq!(asked.len(), 2);
    }
}

/// object_store signs in to storage itself, except with certificates.
#[tokio::test(start_paused = true)]
async fn a_certificate_gets_a_token_for_storage_which_is_renewed_before_it_ends() {
    let azure = Azure::default();
    let storage = StorageToken {
        tokens: tokens(&azure, with_certificate()),
        held: HeldCredential::default(),
    };
    for (seconds, times) in [(0, 1), (3598 - 300, 1), (1, 2), (3598 - 300, 2)] {
        tokio::time::advance(Duration::from_secs(seconds)).await;
        let credential = storage.get_credential().await.unwrap();
        assert_eq!(
            *credential,
            AzureCredential::BearerToken("TOKEN".to_owned())
        );
        assert_eq!(azure.asked.lock().len(), times, "{seconds}");
    }
    let (url, said, _) = azure.asked.lock()[0].clone();
    assert_eq!(url, "login/t/oauth2/v2.0/token");
    assert_says!(said, "scope=https%3A%2F%2Fstorage.azure.com%2F.default");
}

#[tokio::test(start_paused = true)]
async fn the_key_is_asked_for_again_and_the_one_at_hand_is_used_meanwhile() {
    let azure = Azure::default();
    let account = account_key(&azure, with_secret());
    for (pause, refuses, times) in [
        (Duration::ZERO, None, 2),
        (KEY_TTL / 2, None, 2),
        (KEY_TTL, None, 4),
        (KEY_TTL, Some(500), 6),
    ] {
        tokio::time::advance(pause).await;
        *azure.refuses.lock() = refuses;
        assert_eq!(*account.get_credential().await.unwrap(), key());
        assert_eq!(azure.asked.lock().len(), times);
    }
}

#[tokio::test]
async fn an_identity_that_may_not_list_keys_is_told_what_to_do_and_no_secret_is_shown() {
    for (status, category, words) in [
        (403, "denied", "listkeys/action"),
        (500, "unreachable", "500"),
    ] {
        let azure = Azure::default();
        *azure.refuses.lock() = Some(status);
        let error = account_key(&azure, with_secret())
            .get_credential()
            .await
            .unwrap_err();
        let error = StoreError::from_store("list", "azure://acct/c", &error);
        assert_eq!(error.category(), category, "{error}");
        let text = error.to_string();
        assert!(
            text.contains(words) && !text.contains("SECRET") && !text.contains("TOKEN"),
            "{text}"
        );
    }
}
