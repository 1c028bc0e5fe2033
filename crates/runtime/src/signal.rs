//! Signals that ask the process to end.

use tokio::signal::unix::{SignalKind, signal};

/// Resolves on SIGTERM or SIGINT.
pub async fn asked_to_end() -> std::io::Result<&'static str> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    })
}
