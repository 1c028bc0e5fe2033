//! Reads what is listed: page by page, or by name.

use kube::{
    Api,
    api::{DynamicObject, ListParams},
};

use crate::{cli::GetArgs, client::Session, commands::listed::Listing, error::Problem};

/// Objects in one page of a list.
pub const PAGE: u32 = 500;

/// Lists page by page, and hands over one object after the other. A list that expires between two pages is read on from
/// the API server's newer state, which its answer offers.
pub async fn pages(
    session: &Session,
    listing: &Listing,
    args: &GetArgs,
    api: &Api<DynamicObject>,
    mut take: impl FnMut(DynamicObject),
) -> Result<(), Problem> {
    let mut params = ListParams {
        label_selector: args.selector.clone(),
        field_selector: args.field_selector.clone(),
        limit: Some(PAGE),
        ..ListParams::default()
    };
    loop {
        let page = session.call(listing.about("list", ""), api.list(&params)).await?;
        page.items.into_iter().for_each(&mut take);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(()),
        }
    }
}

/// Gets those that are named, as NAME or NAMESPACE/NAME. One that is missing does not hide the others: what was wrong is
/// returned.
pub async fn named(
    session: &Session,
    listing: &Listing,
    names: &[String],
    mut take: impl FnMut(DynamicObject),
) -> Result<Vec<Problem>, Problem> {
    let mut problems = Vec::new();
    for name in names {
        let (namespace, name) = name.split_once('/').unwrap_or((&session.namespace, name));
        let there = Session { namespace: namespace.to_owned(), ..session.clone() };
        let api = Api::namespaced_with(session.client.clone(), namespace, &listing.resource);
        match there.call(listing.about("get", name), api.get(name)).await {
            Ok(object) => take(object),
            Err(problem @ Problem::NotFound { .. }) => problems.push(problem),
            Err(problem) => return Err(problem),
        }
    }
    Ok(problems)
}
