//! A plugin that creates snapshots of volumes, and volumes from snapshots.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use serde_json::Value;

use crate::{
    configured::ConfiguredPlugin,
    error::PluginError,
    log::PluginLog,
    wire::{Answer, Question, messages, name_of},
};

/// Creates snapshots of volumes. Each method says whether it is safe to repeat.
#[async_trait]
pub trait VolumeSnapshotter: Send + Sync {
    /// The storage system's id of the volume; `None` if it belongs to another storage system.
    /// Changes nothing.
    async fn volume_id(&self, volume: &Value) -> Result<Option<String>, PluginError>;

    /// The type of a volume, and its IOPS if a number was requested. Changes nothing.
    async fn volume_info(&self, id: &str, zone: &str)
    -> Result<(String, Option<i64>), PluginError>;

    /// Creates a snapshot; returns its id. A repeated call creates a second one.
    async fn snapshot(
        &self,
        id: &str,
        zone: &str,
        tags: BTreeMap<String, String>,
    ) -> Result<String, PluginError>;

    /// Deletes a snapshot. Safe to repeat.
    async fn delete(&self, snapshot: &str) -> Result<(), PluginError>;

    /// Creates a volume from a snapshot; returns its id. A repeated call creates a second one.
    async fn create_volume(&self, from: From<'_>) -> Result<String, PluginError>;

    /// The object with another volume behind it. Pure.
    async fn set_volume_id(&self, volume: &Value, id: &str) -> Result<Value, PluginError>;
}

#[derive(Clone, Copy, Debug)]
pub struct From<'a> {
    pub snapshot: &'a str,
    pub kind: &'a str,
    pub zone: &'a str,
    pub iops: Option<i64>,
}

/// A snapshotter of a plugin binary, with the settings of a location.
#[derive(Debug)]
pub(crate) struct Snapshotter {
    pub(crate) plugin: Arc<ConfiguredPlugin>,
    pub(crate) limit: Duration,
    /// Log for its output during calls.
    pub(crate) log: Option<PluginLog>,
}

impl Snapshotter {
    async fn ask<Q: Question, A: Answer>(
        &self,
        method: &'static str,
        question: Q,
    ) -> Result<A, PluginError> {
        let _listening = self
            .log
            .as_ref()
            .map(|log| self.plugin.listeners().begin(log));
        let process = self.plugin.process().await.map_err(not_asked)?;
        self.plugin
            .ask(&process, method, question, self.limit)
            .await
    }

    fn name(&self) -> String {
        self.plugin.name().to_owned()
    }

    fn json(&self, value: &Value, method: &'static str) -> Result<Vec<u8>, PluginError> {
        serde_json::to_vec(value).map_err(|error| PluginError::Refused {
            binary: self.plugin.binary(),
            plugin: self.name(),
            call: name_of(method),
            reason: format!("what it is asked can not be written as JSON: {error}"),
            lasting: true,
        })
    }

    fn nonsense(&self, method: &'static str, reason: &str) -> PluginError {
        PluginError::Nonsense {
            binary: self.plugin.binary(),
            plugin: self.name(),
            call: name_of(method),
            reason: reason.to_owned(),
        }
    }

    /// Checks the id of a created object. Without one, it was created but cannot be found again.
    fn id(&self, method: &'static str, id: String) -> Result<String, PluginError> {
        if id.is_empty() {
            Err(self.nonsense(method, "it gives no id of what it has made"))
        } else {
            Ok(id)
        }
    }
}

const GET_VOLUME_ID: &str = "/generated.VolumeSnapshotter/GetVolumeID";
const SET_VOLUME_ID: &str = "/generated.VolumeSnapshotter/SetVolumeID";
const GET_VOLUME_INFO: &str = "/generated.VolumeSnapshotter/GetVolumeInfo";
const CREATE_SNAPSHOT: &str = "/generated.VolumeSnapshotter/CreateSnapshot";
const DELETE_SNAPSHOT: &str = "/generated.VolumeSnapshotter/DeleteSnapshot";
const CREATE_VOLUME: &str = "/generated.VolumeSnapshotter/CreateVolumeFromSnapshot";

#[async_trait]
impl VolumeSnapshotter for Snapshotter {
    async fn volume_id(&self, volume: &Value) -> Result<Option<String>, PluginError> {
        let persistent_volume = self.json(volume, GET_VOLUME_ID)?;
        let question = GetVolumeId {
            plugin: self.name(),
            persistent_volume,
        };
        let answer: VolumeId = self.ask(GET_VOLUME_ID, question).await?;
        Ok(Some(answer.volume_id).filter(|id| !id.is_empty()))
    }

