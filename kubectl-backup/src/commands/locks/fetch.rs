//! Reads the ledgers, and the stored objects that belong to them.

use std::{collections::BTreeSet, sync::Arc};

use backup_core::{
    labels::{PART_OF, PROFILE_LABEL},
    profile::{Profile, ScopeRule},
};
use backup_lock::{
    Ledger, LedgerStore, ObjectKey, ObjectKind, Registration, VELERO_SCOPE,
    lease::lease_name,
    observe::{ObservedObject, resource},
};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{coordination::v1::Lease, core::v1::ConfigMap},
};
use kube::Resource;

use super::problem::{LockRole, damage, lost};
use crate::{
    commands::{known_profiles::KnownProfiles, prelude::*},
    view::locks::{FoundLedger, is_claimed, profile_of},
};

/// The prefix of all ledger names.
const LEDGERS: &str = "backup-lock-";

/// Ledgers of a profile in the installation's namespace.
pub(crate) fn store(session: &Session, profile: Profile) -> LedgerStore {
    LedgerStore::of_profile(
        session.client.clone(),
        &session.namespace,
        Arc::new(profile),
    )
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Within {
    Installation,
    Cluster,
}

impl Within {
    fn api<K>(self, session: &Session) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        match self {
            Self::Installation => session.api(),
            Self::Cluster => Api::all(session.client.clone()),
        }
    }
}

pub(crate) struct Ledgers {
    pub(crate) all: Vec<FoundLedger>,
}

impl Ledgers {
    /// Reads every Lease with the name of a ledger, even if it was modified, and finds ledgers that
    /// are lost.
    pub(crate) async fn read(
        session: &Session,
        known: &KnownProfiles,
        within: Within,
    ) -> Result<Self, Problem> {
        // Leaves out the Leases of nodes.
        let params = ListParams::default().fields("metadata.namespace!=kube-node-lease");
        let about = About::called("list", "ledger", "ledgers (Leases)", "");
        let api = within.api::<Lease>(session);
        let all = session
            .list(about, &api, params, |lease: Lease| {
                let is_ours = lease.name_any().starts_with(LEDGERS);
                is_ours.then(|| read(session, known, lease))
            })
            .await;
        let mut all = all.map_err(|problem| LockRole::View.explain(problem, &session.namespace))?;
        for (namespace, scope) in lost_scopes(session, within, &all).await {
            let name = profile_of(&scope);
            all.push(FoundLedger {
                namespace,
                lease: lease_name(&scope),
                lease_uid: String::new(),
                finalizers: Vec::new(),
                profile: known.get_or_stand_in(name),
                is_known: known.get(name).is_some(),
                ledger: Err(lost()),
                scope,
            });
        }
        Ok(Self { all })
    }

    /// Whether an object has an entry in the ledger of its scope, or waits for one.
    pub(crate) fn claims(&self, object: &ObservedObject) -> bool {
        self.all
            .iter()
            .filter(|read| Some(&read.scope) == object.scope.as_ref())
            .any(|read| {
                // If the ledger cannot be read, the entry is not reported as missing.
                read.ledger
                    .as_ref()
                    .ok()
                    .is_none_or(|ledger| is_claimed(ledger, object))
            })
    }
}

fn read(session: &Session, known: &KnownProfiles, lease: Lease) -> FoundLedger {
    let annotations = lease.metadata.annotations.as_ref();
    let said = annotations
        .and_then(|all| all.get(backup_core::labels::SCOPE_ANNOTATION))
        .cloned();
    let name = lease.name_any();
    // The Lease's name cannot be edited, but its annotation can.
    let velero = (name == lease_name(VELERO_SCOPE)).then(|| VELERO_SCOPE.to_owned());
    let scope = velero
        .or(said.filter(|scope| lease_name(scope) == name))
        .unwrap_or_default();
    let label = lease
        .metadata
        .labels
        .as_ref()
        .and_then(|all| all.get(PROFILE_LABEL));
    let profile_name = label.map_or_else(|| profile_of(&scope), String::as_str);
    let profile = known.get_or_stand_in(profile_name);
    let is_known = known.get(profile_name).is_some();
    let lease_uid = lease.metadata.uid.clone().unwrap_or_default();
    let namespace = lease.namespace().unwrap_or_default();
    let finalizers = lease.metadata.finalizers.clone().unwrap_or_default();
    let stored = store(session, profile.clone()).of_lease(lease);
    let ledger = stored
        .map(|stored| Ledger::clone(&stored.ledger))
        .map_err(|error| damage(&error, &namespace));
    FoundLedger {
        namespace,
        scope,
        lease: name,
        lease_uid,
        finalizers,
        profile,
        is_known,
        ledger,
    }
}

