//! Platforms of a release, and how this machine builds for each.

use std::collections::BTreeSet;

/// Oldest C library that programs run with when zig links them.
const GLIBC: &str = "2.28";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Platform {
    pub(super) os: &'static str,
    pub(super) arch: &'static str,
    /// Name of the platform for the compiler.
    pub(super) target: &'static str,
}

impl Platform {
    const fn new(os: &'static str, arch: &'static str, target: &'static str) -> Self {
        Self { os, arch, target }
    }

    /// Such as `linux-amd64`.
    pub(super) fn name(&self) -> String {
        format!("{}-{}", self.os, self.arch)
    }

    /// Images are for Linux only.
    pub(super) fn has_images(&self) -> bool {
        self.os == "linux"
    }

    /// File name of a program.
    pub(super) fn file(&self, program: &str) -> String {
        let ending = if self.os == "windows" { ".exe" } else { "" };
        format!("{program}{ending}")
    }
}

pub(super) const PLATFORMS: [Platform; 6] = [
    Platform::new("linux", "amd64", "x86_64-unknown-linux-gnu"),
    Platform::new("linux", "arm64", "aarch64-unknown-linux-gnu"),
    Platform::new("darwin", "amd64", "x86_64-apple-darwin"),
    Platform::new("darwin", "arm64", "aarch64-apple-darwin"),
    Platform::new("windows", "amd64", "x86_64-pc-windows-gnu"),
    Platform::new("windows", "arm64", "aarch64-pc-windows-gnullvm"),
];

/// Tools of this machine.
#[derive(Clone, Debug, Default)]
pub(super) struct Tools {
    /// Target of this machine.
    pub(super) host: String,
    /// Targets whose standard library is installed.
    pub(super) targets: BTreeSet<String>,
    /// Whether `cargo zigbuild` runs.
    pub(super) has_zig: bool,
    /// GCC's cross compilers that are installed, such as `aarch64-linux-gnu-gcc`.
    pub(super) compilers: BTreeSet<String>,
}

/// How programs for a platform are linked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Linker {
    /// By the compiler of this machine.
    Native,
    /// By this cross compiler.
    Gcc(String),
    Zig,
}

impl Linker {
    /// For the table: what a program needs to run.
    pub(super) fn needs(&self, platform: &Platform) -> String {
        match self {
            Self::Zig if platform.os == "linux" => format!("glibc {GLIBC} or newer"),
            Self::Native | Self::Gcc(_) if platform.os == "linux" => {
                "glibc as new as the one that it was linked with".to_owned()
            }
            _ => String::new(),
        }
    }

    /// Target for `cargo build` or `cargo zigbuild`.
    pub(super) fn target(&self, platform: &Platform) -> String {
        match self {
            Self::Zig if platform.os == "linux" => format!("{}.{GLIBC}", platform.target),
            _ => platform.target.to_owned(),
        }
    }
}

/// GCC's cross compiler for a platform.
pub(super) fn gcc(platform: &Platform) -> Option<&'static str> {
    match platform.target {
        "x86_64-unknown-linux-gnu" => Some("x86_64-linux-gnu-gcc"),
        "aarch64-unknown-linux-gnu" => Some("aarch64-linux-gnu-gcc"),
        _ => None,
    }
}

/// Chooses how to link programs for a platform.
///
/// Errors: a sentence with what is missing.
pub(super) fn linker(platform: &Platform, tools: &Tools) -> Result<Linker, String> {
    if platform.os == "darwin" && tools.host != platform.target {
        return Err("needs macOS; the workflow builds it".to_owned());
    }
    if !tools.targets.contains(platform.target) {
        return Err(format!(
            "no standard library: rustup target add {}",
            platform.target
        ));
    }
    if tools.has_zig && platform.os != "darwin" {
        return Ok(Linker::Zig);
    }
    if tools.host == platform.target {
        return Ok(Linker::Native);
    }
    match gcc(platform) {
        None => Err("no linker: install cargo-zigbuild and zig".to_owned()),
        Some(name) if tools.compilers.contains(name) => Ok(Linker::Gcc(name.to_owned())),
        Some(name) => Err(format!(
            "no linker: install {name}, or cargo-zigbuild and zig"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools(host: &str, targets: &[&str], has_zig: bool, compilers: &[&str]) -> Tools {
        Tools {
            host: host.to_owned(),
            targets: targets.iter().map(|&name| name.to_owned()).collect(),
            has_zig,
            compilers: compilers.iter().map(|&name| name.to_owned()).collect(),
        }
    }

    #[test]
    fn a_platform_is_built_by_the_tools_that_are_there() {
        let [amd64, arm64, mac, _, windows, _] = PLATFORMS;
        let all = [amd64.target, arm64.target, windows.target];
        let gcc = "aarch64-linux-gnu-gcc";
        let plain = tools(amd64.target, &all[..1], false, &[]);
        let cross = tools(amd64.target, &all, false, &[gcc]);
        let zig = tools(amd64.target, &all, true, &[gcc]);
        let cases = [
            (&plain, amd64, Ok(Linker::Native)),
            (
                &plain,
                arm64,
                Err("rustup target add aarch64-unknown-linux-gnu"),
            ),
            (&plain, mac, Err("the workflow builds it")),
            (&cross, amd64, Ok(Linker::Native)),
            (&cross, arm64, Ok(Linker::Gcc(gcc.to_owned()))),
            (&cross, windows, Err("install cargo-zigbuild and zig")),
            (&zig, amd64, Ok(Linker::Zig)),
            (&zig, arm64, Ok(Linker::Zig)),
            (&zig, windows, Ok(Linker::Zig)),
            (&zig, mac, Err("the workflow builds it")),
        ];
        for (tools, platform, expected) in cases {
            match (linker(&platform, tools), expected) {
                (Ok(chosen), Ok(expected)) => assert_eq!(chosen, expected),
                (Err(reason), Err(part)) => assert!(reason.contains(part), "{reason}"),
                (chosen, expected) => panic!("{platform:?}: {chosen:?}, not {expected:?}"),
            }
        }
    }

    #[test]
    fn zig_links_with_an_old_c_library_on_linux_only() {
        let [amd64, .., windows, _] = PLATFORMS;
        assert_eq!(Linker::Zig.target(&amd64), "x86_64-unknown-linux-gnu.2.28");
        assert_eq!(Linker::Zig.target(&windows), "x86_64-pc-windows-gnu");
        assert_eq!(Linker::Native.target(&amd64), "x86_64-unknown-linux-gnu");
    }
}
