//! Results and log of a backup or restore, written together so that every count equals the length
//! of a list.

use backup_store::{LogFile, Results, Scope};
use jiff::Timestamp;

use super::worker::WorkerError;
use backup_plugins::log_line::{Level, LogLine};

#[derive(Debug)]
pub(crate) struct Report {
    results: Results,
    log: LogFile,
    /// Name of the backup, a field of each line.
    backup: Option<String>,
}

impl Report {
    /// An empty report; each line names `backup`. Fails if the local disk has no room for a log.
    pub(crate) fn new(backup: Option<&str>) -> Result<Self, WorkerError> {
        let log = LogFile::new().map_err(|error| WorkerError::Blocked {
            reason: format!("the log cannot be kept on the local disk: {error}"),
            retryable: true,
        })?;
        Ok(Self::resume(backup, Results::default(), log))
    }

    /// Continues an earlier report.
    pub(crate) fn resume(backup: Option<&str>, results: Results, log: LogFile) -> Self {
        Self {
            results,
            log,
            backup: backup.map(ToOwned::to_owned),
        }
    }

    pub(crate) fn info(&mut self, message: &str) {
        self.line("info", message, Scope::Velero);
    }

    /// Something a user should know, although nothing is missing.
    pub(crate) fn warn(&mut self, scope: Scope<'_>, message: impl Into<String>) {
        let message = message.into();
        self.line("warning", &message, scope);
        self.results.warn(scope, message);
    }

    /// Reports that something is missing.
    pub(crate) fn error(&mut self, scope: Scope<'_>, message: impl Into<String>) {
        let message = message.into();
        self.line("error", &message, scope);
        self.results.error(scope, message);
    }

    /// Like `info`, `warn` or `error`, about one item; `fields` name it in the line.
    pub(crate) fn item(
        &mut self,
        level: Level,
        scope: Scope<'_>,
        message: String,
        fields: &[(&str, &str)],
    ) {
        let name = match level {
            Level::Debug | Level::Info => "info",
            Level::Warning => "warning",
            Level::Error => "error",
        };
        self.log.line(name, &message, fields, Timestamp::now());
        match level {
            Level::Debug | Level::Info => {}
            Level::Warning => self.results.warn(scope, message),
            Level::Error => self.results.error(scope, message),
        }
    }

    /// An error about the backup as a whole, unless it was reported before.
    pub(crate) fn error_once(&mut self, message: &str) {
        if !self
            .results
            .errors
            .velero
            .iter()
            .any(|known| known == message)
        {
            self.error(Scope::Velero, message);
        }
    }

    /// Adds the log lines of plugins, at their level: an error of a plugin is an error of the
    /// backup or restore (as with Velero, which counts the lines of its log).
    pub(crate) fn said(&mut self, lines: Vec<LogLine>) {
        for line in lines {
            match line.level {
                Level::Debug => {}
                Level::Info => self.info(&line.text),
                Level::Warning => self.warn(Scope::Velero, line.text),
                Level::Error => self.error(Scope::Velero, line.text),
            }
        }
    }

    pub(crate) fn warnings(&self) -> i64 {
        self.results.warnings()
    }

    pub(crate) fn errors(&self) -> i64 {
        self.results.errors()
    }

    pub(crate) fn log(&self) -> LogFile {
        self.log.clone()
    }

    pub(crate) fn into_parts(self) -> (Results, LogFile) {
        (self.results, self.log)
    }

    fn line(&mut self, level: &str, message: &str, scope: Scope<'_>) {
        let mut fields: Vec<(&str, &str)> = self
            .backup
            .as_deref()
            .map(|name| ("backup", name))
            .into_iter()
            .collect();
        if let Scope::Namespace(namespace) = scope
            && self.backup.is_some()
        {
            fields.push(("namespace", namespace));
        }
        self.log.line(level, message, &fields, Timestamp::now());
    }
}

/// The scope of an item: its namespace, or the cluster.
pub(crate) fn scope_of(namespace: Option<&str>) -> Scope<'_> {
    namespace.map_or(Scope::Cluster, Scope::Namespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_the_lengths_of_the_lists() {
        let mut report = Report::new(Some("b")).unwrap();
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