    async fn volume_info(
        &self,
        id: &str,
        zone: &str,
    ) -> Result<(String, Option<i64>), PluginError> {
        let question = GetVolumeInfo {
            plugin: self.name(),
            volume_id: id.to_owned(),
            volume_az: zone.to_owned(),
        };
        let answer: VolumeInfo = self.ask(GET_VOLUME_INFO, question).await?;
        // Zero is "no number" (Velero `framework/volume_snapshotter_client.go`, v1.18).
        Ok((
            answer.volume_type,
            Some(answer.iops).filter(|iops| *iops != 0),
        ))
    }

    async fn snapshot(
        &self,
        id: &str,
        zone: &str,
        tags: BTreeMap<String, String>,
    ) -> Result<String, PluginError> {
        let question = CreateSnapshot {
            plugin: self.name(),
            volume_id: id.to_owned(),
            volume_az: zone.to_owned(),
            tags: tags.into_iter().collect(),
        };
        let answer: SnapshotId = self.ask(CREATE_SNAPSHOT, question).await?;
        self.id(CREATE_SNAPSHOT, answer.snapshot_id)
    }

    async fn delete(&self, snapshot: &str) -> Result<(), PluginError> {
        let question = DeleteSnapshot {
            plugin: self.name(),
            snapshot_id: snapshot.to_owned(),
        };
        self.ask(DELETE_SNAPSHOT, question).await
    }

    async fn create_volume(&self, from: From<'_>) -> Result<String, PluginError> {
        let question = CreateVolume {
            plugin: self.name(),
            snapshot_id: from.snapshot.to_owned(),
            volume_type: from.kind.to_owned(),
            volume_az: from.zone.to_owned(),
            iops: from.iops.unwrap_or_default(),
        };
        let answer: VolumeId = self.ask(CREATE_VOLUME, question).await?;
        self.id(CREATE_VOLUME, answer.volume_id)
    }

    async fn set_volume_id(&self, volume: &Value, id: &str) -> Result<Value, PluginError> {
        let question = SetVolumeId {
            plugin: self.name(),
            persistent_volume: self.json(volume, SET_VOLUME_ID)?,
            volume_id: id.to_owned(),
        };
        let answer: PersistentVolume = self.ask(SET_VOLUME_ID, question).await?;
        let made: Value = serde_json::from_slice(&answer.persistent_volume)
            .map_err(|error| self.nonsense(SET_VOLUME_ID, &format!("it is no JSON: {error}")))?;
        let name = made.pointer("/metadata/name").and_then(Value::as_str);
        if name.is_none_or(str::is_empty) {
            return Err(self.nonsense(SET_VOLUME_ID, "it is an object without a name"));
        }
        Ok(made)
    }
}

/// A plugin that rejected its settings, or ended before the call, has not received it: so the call
/// has had no effect.
fn not_asked(error: PluginError) -> PluginError {
    let reason = error.to_string();
    match error {
        PluginError::Ended { binary, .. } | PluginError::Late { binary, .. } => {
            PluginError::Down { binary, reason }
        }
        error => error,
    }
}

messages! {
    GetVolumeId {
        plugin: String = 1 [string],
        persistent_volume: Vec<u8> = 2 [bytes = "vec"],
    }

    SetVolumeId {
        plugin: String = 1 [string],
        persistent_volume: Vec<u8> = 2 [bytes = "vec"],
        volume_id: String = 3 [string],
    }

    GetVolumeInfo {
        plugin: String = 1 [string],
        volume_id: String = 2 [string],
        volume_az: String = 3 [string],
    }

    VolumeInfo {
        volume_type: String = 1 [string],
        iops: i64 = 2 [int64],
    }

    CreateSnapshot {
        plugin: String = 1 [string],
        volume_id: String = 2 [string],
        volume_az: String = 3 [string],
        tags: HashMap<String, String> = 4 [map = "string, string"],
    }

    SnapshotId {
        snapshot_id: String = 1 [string],
    }

    DeleteSnapshot {
        plugin: String = 1 [string],
        snapshot_id: String = 2 [string],
    }

    CreateVolume {
        plugin: String = 1 [string],
        snapshot_id: String = 2 [string],
        volume_type: String = 3 [string],
        volume_az: String = 4 [string],
        iops: i64 = 5 [int64],
    }

    VolumeId {
        volume_id: String = 1 [string],
    }

    PersistentVolume {
        persistent_volume: Vec<u8> = 1 [bytes = "vec"],
    }
}
