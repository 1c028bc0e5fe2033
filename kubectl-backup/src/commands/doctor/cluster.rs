//! The API server and its clock, the definitions, and the user's permissions.

use backup_core::api::{BackupPhase, restore::RestorePhase};
use futures::future::try_join_all;
use jiff::fmt::rfc2822;
use k8s_openapi::{
    api::authorization::v1::{
        ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::client::Body;

use super::{Finding, Topic};
use crate::{commands::prelude::*, error::Role, print::human};

/// Tolerated clock difference (seconds): leases and signatures allow for as much.
const MAX_CLOCK_SKEW_SECS: i64 = 10;
/// Definitions, and the phases that our programs write into their objects.
const PHASES: [(&str, &[&str]); 2] = [
    ("backups.velero.io", BackupPhase::KNOWN),
    ("restores.velero.io", RestorePhase::KNOWN),
];

/// Whether the API server answers, and how far its clock is from ours.
pub(crate) async fn api_server(session: &Session, now: Timestamp) -> Result<Vec<Finding>, Problem> {
    let request = http::Request::get("/version").body(Body::empty());
    let request = request.map_err(|error| Problem::other(error.to_string()))?;
    let about = About::called("get", "version", "version", "");
    let response = session.call(about, session.client.send(request)).await?;
    let date = response
        .headers()
        .get(http::header::DATE)
        .and_then(|value| value.to_str().ok());
    let mut findings = vec![Topic("API server").good(format!("{} answers", session.server))];
    let theirs = date
        .and_then(|text| rfc2822::parse(text).ok())
        .map(|at| at.timestamp());
    let skew = theirs.map(|at| now.as_second() - at.as_second());
    findings.push(clock_finding(skew));
    Ok(findings)
}

/// Judges the difference (seconds) between this machine's clock and the API server's; `None` if it
/// is unknown.
fn clock_finding(skew: Option<i64>) -> Finding {
    let on = Topic("clock");
    let Some(skew) = skew else {
        return on.unknown("the API server does not send its time", None);
    };
    if skew.abs() <= MAX_CLOCK_SKEW_SECS {
        return on.good(format!(
            "this machine's and the API server's are at most {MAX_CLOCK_SKEW_SECS}s apart"
        ));
    }
    on.warn(
        format!(
            "this machine's is {} {} the API server's: ages here are off",
            human(skew.abs()),
            if skew > 0 { "ahead of" } else { "behind" }
        ),
        "Set both by NTP.",
    )
}

/// Whether the installed definitions allow the phases that our programs write; a phase that is not
/// allowed cannot be written.
pub(crate) async fn definitions(session: &Session) -> Result<Vec<Finding>, Problem> {
    let on = Topic("CRDs");
    let resource = ApiResource::erase::<CustomResourceDefinition>(&());
    let api: Api<DynamicObject> = Api::all_with(session.client.clone(), &resource);
    let mut findings = Vec::new();
    for (name, phases) in PHASES {
        let about = About::of::<CustomResourceDefinition>("get", name);
        let Some(found) = optional(session.call(about, api.get(name)).await)? else {
            let remedy = "Install them: kubectl backup install";
            findings.push(on.bad(format!("{name} is not installed"), remedy));
            continue;
        };
        let known = enumerated(&found.data["spec"]);
        let missing: Vec<&str> = phases
            .iter()
            .copied()
            .filter(|phase| {
                known
                    .as_ref()
                    .is_some_and(|all| !all.iter().any(|one| one == phase))
            })
            .collect();
        if !missing.is_empty() {
            findings.push(on.bad(
                format!("{name} does not know the phase {}: it could not be written", missing.join(", ")),
                "Put ours in their place: kubectl backup install --replace-definitions; where it is installed, kubectl backup upgrade",
            ));
        }
    }
    if findings.is_empty() {
        findings.push(on.good("backups and restores know all phases"));
    }
    Ok(findings)
}

/// The phases that v1 allows; `None` if it allows any.
fn enumerated(spec: &Value) -> Option<Vec<String>> {
    let version = spec["versions"]
        .as_array()?
        .iter()
        .find(|version| version["name"] == "v1")?;
    let phase =
        version.pointer("/schema/openAPIV3Schema/properties/status/properties/phase/enum")?;
    Some(
        phase
            .as_array()?
            .iter()
            .filter_map(|one| one.as_str().map(str::to_owned))
            .collect(),
    )
}

/// Permissions that commands need: verb, group, resource, subresource, name, and the command.
const NEEDED: [(&str, &str, &str, &str, &str, &str); 8] = [
    ("list", "velero.io", "backups", "", "", "get"),
    ("list", "velero.io", "restores", "", "", "restore get"),
    ("create", "velero.io", "backups", "", "", "create"),
    ("create", "velero.io", "restores", "", "", "restore"),
    (
        "create",
        "velero.io",
        "deletebackuprequests",
        "",
        "",
        "delete",
    ),
    (
        "create",
        "velero.io",
        "downloadrequests",
        "",
        "",
        "logs, download",
    ),
    (
        "get",
        "",
        "services",
        "proxy",
        "https:backup-controller:files",
        "logs, download",
    ),
    ("list", "coordination.k8s.io", "leases", "", "", "locks"),
];

/// Permissions from [`NEEDED`] that the user lacks. That is no fault: not every user needs all of
/// them.
pub(crate) async fn permissions(session: &Session) -> Result<Vec<Finding>, Problem> {
    let on = Topic("permissions");
    let asked = NEEDED.map(|(verb, group, resource, subresource, name, what)| {
        let attributes = ResourceAttributes {
            namespace: Some(session.namespace.clone()),
            verb: non_empty(verb),
            group: Some(group.to_owned()),
            resource: non_empty(resource),
            subresource: non_empty(subresource),
            name: non_empty(name),
            ..ResourceAttributes::default()
        };
        async move {
            if may(session, attributes).await? {
                return Ok::<_, Problem>(None);
            }
            let resource = if subresource.is_empty() {
                resource.to_owned()
            } else {
                format!("{resource}/{subresource}")
            };
            let role = Role::for_request(verb, group, &resource);
            Ok(Some((role, format!("{verb} {resource} ({what})"))))
        }
    });
    let lacking: Vec<(Option<Role>, String)> =
        try_join_all(asked).await?.into_iter().flatten().collect();
    if lacking.is_empty() {
        return Ok(vec![on.good("you may use every command here")]);
    }
    // One line for each role that would give the missing permissions.
    let mut by_role: Vec<(Option<Role>, Vec<String>)> = Vec::new();
    for (role, what) in lacking {
        match by_role.iter_mut().find(|(known, _)| *known == role) {
            Some((_, all)) => all.push(what),
            None => by_role.push((role, vec![what])),
        }
    }
    let namespace = plain(&session.namespace);
    Ok(by_role
        .into_iter()
        .map(|(role, lacking)| permission_finding(on, role, &lacking, &namespace))
        .collect())
}

/// One finding about the permissions that a role would give.
fn permission_finding(
    on: Topic,
    role: Option<Role>,
    lacking: &[String],
    namespace: &str,
) -> Finding {
    let text = format!(
        "you may not {} in namespace {namespace}",
        lacking.join(", ")
    );
    let remedy = role.map_or_else(
        || "Ask an administrator of the cluster for it, if you should.".to_owned(),
        |role| {
            role.remedy(namespace)
                .replacen("It takes", "If you should, it takes", 1)
        },
    );
    on.warn(text, remedy)
}

fn non_empty(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// Whether the user may do this.
pub(crate) async fn may(
    session: &Session,
    attributes: ResourceAttributes,
) -> Result<bool, Problem> {
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(attributes),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let api: Api<SelfSubjectAccessReview> = Api::all(session.client.clone());
    let about = About::of::<SelfSubjectAccessReview>("create", "");
    let answer = session
        .call(about, api.create(&PostParams::default(), &review))
        .await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}
