//! Notifications: a POST to `--notify-url` about each backup or restore that has not ended well, each
//! verification that has found faults, and each drill that has failed.
//!
//! Events are found by watching the objects, so that none is lost in a crash. An event that was
//! delivered is recorded in our annotation of its object, and not sent again; a crash between both
//! sends it once more, with the same id. Nothing waits for a delivery.

mod decide;
mod queue;
mod sender;

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use backup_client::errors::{found, plain};
use backup_core::{
    api::{Backup, Restore},
    labels::NOTIFIED_ANNOTATION,
};
use backup_runtime::{
    Cluster,
    retry::{self, WriteError},
    watch::{self, WatchEvent},
};
use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use kube::ResourceExt as _;
use reqwest::Url;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;
use decide::{Deliveries, Notification, Reported};
use queue::Queue;
use sender::{Pace, Sender};

/// Maximum number of notifications that wait.
const MAX_WAITING: usize = 256;
/// Maximum number of notifications that are delivered concurrently, so that one which is refused
/// for a while does not hold up the others.
const MAX_CONCURRENT_DELIVERIES: usize = 16;
/// Time limit for recording a delivery. One that is not recorded is sent again after a restart.
const RECORD_BUDGET: Duration = Duration::from_secs(30);

/// Settings by the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NotifySettings {
    pub(crate) url: Url,
    /// Name of the Secret for the authorization.
    pub(crate) secret: Option<String>,
}

pub(crate) struct NotificationController {
    pub(crate) cluster: Cluster,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) settings: NotifySettings,
    /// The cluster and the namespace of this installation.
    pub(crate) installation: String,
}

impl NotificationController {
    /// Runs until the process is asked to end. Errors: no HTTP client can be made.
    pub(crate) async fn run(self, stop: CancellationToken) -> anyhow::Result<()> {
        let NotifySettings { url, secret } = self.settings.clone();
        let host = url.host_str().unwrap_or_default().to_owned();
        let source = format!("/backup-controller/{}", self.installation);
        let secrets = self.cluster.api();
        let sender = Sender::new(url, source, secrets, secret, Pace::DEFAULT)
            .context("the HTTP client for --notify-url could not be made")?;
        tracing::info!(host, "notifications are sent");
        let queue = Queue::new(MAX_WAITING);
        let working = async {
            tokio::join!(
                self.follow::<Backup>(&queue),
                self.follow::<Restore>(&queue),
                self.deliver_all(&queue, &sender),
            )
        };
        tokio::select! {
            _ = working => {}
            () = stop.cancelled() => {}
        }
        Ok(())
    }

    /// Queues the events of the objects of a kind that are due.
    async fn follow<K: Reported>(&self, queue: &Queue) {
        let mut objects = std::pin::pin!(watch::objects::<K>(&self.cluster));
        while let Some(event) = objects.next().await {
            let WatchEvent::Applied(Ok(object)) = event else {
                continue;
            };
            let now = Timestamp::now();
            for notification in decide::due(&object, now) {
                if let Some(dropped) = queue.add(notification, now) {
                    let id = dropped.id();
                    tracing::warn!(id, "a notification was dropped, as too many wait");
                    self.metrics.notification_dropped();
                }
            }
        }
    }

    async fn deliver_all(&self, queue: &Queue, sender: &Sender) {
        stream::repeat(())
            .then(|()| queue.take())
            .for_each_concurrent(MAX_CONCURRENT_DELIVERIES, |notification| {
                self.deliver(notification, sender)
            })
            .await;
    }

    async fn deliver(&self, notification: Notification, sender: &Sender) {
        let id = notification.id();
        if let Err(error) = sender.deliver(&notification).await {
            tracing::warn!(id, %error, "a notification was not delivered");
            self.metrics.notification_failed();
            return;
        }
        self.metrics.notification_sent();
        tracing::info!(id, "a notification was delivered");
        let recorded = match notification.data.kind {
            "Restore" => self.record::<Restore>(&notification).await,
            _ => self.record::<Backup>(&notification).await,
        };
        if let Err(error) = recorded {
            tracing::warn!(
                id,
                error,
                "a delivery could not be recorded; it is sent again after a restart"
            );
        }
    }

    /// Records a delivery in its object. Idempotent.
    async fn record<K: Reported>(&self, delivered: &Notification) -> Result<(), String> {
        let api = self.cluster.api::<K>();
        let name = &delivered.data.name;
        let object = found(api.get(name).await, name).map_err(|error| plain(&error))?;
        let Some(object) = object else {
            return Ok(());
        };
        let leadership = &self.cluster.leadership;
        let patched = retry::status_patch_in(&api, leadership, RECORD_BUDGET, &object, |current| {
            if current.uid().as_ref() != Some(&delivered.data.uid) {
                return None;
            }
            let with = Deliveries::of(current).with(delivered)?;
            let annotation = json!({ NOTIFIED_ANNOTATION: with.annotation() });
            Some(json!({ "metadata": { "annotations": annotation } }))
        });
        patched
            .await
            .map(drop)
            .map_err(|error: WriteError| error.to_string())
    }
}

#[cfg(test)]
mod tests;
