//! Permissions of users, and the Event that records a break-glass.

use std::{sync::Arc, time::Duration};

use backup_client::errors::plain;
use backup_core::{event_reason::EventReason, profile::Profile};
use backup_lock::ObjectKey;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::{
    authentication::v1::UserInfo,
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{
    Api, Client,
    api::PostParams,
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use tokio::{sync::Semaphore, time::timeout};

/// Maximum number of Events being sent; more are dropped.
const MAX_EVENTS_IN_FLIGHT: usize = 32;
/// Timeout for the API server's answer about a permission.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum number of permissions of one request that are checked concurrently.
const MAX_CONCURRENT_CHECKS: usize = 16;

const VELERO: &str = "velero.io";
/// Verb that marks a namespace owner.
const OWN_NAMESPACES: &str = "own-namespaces";
/// Verb that lifts the limits of a namespace owner.
const ALL_NAMESPACES: &str = "all-namespaces";

/// A right, as a SubjectAccessReview asks for it; an empty namespace is the whole cluster.
pub(crate) fn right(
    verb: &str,
    group: &str,
    resource: &str,
    namespace: &str,
) -> ResourceAttributes {
    ResourceAttributes {
        group: Some(group.to_owned()),
        resource: Some(resource.to_owned()),
        verb: Some(verb.to_owned()),
        namespace: Some(namespace.to_owned()),
        ..ResourceAttributes::default()
    }
}

/// Checks permissions and writes Events; cheap to clone.
#[derive(Clone)]
pub(crate) struct Authorization {
    pub(crate) client: Client,
    reviews: Api<SubjectAccessReview>,
    recorder: Recorder,
    permits: Arc<Semaphore>,
    /// Whether a Restore needs its author's permissions where it reads and writes.
    pub(crate) checks_restores: bool,
}

impl Authorization {
    pub(crate) fn new(client: Client, checks_restores: bool) -> Self {
        let reporter = Reporter {
            controller: "backup-webhook".to_owned(),
            instance: None,
        };
        Self {
            client: client.clone(),
            reviews: Api::all(client.clone()),
            recorder: Recorder::new(client, reporter),
            permits: Arc::new(Semaphore::new(MAX_EVENTS_IN_FLIGHT)),
            checks_restores,
        }
    }

    /// Whether this user may break the glass in a namespace: the verb `break-glass` on `locks` of
    /// `velero.io`.
    pub(crate) async fn may_break_glass(
        &self,
        user: &UserInfo,
        namespace: &str,
    ) -> Result<bool, String> {
        let right = right("break-glass", VELERO, "locks", namespace);
        self.may(user, right).await
    }

    /// Whether this user may do everything in a namespace, or in the whole cluster if `namespace`
    /// is empty.
    pub(crate) async fn may_do_everything(
        &self,
        user: &UserInfo,
        namespace: &str,
    ) -> Result<bool, String> {
        self.may(user, right("*", "*", "*", namespace)).await
    }

    /// Whether this user may create objects of a type of `velero.io` only for namespaces in which
    /// the user may do directly what the controller does for these objects (ClusterRole
    /// `backup-owner`). Users with neither verb, as before there was this role, are no owners.
    pub(crate) async fn is_owner(
        &self,
        user: &UserInfo,
        resource: &str,
        namespace: &str,
    ) -> Result<bool, String> {
        let own = right(OWN_NAMESPACES, VELERO, resource, namespace);
        if !self.may(user, own).await? {
            return Ok(false);
        }
        let all = right(ALL_NAMESPACES, VELERO, resource, namespace);
        Ok(!self.may(user, all).await?)
    }

    /// Those of these rights that this user does not have, in their order.
    pub(crate) async fn lacking(
        &self,
        user: &UserInfo,
        rights: Vec<ResourceAttributes>,
    ) -> Result<Vec<ResourceAttributes>, String> {
        let answers = stream::iter(rights).map(async |right| {
            let may = self.may(user, right.clone()).await?;
            Ok::<_, String>((!may).then_some(right))
        });
        answers
            .buffered(MAX_CONCURRENT_CHECKS)
            .try_filter_map(async |lacking| Ok(lacking))
            .try_collect()
            .await
    }

    async fn may(&self, user: &UserInfo, right: ResourceAttributes) -> Result<bool, String> {
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: user.username.clone(),
                groups: user.groups.clone(),
                uid: user.uid.clone(),
                extra: user.extra.clone(),
                resource_attributes: Some(right),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        // Stores nothing: a SubjectAccessReview is only evaluated.
        match timeout(
            ANSWER_TIMEOUT,
            self.reviews.create(&PostParams::default(), &review),
        )
        .await
        {
            Ok(Ok(answer)) => Ok(answer.status.is_some_and(|status| status.allowed)),
            Ok(Err(error)) => Err(plain(&error)),
            Err(_) => Err(format!(
                "the API server did not say in {} s what a user may do",
                ANSWER_TIMEOUT.as_secs()
            )),
        }
    }

    /// Writes an Event on the object. Best effort: it never delays an answer.
    pub(crate) fn emit_event(
        &self,
        profile: &Profile,
        key: &ObjectKey,
        uid: &str,
        reason: EventReason,
        note: &str,
    ) {
        let Some(object) = backup_lock::observe::reference(profile, key, uid) else {
            return;
        };
        let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
            return;
        };
        let event = Event {
            type_: EventType::Warning,
            reason: reason.as_str().to_owned(),
            note: Some(note.chars().take(1000).collect()),
            action: reason.as_str().to_owned(),
            secondary: None,
        };
        let recorder = self.recorder.clone();
        tokio::spawn(async move {
            let _permit = permit;
            if let Err(error) = recorder.publish(&event, &object).await {
                tracing::warn!(error = plain(&error), "an event could not be written");
            }
        });
    }
}
