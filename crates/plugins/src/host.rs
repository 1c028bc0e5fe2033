//! All plugin binaries of this process.

use std::{collections::BTreeSet, fmt::Write as _, io, path::PathBuf, sync::Arc, time::Duration};

use backup_actions::ItemAction as _;
use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{
    action::PluginAction,
    binary::Binary,
    catalog::{Kind, Offer, OfferChoice, choose},
    configured::{ConfiguredPlugin, Settings},
    discover,
    log::PluginLog,
    objects::PluginBucket,
    pool::Pool,
    process::Setup,
    snapshotter::{Snapshotter, VolumeSnapshotter},
};

/// Plugins; cheap to clone. [`Host::run`] starts the binaries, and earlier calls wait for it.
#[derive(Clone, Debug)]
pub struct Host(Arc<Inner>);

/// The folder of plugins, and the arguments of each binary: the features, as Velero passes all of
/// the server's flags, and the namespace in the variable that Velero's deployments use.
#[derive(Clone, Debug)]
pub struct Options {
    pub folder: PathBuf,
    pub features: Vec<String>,
    pub namespace: String,
    /// Kubeconfig file of this process, if it has one.
    pub kubeconfig: Option<PathBuf>,
    /// Timeout of an action for one item.
    pub limit: Duration,
}

#[derive(Debug)]
struct Inner {
    folder: Option<PathBuf>,
    setup: Setup,
    /// Timeout of an action for one item.
    limit: Duration,
    /// `None` until the folder was read.
    binaries: watch::Sender<Option<Found>>,
    configured: Pool,
}

/// Interval between checks for idle plugins that run with settings.
const SWEEP_INTERVAL: Duration = Duration::from_mins(1);

/// The binaries in the folder; the error says why it could not be read.
type Found = Result<Arc<[Arc<Binary>]>, String>;

pub struct Actions {
    pub usable: Vec<Arc<PluginAction>>,
    /// Plugins that are not used, and why, as messages for users.
    pub problems: Vec<String>,
}

pub struct PluginNames {
    pub names: BTreeSet<String>,
    pub problems: Vec<String>,
}

impl Host {
    pub fn new(options: Options) -> Self {
        let mut setup = Setup::default();
        if !options.features.is_empty() {
            setup
                .args
                .push(format!("--features={}", options.features.join(",")));
        }
        setup
            .env
            .push(("VELERO_NAMESPACE".to_owned(), options.namespace));
        if let Some(kubeconfig) = &options.kubeconfig {
            setup
                .env
                .push(("KUBECONFIG".to_owned(), kubeconfig.display().to_string()));
        }
        Self::over(Some(options.folder), setup, options.limit, None)
    }

    pub fn none() -> Self {
        Self::over(
            None,
            Setup::default(),
            Duration::from_mins(1),
            Some(Ok(Arc::new([]))),
        )
    }

    fn over(folder: Option<PathBuf>, setup: Setup, limit: Duration, found: Option<Found>) -> Self {
        Self(Arc::new(Inner {
            folder,
            setup,
            limit,
            binaries: watch::Sender::new(found),
            configured: Pool::default(),
        }))
    }

    /// Finds the binaries and runs them until `stop`. An unreadable folder is reported as a problem
    /// of every backup.
    pub async fn run(&self, stop: CancellationToken) {
        let Some(folder) = self.0.folder.clone() else {
            return;
        };
        let shown = folder.display().to_string();
        let found = tokio::task::spawn_blocking(move || discover::executables(&folder)).await;
        let paths = match found.map_err(io::Error::other).flatten() {
            Ok(paths) => paths,
            Err(error) => {
                let reason = format!("the plugin folder {shown} can not be read: {error}");
                tracing::error!(reason, "no plugins");
                self.0.binaries.send_replace(Some(Err(reason)));
                return;
            }
        };
        let binaries: Arc<[Arc<Binary>]> = paths
            .into_iter()
            .map(|path| Arc::new(Binary::new(path, self.0.setup.clone())))
            .collect();
        let mut running = JoinSet::new();
        for binary in binaries.iter() {
            running.spawn(Arc::clone(binary).supervise());
        }
        self.0
            .binaries
            .send_replace(Some(Ok(Arc::clone(&binaries))));
        while tokio::time::timeout(SWEEP_INTERVAL, stop.cancelled())
            .await
            .is_err()
        {
            self.end_all(self.0.configured.take_idle()).await;
        }
        running.abort_all();
        futures::future::join_all(binaries.iter().map(|binary| binary.stop())).await;
        self.end_all(self.0.configured.take_all()).await;
    }

