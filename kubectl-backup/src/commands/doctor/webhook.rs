//! Whether the webhook checks creations: its registration, its certificate's expiry, and a test
//! creation that it has to refuse.

use std::collections::BTreeMap;

use backup_core::profile::Profile;
use backup_lock::{GuardedRequest, Registration, registration::Labels};
use k8s_openapi::api::{
    admissionregistration::v1::{ValidatingWebhook, ValidatingWebhookConfiguration},
    core::v1::Namespace,
};
use x509_parser::pem::Pem;

use super::{Finding, Topic};
use crate::{
    commands::{known_profiles::known_profiles, prelude::*},
    print::{day, seconds, until},
};

pub(crate) const NAME: &str = "backup-webhook";
const CLAIMS: &str = "claims.backup-webhook.velero.io";
/// Time before the expiry (seconds) by which a working renewal has replaced a certificate.
pub(super) const EXPIRY_WARNING_SECS: i64 = 7 * 24 * 60 * 60;
pub(super) const RENEWAL: &str = "It is replaced long before its end, by the webhook or by cert-manager. The webhook says why it does not: kubectl logs -l app.kubernetes.io/name=backup-webhook";
/// Timeout for an answer; shorter than that of a check, so that the check itself reports it.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(1800);
/// A part of our webhook's refusal of invalid values, which no other refusal contains.
const OURS: &str = "/kubectl-backup-doctor is not valid: ";
const INSTALL: &str = "Install it: kubectl backup install; where it was, kubectl backup upgrade";

/// The registration's settings, and the expiry of its authority.
pub(crate) async fn registration(
    session: &Session,
    now: Timestamp,
) -> Result<Vec<Finding>, Problem> {
    let on = Topic("webhook configuration");
    let api: Api<ValidatingWebhookConfiguration> = Api::all(session.client.clone());
    let about = About::of::<ValidatingWebhookConfiguration>("get", NAME);
    let Some(found) = optional(session.call(about, api.get(NAME)).await)? else {
        let text =
            "the webhook is not registered: nothing keeps backups and restores apart at the door";
        return Ok(vec![on.bad(text, INSTALL)]);
    };
    let claims = found
        .webhooks
        .iter()
        .flatten()
        .find(|webhook| webhook.name == CLAIMS);
    let Some(claims) = claims.cloned() else {
        return Ok(vec![
            on.bad(format!("{NAME} has no webhook {CLAIMS}"), INSTALL),
        ]);
    };
    let mut findings = judge(session, &found, &Profile::velero()).await;
    let place = claims
        .client_config
        .service
        .as_ref()
        .map(|service| service.namespace.as_str());
    if place.is_some_and(|place| place != session.namespace) {
        findings.push(on.warn(
            format!(
                "it leads to namespace {}, not to {}",
                plain(place.unwrap_or_default()),
                session.namespace
            ),
            "Choose that installation with -n, or register the webhook of this one.",
        ));
    }
    findings.extend(registrations_of_profiles(session).await);
    if findings.is_empty() {
        findings.push(on.good("creations of backups and restores pass the webhook, or fail"));
    }
    findings.push(certificate(&claims, now));
    Ok(findings)
}

/// Creations that match the profile but that the registration does not send to the webhook.
async fn judge(
    session: &Session,
    registration: &ValidatingWebhookConfiguration,
    profile: &Profile,
) -> Vec<Finding> {
    let on = Topic("webhook configuration");
    let mut namespaces = BTreeMap::new();
    let mut findings = Vec::new();
    if Registration::selects_namespaces(registration) && !profile.is_velero() {
        // Another operator's objects may be in any namespace: one without labels represents them
        // all.
        namespaces.insert("without labels".to_owned(), Labels::default());
    } else if Registration::selects_namespaces(registration) {
        let about = About::of::<Namespace>("get", &session.namespace);
        let api: Api<Namespace> = Api::all(session.client.clone());
        match session.call(about, api.get(&session.namespace)).await {
            Ok(found) => {
                namespaces.insert(
                    session.namespace.clone(),
                    found.metadata.labels.unwrap_or_default(),
                );
            }
            Err(problem) => {
                let why =
                    format!("whether its namespaceSelector leaves out this namespace: {problem}");
                findings.push(on.unknown(&plain(&why), problem.remedy));
            }
        }
    }
    let gaps = Registration::gaps(registration, &GuardedRequest::of(profile), &namespaces);
    findings.extend(gaps.iter().map(|gap| on.bad(plain(gap), INSTALL)));
    findings
}

