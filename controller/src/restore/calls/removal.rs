//! Requests of a restore that removes objects: lists of metadata, and deletions of objects as they
//! were read.

use backup_actions::restore::json::Object;
use backup_client::{page::Page, path};
use kube::core::{
    Request,
    params::{DeleteParams, Preconditions},
};

use super::{CallError, Calls, Subject};

/// Number of objects in a page of a list.
const PAGE_OBJECTS: u32 = 100;

/// The metadata of the objects of a collection, page by page.
pub(in crate::restore) struct MetadataPages<'a> {
    calls: &'a Calls,
    collection: &'a str,
    next: NextPage,
}

enum NextPage {
    First,
    /// The continue token of the page before.
    After(String),
    NoMore,
}

impl<'a> MetadataPages<'a> {
    pub(in crate::restore) fn new(calls: &'a Calls, collection: &'a str) -> Self {
        Self {
            calls,
            collection,
            next: NextPage::First,
        }
    }

    /// The readable objects of the next page; `None` after the last page. A collection that is not
    /// served any longer is empty.
    pub(in crate::restore) async fn next_page(&mut self) -> Result<Option<Vec<Object>>, CallError> {
        let from = match &self.next {
            NextPage::NoMore => return Ok(None),
            NextPage::First => None,
            NextPage::After(token) => Some(token.as_str()),
        };
        let list = Request::list_metadata;
        let page = self.calls.page(self.collection, PAGE_OBJECTS, from, list);
        let page = match page.await {
            Err(error) if error.is_not_found() => Page::default(),
            listed => listed?,
        };
        self.next = page
            .next()
            .map_or(NextPage::NoMore, |token| NextPage::After(token.to_owned()));
        let objects = page.items.into_iter();
        Ok(Some(
            objects
                .filter_map(|object| serde_json::from_str(object.get()).ok())
                .collect(),
        ))
    }
}

impl Calls {
    /// Deletes an object that is still as it was read; the cluster then deletes what it owns. An
    /// object that is gone counts as deleted. A plan sends nothing: beside the options in its body,
    /// the API server ignores the query `dryRun=All` of a deletion.
    pub(in crate::restore) async fn delete(
        &self,
        collection: &str,
        name: &str,
        as_read: Preconditions,
    ) -> Result<(), CallError> {
        if self.is_dry_run() {
            return Ok(());
        }
        let request = Request::new(collection);
        let params = DeleteParams::background().preconditions(as_read);
        let subject = Subject {
            verb: "delete",
            collection,
            name: Some(name),
        };
        let name = path::segment(name);
        match self
            .call(true, subject, || request.delete(&name, &params))
            .await
        {
            Err(error) if error.is_not_found() => Ok(()),
            deleted => deleted.map(|_| ()),
        }
    }
}
