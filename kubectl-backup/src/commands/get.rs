//! `get` of every kind: lists objects, or shows those that are named.

mod fetch;
mod follow;
mod lines;

use std::time::Duration;

use backup_core::api::BackupStorageLocation;
use kube::{
    Api,
    api::{ApiResource, DynamicObject, ListParams},
};

use self::lines::Lines;
use super::listed::{Listed, Listing};
use crate::{
    Terminal,
    cli::{GetArgs, GlobalArgs},
    client::{PAGE, Session},
    error::{Exit, Problem},
};

/// How long looking for a hint may take.
const HINT: Duration = Duration::from_secs(2);

/// Lists objects of one of our kinds, or shows those that are named.
pub async fn run<K: Listed>(
    global: &GlobalArgs,
    args: GetArgs,
    terminal: &mut Terminal,
) -> Result<Exit, Problem> {
    check(&args)?;
    let session = Session::connect(global, terminal).await?;
    list(&session, &Listing::of::<K>(), &args, terminal).await
}

/// What makes no sense together.
pub fn check(args: &GetArgs) -> Result<(), Problem> {
    if args.list.watch && args.names.len() > 1 {
        return Err(Problem::Usage {
            message: "-w follows all, or one name".to_owned(),
            remedy: Some("Choose several by their labels: -l SELECTOR".to_owned()),
        });
    }
    Ok(())
}

/// Lists objects, or shows those that are named.
pub async fn list(
    session: &Session,
    listing: &Listing,
    args: &GetArgs,
    terminal: &mut Terminal,
) -> Result<Exit, Problem> {
    let api: Api<DynamicObject> = if args.list.all_namespaces {
        Api::all_with(session.client.clone(), &listing.resource)
    } else {
        Api::namespaced_with(session.client.clone(), &session.namespace, &listing.resource)
    };
    let mut lines = Lines::new(args, listing, terminal);
    if args.list.watch {
        return follow::run(session, &api, lines, terminal).await;
    }
    let missing = if args.names.is_empty() {
        let params = ListParams {
            label_selector: args.selector.clone(),
            field_selector: args.field_selector.clone(),
            ..ListParams::default()
        };
        let line = |object| Some(lines.line(object, None));
        let all = session.list(listing.about("list", ""), &api, params, line).await?;
        lines.take_all(all);
        Vec::new()
    } else {
        fetch::named(session, listing, &args.names, |object| lines.take(object)).await?
    };
    lines.warn(terminal);
    if lines.is_empty() && missing.is_empty() && args.output.form.is_table() {
        nothing_found(session, listing, args, terminal).await;
        return Ok(Exit::Done);
    }
    if !(lines.is_empty() && args.output.form.is_table()) {
        let text = lines.text()?;
        terminal.data(&text)?;
    }
    tell(missing, terminal)
}

async fn nothing_found(session: &Session, listing: &Listing, args: &GetArgs, terminal: &mut Terminal) {
    let plural = &listing.resource.plural;
    if args.list.all_namespaces {
        terminal.say(&format!("No {plural} found."));
        return;
    }
    terminal.say(&format!("No {plural} found in namespace {}.", session.namespace));
    if !listing.is_ours {
        return;
    }
    if let Some(other) = only_other_installation(session).await {
        terminal.say(&format!("The installation in this cluster is in namespace {other}: use -n {other}."));
    }
}

/// The one namespace with storage locations, if that is not ours. Only a hint: it may be forbidden or slow.
async fn only_other_installation(session: &Session) -> Option<String> {
    let kind = ApiResource::erase::<BackupStorageLocation>(&());
    let api: Api<DynamicObject> = Api::all_with(session.client.clone(), &kind);
    let params = ListParams::default().limit(PAGE);
    let list = tokio::time::timeout(HINT, api.list_metadata(&params)).await.ok()?.ok()?;
    let mut namespaces: Vec<String> =
        list.items.into_iter().filter_map(|item| item.metadata.namespace).collect();
    namespaces.sort();
    namespaces.dedup();
    match namespaces.as_slice() {
        [one] if *one != session.namespace => Some(one.clone()),
        _ => None,
    }
}

/// All but the last are told here; the last is told as the command's end.
fn tell(mut problems: Vec<Problem>, terminal: &mut Terminal) -> Result<Exit, Problem> {
    let Some(last) = problems.pop() else { return Ok(Exit::Done) };
    for problem in problems {
        terminal.say(&format!("error: {problem}"));
    }
    Err(last)
}
