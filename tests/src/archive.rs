//! Malformed archives, and the size of archives as other programs write them.

use std::{io::Write as _, process::Stdio};

use anyhow::ensure;
use tokio::{io::AsyncWriteExt as _, process::Command};

use crate::binaries::build_control_plane;

/// A gzipped tar archive, written byte by byte: libraries refuse to write a path that leads out of
/// the archive.
pub fn tarball(entries: &[(&str, &[u8])]) -> anyhow::Result<Vec<u8>> {
    let mut tar = Vec::new();
    for (name, data) in entries {
        add(&mut tar, name, data);
    }
    tar.resize(tar.len() + 1024, 0);
    gzipped(&tar)
}

/// Adds an entry, padded to whole blocks.
fn add(tar: &mut Vec<u8>, name: &str, data: &[u8]) {
    tar.extend_from_slice(&header(name, b'0', data.len()));
    tar.extend_from_slice(data);
    tar.resize(tar.len().next_multiple_of(512), 0);
}

/// Writes a tar archive in gzip members of 1 MiB, as the controller does. Returns the compressed
/// size (bytes). Paths must be shorter than 100 bytes.
pub fn write_members(
    entries: impl Iterator<Item = (String, Vec<u8>)>,
    mut to: impl std::io::Write,
) -> anyhow::Result<usize> {
    const MEMBER: usize = 1 << 20;
    let (mut tar, mut size) = (Vec::new(), 0);
    let mut cut = |tar: &mut Vec<u8>, least: usize| {
        while tar.len() >= least && !tar.is_empty() {
            let member = gzipped(&tar.drain(..tar.len().min(MEMBER)).collect::<Vec<u8>>())?;
            size += member.len();
            to.write_all(&member)?;
        }
        anyhow::Ok(size)
    };
    for (name, data) in
        std::iter::once(("metadata/version".to_owned(), b"1.1.0\n".to_vec())).chain(entries)
    {
        add(&mut tar, &name, &data);
        cut(&mut tar, MEMBER)?;
    }
    tar.resize(tar.len() + 1024, 0);
    cut(&mut tar, 0)
}

/// A gzipped tar archive with a path of `bytes` bytes (a multiple of 1 MiB below 8 GiB).
pub fn tarball_with_long_path(bytes: usize) -> anyhow::Result<Vec<u8>> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&header("././@LongLink", b'L', bytes))?;
    let part = vec![b'x'; 1 << 20];
    for _ in 0..bytes >> 20 {
        gzip.write_all(&part)?;
    }
    gzip.write_all(&header("resources/configmaps/cluster/x.json", b'0', 0))?;
    gzip.write_all(&[0; 1024])?;
    Ok(gzip.finish()?)
}

/// Header of an entry.
fn header(name: &str, kind: u8, size: usize) -> [u8; 512] {
    let mut header = [0_u8; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[100..108].copy_from_slice(b"0000755\0");
    header[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes());
    header[136..148].copy_from_slice(b"00000000000\0");
    header[148..156].copy_from_slice(b"        ");
    header[156] = kind;
    header[257..265].copy_from_slice(b"ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}

pub(crate) fn gzipped(bytes: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(bytes)?;
    Ok(gzip.finish()?)
}

/// Size (bytes) of a tar archive compressed by Go's gzip at its default level, as Velero does.
pub async fn gzip_size_in_go(tar: &[u8]) -> anyhow::Result<u64> {
    let mut command = Command::new(build_control_plane()?);
    command
        .arg("gzip-size")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    let mut child = command.spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(tar).await?;
    }
    let output = child.wait_with_output().await?;
    ensure!(
        output.status.success(),
        "gzip-size failed ({})",
        output.status
    );
    Ok(String::from_utf8(output.stdout)?.trim().parse()?)
}
