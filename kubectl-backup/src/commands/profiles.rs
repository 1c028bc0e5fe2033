//! `profiles`: what is known of operators, what the cluster serves of it, and the policy that the webhook runs with.

use super::{
    guarded::kinds,
    known_profiles::{KnownProfiles, known_profiles},
    prelude::*,
};
use crate::{
    cli::{Form, Output, ProfilesArgs},
    view::profiles as view,
};

pub(crate) async fn run(args: ProfilesArgs, terminal: &mut Terminal) -> CommandResult {
    let session = Session::connect(terminal).await?;
    let KnownProfiles { mut profiles, flags, doubt } = known_profiles(&session).await;
    if let Some(name) = &args.profile {
        let known = profiles.iter().map(|one| one.name.clone()).collect::<Vec<_>>().join(", ");
        profiles.retain(|profile| profile.name == *name);
        if profiles.is_empty() {
            let remedy = match doubt {
                Some(doubt) => format!("It knows {known}; {doubt}"),
                None => format!("It knows {known}."),
            };
            return Err(Problem::other(format!("this program knows no profile {name:?}")).with_remedy(remedy));
        }
    }
    let mut all = Vec::new();
    for profile in profiles {
        let served = fetched(kinds::of_profile(&session, &profile)).await;
        let served = served.map(|kinds| kinds.into_iter().map(|one| one.resource.plural).collect());
        all.push(view::profile(profile, &served, &flags));
    }
    let list = view::list(all, doubt);
    let output = &args.output;
    let text = match (json::in_form(&list, "profiles", &output.form, output.no_headers)?, &output.form) {
        (Some(document), _) => document,
        (None, Form::Plain(Output::Name)) => {
            list.profiles.iter().fold(String::new(), |text, one| text + &one.name + "\n")
        }
        (None, form) => match list.profiles.as_slice() {
            [one] if args.profile.is_some() => view::one(one, terminal.out_style())?,
            _ => view::rows(&list, *form == Form::Plain(Output::Wide), !output.no_headers)?,
        },
    };
    terminal.data(&text)?;
    for note in &list.notes {
        terminal.say(&format!("note: {note}"));
    }
    Ok(Exit::Done)
}
