//! Places for files that are being read. Each location has its own: one that stands still takes none from the others.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Files of one location that are read at the same time. Each has a few pieces of up to some 64 KiB in memory, and a connection
/// to the store.
pub(super) const READERS: usize = 16;

/// The places of all locations. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Seats(Arc<Mutex<HashMap<String, Arc<Semaphore>>>>);

impl Seats {
    /// A place among the readers of this location, if one is free.
    pub(super) fn take(&self, location: &str) -> Option<OwnedSemaphorePermit> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Where nobody reads, nothing is kept.
        all.retain(|_, seats| seats.available_permits() < READERS);
        let seats = all.entry(location.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(READERS)));
        Arc::clone(seats).try_acquire_owned().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_of_one_location_take_no_place_from_those_of_another() {
        let seats = Seats::default();
        let mut slow: Vec<_> = (0..READERS).map(|_| seats.take("slow")).collect();
        assert!(slow.iter().all(Option::is_some) && seats.take("slow").is_none());
        assert!(seats.take("fast").is_some());
        slow.pop();
        assert!(seats.take("slow").is_some() && seats.take("slow").is_some());
        drop(slow);
        drop(seats.take("fast"));
        assert_eq!(seats.0.lock().unwrap().len(), 1, "of those that nobody reads from nothing is kept");
    }
}
