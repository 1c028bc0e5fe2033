//! Finds the volumes of the cluster that a backup would save: for `install`, which turns snapshots
//! on if they can be taken, and `doctor`. Only a real backup shows whether a driver or a plugin
//! succeeds.

use std::collections::{BTreeMap, BTreeSet};

use backup_actions::backup::{NoClass, choose_class};
use backup_core::{
    api::VolumeSnapshotLocation,
    text::{counted, listed},
};
use jiff::SignedDuration;
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    storage::v1::CSIDriver,
};
use kube::{Resource, core::GroupVersionKind};

use super::{
    finding::{Finding, Topic},
    prelude::*,
};
use crate::print::human;

pub(crate) const ON: Topic = Topic("volumes");
const GROUP: &str = "snapshot.storage.k8s.io";
const VERSION: &str = "v1";
/// Resources that snapshots of CSI volumes need.
const NEEDED: [&str; 3] = [
    "volumesnapshotclasses",
    "volumesnapshotcontents",
    "volumesnapshots",
];
const SNAPSHOT_CONTROLLER_LEASE: &str = "snapshot-controller-leader";
/// Maximum age of the last renewal of that Lease: it is renewed every few seconds.
const MAX_RENEWAL_AGE: SignedDuration = SignedDuration::from_mins(2);
/// Maximum number of claims that are named; the others are counted.
const MAX_NAMED: usize = 5;

/// Whether the controller takes snapshots of CSI volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Snapshots {
    On,
    Off,
    Unknown,
}

/// The cluster's volumes, and what their snapshots depend on.
#[derive(Debug, Default)]
pub(crate) struct Volumes {
    /// Names of the installed CSI drivers.
    drivers: BTreeSet<String>,
    /// All VolumeSnapshotClasses; `None` if the cluster lacks a resource of [`NEEDED`].
    classes: Option<Vec<DynamicObject>>,
    claims: Vec<Claim>,
    /// Names of the locations for plugin snapshots.
    plugin_locations: Vec<String>,
    /// State of the snapshot controller, by its Lease.
    snapshot_controller: SnapshotController,
}

/// Whether the snapshot controller runs: without it no VolumeSnapshot becomes ready. Its manifests
/// turn leader election on (kubernetes-csi/external-snapshotter
/// `deploy/kubernetes/snapshot-controller`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum SnapshotController {
    Runs,
    /// The time since the last renewal of its Lease.
    Stopped(String),
    /// It may run without leader election, or outside the cluster. `Unread` has the reason why the
    /// Lease could not be read.
    #[default]
    Unknown,
    Unread(String),
}

/// A bound claim.
#[derive(Debug)]
struct Claim {
    /// `namespace/name`
    name: String,
    annotations: BTreeMap<String, String>,
    source: Source,
}

#[derive(Debug)]
enum Source {
    /// A volume of the named CSI driver.
    Csi(String),
    Other,
    Gone,
}

/// Why the data of a volume would not be in a backup.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Why {
    Off,
    NotServed,
    NoDriver,
    NoClass(NoClass),
    NotCsi,
    Gone,
}

/// How a backup treats the data of a volume.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    Snapshot,
    /// A plugin may take a snapshot.
    Plugin,
    /// It depends on data that could not be read.
    Unknown,
    Lost(Why),
}

impl Why {
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::Off => "snapshots of CSI volumes are off".to_owned(),
            Self::NotServed => {
                format!(
                    "the cluster does not serve {GROUP}/{VERSION} ({})",
                    NEEDED.join(", ")
                )
            }
            Self::NoDriver => "no CSI driver is installed".to_owned(),
            Self::NoClass(none) => none.why.clone(),
            Self::NotCsi => "a volume that is not of a CSI driver can't be snapshotted".to_owned(),
            Self::Gone => "the PersistentVolume does not exist".to_owned(),
        }
    }

    pub(crate) fn remedy(&self) -> String {
        match self {
            Self::Off => "Turn them on: kubectl backup upgrade --snapshots".to_owned(),
            Self::NotServed | Self::NoDriver => {
                "Install a CSI driver that takes snapshots, the snapshot controller with its definitions, and a \
                 VolumeSnapshotClass; then: kubectl backup upgrade --snapshots"
                    .to_owned()
            }
            Self::NoClass(none) => {
                let mut remedy = none.remedy.clone();
                if let Some(first) = remedy.get_mut(..1) {
                    first.make_ascii_uppercase();
                }
                remedy + "."
            }
            Self::NotCsi => {
                "Move the data to a volume of a CSI driver, or name a location for snapshots by a plugin: kubectl backup \
                 locations snapshots create --help"
                    .to_owned()
            }
            Self::Gone => "The claim has lost its data; see kubectl get persistentvolumeclaims -A".to_owned(),
        }
    }
}

