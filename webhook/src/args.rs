//! The command line.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use anyhow::Context as _;
use backup_core::{
    cron::Dialect,
    profile::{
        Mode, OnConflict, Profile,
        published::{PublishedProfile, PublishedProfiles, UnusableProfile},
    },
};
use backup_lock::{
    GuardedRequest, ProtectedProfile,
    protected_profile::{self, GuardedProfiles},
};
use clap::{Parser, ValueEnum};
use tokio::sync::watch;

use crate::{
    peers::Settings,
    tls::{self, Authority},
};

/// Validating admission webhook that keeps backups and restores apart: it claims a place in the
/// ledger for each one that is created, or refuses it and says who is in the way.
#[derive(Clone, Debug, Parser)]
#[command(name = "backup-webhook", version)]
pub struct Args {
    /// Address for the API server's requests, over TLS.
    #[arg(long, default_value = "0.0.0.0:9443")]
    pub listen: SocketAddr,
    /// Address for /livez, /readyz and /metrics, plain HTTP.
    #[arg(long, default_value = "0.0.0.0:8080")]
    pub health_listen: SocketAddr,
    /// File with the serving certificate chain, PEM. Read again when it changes.
    #[arg(
        long,
        required_unless_present = "self_signed_service",
        conflicts_with = "self_signed_service"
    )]
    pub tls_cert: Option<PathBuf>,
    /// File with its private key, PEM. Read again when it changes.
    #[arg(
        long,
        required_unless_present = "self_signed_service",
        conflicts_with = "self_signed_service"
    )]
    pub tls_key: Option<PathBuf>,
    /// Make a certificate for the Service of this name, store it in Secret backup-webhook-tls, and
    /// write its CA into the ValidatingWebhookConfiguration backup-webhook.
    #[arg(long, value_name = "SERVICE")]
    pub self_signed_service: Option<String>,
    /// Namespace of the installation; the ledger lives there.
    #[arg(long, default_value = "velero", env = "BACKUP_NAMESPACE")]
    pub namespace: String,
    /// Validity of a certificate that --self-signed-service makes, such as 2160h; it is replaced
    /// after a third of that.
    #[arg(long, default_value = "2160h", value_parser = lifetime)]
    pub certificate_lifetime: Duration,
    /// Kubeconfig to use; without it that of the environment, or the pod's own account.
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
    /// Time that an admitted object keeps its place without having been seen stored, such as 120s.
    #[arg(long, default_value = "120s", value_parser = seconds)]
    pub orphan_grace: Duration,
    /// A profile whose objects another operator runs, such as percona-ps, or velero for a Velero
    /// server. Can be repeated.
    #[arg(long, value_name = "PROFILE")]
    pub guard: Vec<String>,
    /// Folder with profiles (*.yaml) that add to those built in, or replace them.
    #[arg(long, value_name = "FOLDER")]
    pub profiles: Option<PathBuf>,
    /// What to do on a conflict: refuse, or admit with a warning and count it. Overrides the
    /// profiles.
    #[arg(long, value_enum)]
    pub mode: Option<ModeArg>,
    /// What to do with a restore of our controller that conflicts with another object: refuse it,
    /// or let it wait for its turn. Overrides the profile.
    #[arg(long, value_enum)]
    pub on_conflict_restore: Option<OnConflictArg>,
    /// Time that a refused restore keeps new conflicting backups out, such as 120s; 0s turns it
    /// off. Overrides the profiles.
    #[arg(long, value_parser = seconds)]
    pub intent: Option<Duration>,
    /// Refuse a Restore whose author may not do everything (verb * on resource *.*) in each
    /// namespace that it reads or writes, or in the cluster if it may touch all of it.
    #[arg(long)]
    pub check_restore_rights: bool,
    /// Which library's reading of cron expressions the controller follows (its flag of this name):
    /// robfig or netresearch. A Schedule is refused for what that one does not read; unset: for
    /// what neither reads.
    #[arg(long, value_name = "NAME")]
    pub cron_dialect: Option<Dialect>,
    /// Addresses of all replicas, this one included, so that one of them writes a ledger for all.
    #[arg(long, value_delimiter = ',', requires = "identity")]
    pub peers: Vec<SocketAddr>,
    /// NAME:PORT of a headless Service that resolves to all replicas, for the same.
    #[arg(long, value_name = "NAME:PORT", requires = "identity")]
    pub peer_service: Option<String>,
    /// Own IP address, under which the other replicas know this one; its port is that of --listen.
    #[arg(long, value_name = "IP", env = "POD_IP")]
    pub identity: Option<IpAddr>,
    /// Name in the replicas' certificate; that of the Service if it was made for one.
    #[arg(long, value_name = "NAME")]
    pub peer_name: Option<String>,
    /// File with the CA of the replicas' certificate, PEM; not needed with --self-signed-service.
    #[arg(long, value_name = "FILE")]
    pub peer_ca: Option<PathBuf>,
}

