//! Plugins that run with settings, one for each set of settings.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::configured::{Configured, Settings};

/// Time after which an idle plugin is stopped: each location is checked about every minute.
const IDLE: Duration = Duration::from_mins(5);

type Key = (String, String, Settings);

#[derive(Debug, Default)]
pub(crate) struct Pool(Mutex<HashMap<Key, (Arc<Configured>, Instant)>>);

impl Pool {
    pub(crate) fn get(
        &self,
        binary: &str,
        plugin: &str,
        settings: Settings,
        make: impl FnOnce(Settings) -> Configured,
    ) -> Arc<Configured> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (binary.to_owned(), plugin.to_owned(), settings);
        let make = |key: &Key| (Arc::new(make(key.2.clone())), Instant::now());
        let (plugin, used) = all.entry(key).or_insert_with_key(make);
        *used = Instant::now();
        Arc::clone(plugin)
    }

    /// Takes out the idle plugins.
    pub(crate) fn take_idle(&self) -> Vec<Arc<Configured>> {
        self.take(|plugin, used| Arc::strong_count(plugin) == 1 && used.elapsed() > IDLE)
    }

    pub(crate) fn take_all(&self) -> Vec<Arc<Configured>> {
        self.take(|_, _| true)
    }

    fn take(&self, which: impl Fn(&Arc<Configured>, &Instant) -> bool) -> Vec<Arc<Configured>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.extract_if(|_, (plugin, used)| which(plugin, used))
            .map(|(_, (plugin, _))| plugin)
            .collect()
    }
}
