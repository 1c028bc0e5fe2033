//! All plugin binaries of this process.

use std::{collections::BTreeSet, fmt::Write as _, path::PathBuf, sync::Arc, time::Duration};

use backup_actions::{
    backup::{BackupItemAction, ItemBlockAction},
    restore::RestoreItemAction,
};
use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{
    action::PluginAction,
    binary::Binary,
    catalog::{Chosen, Kind, Offer, choose},
    configured::{Configured, Settings},
    discover,
    error::PluginError,
    log::PluginLog,
    objects::PluginBucket,
    pool::Pool,
    process::Setup,
    snapshotter::{Snapshotter, VolumeSnapshotter},
};

/// Plugins; cheap to clone. Nothing runs before [`Host::run`], and who asks before that waits for it.
#[derive(Clone, Debug)]
pub struct Host(Arc<Inner>);

/// Where plugins are, and what each binary gets: the features, as Velero's get all of the server's flags, and the namespace in
/// the variable that Velero's deployments have it in.
#[derive(Clone, Debug)]
pub struct Options {
    pub folder: PathBuf,
    pub features: Vec<String>,
    pub namespace: String,
    /// Kubeconfig file of this process, if it has one.
    pub kubeconfig: Option<PathBuf>,
    /// How long an action may take for an item.
    pub limit: Duration,
}

#[derive(Debug)]
struct Inner {
    folder: Option<PathBuf>,
    setup: Setup,
    /// How long an action may take for an item.
    limit: Duration,
    /// None until the folder was read.
    binaries: watch::Sender<Option<Found>>,
    configured: Pool,
}

/// How often those that run with settings are looked at, whether anybody needs them.
const SWEEP: Duration = Duration::from_mins(1);

/// What is in the folder; the error says why it could not be read.
type Found = Result<Arc<[Arc<Binary>]>, String>;

pub struct Actions<A> {
    pub usable: Vec<A>,
    /// What is not run, and why, as sentences for people.
    pub problems: Vec<String>,
}

impl<A> Actions<A> {
    /// The one of this name. The error says why there is none.
    fn only(self, name: &str, name_of: impl Fn(&A) -> &str) -> Result<A, Missing> {
        if let Some(action) = self.usable.into_iter().find(|action| name_of(action) == name) {
            return Ok(action);
        }
        let mut reason = format!(
            "there is no action {name} here any more: install the plugin that has it, or enable its feature"
        );
        for problem in &self.problems {
            let _ = write!(reason, "; {problem}");
        }
        Err(Missing { reason, may_come: !self.problems.is_empty() })
    }
}

impl Host {
    pub fn new(options: Options) -> Self {
        let mut setup = Setup::default();
        if !options.features.is_empty() {
            setup.args.push(format!("--features={}", options.features.join(",")));
        }
        setup.env.push(("VELERO_NAMESPACE".to_owned(), options.namespace));
        if let Some(kubeconfig) = &options.kubeconfig {
            setup.env.push(("KUBECONFIG".to_owned(), kubeconfig.display().to_string()));
        }
        Self(Arc::new(Inner {
            folder: Some(options.folder),
            setup,
            limit: options.limit,
            binaries: watch::Sender::new(None),
            configured: Pool::default(),
        }))
    }

    pub fn none() -> Self {
        Self(Arc::new(Inner {
            folder: None,
            setup: Setup::default(),
            limit: Duration::from_mins(1),
            binaries: watch::Sender::new(Some(Ok(Arc::new([])))),
            configured: Pool::default(),
        }))
    }