/// Namespaces and scopes whose marker refers to a missing ledger. Only a hint: a user who may read
/// the locks may not be permitted to read markers.
async fn lost_scopes(
    session: &Session,
    within: Within,
    found: &[FoundLedger],
) -> BTreeSet<(String, String)> {
    let about = About::called("list", "marker", "markers", "");
    let params = ListParams::default().labels(&format!("{PART_OF}=backup"));
    let api = within.api::<ConfigMap>(session);
    let all = session
        .list(about, &api, params, |marker| lost_scope(marker, found))
        .await;
    all.unwrap_or_default().into_iter().collect()
}

/// The namespace and the scope of a marker whose ledger is not among those that were found.
fn lost_scope(marker: ConfigMap, found: &[FoundLedger]) -> Option<(String, String)> {
    let namespace = marker.namespace().unwrap_or_default();
    let name = marker.name_any();
    let mut data = marker.data?;
    let opened = data.get("ledger").is_some_and(|uid| !uid.is_empty());
    let scope = data.remove("scope")?;
    let is_there = found
        .iter()
        .any(|read| read.namespace == namespace && read.lease == name);
    let is_lost = opened && lease_name(&scope) == name && !is_there;
    is_lost.then_some((namespace, scope))
}

/// Every unended Backup and Restore of Velero and of these profiles, from fresh lists; and one
/// sentence for each list that could not be read.
pub(super) async fn unended(
    session: &Session,
    known: &KnownProfiles,
    profiles: &BTreeSet<String>,
    ledgers: &Ledgers,
) -> (Vec<ObservedObject>, Vec<String>) {
    let mut objects = Vec::new();
    let mut unchecked = Vec::new();
    // Objects outside the installations are never claimed. If the registration cannot be read, no
    // object is left out.
    let registration = Registration::read(session.client.clone())
        .await
        .ok()
        .flatten();
    let wanted = profiles
        .iter()
        .map(String::as_str)
        .filter(|name| *name != "velero");
    for name in std::iter::once("velero").chain(wanted) {
        let Some(profile) = known.get(name) else {
            let why = known.misses(name);
            unchecked.push(format!(
                "{why}: what runs there without a claim could not be looked for"
            ));
            continue;
        };
        // Objects of a database cluster are in the namespace that its scope names.
        let mut namespaces: BTreeSet<&str> = match profile.scope {
            ScopeRule::Cluster => [session.namespace.as_str()].into(),
            ScopeRule::Field { .. } => BTreeSet::new(),
        };
        let scopes = ledgers.all.iter().filter(|read| read.profile.name == name);
        namespaces.extend(scopes.filter_map(|read| read.scope.split('/').nth(1)));
        for kind in [ObjectKind::Restore, ObjectKind::Backup] {
            let Some(resource) = resource(profile, kind) else {
                continue;
            };
            let read = async |api: Api<DynamicObject>| {
                let about = About::called("list", "object", &resource.plural, "");
                let params = ListParams::default();
                session
                    .list(about, &api, params, |object: DynamicObject| {
                        let seen = ObservedObject::of(profile, kind, &object);
                        let counts = !profile.is_velero()
                            || !is_elsewhere(&seen.key, registration.as_ref(), session);
                        (!seen.over && seen.scope.is_some() && counts).then_some(seen)
                    })
                    .await
            };
            let problem = match read(Api::all_with(session.client.clone(), &resource)).await {
                Ok(seen) => {
                    objects.extend(seen);
                    continue;
                }
                Err(problem) => problem,
            };
            let mut failed = None;
            if problem.kind == ProblemKind::Forbidden {
                for namespace in &namespaces {
                    let api = Api::namespaced_with(session.client.clone(), namespace, &resource);
                    match read(api).await {
                        Ok(seen) => objects.extend(seen),
                        Err(problem) => failed = Some(problem),
                    }
                }
            } else {
                failed = Some(problem);
            }
            let plural = format!("{}.{}", resource.plural, resource.group);
            match failed {
                Some(problem) if problem.kind == ProblemKind::NotServed => {}
                Some(problem) => {
                    unchecked.push(format!(
                        "could not look for {plural} that run without a claim: {problem}"
                    ));
                }
                None => {
                    let names: Vec<&str> = namespaces.iter().copied().collect();
                    unchecked.push(format!(
                        "looked for {plural} that run without a claim only in namespace {}: you may not list others",
                        names.join(", ")
                    ));
                }
            }
        }
    }
    (objects, unchecked)
}

/// Whether an object is outside the installations that the registration names.
fn is_elsewhere(key: &ObjectKey, registration: Option<&Registration>, session: &Session) -> bool {
    registration.is_some_and(|found| !found.installations.contains(&key.namespace))
        && key.namespace != session.namespace
}
