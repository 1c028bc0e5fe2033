//! Walks lists page by page, ahead of the writer of the items: the next page is on its way while one is written, and so are the
//! first pages of the next lists.
//!
//! What is wanted of a type in some namespaces is listed in each of them, or over all and sorted out by the receiver, whichever
//! costs less: see `choice`.

use std::{sync::Arc, time::Duration};

use futures::{Stream, StreamExt as _, stream};
use kube::Client;
use serde_json::value::RawValue;
use tokio::{sync::mpsc, task::JoinHandle};

use crate::{
    backoff::Backoff,
    page::{self, Listing, Page, Position, Remedy},
};

mod choice;

use choice::{Rest, Way};

/// Pages that wait for the writer. With the one that is written and the one on its way, three are in memory at most, besides the
/// first pages of the next lists.
const AHEAD: usize = 1;
/// First pages of lists that are read side by side. Only short ones are: [`FIRST_ITEMS`], [`FIRST_BYTES`].
const LISTS_AHEAD: usize = 8;
/// Items of a first page, at most. Most lists end with it.
const FIRST_ITEMS: u32 = 100;
/// A first page with more than this many bytes is dropped, and read in its turn.
const FIRST_BYTES: u64 = 2 << 20;
/// This many lists are begun where the one over all namespaces failed once; more, where it failed for all of [`RETRIES`].
const FEW: usize = 16;
/// Between the tries of one page: about half a minute in all.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(700), cap: Duration::from_secs(20) };
/// Tries of one page after the first.
const RETRIES: usize = 6;
/// How often a list may begin again because its continue token has expired.
const RESTARTS: usize = 10;
/// Pages larger than this make the following ones smaller, so that large objects do not fill the memory.
const PAGE_BYTES: usize = 8 << 20;

/// What is walked: items of one type.
#[derive(Clone, Debug)]
pub enum Walked {
    One(Listing),
    /// The lists of some namespaces, or one over all namespaces that holds the same items, and others.
    Either {
        whole: Listing,
        parts: Arc<[Part]>,
        /// How many namespaces there are, if that is known.
        namespaces: Option<usize>,
    },
}

/// A list of a type in one namespace. There may be thousands for each of hundred types, so they share what they can.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub namespace: Arc<str>,
    /// Label selector; empty selects everything.
    pub selector: Arc<str>,
}

impl Part {
    fn of(&self, whole: &Listing) -> Listing {
        Listing {
            resource: whole.resource.clone(),
            namespace: Some(self.namespace.as_ref().to_owned()),
            selector: self.selector.as_ref().to_owned(),
        }
    }
}

impl Walked {
    /// What stands for all of it in messages.
    pub fn whole(&self) -> &Listing {
        match self {
            Self::One(listing) | Self::Either { whole: listing, .. } => listing,
        }
    }
}

#[derive(Debug)]
pub enum Step {
    /// Items of what has this index; of a list over all namespaces also items that were not wanted.
    Items {
        walked: usize,
        items: Vec<Box<RawValue>>,
        /// How many follow in this listing, as far as the API server tells.
        remaining: u64,
    },
    /// The type is gone: what was there has been delivered.
    Vanished { listing: Listing },
    /// The rest of a listing could not be had.
    Failed { listing: Listing, reason: String },
    /// One of the walked has ended, with or without a failure.
    Done,
}

/// Starts to walk lists in their order. Items may come twice after a [`Remedy::Restart`] and where a list over all namespaces is
/// given up for those of each; the receiver knows what it has. The walk ends with the last list, or when the receiver is dropped.
pub fn start(client: Client, walked: Vec<Walked>, page_size: u32) -> mpsc::Receiver<Step> {
    let (steps, receiver) = mpsc::channel(AHEAD);
    tokio::spawn(async move {
        // Nothing is wanted of one without parts.
        let wanted = |one: &Walked| !matches!(one, Walked::Either { parts, .. } if parts.is_empty());
        let walk = Walk { client, page_size, steps };
        let starts: Vec<Start> = walked.iter().filter(|one| wanted(one)).map(|one| walk.begin(one)).collect();
        let mut begun = std::pin::pin!(walk.ahead(starts));
        for (index, one) in walked.iter().enumerate() {
            if wanted(one) {
                let Some(Some((start, first))) = begun.next().await else { return };
                if walk.one(index, one, start, first).await.is_none() {
                    return;
                }
            }
            if walk.send(Step::Done).await.is_none() {
                return;
            }
        }
    });
    receiver
}