pub(crate) async fn observe(session: &Session, now: Timestamp) -> Result<Volumes, Problem> {
    let ((drivers, classes), claims, plugin_locations, snapshot_controller) = futures::try_join!(
        async { futures::try_join!(drivers(session), classes(session)) },
        claims(session),
        plugin_locations(session),
        async { Ok(snapshot_controller(session, now).await) }
    )?;
    Ok(Volumes {
        drivers,
        classes,
        claims,
        plugin_locations,
        snapshot_controller,
    })
}

async fn snapshot_controller(session: &Session, now: Timestamp) -> SnapshotController {
    let api: Api<Lease> = Api::all(session.client.clone());
    let params =
        ListParams::default().fields(&format!("metadata.name={SNAPSHOT_CONTROLLER_LEASE}"));
    let renewals = session
        .list(
            About::of::<Lease>("list", SNAPSHOT_CONTROLLER_LEASE),
            &api,
            params,
            |lease: Lease| Some(lease.spec?.renew_time?.0),
        )
        .await;
    let last = match renewals {
        Ok(all) => all.into_iter().max(),
        Err(problem) => return SnapshotController::Unread(problem.to_string()),
    };
    let Some(last) = last else {
        return SnapshotController::Unknown;
    };
    let age = now.duration_since(last);
    if age <= MAX_RENEWAL_AGE {
        SnapshotController::Runs
    } else {
        SnapshotController::Stopped(human(age.as_secs()))
    }
}

/// Lists all objects of a kind in the cluster.
pub(crate) async fn all<K, T>(
    session: &Session,
    keep: impl FnMut(K) -> Option<T>,
) -> Result<Vec<T>, Problem>
where
    K: Resource<DynamicType = ()>
        + Clone
        + serde::de::DeserializeOwned
        + std::fmt::Debug
        + Send
        + 'static,
{
    let api: Api<K> = Api::all(session.client.clone());
    session
        .list(
            About::of::<K>("list", ""),
            &api,
            ListParams::default(),
            keep,
        )
        .await
}

async fn drivers(session: &Session) -> Result<BTreeSet<String>, Problem> {
    let all = all(session, |driver: CSIDriver| driver.metadata.name).await?;
    Ok(all.into_iter().collect())
}

async fn classes(session: &Session) -> Result<Option<Vec<DynamicObject>>, Problem> {
    let version = format!("{GROUP}/{VERSION}");
    let about = About::called("list", GROUP, GROUP, "");
    let served = session
        .call(about, session.client.list_api_group_resources(&version))
        .await;
    let served = match served {
        Ok(list) => list.resources,
        Err(problem) if is_absent(&problem) => return Ok(None),
        Err(problem) => return Err(problem),
    };
    if !NEEDED
        .iter()
        .all(|plural| served.iter().any(|one| one.name == *plural))
    {
        return Ok(None);
    }
    let gvk = GroupVersionKind::gvk(GROUP, VERSION, "VolumeSnapshotClass");
    let [plural, ..] = NEEDED;
    let api: Api<DynamicObject> = Api::all_with(
        session.client.clone(),
        &ApiResource::from_gvk_with_plural(&gvk, plural),
    );
    let about = About::called("list", "volumesnapshotclass", plural, "");
    session
        .list(about, &api, ListParams::default(), Some)
        .await
        .map(Some)
}

async fn claims(session: &Session) -> Result<Vec<Claim>, Problem> {
    let (volumes, claims) =
        futures::try_join!(all(session, name_and_source), all(session, bound_claim))?;
    let mut volumes: BTreeMap<String, Source> = volumes.into_iter().collect();
    let claims = claims.into_iter().map(|(volume, name, annotations)| Claim {
        name,
        annotations,
        source: volumes.remove(&volume).unwrap_or(Source::Gone),
    });
    Ok(claims.collect())
}

