//! Restores one item: creates it, or compares it with the existing object.
//!
//! Creation is tried first, because most items do not exist yet; the object is read only after
//! `AlreadyExists` or an error that may hide it (Velero does the same without its informer cache,
//! `pkg/restore/restore.go`, v1.18).

use backup_actions::restore::{
    RestoreRules,
    existing::{self, Existing, RestoredForm},
    json::{self, Object},
    links::{self, Link, LinkAction, OtherEnd},
    stored::{self, LostFields, WriteRequest},
};
use backup_core::resources::CLAIMS;
use serde_json::Value;

use super::{
    calls::{CallError, Calls, held},
    guard,
};
use crate::job::cancellation::StopReason;

/// Maximum number of tries: of a creation whose object disappears before the comparison, and of a
/// patch whose object changes.
pub(super) const MAX_ATTEMPTS: u32 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The object did not exist and was created.
    Created,
    /// The object existed, differed and was changed.
    Updated,
    /// Left out, or the object was left unchanged.
    Skipped,
    Failed,
}

impl Outcome {
    /// The word in the list of resources (Velero `pkg/restore/request.go`, v1.18).
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Skipped => "skipped",
            Self::Failed => "failed",
        }
    }
}

/// The outcome of an item, with messages for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ItemResult {
    pub(super) outcome: Outcome,
    pub(super) warning: Option<String>,
    pub(super) error: Option<String>,
    /// The API server has not stored some of its fields.
    pub(super) incomplete: bool,
    /// It is a claim that existed, and has no volume.
    pub(super) unbound: bool,
}

impl ItemResult {
    pub(super) fn quiet(outcome: Outcome) -> Self {
        Self {
            outcome,
            warning: None,
            error: None,
            incomplete: false,
            unbound: false,
        }
    }

    /// Left unchanged, with a warning for the user.
    pub(super) fn skipped(warning: String) -> Self {
        Self {
            warning: Some(warning),
            ..Self::quiet(Outcome::Skipped)
        }
    }

    pub(super) fn failed(error: String) -> Self {
        Self {
            error: Some(error),
            ..Self::quiet(Outcome::Failed)
        }
    }

    /// Written, except the fields in `lost`.
    pub(super) fn stored(outcome: Outcome, kind: &str, name: &str, lost: &LostFields) -> Self {
        let mut applied = Self::quiet(outcome);
        if !lost.is_empty() {
            applied.lacks(format!(
                "{kind} {name:?} is {}, and the API server has not stored all of it: {lost} (its definition may not know them, or a \
                 webhook or the server itself changes them)",
                outcome.as_str()
            ));
        }
        applied
    }

    /// Marks the item as incomplete, with a warning.
    pub(super) fn lacks(&mut self, warning: String) {
        self.incomplete = true;
        self.warn(warning);
    }

    pub(super) fn warn(&mut self, warning: String) {
        self.warning = Some(match self.warning.take() {
            Some(before) => format!("{before}; {warning}"),
            None => warning,
        });
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Target<'a> {
    /// `deployments.apps`.
    pub(super) group_resource: &'a str,
    pub(super) kind: &'a str,
    /// URL path of the collection.
    pub(super) collection: &'a str,
    pub(super) namespace: Option<&'a str>,
    pub(super) name: &'a str,
    /// The item before resource modifiers, if they have changed it.
    pub(super) unmodified: Option<&'a Object>,
    /// Owner reference to the controller, set on creation; an existing object keeps its own
    /// references.
    pub(super) controller: Option<&'a Value>,
}

/// Settings that decide how existing objects are treated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Policy<'a> {
    /// How items are rewritten; the comparison undoes it.
    pub(super) rules: &'a RestoreRules,
    /// Whether existing objects that differ are changed.
    pub(super) update: bool,
    /// The namespace of the installation.
    pub(super) own: &'a str,
    pub(super) restore_created: Option<&'a str>,
    /// Whether an earlier run of the same Restore may have created items.
    pub(super) resumed: bool,
}

impl Policy<'_> {
    /// Whether an object was created by this Restore.
    pub(super) fn is_ours(&self, found: &Object) -> bool {
        existing::is_ours(found, self.rules, self.restore_created)
    }
}