    /// The actions of these kinds. Their output goes to `log`; `built_in` are names that they may
    /// not have.
    pub async fn actions(
        &self,
        kinds: &[Kind],
        built_in: &BTreeSet<String>,
        log: Option<&PluginLog>,
    ) -> Actions {
        let listed = self.listed().await;
        let OfferChoice { used, problems } = listed.choose(kinds, built_in);
        let usable = used.into_iter().filter_map(|(index, offer)| {
            let (binary, _) = listed.binaries.get(index)?;
            PluginAction::new(Arc::clone(binary), offer, self.0.limit, log).map(Arc::new)
        });
        Actions {
            usable: usable.collect(),
            problems,
        }
    }

    /// One action, for questions about its operations. The error says why there is none, and
    /// whether it may appear later.
    pub async fn action(&self, kinds: &[Kind], name: &str) -> Result<Arc<PluginAction>, Missing> {
        let Actions { usable, problems } = self
            .actions(kinds, &BTreeSet::new(), Some(&PluginLog::default()))
            .await;
        usable.into_iter().find(|action| action.name() == name).ok_or_else(|| {
            let reason = format!(
                "there is no action {name} here: install the plugin that has it, or enable its feature"
            );
            Missing::new(reason, &problems)
        })
    }

    /// The bucket of a location that a plugin of this name serves with these settings.
    /// Errors: there is no such plugin; the reason lists the existing ones.
    pub async fn bucket(
        &self,
        plugin: &str,
        bucket: &str,
        settings: Settings,
    ) -> Result<PluginBucket, Missing> {
        match self.find(Kind::ObjectStore, plugin, settings).await {
            Ok(plugin) => Ok(PluginBucket {
                plugin,
                bucket: bucket.to_owned(),
                limit: self.0.limit,
            }),
            Err(others) => Err(self.no_object_store(plugin, &others)),
        }
    }

    fn no_object_store(&self, plugin: &str, others: &OfferChoice) -> Missing {
        let names: Vec<&str> = others
            .used
            .iter()
            .map(|(_, offer)| offer.name.as_str())
            .collect();
        let names = if names.is_empty() {
            "there are none".to_owned()
        } else {
            names.join(", ")
        };
        let folder = self.0.folder.as_ref();
        let folder = folder.map(|folder| format!(" {}", folder.display()));
        let reason = format!(
            "no plugin offers an object store {plugin}; plugins: {names}; built in: {}. Put the plugin's binary into the \
             folder{} of the controller and start it again, or correct spec.provider",
            backup_store::BUILT_IN.join(", "),
            folder.unwrap_or_default()
        );
        Missing::new(reason, &others.problems)
    }

    pub async fn volume_snapshotters(&self) -> PluginNames {
        let OfferChoice { used, problems } = self
            .listed()
            .await
            .choose(&[Kind::VolumeSnapshotter], &BTreeSet::new());
        PluginNames {
            names: used.into_iter().map(|(_, offer)| offer.name).collect(),
            problems,
        }
    }

    /// The plugin of this name that creates snapshots, with these settings. Its output goes into
    /// `log`; without one into ours. Errors: there is no such plugin; the reason says why others
    /// are not used.
    pub async fn volume_snapshotter(
        &self,
        plugin: &str,
        settings: Settings,
        log: Option<&PluginLog>,
    ) -> Result<Arc<dyn VolumeSnapshotter>, Vec<String>> {
        let found = self.find(Kind::VolumeSnapshotter, plugin, settings).await;
        let found = found.map_err(|chosen| chosen.problems)?;
        Ok(Arc::new(Snapshotter {
            plugin: found,
            limit: self.0.limit,
            log: log.cloned(),
        }))
    }

