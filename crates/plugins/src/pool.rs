//! Plugins that run with settings, one for each set of settings.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::configured::{ConfiguredPlugin, Settings};
use parking_lot::Mutex;

/// Time after which an idle plugin is stopped: each location is checked about every minute.
const MAX_IDLE_TIME: Duration = Duration::from_mins(5);

type Key = (String, String, Settings);

#[derive(Debug, Default)]
pub(crate) struct Pool(Mutex<HashMap<Key, (Arc<ConfiguredPlugin>, Instant)>>);

impl Pool {
    pub(crate) fn get(
        &self,
        binary: &str,
        plugin: &str,
        settings: Settings,
        make: impl FnOnce(Settings) -> ConfiguredPlugin,
    ) -> Arc<ConfiguredPlugin> {
        let mut all = self.0.lock();
        let key = (binary.to_owned(), plugin.to_owned(), settings);
        let (plugin, used) = all
            .entry(key)
            .or_insert_with_key(|key| (Arc::new(make(key.2.clone())), Instant::now()));
        *used = Instant::now();
        Arc::clone(plugin)
    }

    /// Takes out the idle plugins.
    pub(crate) fn take_idle(&self) -> Vec<Arc<ConfiguredPlugin>> {
        self.take(|plugin, used| Arc::strong_count(plugin) == 1 && used.elapsed() > MAX_IDLE_TIME)
    }

    pub(crate) fn take_all(&self) -> Vec<Arc<ConfiguredPlugin>> {
        self.take(|_, _| true)
    }

    fn take(
        &self,
        which: impl Fn(&Arc<ConfiguredPlugin>, &Instant) -> bool,
    ) -> Vec<Arc<ConfiguredPlugin>> {
        let mut all = self.0.lock();
        all.extract_if(|_, (plugin, used)| which(plugin, used))
            .map(|(_, (plugin, _))| plugin)
            .collect()
    }
}