/// Creates the item, or compares it with the existing object (`seen`, if it was listed shortly
/// before). Returns `Err` only when the work has to stop.
pub(super) async fn item(
    calls: &Calls,
    target: Target<'_>,
    wanted: &Object,
    policy: Policy<'_>,
    seen: Option<Object>,
) -> Result<ItemResult, StopReason> {
    let Target { kind, name, .. } = target;
    let comparison = Comparison {
        calls,
        target,
        wanted,
        policy,
        may_be_ours: policy.resumed,
        refused: None,
    };
    if seen.is_some()
        && let Some(applied) = comparison.run(seen).await?
    {
        return Ok(applied);
    }
    let controlled = target
        .controller
        .map(|controller| controlled(wanted, controller));
    for _ in 0..MAX_ATTEMPTS {
        let (created, uncertain) = calls
            .create(
                target.collection,
                controlled.as_ref().unwrap_or(wanted),
                target.unmodified,
            )
            .await;
        let error = match created {
            Ok(lost) => return Ok(ItemResult::stored(Outcome::Created, kind, name, &lost)),
            Err(error) => error.unless_stopped()?,
        };
        // Webhooks are called before the server checks whether the name exists.
        let may_exist =
            error.is_already_exists() || error.is_webhook() || holds_port(target, &error);
        if !may_exist {
            return Ok(ItemResult::failed(format!(
                "{kind} {name:?} could not be created: {error}"
            )));
        }
        let comparison = Comparison {
            may_be_ours: uncertain || policy.resumed,
            refused: Some(&error),
            ..comparison
        };
        if let Some(applied) = comparison.run(None).await? {
            return Ok(applied);
        }
    }
    Ok(ItemResult::failed(format!(
        "{kind} {name:?} could not be created: it was there each time, and gone when it was to be compared; restore it again once \
         nothing else creates and deletes it"
    )))
}

/// Whether an existing object is a claim that names no volume.
fn is_unbound_claim(target: Target<'_>, found: &Object) -> bool {
    let volume = json::text(found, &["spec"], "volumeName").unwrap_or_default();
    target.group_resource == CLAIMS && volume.is_empty()
}

fn controlled(wanted: &Object, controller: &Value) -> Object {
    let mut object = wanted.clone();
    json::set(
        &mut object,
        &["metadata"],
        "ownerReferences",
        Value::from(vec![controller.clone()]),
    );
    object
}

/// Whether the address or port of a service is taken. Its holder may be the service that is being
/// restored: the server allocates before it checks the name.
fn holds_port(target: Target<'_>, error: &CallError) -> bool {
    target.group_resource == "services" && error.to_string().contains("already allocated")
}

/// The comparison of an item with the existing object.
struct Comparison<'a> {
    calls: &'a Calls,
    target: Target<'a>,
    wanted: &'a Object,
    policy: Policy<'a>,
    /// Whether this Restore may have created the object.
    may_be_ours: bool,
    /// Why its creation was refused.
    refused: Option<&'a CallError>,
}

/// A change of an existing object.
struct Change {
    patch: Object,
    /// The warning about differences that it leaves.
    warning: Option<String>,
}

