//! What a collection has to tell people.

use backup_core::labels::CANCEL_ANNOTATION;
use backup_runtime::page::Listing;
use backup_store::Scope as Area;

use super::{Collector, scope::Scope};
use crate::backup::{items::Item, report::scope_of};

impl<S> Collector<'_, S> {
    pub(super) fn tell_missing_namespaces(&mut self, scope: &Scope) {
        for namespace in &scope.missing {
            self.report.error(
                Area::Namespace(namespace),
                format!("namespace {namespace} does not exist: nothing of it is in this backup"),
            );
        }
        for pattern in &scope.unmatched {
            self.report.warn(Area::Velero, format!("no namespace matches {pattern}: it selects nothing"));
        }
    }

    /// Somebody wanted an early end.
    pub(super) fn tell_cancelled(&mut self) {
        let message = format!(
            "cancelled, as the annotation {CANCEL_ANNOTATION} asks: {} items had been collected, and the rest is not in this \
             backup",
            self.progress.written()
        );
        self.report.error(Area::Velero, message);
    }

    pub(super) fn tell_failed(&mut self, listing: &Listing, reason: &str) {
        let message =
            format!("listing {listing} failed, so items of it are missing from this backup: {reason}");
        self.report.error(scope_of(listing.namespace.as_deref()), message);
    }
}

/// `namespace/name`, or the name of a cluster-scoped item.
pub(super) fn full_name(item: &Item<'_>) -> String {
    match item.namespace() {
        Some(namespace) => format!("{namespace}/{}", item.name()),
        None => item.name().to_owned(),
    }
}
