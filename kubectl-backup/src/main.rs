//! The kubectl plugin `kubectl backup`.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Fails only if a provider is already installed, which suffices.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let exit = kubectl_backup::run_blocking(
        std::env::args_os().collect(),
        kubectl_backup::Terminal::standard(),
    );
    ExitCode::from(exit.code())
}
