//! The program's lines on stderr, each a JSON document.

use std::{
    io::Write as _,
    panic,
    sync::atomic::{AtomicU32, Ordering},
};

use backup_core::data_movement::MoverProgress;
use log::{Level, LevelFilter, Log, Metadata, Record};
use serde_json::json;

/// Maximum number of log lines: a damaged repository has one for each object.
const MAX_LINES: u32 = 200;

/// Maximum number of panics that are logged: a restore has one for each pack when its volume is
/// full.
const MAX_PANICS: u32 = 3;

/// Initializes the process: logs on stderr, and the TLS provider.
pub fn install() {
    static LINES: Lines = Lines(AtomicU32::new(0));
    static PANICS: AtomicU32 = AtomicU32::new(0);
    // An error means that there is another logger already.
    if log::set_logger(&LINES).is_ok() {
        log::set_max_level(LevelFilter::Warn);
    }
    panic::set_hook(Box::new(|info| {
        if PANICS.fetch_add(1, Ordering::Relaxed) < MAX_PANICS {
            write_line(&json!({ "level": "error", "message": info.to_string() }));
        }
    }));
    // An error means that one is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

pub(crate) fn write_progress(progress: MoverProgress) {
    write_line(&json!({ "progress": progress }));
}

fn write_line(line: &serde_json::Value) {
    // Without stderr the line is lost.
    let _ = writeln!(std::io::stderr(), "{line}");
}

struct Lines(AtomicU32);

impl Log for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= Level::Warn
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let lines = self.0.fetch_add(1, Ordering::Relaxed);
        let message = match lines.cmp(&MAX_LINES) {
            std::cmp::Ordering::Less => record.args().to_string(),
            std::cmp::Ordering::Equal => "more lines are left out".to_owned(),
            std::cmp::Ordering::Greater => return,
        };
        let level = record.level().as_str().to_ascii_lowercase();
        write_line(&json!({ "level": level, "message": message }));
    }

    fn flush(&self) {}
}