    /// The plugin of this kind and name, with these settings. The error lists the others.
    async fn find(
        &self,
        kind: Kind,
        plugin: &str,
        settings: Settings,
    ) -> Result<Arc<ConfiguredPlugin>, OfferChoice> {
        let listed = self.listed().await;
        let chosen = listed.choose(&[kind], &BTreeSet::new());
        match chosen.used.iter().find(|(_, offer)| offer.name == plugin) {
            Some((index, offer)) => Ok(self.configured(&listed.binaries, *index, offer, settings)),
            None => Err(chosen),
        }
    }

    /// The process of a plugin that runs with these settings.
    fn configured(
        &self,
        binaries: &[(Arc<Binary>, Vec<Offer>)],
        index: usize,
        offer: &Offer,
        settings: Settings,
    ) -> Arc<ConfiguredPlugin> {
        let path = binaries
            .get(index)
            .map(|(binary, _)| binary.path())
            .unwrap_or_default();
        self.0
            .configured
            .get(&path, &offer.name, settings, |settings| {
                ConfiguredPlugin::new(
                    path.clone().into(),
                    self.0.setup.clone(),
                    offer.name.clone(),
                    offer.kind.execute(),
                    settings,
                )
            })
    }

    async fn end_all(&self, plugins: Vec<Arc<ConfiguredPlugin>>) {
        futures::future::join_all(plugins.iter().map(|plugin| plugin.stop())).await;
    }

    /// Every plugin of every binary, used or not, for display. Binaries that do not list their
    /// plugins within `patience` are omitted.
    pub async fn installed(&self, patience: Duration) -> BTreeSet<(Kind, String)> {
        let Ok(Some(Ok(binaries))) = tokio::time::timeout(patience, self.found()).await else {
            return BTreeSet::new();
        };
        let asked = binaries
            .iter()
            .map(|binary| tokio::time::timeout(patience, binary.offers()));
        let offers = futures::future::join_all(asked)
            .await
            .into_iter()
            .flatten()
            .flatten()
            .flatten();
        offers.map(|offer| (offer.kind, offer.name)).collect()
    }

    async fn found(&self) -> Option<Found> {
        let mut binaries = self.0.binaries.subscribe();
        binaries
            .wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|found| found.clone())
    }

    async fn listed(&self) -> OfferListing {
        let binaries = match self.found().await {
            Some(Ok(binaries)) => binaries,
            Some(Err(reason)) => {
                return OfferListing {
                    problems: vec![reason],
                    ..OfferListing::default()
                };
            }
            None => return OfferListing::default(),
        };
        let mut listed = OfferListing::default();
        let asked = binaries
            .iter()
            .map(|binary| async { (Arc::clone(binary), binary.offers().await) });
        for (binary, offers) in futures::future::join_all(asked).await {
            match offers {
                Ok(offers) => listed.binaries.push((binary, offers)),
                Err(error) => listed.problems.push(format!(
                    "{error}. None of its plugins is run: mend it, or remove it from the plugin folder"
                )),
            }
        }
        listed
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    pub reason: String,
    /// Whether it may be offered by a binary that could not be asked now.
    pub may_come: bool,
}

impl Missing {
    fn new(mut reason: String, problems: &[String]) -> Self {
        for problem in problems {
            let _ = write!(reason, "; {problem}");
        }
        Self {
            reason,
            may_come: !problems.is_empty(),
        }
    }
}

#[derive(Default)]
struct OfferListing {
    binaries: Vec<(Arc<Binary>, Vec<Offer>)>,
    problems: Vec<String>,
}

impl OfferListing {
    fn choose(&self, kinds: &[Kind], built_in: &BTreeSet<String>) -> OfferChoice {
        let mut of_kinds = Vec::new();
        for (binary, offers) in &self.binaries {
            let offers: Vec<Offer> = offers
                .iter()
                .filter(|offer| kinds.contains(&offer.kind))
                .cloned()
                .collect();
            of_kinds.push((binary.path(), offers));
        }
        let mut chosen = choose(&of_kinds, built_in);
        chosen.problems.extend(self.problems.iter().cloned());
        chosen
    }
}
