//! `profiles`: what this program knows of operators, what the cluster serves of it, and the policy that the webhook runs with.

use backup_core::profile::Profile;
use k8s_openapi::api::apps::v1::Deployment;

use super::{guarded::kinds, part::part};
use crate::{
    Terminal,
    cli::{GlobalArgs, Output, ProfilesArgs, output::Form},
    client::Session,
    error::{About, Exit, Problem},
    print::{form, profiles as print},
    view::profiles as view,
};

/// The Deployment whose flags go over what profiles say.
const WEBHOOK: &str = "backup-webhook";

/// `profiles`
pub async fn run(global: &GlobalArgs, args: ProfilesArgs, terminal: &mut Terminal) -> Result<Exit, Problem> {
    let session = Session::connect(global, terminal).await?;
    let mut profiles = Profile::builtin();
    if let Some(name) = &args.profile {
        let known = profiles.iter().map(|one| one.name.clone()).collect::<Vec<_>>().join(", ");
        profiles.retain(|profile| profile.name == *name);
        if profiles.is_empty() {
            return Err(Problem::Other {
                message: format!("this program knows no profile {name:?}"),
                remedy: Some(format!(
                    "It knows {known}. Those that --profiles adds are known to webhook and controller only."
                )),
            });
        }
    }
    let flags = part(flags(&session)).await;
    let mut all = Vec::new();
    for profile in profiles {
        let served = part(kinds::of_profile(&session, &profile)).await;
        let served = served.map(|kinds| kinds.into_iter().map(|one| one.resource.plural).collect());
        all.push(view::profile(profile, &served, &flags));
    }
    let list = view::list(all, &flags);
    let output = &args.output;
    let text = match (form::document(&list, "profiles", &output.form, output.no_headers)?, &output.form) {
        (Some(document), _) => document,
        (None, Form::Plain(Output::Name)) => {
            list.profiles.iter().fold(String::new(), |text, one| text + &one.name + "\n")
        }
        (None, form) => match list.profiles.as_slice() {
            [one] if args.profile.is_some() => print::one(one, terminal.out_style())?,
            _ => print::rows(&list, *form == Form::Plain(Output::Wide), !output.no_headers)?,
        },
    };
    terminal.data(&text)?;
    for note in &list.notes {
        terminal.say(&format!("note: {note}"));
    }
    Ok(Exit::Done)
}

/// The arguments that the webhook runs with, as its Deployment says.
async fn flags(session: &Session) -> Result<Vec<String>, Problem> {
    let about = About { verb: "get", kind: "deployment", plural: "deployments", name: WEBHOOK };
    let deployment = match session.call(about, session.api::<Deployment>().get(WEBHOOK)).await {
        Err(Problem::NotFound { namespace, .. }) => {
            return Err(Problem::Other {
                message: format!("there is no Deployment {WEBHOOK} in namespace {namespace}"),
                remedy: None,
            });
        }
        answer => answer?,
    };
    let pod = deployment.spec.and_then(|spec| spec.template.spec).unwrap_or_default();
    Ok(pod.containers.into_iter().flat_map(|container| container.args.unwrap_or_default()).collect())
}
