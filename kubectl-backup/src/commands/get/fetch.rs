//! Reads what is listed by name.

use kube::{Api, api::DynamicObject};

use crate::{client::Session, commands::listed::Listing, error::Problem};

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
