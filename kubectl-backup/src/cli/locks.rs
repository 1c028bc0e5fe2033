//! `locks`: listing is the default; `release` and `hold` are commands below it.

use backup_core::{api::GoDuration, names::is_object_name};
use backup_lock::ObjectKind;
use clap::{Args, Subcommand};

use super::{ListFlags, OutputArgs, duration};

#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    subcommand_value_name = "COMMAND"
)]
pub(crate) struct LocksArgs {
    #[command(flatten)]
    pub(crate) list: ListArgs,
    #[command(subcommand)]
    pub(crate) command: Option<LocksCommand>,
}

#[derive(Args, Debug)]
pub(crate) struct ListArgs {
    /// Scope to show: velero.io, or PROFILE/NAMESPACE/CLUSTER [default: all]
    pub(crate) scope: Option<String>,
    #[command(flatten)]
    pub(crate) list: ListFlags,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Subcommand, Debug)]
pub(crate) enum LocksCommand {
    /// Release a claim or a hold by hand
    Release(ReleaseArgs),
    /// Keep backups and restores out of a scope, or of some namespaces, until the hold is released
    Hold(HoldArgs),
}

#[derive(Args, Debug)]
pub(crate) struct ReleaseArgs {
    /// What to release: backup, restore, deletebackuprequest, deletion or hold; the namespace only
    /// where it is not clear
    #[arg(value_name = "KIND/[NAMESPACE/]NAME", value_parser = target)]
    pub(crate) target: Target,
    /// Reason, for the Event that records the release
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    pub(crate) reason: String,
    /// Uid of the entry, where a name has several
    #[arg(long, value_name = "UID")]
    pub(crate) uid: Option<String>,
    /// Scope in which it is held [default: where it is found]
    #[arg(long, value_name = "SCOPE")]
    pub(crate) scope: Option<String>,
    /// Don't ask
    #[arg(short, long)]
    pub(crate) yes: bool,
}

#[derive(Args, Debug)]
pub(crate) struct HoldArgs {
    /// Name of the hold
    #[arg(value_parser = hold_name)]
    pub(crate) name: String,
    /// Reason, shown to users who are kept out
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    pub(crate) reason: String,
    /// Namespaces to keep others out of, with wildcards [default: all]
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "NAMES",
        conflicts_with = "all"
    )]
    pub(crate) namespaces: Vec<String>,
    /// Keep others out of everything (the default)
    #[arg(long)]
    pub(crate) all: bool,
    /// Scope to hold
    #[arg(long, value_name = "SCOPE", default_value = backup_lock::VELERO_SCOPE)]
    pub(crate) scope: String,
    /// Wait until running backups and restores have ended; exit with 124 on timeout [default: 1h]
    #[arg(short, long, value_name = "DURATION", value_parser = duration, num_args = 0..=1, default_missing_value = "1h", require_equals = true)]
    pub(crate) wait: Option<GoDuration>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) kind: ObjectKind,
    /// Only where it was given.
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = self.kind.as_str().to_lowercase();
        match &self.namespace {
            Some(namespace) => write!(f, "{kind}/{namespace}/{}", self.name),
            None => write!(f, "{kind}/{}", self.name),
        }
    }
}

const EXPECTED_TARGET: &str = "expected KIND/NAME or KIND/NAMESPACE/NAME, with kind backup, restore, deletebackuprequest, deletion or hold";

fn target(text: &str) -> Result<Target, String> {
    let parts: Vec<&str> = text.split('/').collect();
    let (kind, namespace, name) = match parts.as_slice() {
        [kind, name] => (*kind, None, *name),
        [kind, namespace, name] => (*kind, Some(*namespace), *name),
        _ => return Err(EXPECTED_TARGET.to_owned()),
    };
    let word = kind.to_ascii_lowercase();
    let word = word.strip_suffix(".velero.io").unwrap_or(&word);
    let kind = ObjectKind::ALL.into_iter().find(|kind| {
        let name = kind.as_str().to_lowercase();
        word == name || word.strip_suffix('s') == Some(&name)
    });
    let kind = kind.ok_or(EXPECTED_TARGET)?;
    if name.is_empty() || namespace.is_some_and(str::is_empty) {
        return Err(EXPECTED_TARGET.to_owned());
    }
    Ok(Target {
        kind,
        namespace: namespace.map(str::to_owned),
        name: name.to_owned(),
    })
}

/// A reason that fits into a ledger and an Event, on one line.
fn reason(text: &str) -> Result<String, String> {
    let text = text.trim();
    if text.is_empty() {
        Err("a reason is needed: those who are kept out will read it".to_owned())
    } else if text.len() > 256 {
        Err("at most 256 bytes, please".to_owned())
    } else if text.chars().any(char::is_control) {
        Err("one line, please".to_owned())
    } else {
        Ok(text.to_owned())
    }
}

fn hold_name(text: &str) -> Result<String, String> {
    if is_object_name(text) {
        return Ok(text.to_owned());
    }
    Err(
        "expected lower-case letters, digits, - and ., with a letter or digit at both ends"
            .to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_be_released_is_named_as_people_name_it() {
        for (text, kind, namespace, name) in [
            ("restore/r", ObjectKind::Restore, None, "r"),
            ("Restore/velero/r", ObjectKind::Restore, Some("velero"), "r"),
            ("backups.velero.io/b", ObjectKind::Backup, None, "b"),
            (
                "deletebackuprequests/d",
                ObjectKind::DeleteBackupRequest,
                None,
                "d",
            ),
            ("deletion/b", ObjectKind::Deletion, None, "b"),
            ("hold/h", ObjectKind::Hold, None, "h"),
        ] {
            let expected = Target {
                kind,
                namespace: namespace.map(str::to_owned),
                name: name.to_owned(),
            };
            assert_eq!(target(text), Ok(expected), "{text}");
        }
        for wrong in ["r", "pod/x", "restore/", "restore//x", "restore/a/b/c", ""] {
            assert!(target(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_reason_is_one_line_of_bounded_length() {
        assert_eq!(reason("  moving disks "), Ok("moving disks".to_owned()));
        for wrong in ["", "  ", "a\nb", "\u{1b}[2J", &"x".repeat(257)] {
            assert!(reason(wrong).is_err(), "{wrong:?}");
        }
    }
}