fn name_and_source(volume: PersistentVolume) -> Option<(String, Source)> {
    let source = match volume.spec?.csi {
        Some(csi) => Source::Csi(csi.driver),
        None => Source::Other,
    };
    Some((volume.metadata.name?, source))
}

/// The name of the volume, and the name and the annotations of the claim; `None` if it is not
/// bound.
fn bound_claim(claim: PersistentVolumeClaim) -> Option<(String, String, BTreeMap<String, String>)> {
    let is_bound = claim.status.as_ref()?.phase.as_deref() == Some("Bound");
    let volume = claim
        .spec
        .as_ref()?
        .volume_name
        .clone()
        .filter(|_| is_bound)?;
    let name = format!(
        "{}/{}",
        claim.namespace().unwrap_or_default(),
        claim.name_any()
    );
    Some((volume, name, claim.metadata.annotations.unwrap_or_default()))
}

async fn plugin_locations(session: &Session) -> Result<Vec<String>, Problem> {
    let names = session
        .list_readable(ListParams::default(), |location: VolumeSnapshotLocation| {
            Some(location.name_any())
        })
        .await;
    match names {
        Err(problem) if is_absent(&problem) => Ok(Vec::new()),
        found => found,
    }
}

/// Whether the cluster does not serve a kind, for example before the installation.
fn is_absent(problem: &Problem) -> bool {
    matches!(
        problem.kind,
        ProblemKind::NotFound | ProblemKind::NotServed | ProblemKind::NoNamespace
    )
}

impl Volumes {
    /// The drivers whose volumes can be snapshotted, or why there are none.
    pub(crate) fn snapshottable(&self) -> Result<Vec<&str>, Why> {
        let Some(classes) = &self.classes else {
            return Err(Why::NotServed);
        };
        let used = self.claims.iter().filter_map(|claim| match &claim.source {
            Source::Csi(driver) => Some(driver),
            Source::Other | Source::Gone => None,
        });
        let drivers: BTreeSet<&str> = self
            .drivers
            .iter()
            .chain(used)
            .map(String::as_str)
            .collect();
        let mut usable = Vec::new();
        let mut why = Why::NoDriver;
        for driver in drivers {
            match choose_class(driver, &BTreeMap::new(), None, &BTreeMap::new(), classes) {
                Ok(_) => usable.push(driver),
                Err(none) => why = Why::NoClass(none),
            }
        }
        if usable.is_empty() {
            Err(why)
        } else {
            Ok(usable)
        }
    }

    fn fate(&self, claim: &Claim, snapshots: Snapshots) -> Fate {
        let may_be_plugin = !self.plugin_locations.is_empty();
        let driver = match &claim.source {
            Source::Gone => return Fate::Lost(Why::Gone),
            Source::Other => {
                return if may_be_plugin {
                    Fate::Plugin
                } else {
                    Fate::Lost(Why::NotCsi)
                };
            }
            Source::Csi(driver) => driver,
        };
        if may_be_plugin && snapshots != Snapshots::On {
            return Fate::Plugin;
        }
        let Some(classes) = &self.classes else {
            return Fate::Lost(Why::NotServed);
        };
        match (
            choose_class(driver, &claim.annotations, None, &BTreeMap::new(), classes),
            snapshots,
        ) {
            (Err(none), _) => Fate::Lost(Why::NoClass(none)),
            (Ok(_), Snapshots::On) => Fate::Snapshot,
            (Ok(_), Snapshots::Off) => Fate::Lost(Why::Off),
            (Ok(_), Snapshots::Unknown) => Fate::Unknown,
        }
    }

    /// Findings for the data of all volumes that are bound to a claim, grouped by fate.
    pub(crate) fn findings(&self, snapshots: Snapshots) -> Vec<Finding> {
        let mut by_fate = BTreeMap::<Fate, Vec<&str>>::new();
        for claim in &self.claims {
            by_fate
                .entry(self.fate(claim, snapshots))
                .or_default()
                .push(&claim.name);
        }
        let of = counted(self.claims.len(), "volume");
        if by_fate.is_empty() {
            return vec![ON.good("no claim is bound to a volume")];
        }
        by_fate
            .into_iter()
            .map(|(fate, names)| self.finding(&fate, names, &of))
            .collect()
    }

