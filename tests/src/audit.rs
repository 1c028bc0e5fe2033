//! Requests of our programs to the API server, from its audit log.

use std::{
    collections::BTreeMap,
    fmt,
    io::{Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::install::NAMESPACE;

/// The accounts whose requests are logged.
const PROGRAMS: [&str; 2] = ["backup-controller", "backup-webhook"];

/// The audit log of an API server, with one line for each request of our programs. A watch counts
/// when it begins.
pub struct Audit {
    log: PathBuf,
}

/// Requests by account, verb and resource, as in `backup-controller list backups`.
#[derive(Debug, Default)]
pub struct Requests(BTreeMap<String, usize>);

impl Audit {
    /// Has the first API server write the log into a folder. Returns the server's flags for that,
    /// too.
    pub(crate) fn prepare(folder: &Path) -> anyhow::Result<(Self, [String; 2])> {
        let users = PROGRAMS.map(|program| format!("system:serviceaccount:{NAMESPACE}:{program}"));
        let policy = json!({ "apiVersion": "audit.k8s.io/v1", "kind": "Policy",
            // Every request is received once, also a watch.
            "omitStages": ["ResponseStarted", "ResponseComplete", "Panic"],
            "rules": [{ "level": "Metadata", "users": users }, { "level": "None" }] });
        let (file, log) = (folder.join("audit-policy.json"), folder.join("audit.log"));
        std::fs::write(&file, policy.to_string())?;
        let flags = [
            format!("--audit-policy-file={}", file.display()),
            format!("--audit-log-path={}", log.display()),
        ];
        Ok((Self { log }, flags))
    }

    /// Current end of the log, for [`Self::since`].
    pub fn end(&self) -> anyhow::Result<u64> {
        let found =
            std::fs::metadata(&self.log).with_context(|| format!("no {}", self.log.display()))?;
        Ok(found.len())
    }

    /// The requests logged after `end`.
    pub fn since(&self, end: u64) -> anyhow::Result<Requests> {
        let mut file = std::fs::File::open(&self.log)?;
        file.seek(SeekFrom::Start(end))?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let mut requests = Requests::default();
        // The last line may be half written.
        for line in text
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'))
        {
            let event: Value =
                serde_json::from_str(line).with_context(|| format!("not JSON: {line}"))?;
            *requests.0.entry(request(&event)).or_default() += 1;
        }
        Ok(requests)
    }
}

/// The request in words: program, verb and resource.
fn request(event: &Value) -> String {
    let user = event["user"]["username"].as_str().unwrap_or_default();
    let program = user.rsplit(':').next().unwrap_or_default();
    let verb = event["verb"].as_str().unwrap_or_default();
    let what = event["objectRef"]["resource"]
        .as_str()
        .or_else(|| event["requestURI"].as_str());
    format!("{program} {verb} {}", what.unwrap_or_default())
}

impl Requests {
    pub fn total(&self) -> usize {
        self.0.values().sum()
    }

    /// Number of requests with this verb and resource, of all programs.
    pub fn count(&self, verb: &str, resource: &str) -> usize {
        let wanted = format!(" {verb} {resource}");
        self.0
            .iter()
            .filter(|(request, _)| request.ends_with(&wanted))
            .map(|(_, count)| count)
            .sum()
    }
}

impl fmt::Display for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} requests", self.total())?;
        self.0
            .iter()
            .try_for_each(|(request, count)| write!(f, "\n{count:>6} {request}"))
    }
}
