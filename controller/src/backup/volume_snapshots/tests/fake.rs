//! A storage system in memory, for tests.

use std::{collections::BTreeMap, time::Duration};

use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::{Value, json};

use backup_plugins::{
    error::PluginError,
    snapshotter::{From, VolumeSnapshotter},
};

/// Knows volumes with a hostPath below its folder.
#[derive(Default)]
pub(crate) struct Disks {
    /// Prefix of the paths that it knows.
    pub(crate) folder: &'static str,
    /// Errors of the next calls that change something; with `true` the outcome is unknown.
    pub(crate) wrong: Mutex<Vec<bool>>,
    /// Duration of a snapshot.
    pub(crate) takes: Duration,
    pub(crate) asked: Mutex<Vec<String>>,
}

impl Disks {
    pub(crate) fn new(folder: &'static str) -> Self {
        Self {
            folder,
            ..Self::default()
        }
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().clone()
    }

    fn change(&self, what: String, made: String) -> Result<String, PluginError> {
        self.asked.lock().push(what);
        let (binary, plugin, call) = ("/plugins/disks".to_owned(), "x/disks".to_owned(), "Change");
        match self.wrong.lock().pop() {
            None => Ok(made),
            Some(true) => Err(PluginError::Late {
                binary,
                plugin,
                call,
                limit: Duration::from_secs(1),
            }),
            Some(false) => Err(PluginError::Refused {
                binary,
                plugin,
                call,
                reason: "no space".into(),
                lasting: false,
            }),
        }
    }
}

#[async_trait]
impl VolumeSnapshotter for Disks {
    async fn volume_id(&self, volume: &Value) -> Result<Option<String>, PluginError> {
        let path = volume["spec"]["hostPath"]["path"]
            .as_str()
            .unwrap_or_default();
        Ok(path.strip_prefix(self.folder).map(str::to_owned))
    }

    async fn volume_info(&self, _: &str, _: &str) -> Result<(String, Option<i64>), PluginError> {
        Ok(("fast".to_owned(), Some(3000)))
    }

    async fn snapshot(
        &self,
        id: &str,
        zone: &str,
        tags: BTreeMap<String, String>,
    ) -> Result<String, PluginError> {
        tokio::time::sleep(self.takes).await;
        let tags = tags
            .iter()
            .map(|(key, value)| format!(" {key}={value}"))
            .collect::<String>();
        self.change(format!("snapshot {id}@{zone}{tags}"), format!("snap-{id}"))
    }

    async fn delete(&self, snapshot: &str) -> Result<(), PluginError> {
        self.change(format!("delete {snapshot}"), String::new())
            .map(|_| ())
    }

    async fn create_volume(&self, from: From<'_>) -> Result<String, PluginError> {
        let From {
            snapshot,
            kind,
            zone,
            iops,
        } = from;
        let what = format!(
            "create from {snapshot} {kind}@{zone} {}",
            iops.unwrap_or_default()
        );
        self.change(what, format!("new-of-{snapshot}"))
    }

    async fn set_volume_id(&self, volume: &Value, id: &str) -> Result<Value, PluginError> {
        let mut volume = volume.clone();
        volume["spec"]["hostPath"]["path"] = json!(format!("{}{id}", self.folder));
        Ok(volume)
    }
}
