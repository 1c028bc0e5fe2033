//! Our programs without a part of the lock: the histories have to catch each.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, ensure};
use backup_tests::{
    binaries::{cargo, root, target},
    history::Promise,
};

/// A part that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Work continues after its claim was released by force.
    Fence,
    /// An exclusive grant does not raise the epoch.
    Epoch,
    /// The controller works on what was admitted once, whatever the ledger says now.
    SecondLook,
    /// The webhook admits what asks for a claim, and claims nothing.
    Claim,
    /// A creation under a name that is stored takes a place.
    StoredName,
    /// A deleted Lease of the leader is created again at once: by a follower, or by that leader,
    /// which continues to lead.
    Lease,
    /// The metadata of a backup is written after its end was published.
    MetadataFirst,
}

/// Code, and what takes its place.
type Change = (&'static str, &'static str, &'static str);

impl Part {
    fn change(self) -> Change {
        match self {
            Self::Fence => (
                "controller/src/job/fence.rs",
                "        self.state.send_replace(State::Until(Duration::ZERO));
        let done = tokio::select! {
            done = work => done,
            never = self.watch(ledger, key, uid, token) => match never {},
        };
",
                "        let _ = (ledger, key, uid, token);
        let done = work.await;
",
            ),
            Self::Claim => (
                "webhook/src/review/claiming.rs",
                "            self.claims.claim(scope, request, self.deadline).await
",
                "            Verdict::Granted
",
            ),
            Self::MetadataFirst => (
                "crates/store/src/backup.rs",
                "        let stored = plan.commit(&metadata).await?;
",
                "        let stored = plan.outcome.clone();
        let (location, key) = (plan.location.clone(), plan.keys.metadata());
        tokio::spawn(async move {
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            let _ = location.publish(&key, &metadata).await;
        });
",
            ),
            Self::StoredName => (
                "webhook/src/review/claiming.rs",
                "        Ok(stored) => Ok(stored.is_some_and(|stored| stored.uid != uid)),
",
                "        Ok(_) => Ok(uid.is_empty()),
",
            ),
            Self::Lease => (
                "crates/runtime/src/leader/decide.rs",
                "(*since + LEASE_DURATION).saturating_sub(now) {",
                "since.saturating_sub(now) {",
            ),
            Self::Epoch => (
                "crates/lock/src/ledger.rs",
                "            self.epoch += 1;\n",
                "",
            ),
            Self::SecondLook => (
                "crates/lock/src/activate.rs",
                "    let state = ledger.entry(key, uid).map(|entry| entry.state);
",
                "    let state = ledger.entry(key, uid).map(|entry| entry.state);
    if state.is_none_or(|state| state == State::Released) {
        return Ok(ledger.epoch);
    }
",
            ),
        }
    }

    /// The promises of which it has to break one.
    pub(crate) fn breaks(self) -> &'static [Promise] {
        match self {
            Self::Fence | Self::SecondLook => &[Promise::UnderClaim, Promise::WorkApart],
            Self::StoredName => &[Promise::StoredNameTakesNothing],
            Self::Lease => &[Promise::OneLeader],
            // Two pieces of work have one fencing token.
            Self::Epoch => &[Promise::WorkApart],
            Self::Claim => &[
                Promise::AdmittedApart,
                Promise::UnderClaim,
                Promise::WorkApart,
            ],
            Self::MetadataFirst => &[Promise::EndIsStored],
        }
    }

    /// Whether it is one of the controllers: then real ones work.
    pub(super) fn is_of_controllers(self) -> bool {
        matches!(
            self,
            Self::Lease | Self::Fence | Self::SecondLook | Self::MetadataFirst
        )
    }

    /// Builds a copy of the project without it. The folder of the programs.
    pub(crate) fn build(self) -> anyhow::Result<PathBuf> {
        let folder = target().join("broken");
        let source = folder.join("source");
        let (file, right, wrong) = self.change();
        for name in files()? {
            let mut content =
                fs::read(root().join(&name)).with_context(|| format!("read {name}"))?;
            if name == file {
                let text = String::from_utf8(content)?;
                ensure!(
                    text.matches(right).count() == 1,
                    "{name} has changed: {right:?} is not there once"
                );
                content = text.replace(right, wrong).into_bytes();
            }
            write(&source.join(&name), &content)?;
        }
        let build = folder.join("build");
        let mut command = cargo();
        command
            .current_dir(&source)
            .env_remove("RUSTC_WORKSPACE_WRAPPER")
            .env("CARGO_TARGET_DIR", &build);
        let status = command
            .args(["build", "--workspace", "--bins"])
            .status()
            .context("run cargo")?;
        ensure!(
            status.success(),
            "cargo build of {} failed ({status})",
            source.display()
        );
        Ok(build.join("debug"))
    }
}

/// The files of the project, relative to its root.
fn files() -> anyhow::Result<Vec<String>> {
    let listed = Command::new("git")
        .current_dir(root())
        .args(["ls-files", "-z"])
        .output();
    let listed = String::from_utf8(listed.context("run git")?.stdout)?;
    let names = listed
        .split('\0')
        .filter(|name| root().join(name).is_file());
    Ok(names.map(str::to_owned).collect())
}

/// Leaves alone what is as it should be, so that cargo builds only what has changed.
fn write(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    if fs::read(path).is_ok_and(|there| there == content) {
        return Ok(());
    }
    fs::create_dir_all(path.parent().unwrap_or(path))?;
    fs::write(path, content).with_context(|| format!("write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    /// Otherwise the copy would be found unbuildable, or whole, an hour later.
    #[test]
    fn every_part_is_where_it_is_taken_out() {
        for part in Part::value_variants() {
            let (file, right, wrong) = part.change();
            let text = fs::read_to_string(root().join(file)).unwrap();
            assert_eq!(
                text.matches(right).count(),
                1,
                "{part:?}: {right:?} in {file}"
            );
            assert_ne!(right, wrong);
        }
    }
}
