//! Commands that are about several objects, by their names.

use kube::{Api, ResourceExt as _, api::ListParams, core::DeserializeGuard};

use super::listed::Listed;
use crate::{
    Terminal,
    cli::ChosenArgs,
    client::Session,
    error::{Exit, Problem},
};

/// The names of those that are meant; also of those that can't be read. None: it is said that there are none.
pub async fn chosen<K: Listed>(
    session: &Session,
    args: &ChosenArgs,
    terminal: &mut Terminal,
) -> Result<Vec<String>, Problem> {
    if !args.names.is_empty() {
        return Ok(args.names.clone());
    }
    let params = ListParams { label_selector: args.selector.clone(), ..ListParams::default() };
    let api: Api<DeserializeGuard<K>> = session.api();
    let names = session.list(K::about("list", ""), &api, params, |item| Some(item.name_any())).await?;
    if names.is_empty() {
        terminal.say(&format!("No {} found in namespace {}.", K::PLURAL, session.namespace));
    }
    Ok(names)
}

/// Does it for each name; a failure does not keep the others from being tried. The worst of what came of them.
pub async fn each<F>(
    session: &Session,
    names: &[String],
    terminal: &mut Terminal,
    mut run: F,
) -> Result<Exit, Problem>
where
    F: AsyncFnMut(&Session, &str, &mut Terminal) -> Result<Exit, Problem>,
{
    let mut worst = Ok(Exit::Done);
    for name in names {
        match run(session, name, terminal).await {
            Ok(exit) => worst = worst.map(|before: Exit| before.max(exit)),
            Err(problem) => {
                if let Err(before) = std::mem::replace(&mut worst, Err(problem)) {
                    terminal.say(&format!("error: {before}"));
                }
            }
        }
    }
    worst
}
