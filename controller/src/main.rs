//! `backup-controller`: see the library.
use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    // Fails only if another provider was installed before, which then serves as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match backup_controller::run(backup_controller::Args::of_process()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("backup-controller: {error:#}");
            ExitCode::FAILURE
        }
    }
}
