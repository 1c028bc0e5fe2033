//! Walks lists page by page, ahead of the writer of the items: the next page is on its way while one is written.

use std::time::Duration;

use kube::Client;
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use crate::{
    backoff::Backoff,
    page::{self, Listing, Page, Remedy},
};

/// Pages that wait for the writer. With the one that is written and the one on its way, three are in memory at most.
const AHEAD: usize = 1;
/// Between the tries of one page: about half a minute in all.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(700), cap: Duration::from_secs(20) };
/// Tries of one page after the first.
const RETRIES: usize = 6;
/// How often a list may begin again because its continue token has expired.
const RESTARTS: usize = 10;
/// Pages larger than this make the following ones smaller, so that large objects do not fill the memory.
const PAGE_BYTES: usize = 8 << 20;

#[derive(Debug)]
pub enum Step {
    /// Items of the listing with this index.
    Items {
        listing: usize,
        items: Vec<Box<RawValue>>,
        /// How many follow in this listing, as far as the API server tells.
        remaining: u64,
    },
    Done,
    /// The type or the namespace is gone: what was there has been delivered.
    Vanished {
        listing: usize,
    },
    /// The rest of the listing could not be had.
    Failed {
        listing: usize,
        reason: String,
    },
}

/// Starts to walk the listings in their order. Items may come twice after a [`Remedy::Restart`]; the receiver knows what
/// it has. The walk ends with the last listing, or when the receiver is dropped.
pub fn start(client: Client, listings: Vec<Listing>, page_size: u32) -> mpsc::Receiver<Step> {
    let (steps, receiver) = mpsc::channel(AHEAD);
    tokio::spawn(async move {
        for (index, listing) in listings.iter().enumerate() {
            let walk = Walk { client: &client, listing, index, page_size, steps: &steps };
            let Some(end) = walk.run().await else { return };
            if steps.send(end).await.is_err() {
                return;
            }
        }
    });
    receiver
}

struct Walk<'a> {
    client: &'a Client,
    listing: &'a Listing,
    index: usize,
    page_size: u32,
    steps: &'a mpsc::Sender<Step>,
}

impl Walk<'_> {
    /// How the listing ended; `None` if the receiver is gone.
    async fn run(&self) -> Option<Step> {
        let listing = self.index;
        let (mut token, mut limit, mut restarts) = (None::<String>, self.page_size, 0);
        loop {
            let page = match self.fetch(limit, token.as_deref()).await {
                Ok(page) => page,
                Err((Remedy::Restart, _)) if restarts < RESTARTS => {
                    restarts += 1;
                    token = None;
                    continue;
                }
                Err((Remedy::Smaller, _)) if limit > 1 => {
                    limit = (limit / 4).max(1);
                    continue;
                }
                Err((Remedy::Vanished, _)) => return Some(Step::Vanished { listing }),
                Err((_, reason)) => return Some(Step::Failed { listing, reason }),
            };
            token = page.next().map(str::to_owned);
            limit = next_limit(limit, self.page_size, &page);
            let remaining = page.remaining();
            if !page.items.is_empty()
                && self.steps.send(Step::Items { listing, items: page.items, remaining }).await.is_err()
            {
                return None;
            }
            if token.is_none() {
                return Some(Step::Done);
            }
        }
    }

    /// One page, tried again while the cause may pass.
    async fn fetch(&self, limit: u32, token: Option<&str>) -> Result<Page, (Remedy, String)> {
        let mut delays = BACKOFF.delays().take(RETRIES);
        loop {
            let error = match page::fetch(self.client, self.listing, limit, token).await {
                Ok(page) => return Ok(page),
                Err(error) => error,
            };
            let (remedy, reason) = (error.remedy(), error.to_string());
            let Some(delay) = delays.next().filter(|_| remedy == Remedy::Retry) else {
                return Err((remedy, reason));
            };
            tracing::debug!(listing = %self.listing, %reason, "listing failed, trying again");
            tokio::select! {
                () = tokio::time::sleep(delay) => {}
                () = self.steps.closed() => return Err((Remedy::GiveUp, reason)),
            }
        }
    }
}

/// The size of the next page: smaller after a heavy one, and slowly larger again.
fn next_limit(limit: u32, page_size: u32, page: &Page) -> u32 {
    let bytes: usize = page.items.iter().map(|item| item.get().len()).sum();
    if bytes > PAGE_BYTES {
        let share = u64::from(limit) * PAGE_BYTES as u64 / bytes as u64;
        u32::try_from(share).unwrap_or(limit).max(1)
    } else if bytes < PAGE_BYTES / 4 {
        limit.saturating_mul(2).min(page_size)
    } else {
        limit
    }
}

#[cfg(test)]
mod tests;
