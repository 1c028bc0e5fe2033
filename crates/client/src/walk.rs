//! Walks lists page by page, ahead of the writer of the items: the next page is requested while one
//! is written, and so are the first pages of the next lists.
//!
//! The requested items of a type in some namespaces are listed in each of them, or over all
//! namespaces and filtered by the receiver, whichever costs less: see `choice`.

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

/// Maximum number of pages waiting for the writer. With the one being written and the one being
/// read, at most three are in memory, besides the first pages of the next lists.
const MAX_PAGES_AHEAD: usize = 1;
/// Maximum number of first pages read concurrently. Only short ones are: [`MAX_FIRST_ITEMS`],
/// [`MAX_FIRST_BYTES`].
const MAX_LISTS_AHEAD: usize = 8;
/// Maximum number of items of a first page. Most lists end with it.
const MAX_FIRST_ITEMS: u32 = 100;
/// A larger first page is dropped (bytes), and read again when the list is due.
const MAX_FIRST_BYTES: u64 = 2 << 20;
/// Up to this many lists are started after one failure of the list over all namespaces; more only
/// after all [`MAX_RETRIES`] failed.
const MAX_LISTS_AFTER_FAILURE: usize = 16;
/// Backoff between attempts for one page: about half a minute in total.
const BACKOFF: Backoff = Backoff {
    first: Duration::from_millis(700),
    cap: Duration::from_secs(20),
};
/// Maximum number of retries of one page.
const MAX_RETRIES: usize = 6;
/// Maximum number of restarts of a list because its continue token has expired.
const MAX_RESTARTS: usize = 10;
/// Pages larger than this (bytes) make the following ones smaller, so that large objects do not
/// fill the memory.
const PAGE_BYTES: usize = 8 << 20;

/// The items of one type to walk.
#[derive(Clone, Debug)]
pub enum ListChoice {
    One(Listing),
    /// The lists of some namespaces, or one over all namespaces that holds the same items, and
    /// others.
    Either {
        whole: Listing,
        parts: Arc<[Part]>,
        /// Number of namespaces, if known.
        namespaces: Option<usize>,
    },
}

/// A list of a type in one namespace. There may be thousands for each of a hundred types, so they
/// share data.
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

impl ListChoice {
    /// The listing that represents all of it in messages.
    pub fn whole(&self) -> &Listing {
        match self {
            Self::One(listing) | Self::Either { whole: listing, .. } => listing,
        }
    }

    /// Whether there is no list to read, and so no items.
    fn is_empty(&self) -> bool {
        matches!(self, Self::Either { parts, .. } if parts.is_empty())
    }
}

#[derive(Debug)]
pub enum Step {
    /// Items of the element with this index; from a list over all namespaces also unwanted items.
    Items {
        walked: usize,
        items: Vec<Box<RawValue>>,
        /// Number of items that follow in this listing, where the API server reports it.
        remaining: u64,
    },
    /// The type no longer exists: the items read before have been delivered.
    Vanished { listing: Listing },
    /// The rest of a listing could not be read.
    Failed { listing: Listing, reason: String },
    /// One of the walked elements has ended, with or without a failure.
    Done,
}