/// Checks the same for guarded kinds of other operators: each profile has a registration of its
/// own.
async fn registrations_of_profiles(session: &Session) -> Vec<Finding> {
    let on = Topic("webhook configuration");
    let api: Api<ValidatingWebhookConfiguration> = Api::all(session.client.clone());
    let mut findings = Vec::new();
    let guarded = known_profiles(session)
        .await
        .all
        .into_iter()
        .filter(|one| one.guarded);
    for profile in guarded
        .map(|one| one.profile)
        .filter(|profile| !profile.is_velero())
    {
        let name = format!("{NAME}-{}", profile.name);
        let about = About::of::<ValidatingWebhookConfiguration>("get", &name);
        match optional(session.call(about, api.get(&name)).await) {
            Ok(Some(found)) => findings.extend(judge(session, &found, &profile).await),
            Ok(None) => {
                let text = format!(
                    "{} is not registered: nothing keeps backups and restores of {} apart at the door",
                    plain(&name),
                    plain(&profile.group)
                );
                findings.push(on.bad(
                    text,
                    "Apply the manifests of the profile again: docs/operate/install.md",
                ));
            }
            Err(problem) => findings.push(on.unknown(&plain(&problem.to_string()), problem.remedy)),
        }
    }
    findings
}

/// The latest expiry among the authorities that the API server trusts for the webhook.
fn certificate(webhook: &ValidatingWebhook, now: Timestamp) -> Finding {
    let on = Topic("certificate");
    let Some(bundle) = webhook
        .client_config
        .ca_bundle
        .as_ref()
        .filter(|bundle| !bundle.0.is_empty())
    else {
        let remedy = "The webhook fills it in when it starts: kubectl get pods -l app.kubernetes.io/name=backup-webhook";
        return on.bad(
            "the registration has no caBundle: no call can succeed",
            remedy,
        );
    };
    let ends: Option<Vec<i64>> = Pem::iter_from_buffer(&bundle.0)
        .map(|pem| expiry(&pem.ok()?))
        .collect();
    // There are several while one replaces another: the one that expires last counts.
    let Some(at) = ends
        .and_then(|all| all.into_iter().max())
        .and_then(|at| Timestamp::from_second(at).ok())
    else {
        return on.unknown("the caBundle cannot be read", None);
    };
    let text = format!(
        "the webhook's authority ends {} ({})",
        until(at, now),
        day(at)
    );
    let left = seconds(now, at);
    if left <= 0 {
        on.bad(text, RENEWAL)
    } else if left < EXPIRY_WARNING_SECS {
        on.warn(text, RENEWAL)
    } else {
        on.good(text)
    }
}

/// When the certificate ends (seconds of the Unix time).
fn expiry(pem: &Pem) -> Option<i64> {
    let certificate = pem.parse_x509().ok()?;
    Some(certificate.validity().not_after.timestamp())
}

/// A Backup with an invalid duration: the definitions accept any text there, but the webhook cannot
/// parse it.
fn senseless() -> DynamicObject {
    DynamicObject::new("kubectl-backup-doctor", &ApiResource::erase::<Backup>(&()))
        .data(json!({ "spec": { "ttl": "tomorrow" } }))
}

/// Sends a dry run of an invalid backup that only the webhook can refuse.
pub(crate) async fn answers(session: &Session) -> Result<Vec<Finding>, Problem> {
    let on = Topic("webhook");
    let backup = senseless();
    let params = PostParams {
        dry_run: true,
        field_manager: Some(FIELD_MANAGER.to_owned()),
    };
    let kind = ApiResource::erase::<Backup>(&());
    let api: Api<DynamicObject> =
        Api::namespaced_with(session.client.clone(), &session.namespace, &kind);
    let asked = session.call(
        About::of::<Backup>("create", "kubectl-backup-doctor"),
        api.create(&params, &backup),
    );
    let pods = format!(
        "kubectl -n {} get pods -l app.kubernetes.io/name=backup-webhook",
        session.namespace
    );
    let Ok(answer) = tokio::time::timeout(ANSWER_TIMEOUT, asked).await else {
        let text = format!(
            "a creation was not answered within {ANSWER_TIMEOUT:?}: it hangs, so nothing can be created"
        );
        return Ok(vec![on.bad(text, pods)]);
    };
    Ok(vec![match answer {
        Err(Problem {
            kind: ProblemKind::Refused { .. },
            message,
            ..
        }) => {
            if message.contains(OURS) {
                let text = "it answers: a backup that makes no sense was refused";
                return Ok(vec![on.good(text)]);
            }
            let why = format!(
                "another webhook or policy refused the question: {}",
                plain(&message)
            );
            on.unknown(&why, None)
        }
        Ok(_) => on.bad(
            "it is not asked: a backup that makes no sense would have been stored (dry run)",
            INSTALL,
        ),
        Err(Problem {
            kind: ProblemKind::Api { code: 500.., .. },
            message,
            ..
        }) => on.bad(
            format!(
                "it does not answer, so nothing can be created: {}",
                plain(&message)
            ),
            pods,
        ),
        Err(problem) => return Err(problem),
    }])
}