/// The first page of a list that is to be read.
#[derive(Clone, Debug)]
struct Start {
    listing: Listing,
    limit: u32,
    /// The list is at least as new as this resourceVersion; none if it is as new as can be.
    not_older_than: Option<String>,
}

/// A first page that was read ahead. The error is what to do about it.
type First = Result<Page, (Remedy, String)>;

struct Walk {
    client: Client,
    page_size: u32,
    steps: mpsc::Sender<Step>,
}

/// Steps of a walk are `None` once the receiver is gone.
impl Walk {
    /// What is read first.
    fn begin(&self, walked: &Walked) -> Start {
        let most = self.page_size.min(FIRST_ITEMS);
        let (listing, limit) = match walked {
            Walked::Either { whole, parts, .. } => match parts.as_ref() {
                [only] => (only.of(whole), most),
                _ => (whole.clone(), choice::first_page(parts.len()).min(most)),
            },
            Walked::One(listing) => (listing.clone(), most),
        };
        Start { listing, limit, not_older_than: None }
    }

    /// First pages in their order, some of them on their way at a time. Each is tried once. `None` for a task that has panicked.
    fn ahead(&self, starts: Vec<Start>) -> impl Stream<Item = Option<(Start, First)>> + use<> {
        let client = self.client.clone();
        let read = move |start: Start| {
            let client = client.clone();
            // A task: it goes on while the writer is busy with what comes before.
            let mut task = Task(tokio::spawn(async move {
                let from = start.not_older_than.as_deref().map_or(Position::Newest, Position::NotOlderThan);
                let page = page::fetch_small(&client, &start.listing, start.limit, from, FIRST_BYTES).await;
                (start, page.map_err(|error| (error.remedy(), error.to_string())))
            }));
            async move { (&mut task.0).await.ok() }
        };
        stream::iter(starts).map(read).buffered(LISTS_AHEAD)
    }

    async fn one(&self, index: usize, walked: &Walked, start: Start, first: First) -> Option<()> {
        let Walked::Either { whole, parts, namespaces } = walked else {
            return self.listed(index, start, Some(first)).await.map(drop);
        };
        if parts.len() == 1 {
            return self.listed(index, start, Some(first)).await.map(drop);
        }
        let first = match first {
            // Not many requests more to a server that has too many.
            Err((remedy, _)) if remedy != Remedy::Vanished && parts.len() > FEW => {
                self.fetch(whole, start.limit, Position::Newest).await
            }
            first => first,
        };
        // What is wrong in other namespaces, or too much there, is no matter of those that are wanted.
        let version = match first {
            Ok(page) => match self.whole(index, whole, parts.len(), *namespaces, page).await? {
                Whole::Done => return Some(()),
                Whole::GivenUp { version } => version,
            },
            Err((Remedy::Vanished, _)) => return self.send(Step::Vanished { listing: whole.clone() }).await,
            Err((_, reason)) => {
                tracing::debug!(listing = %whole, reason, "listing each namespace instead of all");
                None
            }
        };
        let limit = self.page_size.min(FIRST_ITEMS);
        let starts = parts.iter().map(|part| Start {
            listing: part.of(whole),
            limit,
            not_older_than: version.clone(),
        });
        let mut begun = std::pin::pin!(self.ahead(starts.collect()));
        while let Some(begun) = begun.next().await {
            let (start, first) = begun?;
            if self.listed(index, start, Some(first)).await? == End::Vanished {
                break;
            }
        }
        Some(())
    }

    /// Reads the list over all namespaces as long as that costs less than a list of each that is wanted.
    async fn whole(
        &self,
        index: usize,
        listing: &Listing,
        parts: usize,
        namespaces: Option<usize>,
        first: Page,
    ) -> Option<Whole> {
        let version = first.version().map(str::to_owned);
        let (mut read, mut page, mut limit) = (0, first, self.page_size.min(FIRST_ITEMS));
        loop {
            read += page.items.len() as u64;
            let rest = match (page.next(), page.counted()) {
                (None, _) => Rest::Nothing,
                (Some(_), Some(items)) => Rest::Items(items),
                (Some(_), None) => Rest::Unknown { read },
            };
            if choice::way(parts, namespaces, rest) == Way::Parts {
                return Some(Whole::GivenUp { version });
            }
            let token = page.next().map(str::to_owned);
            limit = next_limit(limit, self.page_size, &page);
            let remaining = page.remaining();
            self.send_items(index, page.items, remaining).await?;
            let Some(token) = token else { return Some(Whole::Done) };
            page = match self.fetch(listing, limit, Position::Token(&token)).await {
                Ok(page) => page,
                Err((Remedy::Vanished, _)) => {
                    self.send(Step::Vanished { listing: listing.clone() }).await?;
                    return Some(Whole::Done);
                }
                Err((_, reason)) => {
                    tracing::debug!(%listing, reason, "listing each namespace instead of all");
                    return Some(Whole::GivenUp { version: None });
                }
            };
        }
    }

