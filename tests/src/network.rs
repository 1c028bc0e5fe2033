//! A separate network, for addresses that must not be loopback addresses: endpoints of Services.
//!
//! Programs and tests of such a world run in a network namespace that has one more address on its
//! loopback interface. It has no connection to the machine's own network. A process cannot enter
//! one by itself, so the test program starts itself again inside.

use std::{
    io::{BufRead as _, BufReader},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket},
    process::{Command, Stdio},
};

use anyhow::{Context as _, ensure};

use crate::{
    binaries::{
        PROGRAMS, PlanePrograms, Programs, build_control_plane, build_plugins, go_available,
        s3_available,
    },
    snapshots,
};

/// The address: reserved for documentation, and not in use (RFC 5737).
const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// This variable is set inside.
const INSIDE: &str = "BACKUP_TESTS_NETWORK";

/// The error where no network can be made, with the reason.
#[derive(Debug)]
pub struct NoNetwork(String);

impl std::fmt::Display for NoNetwork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let needs = "it takes `unshare --net` and `ip` (iproute2), and root or user namespaces";
        write!(
            f,
            "no network namespace can be made here ({}): {needs}",
            self.0
        )
    }
}

impl std::error::Error for NoNetwork {}

pub fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Network on which a world's controllers serve stored files: the API server refuses loopback
/// addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilesNetwork {
    /// In a network namespace that the world is started in.
    Own,
    /// On the machine's own network.
    OfMachine,
}

impl FilesNetwork {
    /// An address, with a free port, that is not a loopback address for the API server.
    pub(crate) fn free_address(self) -> anyhow::Result<SocketAddr> {
        let ip = match self {
            Self::Own => IpAddr::V4(ADDRESS),
            Self::OfMachine => address_of_machine().context(
                "this machine has no network address but loopback, so stored files cannot be read",
            )?,
        };
        let listener = TcpListener::bind((ip, 0)).with_context(|| {
            format!("{ip} is not an address here: such a world starts in a network of its own")
        })?;
        Ok(SocketAddr::new(ip, listener.local_addr()?.port()))
    }
}

/// The address by which this machine reaches others, if it has one. Sends nothing: only connects a
/// datagram socket.
pub fn address_of_machine() -> Option<IpAddr> {
    const OTHER: (Ipv4Addr, u16) = (Ipv4Addr::new(198, 51, 100, 1), 9);
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect(OTHER).ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_loopback() && !ip.is_unspecified()).then_some(ip)
}

/// Runs this program inside with these arguments, for programs under test of this cargo profile;
/// `seen` gets each line of its output. Returns whether it succeeded.
///
/// # Errors
/// [`NoNetwork`] if no network can be made; programs that cannot be built.
pub fn run_inside(
    profile: &str,
    arguments: &[&str],
    mut seen: impl FnMut(&str),
) -> anyhow::Result<bool> {
    // Downloads happen here: there is no way out from inside.
    let programs = Programs::build(profile)?;
    PlanePrograms::find()?;
    if s3_available() {
        build_control_plane()?;
    }
    if go_available() {
        build_plugins()?;
        snapshots::definitions()?;
    }
    // A socket may hold 6 MiB, the kernel's default: with the 32 MiB of some machines, all of a
    // file fits into the sockets between the server and a stopped reader.
    let make = "ip link set lo up && ip address add \"$0\"/32 dev lo && \
        { echo 4096 131072 6291456 > /proc/sys/net/ipv4/tcp_rmem || true; } && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.arg("--net");
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command.args(["sh", "-c", make, &ADDRESS.to_string()]);
    command
        .arg(std::env::current_exe()?)
        .args(arguments)
        .env(INSIDE, "yes");
    command.env(PROGRAMS, programs.folder());
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| NoNetwork(error.to_string()))?;
    let output = child.stdout.take().context("no output")?;
    let mut lines = 0;
    for line in BufReader::new(output).lines() {
        lines += 1;
        seen(&line?);
    }
    let status = child.wait()?;
    ensure!(lines > 0, NoNetwork(status.to_string()));
    Ok(status.success())
}
