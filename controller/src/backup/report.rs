//! What a backup has to tell: its results and its log, written together so that every count equals a list.

use std::io;

use backup_store::{LogFile, Results, Scope};
use jiff::Timestamp;

use backup_plugins::log_line::{Level, LogLine};

/// Results and log of one backup.
#[derive(Debug)]
pub struct Report {
    results: Results,
    log: LogFile,
    backup: String,
    clock: fn() -> Timestamp,
}

impl Report {
    /// An empty report. Fails if the local disk has no room for a log.
    pub fn new(backup: &str) -> io::Result<Self> {
        Ok(Self {
            results: Results::default(),
            log: LogFile::new()?,
            backup: backup.to_owned(),
            clock: Timestamp::now,
        })
    }

    /// Goes on with what was told before.
    pub fn resume(backup: &str, results: Results, log: LogFile) -> Self {
        Self { results, log, backup: backup.to_owned(), clock: Timestamp::now }
    }

    /// A line of the log.
    pub fn info(&mut self, message: &str) {
        self.line("info", message, Scope::Velero);
    }

    /// A warning: something a person should know, without which nothing is missing.
    pub fn warn(&mut self, scope: Scope<'_>, message: impl Into<String>) {
        let message = message.into();
        self.line("warning", &message, scope);
        self.results.warn(scope, message);
    }

    /// An error: something is missing from the backup.
    pub fn error(&mut self, scope: Scope<'_>, message: impl Into<String>) {
        let message = message.into();
        self.line("error", &message, scope);
        self.results.error(scope, message);
    }

    /// An error about the backup as a whole, unless it was told before.
    pub fn error_once(&mut self, message: &str) {
        if !self.results.errors.velero.iter().any(|known| known == message) {
            self.error(Scope::Velero, message);
        }
    }

    /// What plugins have said, at their level: what is an error for them is one of the backup (as with Velero, which counts
    /// the lines of its log).
    pub fn said(&mut self, lines: Vec<LogLine>) {
        for said in lines {
            match said.level {
                Level::Debug => {}
                Level::Info => self.info(&said.text),
                Level::Warning => self.warn(Scope::Velero, said.text),
                Level::Error => self.error(Scope::Velero, said.text),
            }
        }
    }

    /// Number of warnings in the results.
    pub fn warnings(&self) -> i64 {
        self.results.warnings()
    }

    /// Number of errors in the results.
    pub fn errors(&self) -> i64 {
        self.results.errors()
    }

    /// The log, to be read while lines are added.
    pub fn log(&self) -> LogFile {
        self.log.clone()
    }

    /// The two parts, for the store.
    pub fn into_parts(self) -> (Results, LogFile) {
        (self.results, self.log)
    }

    fn line(&mut self, level: &str, message: &str, scope: Scope<'_>) {
        let at = (self.clock)();
        let backup = self.backup.as_str();
        match scope {
            Scope::Namespace(namespace) => {
                self.log.line(level, message, &[("backup", backup), ("namespace", namespace)], at);
            }
            Scope::Velero | Scope::Cluster => self.log.line(level, message, &[("backup", backup)], at),
        }
    }
}

/// The scope of an item: its namespace, or the cluster.
pub fn scope_of(namespace: Option<&str>) -> Scope<'_> {
    namespace.map_or(Scope::Cluster, Scope::Namespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_the_lengths_of_the_lists() {
        let mut report = Report::new("b").unwrap();
        report.info("begun");
        report.warn(Scope::Velero, "w");
        report.error(Scope::Cluster, "c");
        report.error(scope_of(Some("ns")), "n");
        assert_eq!((report.warnings(), report.errors()), (1, 2));
        let (results, _) = report.into_parts();
        assert_eq!((results.warnings(), results.errors()), (1, 2));
        assert_eq!(results.errors.namespaces["ns"], ["n"]);
    }
}