    /// Reads a list to its end; `first` is what came of its first page.
    async fn listed(&self, index: usize, start: Start, mut first: Option<First>) -> Option<End> {
        let (listing, is_newest) = (start.listing, start.not_older_than.is_none());
        let (mut token, mut limit, mut restarts) = (None::<String>, self.page_size, 0);
        if first.as_ref().is_some_and(Result::is_ok) {
            limit = start.limit;
        }
        loop {
            let from = token.as_deref().map_or(Position::Newest, Position::Token);
            let fetched = match first.take() {
                // A version may be what the server has not; nothing else changes by another try.
                Some(Err((Remedy::GiveUp, reason))) if is_newest => Err((Remedy::GiveUp, reason)),
                Some(Err((Remedy::Vanished, reason))) => Err((Remedy::Vanished, reason)),
                // It is read again in its turn, with the patience for a list and in the pages for one.
                Some(Err(_)) | None => self.fetch(&listing, limit, from).await,
                Some(Ok(page)) => Ok(page),
            };
            let page = match fetched {
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
                Err((Remedy::Vanished, _)) => {
                    self.send(Step::Vanished { listing }).await?;
                    return Some(End::Vanished);
                }
                Err((_, reason)) => {
                    self.send(Step::Failed { listing, reason }).await?;
                    return Some(End::Other);
                }
            };
            token = page.next().map(str::to_owned);
            limit = next_limit(limit, self.page_size, &page);
            let remaining = page.remaining();
            self.send_items(index, page.items, remaining).await?;
            if token.is_none() {
                return Some(End::Other);
            }
        }
    }

    async fn send_items(&self, walked: usize, items: Vec<Box<RawValue>>, remaining: u64) -> Option<()> {
        if items.is_empty() {
            return Some(());
        }
        self.send(Step::Items { walked, items, remaining }).await
    }

    async fn send(&self, step: Step) -> Option<()> {
        self.steps.send(step).await.ok()
    }

    /// One page, tried again while the cause may pass.
    async fn fetch(
        &self,
        listing: &Listing,
        limit: u32,
        from: Position<'_>,
    ) -> Result<Page, (Remedy, String)> {
        let mut delays = BACKOFF.delays().take(RETRIES);
        loop {
            let error = match page::fetch(&self.client, listing, limit, from).await {
                Ok(page) => return Ok(page),
                Err(error) => error,
            };
            let (remedy, reason) = (error.remedy(), error.to_string());
            let Some(delay) = delays.next().filter(|_| remedy == Remedy::Retry) else {
                return Err((remedy, reason));
            };
            tracing::debug!(%listing, %reason, "listing failed, trying again");
            tokio::select! {
                () = tokio::time::sleep(delay) => {}
                () = self.steps.closed() => return Err((Remedy::GiveUp, reason)),
            }
        }
    }
}

/// What became of the list over all namespaces.
enum Whole {
    Done,
    /// The namespaces are listed one by one, as of this resourceVersion or later.
    GivenUp {
        version: Option<String>,
    },
}

#[derive(PartialEq, Eq)]
enum End {
    Vanished,
    Other,
}

/// Ends with who waits for it.
struct Task<T>(JoinHandle<T>);

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The size of the next page: smaller after a heavy one, and larger again.
fn next_limit(limit: u32, page_size: u32, page: &Page) -> u32 {
    let bytes: usize = page.items.iter().map(|item| item.get().len()).sum();
    if bytes > PAGE_BYTES {
        let share = u64::from(limit) * PAGE_BYTES as u64 / bytes as u64;
        u32::try_from(share).unwrap_or(limit).max(1)
    } else if bytes < PAGE_BYTES / 4 {
        limit.saturating_mul(4).min(page_size)
    } else {
        limit
    }
}

#[cfg(test)]
mod tests;