impl Comparison<'_> {
    /// Compares with the existing object or patches it; `None` if it is gone by now. `seen` is the
    /// object, if it was listed shortly before.
    async fn run(&self, mut seen: Option<Object>) -> Result<Option<ItemResult>, StopReason> {
        let Target {
            kind,
            name,
            collection,
            unmodified,
            ..
        } = self.target;
        for _ in 0..MAX_ATTEMPTS {
            let found = match seen.take() {
                Some(seen) => Ok(Some(seen)),
                None => self.calls.get(collection, name).await,
            };
            let found = match found {
                Ok(Some(found)) => found,
                Ok(None) => {
                    let why = self.refused.filter(|refused| !refused.is_already_exists());
                    return Ok(why.map(|why| {
                        ItemResult::failed(format!("{kind} {name:?} could not be created: {why}"))
                    }));
                }
                Err(error) => {
                    let error = error.unless_stopped()?;
                    return Ok(Some(unread(kind, name, &error, self.refused)));
                }
            };
            if self.may_be_ours && self.policy.is_ours(&found) {
                return Ok(Some(self.created(&found)));
            }
            if existing::is_going(&found) {
                return self.until_gone().await;
            }
            let compared = self.compared(&found);
            if compared != Existing::Equal
                && let Some(left) = self.left_for_namespace(&found).await?
            {
                return Ok(Some(left));
            }
            let unbound = is_unbound_claim(self.target, &found);
            let change = match self.change(compared, &found) {
                Ok(change) => change,
                Err(left) => return Ok(Some(ItemResult { unbound, ..left })),
            };
            let patched = self
                .calls
                .patch(collection, name, &change.patch, unmodified);
            match patched.await {
                Ok((now, lost)) => {
                    let mut applied = changed(self.target, &found, &now, &lost);
                    if let Some(warning) = change.warning {
                        applied.warn(warning);
                    }
                    return Ok(Some(ItemResult { unbound, ..applied }));
                }
                // The object changed or was deleted: read it again.
                Err(error) if error.is_conflict() || error.is_not_found() => {}
                Err(error) => {
                    return Ok(Some(ItemResult::skipped(format!(
                        "{kind} {name:?} exists, differs from the backup, and could not be changed: {}",
                        error.unless_stopped()?
                    ))));
                }
            }
        }
        Ok(Some(ItemResult::skipped(format!(
            "{kind} {name:?} exists and differs from the backup; it changed so often meanwhile that it was left unchanged"
        ))))
    }

    /// The outcome for an object that this Restore has created.
    fn created(&self, found: &Object) -> ItemResult {
        let Target {
            kind,
            name,
            group_resource,
            unmodified,
            ..
        } = self.target;
        // Other clients may have changed it meanwhile.
        let lost = WriteRequest {
            group_resource,
            body: self.wanted,
            unmodified,
        }
        .absent(found);
        ItemResult::stored(Outcome::Created, kind, name, &lost)
    }

    /// Waits for the end of an object that is being deleted; `None` once it is gone.
    async fn until_gone(&self) -> Result<Option<ItemResult>, StopReason> {
        let Target {
            kind,
            name,
            collection,
            ..
        } = self.target;
        let gone = self
            .calls
            .until_gone(collection, name, existing::is_going)
            .await;
        let why = match gone {
            Ok(left) => {
                let Some(left) = left.filter(existing::is_going) else {
                    return Ok(None);
                };
                format!(
                    "the old one is still being deleted{}: restore it again once it is gone",
                    held(&left)
                )
            }
            Err(error) => error.unless_stopped()?.to_string(),
        };
        Ok(Some(ItemResult::failed(format!(
            "{kind} {name:?} could not be created: {why}"
        ))))
    }

    fn compared(&self, found: &Object) -> Existing {
        let Target {
            group_resource,
            namespace,
            unmodified,
            ..
        } = self.target;
        let restored = RestoredForm {
            wanted: self.wanted,
            unmodified,
        };
        let Policy { rules, update, .. } = self.policy;
        existing::compare(restored, found, group_resource, namespace, rules, update)
    }

    /// The outcome for a cluster-scoped object that serves a namespace of the backup; `None` if it
    /// may be changed.
    async fn left_for_namespace(&self, found: &Object) -> Result<Option<ItemResult>, StopReason> {
        let Target {
            kind,
            name,
            group_resource,
            namespace,
            ..
        } = self.target;
        if namespace.is_some() {
            return Ok(None);
        }
        let original = served_original(self.calls, found, group_resource, self.policy).await?;
        Ok(original.map(|original| {
            ItemResult::skipped(format!(
                "{kind} {name:?} exists and serves namespace {original:?}, which this restore maps to {:?}; it was left unchanged, \
                 because what runs in {original:?} needs it: give the copy one of another name",
                self.policy.rules.target(&original)
            ))
        }))
    }

    /// The change that the policy allows. An error is the outcome for an object that is left
    /// unchanged.
    fn change(&self, compared: Existing, found: &Object) -> Result<Change, ItemResult> {
        let Target {
            kind,
            name,
            namespace,
            ..
        } = self.target;
        match compared {
            Existing::Differs => Err(ItemResult::skipped(differs(kind, name))),
            Existing::Held(holder) => Err(ItemResult::skipped(format!(
                "{kind} {name:?} exists and belongs to claim {holder}; it was left unchanged"
            ))),
            Existing::Released => Err(ItemResult::failed(format!(
                "{kind} {name:?} is left over from a claim that is gone, and differs from the backup, so its claim cannot \
                 bind to it: save what is on it and delete it, or have it changed (existingResourcePolicy: update), and \
                 restore again"
            ))),
            Existing::Patch(_) | Existing::Complete(_)
                if guard::is_labelled(found, namespace, self.policy.own) =>
            {
                Err(ItemResult::skipped(format!(
                    "{kind} {name:?} exists and differs from the backup; it was left unchanged: {}",
                    guard::WHY
                )))
            }
            Existing::Patch(patch) => Ok(Change {
                patch,
                warning: None,
            }),
            Existing::Complete(patch) => Ok(Change {
                patch,
                warning: Some(format!(
                    "{kind} {name:?} exists; what it lacked was added, and what differs from the backup was left unchanged \
                     (existingResourcePolicy: update changes it)"
                )),
            }),
            Existing::Equal => Err(ItemResult::quiet(Outcome::Skipped)),
        }
    }
}