/// Starts to walk lists in order. Items may come twice after a [`Remedy::Restart`], and if a list
/// over all namespaces is replaced by one for each; the receiver detects duplicates. The walk ends
/// with the last list, or when the receiver is dropped.
pub fn start(client: Client, walked: Vec<ListChoice>, page_size: u32) -> mpsc::Receiver<Step> {
    let (steps, receiver) = mpsc::channel(MAX_PAGES_AHEAD);
    tokio::spawn(async move {
        let walk = Walk {
            client,
            page_size,
            steps,
        };
        let starts: Vec<Start> = walked
            .iter()
            .filter(|one| !one.is_empty())
            .map(|one| walk.begin(one))
            .collect();
        let mut begun = std::pin::pin!(walk.ahead(starts));
        for (index, one) in walked.iter().enumerate() {
            if !one.is_empty() {
                let Some(Some((start, first))) = begun.next().await else {
                    return;
                };
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

/// The first page of a list to be read.
#[derive(Clone, Debug)]
struct Start {
    listing: Listing,
    limit: u32,
    /// The list is at least as new as this resourceVersion; `None`: the newest state.
    not_older_than: Option<String>,
}

/// A first page that was read ahead. The error has the remedy.
type First = Result<Page, (Remedy, String)>;

struct Walk {
    client: Client,
    page_size: u32,
    steps: mpsc::Sender<Step>,
}

/// Methods for steps return `None` once the receiver is dropped.
impl Walk {
    /// The first page to read.
    fn begin(&self, walked: &ListChoice) -> Start {
        let most = self.page_size.min(MAX_FIRST_ITEMS);
        let (listing, limit) = match walked {
            ListChoice::Either { whole, parts, .. } => match parts.as_ref() {
                [only] => (only.of(whole), most),
                _ => (whole.clone(), choice::first_page(parts.len()).min(most)),
            },
            ListChoice::One(listing) => (listing.clone(), most),
        };
        Start {
            listing,
            limit,
            not_older_than: None,
        }
    }

    /// First pages in order, some of them read concurrently. Each is tried once. `None` for a task
    /// that has panicked.
    fn ahead(&self, starts: Vec<Start>) -> impl Stream<Item = Option<(Start, First)>> + use<> {
        let client = self.client.clone();
        stream::iter(starts)
            .map(move |start| {
                let client = client.clone();
                // A task: it continues while the writer is busy with earlier items.
                let mut task = Task(tokio::spawn(async move {
                    let from = start
                        .not_older_than
                        .as_deref()
                        .map_or(Position::Newest, Position::NotOlderThan);
                    let page = page::fetch_small(
                        &client,
                        &start.listing,
                        start.limit,
                        from,
                        MAX_FIRST_BYTES,
                    )
                    .await;
                    (
                        start,
                        page.map_err(|error| (error.remedy(), error.to_string())),
                    )
                }));
                async move { (&mut task.0).await.ok() }
            })
            .buffered(MAX_LISTS_AHEAD)
    }

    async fn one(
        &self,
        index: usize,
        walked: &ListChoice,
        start: Start,
        first: First,
    ) -> Option<()> {
        let ListChoice::Either {
            whole,
            parts,
            namespaces,
        } = walked
        else {
            return self.listed(index, start, Some(first)).await.map(drop);
        };
        if parts.len() == 1 {
            return self.listed(index, start, Some(first)).await.map(drop);
        }
        let is_vanished = matches!(first, Err((Remedy::Vanished, _)));
        let first = if first.is_err() && !is_vanished && parts.len() > MAX_LISTS_AFTER_FAILURE {
            // Avoids many more requests to an overloaded server.
            self.fetch(whole, start.limit, Position::Newest).await
        } else {
            first
        };
        // Errors in other namespaces, or too many items there, must not affect the wanted
        // namespaces.
        let version = match first {
            Ok(page) => match self
                .whole(index, whole, parts.len(), *namespaces, page)
                .await?
            {
                Whole::Done => return Some(()),
                Whole::GivenUp { version } => version,
            },
            Err((Remedy::Vanished, _)) => {
                return self
                    .send(Step::Vanished {
                        listing: whole.clone(),
                    })
                    .await;
            }
            Err((_, reason)) => {
                tracing::debug!(listing = %whole, reason, "listing each namespace instead of all");
                None
            }
        };
        let limit = self.page_size.min(MAX_FIRST_ITEMS);
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

    /// Reads the list over all namespaces as long as that costs less than a list of each wanted
    /// one.
    async fn whole(
        &self,
        index: usize,
        listing: &Listing,
        parts: usize,
        namespaces: Option<usize>,
        first: Page,
    ) -> Option<Whole> {
        let version = first.version().map(str::to_owned);
        let mut read = 0;
        let mut page = first;
        let mut limit = self.page_size.min(MAX_FIRST_ITEMS);
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
            let Some(token) = token else {
                return Some(Whole::Done);
            };
            page = match self.fetch(listing, limit, Position::Token(&token)).await {
                Ok(page) => page,
                Err((Remedy::Vanished, _)) => {
                    self.send(Step::Vanished {
                        listing: listing.clone(),
                    })
                    .await?;
                    return Some(Whole::Done);
                }
                Err((_, reason)) => {
                    tracing::debug!(%listing, reason, "listing each namespace instead of all");
                    return Some(Whole::GivenUp { version: None });
                }
            };
        }
    }

    /// Reads a list to its end; `first` is the result for its first page, if that was read ahead.
    async fn listed(&self, index: usize, start: Start, mut first: Option<First>) -> Option<End> {
        let listing = start.listing;
        let is_newest = start.not_older_than.is_none();
        let mut token = None::<String>;
        let mut limit = self.page_size;
        let mut restarts = 0;
        if first.as_ref().is_some_and(Result::is_ok) {
            limit = start.limit;
        }
        loop {
            let from = token.as_deref().map_or(Position::Newest, Position::Token);
            let fetched = match first.take() {
                // An error due to a resourceVersion may be fixed by a retry without it; other
                // permanent errors are not.
                Some(Err((Remedy::GiveUp, reason))) if is_newest => Err((Remedy::GiveUp, reason)),
                Some(Err((Remedy::Vanished, reason))) => Err((Remedy::Vanished, reason)),
                // It is read again now that the list is due, with all retries and full pages.
                Some(Err(_)) | None => self.fetch(&listing, limit, from).await,
                Some(Ok(page)) => Ok(page),
            };
            let page = match fetched {
                Ok(page) => page,
                Err((Remedy::Restart, _)) if restarts < MAX_RESTARTS => {
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

    async fn send_items(
        &self,
        walked: usize,
        items: Vec<Box<RawValue>>,
        remaining: u64,
    ) -> Option<()> {
        if items.is_empty() {
            return Some(());
        }
        self.send(Step::Items {
            walked,
            items,
            remaining,
        })
        .await
    }

    async fn send(&self, step: Step) -> Option<()> {
        self.steps.send(step).await.ok()
    }

    /// One page, retried while the error may be temporary.
    async fn fetch(
        &self,
        listing: &Listing,
        limit: u32,
        from: Position<'_>,
    ) -> Result<Page, (Remedy, String)> {
        let mut delays = BACKOFF.delays().take(MAX_RETRIES);
        loop {
            let error = match page::fetch(&self.client, listing, limit, from).await {
                Ok(page) => return Ok(page),
                Err(error) => error,
            };
            let remedy = error.remedy();
            let reason = error.to_string();
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

/// Outcome of the list over all namespaces.
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

/// A task that is aborted when its handle is dropped.
struct Task<T>(JoinHandle<T>);

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The size of the next page: smaller after a large one, then larger again.
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
