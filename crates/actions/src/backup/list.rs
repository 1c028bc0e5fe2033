//! Reads a list of the cluster to its end.

use backup_client::{
    page::Listing,
    walk::{self, ListChoice, Step},
};
use kube::Client;

const PAGE_SIZE: u32 = 500;

/// Calls `take` with the JSON of every object of a list. The error is a sentence for users.
pub(super) async fn for_each(
    client: &Client,
    listing: Listing,
    mut take: impl FnMut(&str) -> Result<(), serde_json::Error> + Send,
) -> Result<(), String> {
    let gone = if listing.namespace.is_some() {
        "the namespace is gone"
    } else {
        "the type is not served"
    };
    let mut steps = walk::start(client.clone(), vec![ListChoice::One(listing)], PAGE_SIZE);
    while let Some(step) = steps.recv().await {
        match step {
            Step::Items { items, .. } => {
                for item in items {
                    take(item.get()).map_err(|error| format!("one is malformed: {error}"))?;
                }
            }
            Step::Done => return Ok(()),
            Step::Vanished { .. } => return Err(gone.to_owned()),
            Step::Failed { reason, .. } => return Err(reason),
        }
    }
    Err("the walk through the list ended unexpectedly".to_owned())
}