    /// Finds the binaries and runs them until `stop`. A folder that cannot be read is a problem of every backup.
    pub async fn run(&self, stop: CancellationToken) {
        let Some(folder) = self.0.folder.clone() else { return };
        let shown = folder.display().to_string();
        let found = tokio::task::spawn_blocking(move || discover::executables(&folder)).await;
        let found = match found {
            Ok(Ok(paths)) => Ok(paths),
            Ok(Err(error)) => Err(error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        let paths = match found {
            Ok(paths) => paths,
            Err(error) => {
                let reason = format!("the plugin folder {shown} can not be read: {error}");
                tracing::error!(reason, "no plugins");
                self.0.binaries.send_replace(Some(Err(reason)));
                return;
            }
        };
        let binary = |path| Arc::new(Binary::new(path, self.0.setup.clone()));
        let binaries: Arc<[Arc<Binary>]> = paths.into_iter().map(binary).collect();
        let mut running = JoinSet::new();
        for binary in binaries.iter() {
            running.spawn(Arc::clone(binary).supervise());
        }
        self.0.binaries.send_replace(Some(Ok(Arc::clone(&binaries))));
        while tokio::time::timeout(SWEEP, stop.cancelled()).await.is_err() {
            self.end_all(self.0.configured.take_idle()).await;
        }
        running.abort_all();
        futures::future::join_all(binaries.iter().map(|binary| binary.stop())).await;
        self.end_all(self.0.configured.take_all()).await;
    }

    /// The actions on items of a backup. What they say goes to `log`; `built_in` are names that they may not have.
    pub async fn backup_item_actions(
        &self,
        built_in: &BTreeSet<String>,
        log: &PluginLog,
    ) -> Actions<Arc<dyn BackupItemAction>> {
        let kinds = [Kind::BackupItemAction, Kind::BackupItemActionV2];
        self.actions(&kinds, built_in, |binary, offer| {
            let action = PluginAction::new(binary, offer, self.0.limit, Some(log))?;
            Some(Arc::new(action) as Arc<dyn BackupItemAction>)
        })
        .await
    }

    /// The actions that say which items of a backup belong together.
    pub async fn item_block_actions(
        &self,
        built_in: &BTreeSet<String>,
        log: &PluginLog,
    ) -> Actions<Arc<dyn ItemBlockAction>> {
        self.actions(&[Kind::ItemBlockAction], built_in, |binary, offer| {
            let action = PluginAction::new(binary, offer, self.0.limit, Some(log))?;
            Some(Arc::new(action) as Arc<dyn ItemBlockAction>)
        })
        .await
    }

    /// The actions on items of a restore. What they say goes to `log`; `built_in` are names that they may not have.
    pub async fn restore_item_actions(
        &self,
        built_in: &BTreeSet<String>,
        log: &PluginLog,
    ) -> Actions<Arc<dyn RestoreItemAction>> {
        let kinds = [Kind::RestoreItemAction, Kind::RestoreItemActionV2];
        self.actions(&kinds, built_in, |binary, offer| {
            let action = PluginAction::new(binary, offer, self.0.limit, Some(log))?;
            Some(Arc::new(action) as Arc<dyn RestoreItemAction>)
        })
        .await
    }

    pub async fn delete_item_actions(&self) -> Actions<PluginAction> {
        self.actions(&[Kind::DeleteItemAction], &BTreeSet::new(), |binary, offer| {
            PluginAction::new(binary, offer, self.0.limit, None)
        })
        .await
    }

    /// The bucket of a location that a plugin of this name serves with these settings.
    /// Errors: there is none; the reason says which there are.
    pub async fn bucket(
        &self,
        plugin: &str,
        bucket: &str,
        settings: Settings,
    ) -> Result<PluginBucket, Missing> {
        let listed = self.listed().await;
        let Chosen { used, mut problems } = choose(&listed.offers(&[Kind::ObjectStore]), &BTreeSet::new());
        problems.extend(listed.problems);
        let Some((index, offer)) = used.iter().find(|(_, offer)| offer.name == plugin) else {
            let names = used.iter().map(|(_, offer)| offer.name.as_str());
            return Err(Missing {
                reason: self.no_bucket(plugin, names, &problems),
                may_come: !problems.is_empty(),
            });
        };
        let plugin = self.configured(&listed.binaries, *index, offer, settings);
        Ok(PluginBucket::new(plugin, bucket, self.0.limit))
    }

    fn no_bucket<'a>(
        &self,
        plugin: &str,
        there: impl Iterator<Item = &'a str>,
        problems: &[String],
    ) -> String {
        let there = there.collect::<Vec<_>>().join(", ");
        let there = if there.is_empty() { "there are none" } else { &there };
        let folder =
            self.0.folder.as_ref().map(|folder| format!(" {}", folder.display())).unwrap_or_default();
        let mut reason = format!(
            "no plugin offers an object store {plugin}; plugins: {there}; built in: {}. Put the plugin's binary into the \
             folder{folder} of the controller and start it again, or correct spec.provider",
            backup_store::BUILT_IN.join(", ")
        );
        for problem in problems {
            let _ = write!(reason, "; {problem}");
        }
        reason
    }

    /// Names of the plugins that can take snapshots of volumes, and why others are not run.
    pub async fn volume_snapshotters(&self) -> (BTreeSet<String>, Vec<String>) {
        let listed = self.listed().await;
        let chosen = choose(&listed.offers(&[Kind::VolumeSnapshotter]), &BTreeSet::new());
        let names = chosen.used.into_iter().map(|(_, offer)| offer.name).collect();
        (names, chosen.problems.into_iter().chain(listed.problems).collect())
    }

    /// The plugin of this name that takes snapshots, with these settings. What it says goes into `log`; without one into ours.
    /// Errors: there is none; why others are not run.
    pub async fn volume_snapshotter(
        &self,
        plugin: &str,
        settings: Settings,
        log: Option<&PluginLog>,
    ) -> Result<Arc<dyn VolumeSnapshotter>, Vec<String>> {
        let listed = self.listed().await;
        let Chosen { used, mut problems } =
            choose(&listed.offers(&[Kind::VolumeSnapshotter]), &BTreeSet::new());
        problems.extend(listed.problems);
        let Some((index, offer)) = used.iter().find(|(_, offer)| offer.name == plugin) else {
            return Err(problems);
        };
        let plugin = self.configured(&listed.binaries, *index, offer, settings);
        Ok(Arc::new(Snapshotter::new(plugin, self.0.limit, log.cloned())))
    }

    /// The process of a plugin that runs with these settings.
    fn configured(
        &self,
        binaries: &[(Arc<Binary>, Vec<Offer>)],
        index: usize,
        offer: &Offer,
        settings: Settings,
    ) -> Arc<Configured> {
        let path = binaries.get(index).map(|(binary, _)| binary.path()).unwrap_or_default();
        let make = |settings| {
            let setup = self.0.setup.clone();
            Configured::new(path.clone().into(), setup, offer.name.clone(), offer.kind.execute(), settings)
        };
        self.0.configured.get(&path, &offer.name, settings, make)
    }

    async fn end_all(&self, plugins: Vec<Arc<Configured>>) {
        futures::future::join_all(plugins.iter().map(|plugin| plugin.stop())).await;
    }

    async fn actions<A>(
        &self,
        kinds: &[Kind],
        built_in: &BTreeSet<String>,
        make: impl Fn(Arc<Binary>, Offer) -> Option<A>,
    ) -> Actions<A> {
        let listed = self.listed().await;
        let Chosen { used, mut problems } = choose(&listed.offers(kinds), built_in);
        problems.extend(listed.problems);
        let usable = used.into_iter().filter_map(|(index, offer)| {
            let (binary, _) = listed.binaries.get(index)?;
            make(Arc::clone(binary), offer)
        });
        Actions { usable: usable.collect(), problems }
    }

    /// One action, to be asked about its operations. The error says why there is none, and whether one may come yet.
    pub async fn backup_item_action(&self, name: &str) -> Result<Arc<dyn BackupItemAction>, Missing> {
        let all = self.backup_item_actions(&BTreeSet::new(), &PluginLog::default()).await;
        all.only(name, |action| action.name())
    }

    /// As [`Self::backup_item_action`], for operations of a restore.
    pub async fn restore_item_action(&self, name: &str) -> Result<Arc<dyn RestoreItemAction>, Missing> {
        let all = self.restore_item_actions(&BTreeSet::new(), &PluginLog::default()).await;
        all.only(name, |action| action.name())
    }

    /// Every plugin of every binary, used or not, for people. Binaries that do not say within `patience` what they offer are
    /// left out.
    pub async fn installed(&self, patience: Duration) -> BTreeSet<(Kind, String)> {
        let Ok(Some(Ok(binaries))) = tokio::time::timeout(patience, self.found()).await else {
            return BTreeSet::new();
        };
        let asked = binaries.iter().map(|binary| tokio::time::timeout(patience, binary.offers()));
        let offers = futures::future::join_all(asked).await.into_iter().flatten().flatten().flatten();
        offers.map(|offer| (offer.kind, offer.name)).collect()
    }

    async fn found(&self) -> Option<Found> {
        let mut binaries = self.0.binaries.subscribe();
        binaries.wait_for(Option::is_some).await.ok().and_then(|found| found.clone())
    }

    async fn listed(&self) -> Listed {
        let binaries = match self.found().await {
            Some(Ok(binaries)) => binaries,
            Some(Err(reason)) => return Listed { problems: vec![reason], ..Listed::default() },
            None => return Listed::default(),
        };
        let mut listed = Listed::default();
        let asked = binaries.iter().map(|binary| async { (Arc::clone(binary), binary.offers().await) });
        for (binary, offers) in futures::future::join_all(asked).await {
            match offers {
                Ok(offers) => listed.binaries.push((binary, offers)),
                Err(error) => listed.problems.push(unlisted(&error)),
            }
        }
        listed
    }
}

fn unlisted(error: &PluginError) -> String {
    format!("{error}. None of its plugins is run: mend it, or remove it from the plugin folder")
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    pub reason: String,
    /// Whether it may be among what could not be asked now.
    pub may_come: bool,
}

#[derive(Default)]
struct Listed {
    binaries: Vec<(Arc<Binary>, Vec<Offer>)>,
    problems: Vec<String>,
}

impl Listed {
    /// Offers of these kinds, by the path of their binary.
    fn offers(&self, kinds: &[Kind]) -> Vec<(String, Vec<Offer>)> {
        let of =
            |offers: &[Offer]| offers.iter().filter(|offer| kinds.contains(&offer.kind)).cloned().collect();
        self.binaries.iter().map(|(binary, offers)| (binary.path(), of(offers))).collect()
    }
}