/// What a conflict leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ModeArg {
    /// A refusal.
    Enforce,
    /// A warning.
    Warn,
}

/// What becomes of a restore when another is in its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnConflictArg {
    /// It is refused.
    Deny,
    /// It is admitted, and waits.
    Queue,
    /// It is refused, and its client is asked to retry.
    Wait,
}

impl Args {
    /// The profiles that are guarded, and what is published of all, with what the flags say over
    /// what they say.
    pub(crate) fn profiles(&self) -> anyhow::Result<(GuardedProfiles, PublishedProfiles)> {
        let mut found = protected_profile::profiles(self.profiles.as_deref(), &self.guard)?;
        let mut published = PublishedProfiles {
            unusable: found.unusable.clone(),
            ..PublishedProfiles::default()
        };
        for (all, guarded) in [(&mut found.profiles, true), (&mut found.others, false)] {
            for profile in all {
                let over = self.put_over(profile);
                published.profiles.push(PublishedProfile {
                    profile: profile.clone(),
                    guarded,
                    over,
                });
            }
        }
        Ok((found, published))
    }

    /// Puts flags over the policy of a profile; those that did.
    fn put_over(&self, profile: &mut Profile) -> Vec<String> {
        let policy = &mut profile.policy;
        let mut over = Vec::new();
        if let Some(mode) = self.mode {
            policy.mode = if mode == ModeArg::Warn {
                Mode::Warn
            } else {
                Mode::Enforce
            };
            over.push(format!("--mode={}", word(&mode)));
        }
        if let Some(wish) = self.on_conflict_restore {
            let restores = match wish {
                OnConflictArg::Deny => OnConflict::Deny,
                OnConflictArg::Wait => OnConflict::Wait,
                OnConflictArg::Queue => OnConflict::Queue,
            };
            if policy.wish_for_restores(restores, profile.engine) {
                over.push(format!("--on-conflict-restore={}", word(&wish)));
            }
        }
        if let Some(intent) = self.intent {
            policy.intent = intent;
            let text = jiff::SignedDuration::try_from(intent)
                .map_or_else(|_| String::new(), |span| format!("{span:#}"));
            over.push(format!("--intent={text}"));
        }
        over
    }

    /// The profiles whose registrations lead here, and what their webhooks have to be asked about:
    /// those that are guarded, and those that should be, of which only the name is known.
    pub(crate) fn registered<'a>(
        &'a self,
        profiles: &'a [ProtectedProfile],
        unusable: &'a [UnusableProfile],
    ) -> impl Iterator<Item = (&'a str, Vec<GuardedRequest>)> {
        let guarded = profiles
            .iter()
            .map(|protected| &protected.profile)
            .map(|profile| (profile.name.as_str(), GuardedRequest::of(profile)));
        let unusable = unusable.iter().map(|profile| profile.name.as_str());
        let should_be =
            unusable.filter(|name| *name != "velero" && self.guard.iter().any(|one| one == name));
        guarded.chain(should_be.map(|name| (name, Vec::new())))
    }

    /// How to reach the other replicas, if there may be any.
    pub(crate) fn peers(
        &self,
        made: watch::Receiver<Authority>,
    ) -> anyhow::Result<Option<Settings>> {
        let (Some(ip), true) = (
            self.identity,
            self.peer_service.is_some() || !self.peers.is_empty(),
        ) else {
            return Ok(None);
        };
        let own = SocketAddr::new(ip, self.listen.port());
        let authority = if let Some(file) = &self.peer_ca {
            let bytes = std::fs::read(file)
                .with_context(|| format!("could not read --peer-ca {}", file.display()))?;
            let (sender, authority) = watch::channel(Some(bytes.into()));
            tokio::spawn(tls::follow_authority(file.clone(), sender));
            authority
        } else {
            let has_authority = made.borrow().is_some();
            anyhow::ensure!(
                has_authority,
                "--peers and --peer-service need --peer-ca, the CA of the replicas"
            );
            made
        };
        let of_service = self
            .self_signed_service
            .as_ref()
            .map(|service| format!("{service}.{}.svc", self.namespace));
        let name = self
            .peer_name
            .clone()
            .or(of_service)
            .unwrap_or_else(|| own.ip().to_string());
        Ok(Some(Settings {
            own,
            peers: self.peers.clone(),
            service: self.peer_service.clone(),
            name,
            authority,
        }))
    }
}