/// The outcome for an object that could not be read after its creation was `refused`.
fn unread(kind: &str, name: &str, error: &CallError, refused: Option<&CallError>) -> ItemResult {
    let Some(refused) = refused.filter(|refused| !refused.is_already_exists()) else {
        return ItemResult::skipped(format!(
            "{kind} {name:?} exists and could not be compared: {error}"
        ));
    };
    // The server converts only objects that it has found.
    if error.fails_to_convert() {
        return ItemResult::failed(format!(
            "{kind} {name:?} was not restored: there is one in the cluster, which could not be compared: {error}"
        ));
    }
    ItemResult::failed(format!(
        "{kind} {name:?} could not be created: {refused}; whether it was there already could not be read: {error}"
    ))
}

/// The message about an object that differs and is left unchanged.
pub(super) fn differs(kind: &str, name: &str) -> String {
    format!(
        "{kind} {name:?} exists and differs from the backup; it was left unchanged (existingResourcePolicy: update changes what the \
         API server lets it change)"
    )
}

/// The namespace of the backup that an existing cluster-scoped object serves, if this restore maps
/// it to another name and it exists in the cluster; then the object is left unchanged. A namespace
/// that cannot be read counts as existing.
async fn served_original(
    calls: &Calls,
    found: &Object,
    group_resource: &str,
    policy: Policy<'_>,
) -> Result<Option<String>, StopReason> {
    for namespace in links::mapped_namespaces(found, group_resource, policy.rules) {
        let other_end = match calls.get("/api/v1/namespaces", &namespace).await {
            Ok(None) => OtherEnd::None,
            Ok(Some(_)) => OtherEnd::Anothers,
            Err(error) => {
                error.unless_stopped()?;
                OtherEnd::Anothers
            }
        };
        if links::action(Link::Namespace, other_end, policy.update, true) == LinkAction::Leave {
            return Ok(Some(namespace));
        }
    }
    Ok(None)
}

/// The outcome of a patch, from the object before and after it.
pub(super) fn changed(
    target: Target<'_>,
    before: &Object,
    now: &Object,
    lost: &LostFields,
) -> ItemResult {
    let Target { kind, name, .. } = target;
    match (stored::is_changed(before, now), lost.is_empty()) {
        (true, _) => ItemResult::stored(Outcome::Updated, kind, name, lost),
        // It differs only in fields that the server fills in.
        (false, true) => ItemResult::quiet(Outcome::Skipped),
        (false, false) => ItemResult::skipped(format!(
            "{kind} {name:?} exists and differs from the backup, and the API server does not change this: {lost}; delete it and \
             restore it again"
        )),
    }
}

/// Replaces the status of a created object by the one in the backup. The inner error says why it
/// was not stored completely.
pub(super) async fn status(
    calls: &Calls,
    target: Target<'_>,
    status: &Value,
) -> Result<Result<(), String>, StopReason> {
    let replaced = calls
        .replace_status(target.collection, target.name, status)
        .await;
    let lost = match replaced {
        Ok(lost) => lost,
        Err(error) => return Ok(Err(error.unless_stopped()?.to_string())),
    };
    if lost.is_empty() {
        return Ok(Ok(()));
    }
    Ok(Err(CallError::NotStored(lost).to_string()))
}

#[cfg(test)]
mod tests;