    /// The finding for the claims of one fate; `of` counts all volumes.
    fn finding(&self, fate: &Fate, mut names: Vec<&str>, of: &str) -> Finding {
        names.sort_unstable();
        let count = names.len();
        names.truncate(MAX_NAMED);
        let listing = plain(&listed(&names, count));
        match fate {
            Fate::Snapshot => self.snapshots(&format!("{count} of {of}")),
            Fate::Plugin => {
                let locations = plain(&self.plugin_locations.join(", "));
                let why = format!(
                    "whether a plugin takes snapshots of {count} of {of} (locations: {locations}): {listing}"
                );
                ON.unknown(
                    &why,
                    Some("`kubectl backup describe` of a backup says it.".to_owned()),
                )
            }
            Fate::Unknown => {
                let why =
                    format!("whether the controller takes snapshots of {count} of {of}: {listing}");
                ON.unknown(&why, Some("It does with --features=EnableCSI.".to_owned()))
            }
            Fate::Lost(why) => {
                let text = format!(
                    "a backup would not hold the data of {count} of {of}: {listing}; {}",
                    plain(&why.reason())
                );
                ON.warn(text, plain(&why.remedy()))
            }
        }
    }

    /// The finding for volumes that are saved by snapshots.
    fn snapshots(&self, volumes: &str) -> Finding {
        let remedy = "kubectl get pods -A | grep snapshot-controller";
        match &self.snapshot_controller {
            SnapshotController::Runs => ON.good(format!("a backup takes snapshots of {volumes}")),
            SnapshotController::Stopped(age) => ON.warn(
                format!(
                    "a backup takes snapshots of {volumes}, but the snapshot controller renewed its Lease {age} ago: snapshots \
                     may never be ready"
                ),
                remedy,
            ),
            SnapshotController::Unknown => ON.unknown(
                &format!(
                    "whether snapshots of {volumes} become ready: no Lease {SNAPSHOT_CONTROLLER_LEASE} shows that a snapshot \
                     controller runs"
                ),
                Some(remedy.to_owned()),
            ),
            SnapshotController::Unread(why) => ON.unknown(
                &format!("whether a snapshot controller runs, for snapshots of {volumes}: {}", plain(why)),
                None,
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::print::Tone;

    fn class(name: &str, driver: &str) -> DynamicObject {
        serde_json::from_value(json!({ "metadata": { "name": name }, "driver": driver })).unwrap()
    }

    fn claim(name: &str, source: Source) -> Claim {
        Claim {
            name: name.to_owned(),
            annotations: BTreeMap::new(),
            source,
        }
    }

    fn with_controller() -> Volumes {
        Volumes {
            snapshot_controller: SnapshotController::Runs,
            ..Volumes::default()
        }
    }

    #[test]
    fn without_a_snapshot_controller_snapshots_are_not_good() {
        let classes = Some(vec![class("fast", "disk")]);
        let mut volumes = Volumes {
            classes,
            claims: vec![of_disk("shop/a")],
            ..Volumes::default()
        };
        for (controller, tone) in [
            (SnapshotController::Runs, Tone::Good),
            (SnapshotController::Stopped("3d".to_owned()), Tone::Warn),
            (SnapshotController::Unknown, Tone::Unknown),
            (
                SnapshotController::Unread("forbidden".to_owned()),
                Tone::Unknown,
            ),
        ] {
            volumes.snapshot_controller = controller;
            assert_eq!(seen(&volumes, Snapshots::On)[0].0, tone);
        }
    }

    fn of_disk(name: &str) -> Claim {
        claim(name, Source::Csi("disk".to_owned()))
    }

    fn seen(volumes: &Volumes, snapshots: Snapshots) -> Vec<(Tone, String)> {
        volumes
            .findings(snapshots)
            .into_iter()
            .map(|finding| (finding.tone, finding.text))
            .collect()
    }

    #[test]
    fn each_volume_that_nothing_saves_is_named_with_the_reason() {
        let claims = vec![
            of_disk("shop/b"),
            of_disk("shop/a"),
            claim("db/files", Source::Other),
            claim("db/lost", Source::Gone),
        ];
        let mut volumes = Volumes {
            classes: Some(vec![class("fast", "disk")]),
            claims,
            ..with_controller()
        };
        let lost = "a backup would not hold the data of 1 of 4 volumes";
        let not_csi = (
            Tone::Warn,
            format!("{lost}: db/files; a volume that is not of a CSI driver can't be snapshotted"),
        );
        let gone = (
            Tone::Warn,
            format!("{lost}: db/lost; the PersistentVolume does not exist"),
        );
        let both = "2 of 4 volumes: shop/a, shop/b";
        let good = (
            Tone::Good,
            "a backup takes snapshots of 2 of 4 volumes".to_owned(),
        );
        let off = (
            Tone::Warn,
            format!("a backup would not hold the data of {both}; snapshots of CSI volumes are off"),
        );
        let unknown = (
            Tone::Unknown,
            format!("not known: whether the controller takes snapshots of {both}"),
        );
        assert_eq!(
            seen(&volumes, Snapshots::On),
            [good.clone(), not_csi.clone(), gone.clone()]
        );
        assert_eq!(
            seen(&volumes, Snapshots::Off),
            [off, not_csi.clone(), gone.clone()]
        );
        assert_eq!(
            seen(&volumes, Snapshots::Unknown),
            [unknown, not_csi, gone.clone()]
        );
        // A plugin may save volumes that CSI does not; whether it does is unknown here.
        volumes.plugin_locations = vec!["aws".to_owned()];
        let plugin = |what: &str| {
            (
                Tone::Unknown,
                format!("not known: whether a plugin takes snapshots of {what}"),
            )
        };
        let files = plugin("1 of 4 volumes (locations: aws): db/files");
        assert_eq!(seen(&volumes, Snapshots::On), [good, files, gone.clone()]);
        assert_eq!(
            seen(&volumes, Snapshots::Off),
            [
                plugin("3 of 4 volumes (locations: aws): db/files, shop/a, shop/b"),
                gone
            ]
        );
    }

    #[test]
    fn a_claim_that_names_its_class_needs_no_mark_on_one() {
        let classes = Some(vec![class("fast", "disk"), class("slow", "disk")]);
        let mut volumes = Volumes {
            classes,
            claims: vec![of_disk("shop/a")],
            ..with_controller()
        };
        let lost = "a backup would not hold the data of 1 of 1 volume: shop/a; there are 2 VolumeSnapshotClasses of the driver disk, and none is marked";
        assert_eq!(
            seen(&volumes, Snapshots::On),
            [(Tone::Warn, lost.to_owned())]
        );
        assert!(matches!(volumes.snapshottable(), Err(Why::NoClass(_))));
        for claim in &mut volumes.claims {
            claim.annotations = BTreeMap::from([(
                "velero.io/csi-volumesnapshot-class".to_owned(),
                "slow".to_owned(),
            )]);
        }
        let good = "a backup takes snapshots of 1 of 1 volume";
        assert_eq!(
            seen(&volumes, Snapshots::On),
            [(Tone::Good, good.to_owned())]
        );
    }

    #[test]
    fn many_are_counted_and_none_is_good() {
        let claims = (0..12)
            .map(|at| of_disk(&format!("shop/{at:02}")))
            .collect();
        let many = Volumes {
            claims,
            ..Volumes::default()
        };
        let [(_, text)] = seen(&many, Snapshots::On).try_into().unwrap();
        assert_says!(
            text,
            "12 of 12 volumes: shop/00, shop/01, shop/02, shop/03, shop/04 and 7 more; the cluster does not serve"
        );
        let none = (Tone::Good, "no claim is bound to a volume".to_owned());
        assert_eq!(seen(&Volumes::default(), Snapshots::Off), [none]);
    }

    #[test]
    fn every_part_that_snapshots_need_is_looked_for() {
        let mut volumes = Volumes::default();
        assert_eq!(volumes.snapshottable(), Err(Why::NotServed));
        volumes.classes = Some(vec![class("other", "other")]);
        assert_eq!(volumes.snapshottable(), Err(Why::NoDriver));
        volumes.drivers = BTreeSet::from(["disk".to_owned()]);
        let why = volumes.snapshottable().unwrap_err();
        assert_eq!(
            why.reason(),
            "there is no VolumeSnapshotClass of the driver disk"
        );
        assert!(
            why.remedy().starts_with("Create one, or"),
            "{}",
            why.remedy()
        );
        volumes.drivers.insert("other".to_owned());
        assert_eq!(volumes.snapshottable(), Ok(vec!["other"]));
        // A driver without a CSIDriver object counts, too.
        volumes.drivers.clear();
        volumes.claims = vec![claim("a/b", Source::Csi("other".to_owned()))];
        assert_eq!(volumes.snapshottable(), Ok(vec!["other"]));
    }
}
