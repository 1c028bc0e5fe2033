//! Links from an item to other objects: checks the other end in the cluster before the item is
//! created.

use backup_actions::restore::{
    existing::{self, Existing, RestoredForm},
    json::{self, Object},
    links::{self, Link, LinkAction, OtherEnd},
    mapped_links,
    owners::{self, Adoption, Controller},
    transform, volume,
};
use backup_client::path;
use backup_core::{
    resources::{CLAIMS, VOLUMES, group_resource},
    text::listed,
};
use backup_store::{ItemRef, Scope};
use serde_json::Value;

use super::{
    RestoreError, Restoring,
    item::{CurrentItem, ItemRestorer, group_of},
};
use crate::{
    job::cancellation::StopReason,
    restore::{
        apply::{Outcome, Target},
        volume_outcomes::NamedVolume,
    },
};

/// The provisioner of classes whose volumes are created manually.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// The link to the controller that an item has in the backup.
#[derive(Debug, Default)]
pub(super) struct ControllerLink {
    /// The reference to write.
    pub(super) reference: Option<Value>,
    /// The warning if the item is restored without it.
    pub(super) lost: Option<String>,
}

impl ItemRestorer<'_> {
    /// Why an item is left to its controller, if the controller is part of the restore and creates
    /// a replacement. Items that bring data are restored in any case.
    pub(super) fn left_to_controller(
        &self,
        current: &CurrentItem<'_>,
        from_backup: &Object,
    ) -> Result<Option<&'static str>, RestoreError> {
        let group_resource = current.kind.group_resource;
        let Some(controller) = owners::controller(from_backup) else {
            return Ok(None);
        };
        let Adoption::MadeAgain { by, why } =
            owners::adoption(from_backup, group_resource, &controller)
        else {
            return Ok(None);
        };
        let source = current.id.namespace.as_deref();
        let contents = self.restoring.contents;
        let Some(item) = contents.find(by, source, controller.name) else {
            return Ok(None);
        };
        let brings_data = group_resource == CLAIMS
            && self
                .restoring
                .brings_data(source.unwrap_or_default(), &current.id.name);
        Ok((!brings_data && self.selection.includes(contents, by, &item)?).then_some(why))
    }

    /// The link to the controller of an item that is created as `plural`.
    pub(super) async fn controller_link(
        &self,
        current: &CurrentItem<'_>,
        from_backup: &Object,
        plural: &str,
    ) -> Result<ControllerLink, StopReason> {
        let none = ControllerLink::default();
        let Some(controller) = owners::controller(from_backup) else {
            return Ok(none);
        };
        let Controller { kind, name, .. } = controller;
        let adoption = owners::adoption(from_backup, plural, &controller);
        let (other_end, found) = match adoption {
            Adoption::ByController => return Ok(none),
            Adoption::MadeAgain { .. } => (OtherEnd::None, None),
            Adoption::ByReference => self.controller(current, &controller).await?,
        };
        let uid = found
            .as_ref()
            .and_then(|found| json::text(found, &["metadata"], "uid"));
        // Whatever the policy, an existing item keeps its controller.
        Ok(
            match (links::action(Link::Owner, other_end, false, false), uid) {
                (LinkAction::Write, Some(uid)) => ControllerLink {
                    reference: Some(controller.reference(uid)),
                    ..none
                },
                // In a plan, only the restore would create the controller.
                (LinkAction::Write, None) => none,
                _ => {
                    let why = match (other_end, adoption) {
                        (_, Adoption::MadeAgain { .. }) => {
                            format!("a {kind} takes only what it has made itself")
                        }
                        (OtherEnd::Anothers, _) => {
                            format!("the {kind} of that name is another one")
                        }
                        _ => format!("that {kind} is not in the cluster"),
                    };
                    let about = current.about;
                    let lost = format!(
                        "{} {:?} was restored without its {kind} {name:?}: {why}; nothing deletes it together with its {kind}, so delete \
                     it yourself once it is not needed",
                        about.kind, about.name
                    );
                    ControllerLink {
                        lost: Some(lost),
                        ..none
                    }
                }
            },
        )
    }

    /// Reads the controller of an item by name, and tells whether it is the original, the restored
    /// one, or another.
    async fn controller(
        &self,
        current: &CurrentItem<'_>,
        controller: &Controller<'_>,
    ) -> Result<(OtherEnd, Option<Object>), StopReason> {
        let nothing = (OtherEnd::None, None);
        let Controller {
            api_version,
            kind,
            name,
            uid,
        } = *controller;
        let Some(resource) = self.find_kind(kind, group_of(api_version)) else {
            return Ok(nothing);
        };
        let of_type = group_resource(&resource.plural, &resource.group);
        let source = current.id.namespace.as_deref();
        let namespace = current.about.namespace;
        let stored = self.restoring.contents.find(&of_type, source, name);
        let collection = path::collection(&resource.api_version(), &resource.plural, namespace);
        let found = match self.restoring.calls.get(&collection, name).await {
            Ok(found) => found,
            Err(error) => {
                error.unless_stopped()?;
                return Ok(nothing);
            }
        };
        let Some(found) = found else {
            let planned = self.restoring.calls.is_dry_run()
                && stored.is_some_and(|item| {
                    self.selection
                        .includes(self.restoring.contents, &of_type, &item)
                        .unwrap_or(false)
                });
            return Ok(if planned {
                (OtherEnd::Ours, None)
            } else {
                nothing
            });
        };
        let is_ours = json::text(&found, &["metadata"], "uid") == Some(uid)
            || self.restoring.policy().is_ours(&found)
            || stored.is_some_and(|item| self.is_equal(&item, &of_type, namespace, &found));
        Ok((
            if is_ours {
                OtherEnd::Ours
            } else {
                OtherEnd::Anothers
            },
            Some(found),
        ))
    }

    /// Whether an item of the backup, restored into this namespace, equals the existing object.
    fn is_equal(
        &self,
        item: &ItemRef,
        of_type: &str,
        namespace: Option<&str>,
        found: &Object,
    ) -> bool {
        let Restoring {
            contents, rules, ..
        } = self.restoring;
        let Ok(object) = contents.object(item) else {
            return false;
        };
        let wanted = transform::rewritten(&object, of_type, namespace, rules);
        let made = RestoredForm {
            wanted: &wanted,
            unmodified: None,
        };
        existing::compare(made, found, of_type, namespace, rules, false) == Existing::Equal
    }

    /// Why a claim is not created: another claim holds the volume that it names. Records the state
    /// of that volume.
    pub(super) async fn volume_refused(
        &self,
        target: Target<'_>,
        claim: &Object,
    ) -> Result<Option<String>, StopReason> {
        let Target {
            kind,
            name,
            namespace,
            ..
        } = target;
        let Some(namespace) = namespace.filter(|_| target.group_resource == CLAIMS) else {
            return Ok(None);
        };
        let Some(volume) = volume::volume_of_claim(claim) else {
            if let Some(why) = self.unprovisioned(claim).await? {
                self.restoring
                    .report
                    .claim_names(namespace, name, NamedVolume::Unprovisioned(why));
            }
            return Ok(None);
        };
        let named = match self.named_volume(target, namespace, volume).await {
            Ok(named) => named,
            Err(error) => {
                let error = error.unless_stopped()?;
                return Ok(Some(format!(
                    "{kind} {name:?} was not restored: whether its volume {volume:?} is free could not be read: {error}"
                )));
            }
        };
        let other_end = match &named {
            NamedVolume::Held(_) => OtherEnd::Anothers,
            NamedVolume::Absent => OtherEnd::None,
            NamedVolume::Available | NamedVolume::Another(_) | NamedVolume::Unprovisioned(_) => {
                OtherEnd::Ours
            }
        };
        let policy = self.restoring.policy();
        let action = links::action(
            Link::VolumeOfClaim,
            other_end,
            policy.update,
            !policy.rules.namespaces.is_empty(),
        );
        let refused = match (&named, action) {
            (NamedVolume::Held(holder), LinkAction::Refuse) => Some(format!(
                "{kind} {name:?} was not restored: its volume {volume:?} belongs to claim {holder}, and two claims cannot have one \
                 volume. For a volume of its own, create claim {namespace}/{name} yourself, and restore again: a claim that exists \
                 keeps its volume. To give it this volume, see that the reclaim policy of the volume is Retain, delete claim {holder}, \
                 and restore again with existingResourcePolicy: update"
            )),
            _ => None,
        };
        self.restoring.report.claim_names(namespace, name, named);
        Ok(refused)
    }

    /// Why no volume is provisioned for a claim that names none. `None` if one is, or that is
    /// unknown.
    async fn unprovisioned(&self, claim: &Object) -> Result<Option<String>, StopReason> {
        let Restoring { calls, plan, .. } = self.restoring;
        // In a plan, only the restore may create the class.
        let Some(class) =
            json::text(claim, &["spec"], "storageClassName").filter(|_| !calls.is_dry_run())
        else {
            return Ok(None);
        };
        if class.is_empty() {
            return Ok(Some(
                "it asks for no storage class, so nothing makes one".to_owned(),
            ));
        }
        if let Some(known) = plan.classes.lock().get(class).cloned() {
            return Ok(known);
        }
        let collection = path::collection("storage.k8s.io/v1", "storageclasses", None);
        let why = match calls.get(&collection, class).await {
            Ok(None) => Some(format!(
                "StorageClass {class:?} is not in the cluster, so nothing makes one"
            )),
            Ok(Some(found)) => (json::text(&found, &[], "provisioner") == Some(NO_PROVISIONER))
                .then(|| format!("StorageClass {class:?} makes no volumes ({NO_PROVISIONER})")),
            Err(error) => {
                error.unless_stopped()?;
                None
            }
        };
        plan.classes.lock().insert(class.to_owned(), why.clone());
        Ok(why)
    }

    async fn named_volume(
        &self,
        target: Target<'_>,
        namespace: &str,
        volume: &str,
    ) -> Result<NamedVolume, crate::restore::calls::CallError> {
        let calls = self.restoring.calls;
        let found = calls
            .get(&path::collection("v1", VOLUMES, None), volume)
            .await?;
        let holder = found.as_ref().and_then(volume::holder);
        let this = format!("{namespace}/{}", target.name);
        let is_bound = found
            .as_ref()
            .is_some_and(|found| json::text(found, &["status"], "phase") == Some("Bound"));
        if holder.as_ref() == Some(&this) && is_bound {
            return Ok(NamedVolume::Available);
        }
        let claim = calls.get(target.collection, target.name).await?;
        let has = claim.as_ref().and_then(volume::volume_of_claim);
        Ok(match (has, found, holder) {
            (Some(has), ..) if has != volume => NamedVolume::Another(has.to_owned()),
            // In a plan, only the restore would create it.
            (_, None, _) if calls.is_dry_run() => NamedVolume::Available,
            (_, None, _) => NamedVolume::Absent,
            (_, Some(_), Some(holder)) if holder != this => NamedVolume::Held(holder),
            _ => NamedVolume::Available,
        })
    }

    /// Warns of links in a written object that still lead to the original of a mapped namespace.
    pub(super) fn report_left_links(
        &self,
        target: Target<'_>,
        from_backup: &Object,
        made: &Object,
        outcome: Outcome,
    ) {
        let Target {
            kind,
            name,
            namespace,
            ..
        } = target;
        let rules = &self.restoring.rules;
        if rules.namespaces.is_empty() || ![Outcome::Created, Outcome::Updated].contains(&outcome) {
            return;
        }
        let left = mapped_links::left(from_backup, made, rules);
        if left.total == 0 {
            return;
        }
        let namespaces = left
            .namespaces
            .iter()
            .map(|from| format!("{from:?} (mapped to {:?})", rules.target(from)));
        let namespaces: Vec<String> = namespaces.collect();
        let message = format!(
            "{kind} {name:?} still leads to namespace {}, by {}: these fields do not follow the mapping; if the copy is meant, change \
             them, or restore with a resource modifier that does",
            namespaces.join(", "),
            listed(&left.fields, left.total),
        );
        self.restoring
            .report
            .warn(namespace.map_or(Scope::Cluster, Scope::Namespace), message);
    }
}
