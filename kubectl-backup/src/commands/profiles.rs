//! `profiles`: what is known of operators, what the cluster serves of it, and the policy that the webhook runs with.

use super::{
    guarded::kinds,
    known::{Known, known},
    part::part,
};
use crate::{
    Terminal,
    cli::{GlobalArgs, Output, ProfilesArgs, output::Form},
    client::Session,
    error::{Exit, Problem},
    print::{form, profiles as print},
    view::profiles as view,
};

/// `profiles`
pub async fn run(global: &GlobalArgs, args: ProfilesArgs, terminal: &mut Terminal) -> Result<Exit, Problem> {
    let session = Session::connect(global, terminal).await?;
    let Known { mut profiles, flags, doubt } = known(&session).await;
    if let Some(name) = &args.profile {
        let known = profiles.iter().map(|one| one.name.clone()).collect::<Vec<_>>().join(", ");
        profiles.retain(|profile| profile.name == *name);
        if profiles.is_empty() {
            return Err(Problem::Other {
                message: format!("this program knows no profile {name:?}"),
                remedy: Some(match doubt {
                    Some(doubt) => format!("It knows {known}; {doubt}"),
                    None => format!("It knows {known}."),
                }),
            });
        }
    }
    let mut all = Vec::new();
    for profile in profiles {
        let served = part(kinds::of_profile(&session, &profile)).await;
        let served = served.map(|kinds| kinds.into_iter().map(|one| one.resource.plural).collect());
        all.push(view::profile(profile, &served, &flags));
    }
    let list = view::list(all, doubt);
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