/// The value's word on the command line.
fn word(value: &impl ValueEnum) -> String {
    value
        .to_possible_value()
        .map_or_else(String::new, |value| value.get_name().to_owned())
}

/// A duration as `90s`, `2m`, `500ms`.
fn seconds(text: &str) -> Result<Duration, String> {
    let error =
        |e: &dyn std::fmt::Display| format!("{text:?} is no duration such as 90s or 2m: {e}");
    let duration: jiff::SignedDuration = text.parse().map_err(|e: jiff::Error| error(&e))?;
    Duration::try_from(duration).map_err(|e| error(&e))
}

fn lifetime(text: &str) -> Result<Duration, String> {
    let lifetime = seconds(text)?;
    if lifetime < Duration::from_secs(10) {
        return Err(format!("{text:?} is too short; expected at least 10s"));
    }
    Ok(lifetime)
}

#[cfg(test)]
mod tests {
    use backup_core::profile::Policy;

    use super::*;

    fn parse(args: &[&str]) -> Result<Args, clap::Error> {
        Args::try_parse_from(std::iter::once(&"backup-webhook").chain(args))
    }

    #[test]
    fn a_certificate_comes_from_files_or_is_made() {
        assert!(parse(&[]).is_err());
        assert!(parse(&["--tls-cert", "a"]).is_err());
        assert!(
            parse(&[
                "--tls-cert",
                "a",
                "--tls-key",
                "b",
                "--self-signed-service",
                "s"
            ])
            .is_err()
        );
        assert!(parse(&["--tls-cert", "a", "--tls-key", "b"]).is_ok());
        assert!(parse(&["--self-signed-service", "s"]).is_ok());
    }

    #[test]
    fn flags_go_over_the_policy_of_profiles_and_are_published() {
        let defaults = Policy::default();
        let restores = |on_conflict_restore| Policy {
            on_conflict_restore,
            ..defaults.clone()
        };
        let intent = Policy {
            intent: Duration::from_secs(90),
            ..defaults.clone()
        };
        for (flags, engine, expected, over) in [
            (&[][..], true, defaults.clone(), ""),
            (
                &["--mode=warn"],
                true,
                Policy {
                    mode: Mode::Warn,
                    ..defaults.clone()
                },
                "--mode=warn",
            ),
            (
                &["--on-conflict-restore=queue"],
                true,
                restores(OnConflict::Queue),
                "--on-conflict-restore=queue",
            ),
            // Only our controller makes a restore wait for its turn.
            (
                &["--on-conflict-restore=queue"],
                false,
                defaults.clone(),
                "",
            ),
            (
                &["--on-conflict-restore=wait"],
                false,
                restores(OnConflict::Wait),
                "--on-conflict-restore=wait",
            ),
            (&["--intent=90s"], true, intent, "--intent=1m 30s"),
        ] {
            let args = parse(&[&["--self-signed-service", "s"], flags].concat()).unwrap();
            let mut profile = Profile {
                engine,
                ..Profile::velero()
            };
            profile.policy = defaults.clone();
            assert_eq!(
                (args.put_over(&mut profile).join(" "), profile.policy),
                (over.to_owned(), expected),
                "{flags:?}"
            );
        }
        let args = parse(&[
            "--self-signed-service",
            "s",
            "--guard=percona-ps",
            "--mode=warn",
        ])
        .unwrap();
        let (guarded, published) = args.profiles().unwrap();
        let names: Vec<&str> = guarded
            .profiles
            .iter()
            .map(|profile| profile.name.as_str())
            .collect();
        let kept: Vec<&str> = published
            .profiles
            .iter()
            .filter(|one| one.guarded)
            .map(|one| one.profile.name.as_str())
            .collect();
        assert!(
            names.len() == 2 && kept.len() == 2 && names.iter().all(|name| kept.contains(name)),
            "{kept:?}"
        );
        assert!(
            published.profiles.len() > 2
                && published
                    .profiles
                    .iter()
                    .all(|one| one.over == ["--mode=warn"])
        );
    }

    #[test]
    fn the_grace_is_a_duration_with_a_unit() {
        for (text, expected) in [
            ("90s", Some(90_000)),
            ("2m", Some(120_000)),
            ("250ms", Some(250)),
            ("90", None),
            ("-1s", None),
            ("", None),
        ] {
            let parsed = parse(&[
                "--self-signed-service",
                "s",
                &format!("--orphan-grace={text}"),
            ]);
            assert_eq!(
                parsed.ok().map(|args| args.orphan_grace.as_millis()),
                expected,
                "{text:?}"
            );
        }
    }
}
