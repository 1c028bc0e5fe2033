//! The parts of a world, and its start.

use super::World;
use crate::{
    audit::Audit,
    binaries::{Programs, s3_available},
    control_plane::ControlPlane,
    install,
    network::{self, FilesNetwork},
    object_store::S3,
    velero_plugins::VeleroPlugins,
};

#[derive(Clone, Debug)]
#[must_use]
pub struct WorldBuilder {
    pub(super) api_servers: usize,
    pub(super) api_server_args: Vec<String>,
    pub(super) webhooks: usize,
    pub(super) controllers: usize,
    pub(super) naive: bool,
    pub(super) profile: String,
    pub(super) programs: Option<Programs>,
    pub(super) controller_args: Vec<String>,
    pub(super) webhook_args: Vec<String>,
    pub(super) own_profile: Option<(&'static str, &'static str)>,
    pub(super) peers: bool,
    pub(super) own_certificates: bool,
    pub(super) plugins: bool,
    pub(super) files: Option<FilesNetwork>,
    pub(super) audited: bool,
}

impl Default for WorldBuilder {
    fn default() -> Self {
        Self {
            api_servers: 1,
            api_server_args: Vec::new(),
            webhooks: 2,
            controllers: 1,
            naive: false,
            profile: std::env::var("BACKUP_TESTS_PROFILE").unwrap_or_else(|_| "dev".to_owned()),
            programs: None,
            controller_args: Vec::new(),
            webhook_args: Vec::new(),
            own_profile: None,
            peers: false,
            own_certificates: false,
            plugins: false,
            files: None,
            audited: false,
        }
    }
}

impl WorldBuilder {
    /// Number of API servers that share the one etcd.
    pub fn api_servers(mut self, count: usize) -> Self {
        self.api_servers = count;
        self
    }

    /// Extra flags of the API servers.
    pub fn api_server_args(mut self, args: &[&str]) -> Self {
        self.api_server_args = args.iter().map(ToString::to_string).collect();
        self
    }

    /// Number of webhook replicas; with 0, the webhook is not registered.
    pub fn webhooks(mut self, count: usize) -> Self {
        self.webhooks = count;
        self
    }

    pub fn controllers(mut self, count: usize) -> Self {
        self.controllers = count;
        self
    }

    /// Extra flags of the controllers.
    pub fn controller_args(mut self, args: &[&str]) -> Self {
        self.controller_args
            .extend(args.iter().map(ToString::to_string));
        self
    }

    /// Extra flags of the webhook.
    pub fn webhook_args(mut self, args: &[&str]) -> Self {
        self.webhook_args = args.iter().map(ToString::to_string).collect();
        self
    }

    /// Both programs read a folder of profiles ([`World::profiles_folder`]) whose first file is
    /// this one.
    pub fn own_profile(mut self, file: &'static str, text: &'static str) -> Self {
        self.own_profile = Some((file, text));
        self
    }

    /// Webhook replicas know one another, so that one of them does all writes of one ledger.
    /// Otherwise their writes conflict, which most tests want.
    pub fn peers(mut self) -> Self {
        self.peers = true;
        self
    }

    /// Webhook replicas create their certificate themselves, as in `deploy/`.
    pub fn own_certificates(mut self) -> Self {
        self.own_certificates = true;
        self
    }

    /// Puts plugins of Velero's kind into the controllers' plugin folder, if Go is there to build
    /// them.
    pub fn plugins(mut self) -> Self {
        self.plugins = true;
        self
    }

    /// Controllers serve files to readers through the API server's service proxy. Needs a separate
    /// network ([`crate::network`]).
    pub fn files(mut self) -> Self {
        self.files = Some(FilesNetwork::Own);
        self
    }

    /// The world of `cargo xtask demo`: an installation as shipped, with stored files if this
    /// machine's network allows it.
    pub fn of_demo() -> Self {
        let files = network::address_of_machine().map(|_| FilesNetwork::OfMachine);
        Self {
            files,
            ..Self::default()
        }
    }

    /// The API server logs the requests of our programs ([`World::audit`]).
    pub fn audited(mut self) -> Self {
        self.audited = true;
        self
    }

    /// Whether it can only start in a separate network.
    pub fn needs_network(&self) -> bool {
        self.files == Some(FilesNetwork::Own)
    }

    /// The control: a webhook that looks and then allows replaces ours.
    pub fn naive_webhook(mut self) -> Self {
        self.naive = true;
        self
    }

    /// The cargo profile of the programs under test: `dev` or `release`.
    pub fn profile(mut self, profile: &str) -> Self {
        profile.clone_into(&mut self.profile);
        self
    }

    /// Tests these programs instead of those that cargo builds.
    pub fn programs(mut self, programs: Programs) -> Self {
        self.programs = Some(programs);
        self
    }

    /// Starts all parts. They are ended when the world is dropped, also after an error.
    pub async fn start(self) -> anyhow::Result<World> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let programs = self
            .programs
            .clone()
            .map_or_else(|| Programs::build(&self.profile), Ok)?;
        let folder = tempfile::Builder::new().prefix("backup-tests-").tempdir()?;
        let mut flags = self.api_server_args.clone();
        let mut audit = None;
        if self.audited {
            let (prepared, more) = Audit::prepare(folder.path())?;
            flags.extend(more);
            audit = Some(prepared);
        }
        let plane = ControlPlane::start(folder.path(), self.api_servers, &flags).await?;
        let client = plane.admin().await?;
        install::install(&client).await?;
        let s3 = if s3_available() {
            Some(S3::start(folder.path()).await?)
        } else {
            None
        };
        let mut world = World {
            builder: self.clone(),
            programs,
            client,
            plane,
            s3,
            webhooks: Vec::new(),
            webhook_health: Vec::new(),
            webhook_front: None,
            webhook_ca: String::new(),
            naive: None,
            controllers: Vec::new(),
            controller_health: Vec::new(),
            plugins: None,
            audit,
            folder,
        };
        if self.plugins {
            world.plugins = VeleroPlugins::install(world.folder(), world.plane.admin_kubeconfig())?;
        }
        if let Some((file, text)) = self.own_profile {
            let profiles = world.profiles_folder();
            std::fs::create_dir(&profiles)?;
            std::fs::write(profiles.join(file), text)?;
            let flag = format!("--profiles={}", profiles.display());
            world.builder.webhook_args.push(flag.clone());
            world.builder.controller_args.push(flag);
        }
        world.start_webhooks().await?;
        world.start_location().await?;
        for number in 0..self.controllers {
            world.start_controller(number).await?;
        }
        if self.controllers > 0 {
            world.location_available("default").await?;
        }
        Ok(world)
    }
}
